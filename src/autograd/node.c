/* node.c - creates, records and frees nodes. */
#include "autograd/node.h"

#include "autograd/anomaly.h"
#include "base/env.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

fr_node *fri_node_retain(fr_node *n) {
    if (n != NULL) n->references++;
    return n;
}

static void release_graph(fr_node *n) {
    for (int i = 0; i < n->n_saves + n->n_inputs; i++) fri_slot_drop(&n->slots[i]);
    for (int i = 0; i < n->n_inputs; i++) {
        fr_node *up = n->edges[i].node;
        if (up != NULL && up->consumer == n) up->consumer = NULL;
        fri_node_release(&n->edges[i].node);
        fri_leaf_release(&n->edges[i].leaf);
    }
}

void fri_node_shed_shadow(fr_node *n) {
    if (n->shadow != NULL) n->shadow->original = NULL;
    fri_node_release(&n->shadow);
}

static void node_destroy(fr_node *n) {
    release_graph(n);
    fri_node_shed_shadow(n);
    if (n->segment != NULL) fri_segment_forget(n);
    if (n->output != NULL) n->output->producer = NULL;
    fr_tensor_release(&n->gradient);
    fr_tensor_release(&n->last);
    fr_tensor_release(&n->rebuild.kept);
    if (n->op->params_free != NULL && n->params != NULL) n->op->params_free(n->params);
    free(n->params);
    free(n->edges);
    free(n->slots);
    free(n);
    fri_autograd()->stats.nodes--;
}

/* Frees nodes without recursion. A node may hold the last reference to other nodes through edges, rebuild slots and
 * segments, and a long chain would recurse once per node. Dying nodes are queued in a list, linked through
 * `consumer`, which is unused without references. */
void fri_node_release(fr_node **p) {
    fri_autograd_state *state = fri_autograd();
    fr_node *n = *p;
    *p = NULL;
    if (n == NULL || --n->references > 0) return;
    n->consumer = state->doomed;
    state->doomed = n;
    if (state->destroying) return;
    state->destroying = true;
    while (state->doomed != NULL) {
        n = state->doomed;
        state->doomed = n->consumer;
        node_destroy(n);
    }
    state->destroying = false;
}

void fri_node_finish(fr_node *n) {
    n->executed = true;
    if (!fri_rebuild_wanted(n)) release_graph(n);
    if (n->shadow != NULL) {
        fri_node_finish(n->shadow);
        fri_node_shed_shadow(n);
    }
    if (n->segment != NULL) fri_segment_forget(n);
}

/* The nodes before n that must run for n's output to be made again are wanted while n is. A change from 0 goes on to
 * them: to at most as many in a row as a chain may have. */
static void link_inputs(fr_node *n, int change) {
    for (int i = 0; i < n->n_inputs; i++) {
        fr_node *up = fri_rebuild_input(n, i);
        if (up == NULL) continue;
        const bool was = fri_rebuild_wanted(up);
        up->rebuild.links += change;
        if (fri_rebuild_wanted(up) != was) link_inputs(up, change);
        if (was && !fri_rebuild_wanted(up) && up->executed) release_graph(up);
    }
}

void fri_rebuild_use(fr_node *source) {
    fri_node_retain(source);
    if (!fri_rebuild_wanted(source)) link_inputs(source, 1);
    source->rebuild.users++;
}

void fri_rebuild_release(fr_node *source) {
    source->rebuild.users--;
    if (source->rebuild.users == 0) fr_tensor_release(&source->rebuild.kept);
    if (!fri_rebuild_wanted(source)) {
        link_inputs(source, -1);
        if (source->executed) release_graph(source);
    }
    fri_node_release(&source);
}

/* ---- recording --------------------------------------------------------------------------------------------- */

static void storage_orphan(fri_storage *s) {
    fr_node *n = s->producer;
    n->output = NULL;
}

/* Runs before any tensor exists. */
__attribute__((constructor)) static void set_hooks(void) {
    fri_storage_set_hooks((fri_storage_hooks){.settle = fri_settle, .orphan = storage_orphan});
}

/* Creation numbers are global, because a graph may be continued by another thread. */
static _Atomic uint64_t next_sequence;

static fr_node *node_new(const fr_op *op, const void *params, size_t params_bytes, int n_in, int n_saves) {
    fr_node *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    n->references = 1;
    n->op = op;
    n->n_inputs = n_in;
    n->n_saves = n_saves;
    n->edges = calloc((size_t)n_in, sizeof *n->edges);
    n->slots = calloc((size_t)(n_in + n_saves), sizeof *n->slots);
    n->params = params_bytes > 0 ? malloc(params_bytes) : NULL;
    fri_autograd()->stats.nodes++;
    if (n->edges == NULL || n->slots == NULL || (params_bytes > 0 && n->params == NULL)) {
        free(n->params);
        free(n->edges);
        free(n->slots);
        free(n);
        fri_autograd()->stats.nodes--;
        return NULL;
    }
    if (params_bytes > 0) memcpy(n->params, params, params_bytes);
    return n;
}

static bool any_requires_grad(fr_tensor *const *in, int n_in) {
    for (int i = 0; i < n_in; i++)
        if (in[i] != NULL && in[i]->requires_grad) return true;
    return false;
}

/* Node that wrote the content of t, looking through views. NULL for a leaf or a freed graph. */
static const fr_node *content_of(const fr_tensor *t) {
    const fr_node *n = fri_node_of(t);
    while (n != NULL && n->view) n = n->edges[0].node;
    return n;
}

/* Detects stale history: if a recorded op changed t's storage in place through another handle, t's graph no longer
 * describes t's content. PyTorch rewrites the history; frugal reports an error instead of a wrong gradient. */
static fr_status check_content(const fr_op *op, int i, const fr_tensor *t) {
    const fr_node *content = content_of(t), *now = t->storage->producer;
    if (content == NULL || now == NULL || content == now) return FR_OK;
    return fr_fail(FR_EUSAGE,
                   "%s: input %d is a view of a tensor, or the base of a view, that was changed in place through the "
                   "other handle by %s; clone it before, or use the handle that was changed",
                   op->name, i, now->op->name);
}

static fr_status connect_input(fr_node *n, int i, fr_tensor *t) {
    if (t == NULL || !t->requires_grad) return FR_OK;
    fr_node *producer = fri_node_of(t);
    if (producer == NULL) {
        n->edges[i].leaf = fri_leaf_retain(fri_leaf_of(t));
        return FR_OK;
    }
    FRI_TRY(check_content(n->op, i, t));
    n->edges[i].node = fri_node_retain(producer);
    producer->consumers++;
    producer->consumer = n;
    return FR_OK;
}

static fr_status check_inplace(const fr_op *op, const fr_tensor *t) {
    const fr_node *n = fri_node_of(t);
    if (n == NULL || !n->view || n->executed || content_of(t) != NULL) return FR_OK;
    return fr_fail(FR_EUSAGE, "%s: a view of a leaf that requires grad cannot be changed in place", op->name);
}

/* Makes n the producer of the storage's content. A view shares the content of the node before. */
static void own_output(fr_node *n, fr_tensor *out, bool view) {
    n->view = view;
    if (view) return;
    fr_node *before = out->storage->producer;
    if (before != NULL) before->output = NULL; /* overwritten */
    out->storage->producer = n;
    n->output = out->storage;
    n->output_offset = out->offset;
    n->output_version = out->storage->version;
}

static void save_slot(fr_node *n, int i, const fr_save *what) {
    if (what->tensor == NULL) return;
    fri_slot *slot = &n->slots[i];
    if (!(what->flags & FR_SAVE_SMALL) && fri_segment_owns(what->tensor))
        *slot = (fri_slot){.kind = FRI_SLOT_INDEX, .flags = what->flags, .owner = n};
    else
        fri_slot_hold(slot, n, what->tensor, what->flags);
}

/* Holds the leaves needed to rebuild the output, if rebuild is on. Leaves have no producer to rebuild them from. */
static void keep_leaves(fr_node *n, fr_tensor *const *in) {
    if (n->op->rebuild == NULL || (!fri_switches()->rebuild && !n->op->rebuild_from_leaf)) return;
    for (int i = 0; i < n->n_inputs && i < 64; i++)
        if ((n->op->rebuild_inputs >> i & 1) && n->edges[i].leaf != NULL)
            fri_slot_hold(&n->slots[n->n_saves + i], n, in[i], FR_SAVE_VALUE);
}

/* FRUGAL_CHECK_NAN: fails for the first result with inf or NaN. */
static fr_status check_finite(const fr_op *op, const fr_tensor *out) {
    bool fine = true;
    fr_status s = fri_all_finite(out, &fine);
    if (s < 0 || fine) return s;
    return fr_fail(FR_EUSAGE, "op %s in module %s produced inf or NaN (FRUGAL_CHECK_NAN is set)", op->name,
                   fri_scope_module()[0] ? fri_scope_module() : "-");
}

/* Frees the params of a node that is not recorded: ownership passes to fr_op_record in every case. */
static fr_status drop_params(fr_status s, const fr_op *op, const void *params) {
    if (op->params_free != NULL && params != NULL) op->params_free((void *)(uintptr_t)params);
    return s;
}

fr_status fr_op_record(const fr_op *op, const void *params, size_t params_bytes, fr_tensor *const *in, int n_in,
                       const fr_save *saves, int n_saves, fr_tensor *out) {
    FRI_NOT_NULL(op);
    fr_status s = FRI_CHECK_NULL(in, out);
    if (s == FR_OK && params_bytes > 0) s = FRI_CHECK_NULL(params);
    if (s == FR_OK && n_saves > 0) s = FRI_CHECK_NULL(saves);
    fri_autograd_state *state = fri_autograd();
    if (s < 0) return drop_params(s, op, params);
    if (fri_env_get()->check_nan && (s = check_finite(op, out)) < 0) return drop_params(s, op, params);
    if ((s = fri_anomaly_look(op->name, false, out)) < 0) return drop_params(s, op, params);
    if (state->grad_disabled || !any_requires_grad(in, n_in)) return drop_params(FR_OK, op, params);
    bool in_place = false;
    for (int i = 0; i < n_in; i++) in_place = in_place || out == in[i];
    bool view = n_in > 0 && !in_place && in[0] != NULL && out->storage == in[0]->storage;
    if (in_place && (s = check_inplace(op, out)) < 0) return drop_params(s, op, params);
    fr_node *n = node_new(op, params, params_bytes, n_in, n_saves);
    if (n == NULL) return drop_params(fr_fail(FR_ENOMEM, "%s: out of host memory", op->name), op, params);
    n->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
    n->module = fri_scope_module();
    n->shape = out->shape;
    n->dtype = out->dtype;
    n->bytes = fri_round_bytes(fri_nbytes(out));
    n->device = fri_device_of(out);
    for (int i = 0; i < n_in && s == FR_OK; i++) s = connect_input(n, i, in[i]);
    if (s < 0) {
        fri_node_release(&n);
        return s;
    }
    own_output(n, out, view);
    for (int i = 0; i < n_saves; i++) save_slot(n, i, &saves[i]);
    if (state->recording == NULL) keep_leaves(n, in);
    s = fri_tensor_set_node(out, n);
    if (s == FR_OK) s = fri_segment_enter(n);
    fri_node_release(&n);
    return s;
}

/* ---- queries of an op's backward ----------------------------------------------------------------------------- */

const void *fr_node_params(const fr_node *node) {
    return node != NULL ? node->params : NULL;
}

bool fr_node_wants(const fr_node *node, int input) {
    if (node == NULL) return false;
    return node->edges[input].node != NULL || node->edges[input].leaf != NULL;
}

int fr_node_inputs(const fr_node *node) {
    return node != NULL ? node->n_inputs : 0;
}

bool fr_tensor_reusable(const fr_tensor *t) {
    if (t == NULL) return false;
    return fri_switches()->inplace && fri_tensor_sole(t);
}
