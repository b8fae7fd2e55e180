/* checkpoint.c - segments whose saved tensors are recomputed in backward.
 *
 * Note [Checkpoint]
 * Forward: fn runs once and records ordinary nodes, so the graph is the same as without a checkpoint. Saved tensors
 * made inside the segment are not held: their slots get kind INDEX. Tensors from outside (the segment's inputs,
 * weights) and small results (batch-norm statistics) are held as usual.
 * Backward: before a node with an INDEX slot runs, fn runs again on the segment's inputs, with the random state,
 * autocast and switches of the forward. The k-th node recorded by the second run is the shadow of the k-th node of
 * the first, and holds its saved slots, with their own settling, encoding and nested checkpoints. Recording stops the
 * run (FRI_STOP) after the last node that has not yet run backward.
 * Nesting: a checkpoint inside a recorded segment runs fn plainly. When the outer segment is recomputed, the inner
 * checkpoint is called again and becomes a segment of the shadow graph. */
#include "autograd/node.h"

#include "autograd/anomaly.h"
#include "autograd/run.h"
#include "base/env.h"
#include "base/rng.h"
#include "base/status.h"

#include <limits.h>
#include <stdlib.h>

typedef struct fri_segment_record {
    int references; /* nodes of the segment, and the call that records it */
    fr_checkpoint_fn *fn;
    void *ctx;
    void (*ctx_free)(void *ctx);
    int n_in, n_out;
    fri_slot *in; /* held inputs */
    bool *in_requires_grad;
    fr_node pseudo; /* owner of the input slots, for error messages */
    fr_rng rng;
    fr_autocast_state autocast;
    fr_switches switches;
    const char *module;
    uint64_t first_birth; /* storages with this birth number or a later one belong to the segment */
    fr_node **nodes;      /* in recording order, not owned; NULL once a node is freed or executed */
    int count;
} fri_segment_record;

typedef struct fri_recompute {
    fri_segment_record *segment;
    int at;   /* nodes recorded so far */
    int last; /* index of the last node needed */
} fri_recompute;

static const fr_op checkpoint_op = {.name = "checkpoint"};

static void segment_release(fri_segment_record *g) {
    if (--g->references > 0) return;
    for (int i = 0; i < g->n_in; i++) fri_slot_drop(&g->in[i]);
    if (g->ctx_free != NULL) g->ctx_free(g->ctx);
    free(g->in);
    free(g->in_requires_grad);
    free(g->nodes);
    free(g);
}

void fri_segment_forget(fr_node *n) {
    fri_segment_record *g = n->segment;
    g->nodes[n->segment_index] = NULL;
    n->segment = NULL;
    segment_release(g);
}

bool fri_segment_owns(const fr_tensor *t) {
    const fri_segment_record *g = fri_autograd()->recording;
    return g != NULL && t->storage->birth >= g->first_birth;
}

fr_node *fri_recompute_original(void) {
    const fri_recompute *r = fri_autograd()->recompute;
    return r != NULL && r->at < r->segment->count ? r->segment->nodes[r->at] : NULL;
}

bool fri_recompute_ends(fr_tensor *const *in, int n_in) {
    const fri_autograd_state *state = fri_autograd();
    const fri_recompute *r = state->recompute;
    if (r == NULL || r->at != r->last || state->grad_disabled || fri_results_examined()) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] != NULL && in[i]->requires_grad) return true; /* otherwise no node is recorded */
    return false;
}

/* ---- recording nodes ----------------------------------------------------------------------------------------- */

static fr_status record_node(fri_segment_record *g, fr_node *n) {
    FRI_TRY(FRI_ROOM(g->nodes, g->count, "checkpoint"));
    n->segment = g;
    n->segment_index = g->count;
    g->nodes[g->count++] = n;
    g->references++;
    return FR_OK;
}

static fr_status shadow_node(fri_recompute *r, fr_node *n) {
    if (r->at >= r->segment->count)
        return fr_fail(FR_EUSAGE,
                       "checkpoint: the function recorded %d ops in the forward pass but more when run again",
                       r->segment->count);
    fr_node *original = r->segment->nodes[r->at];
    if (original != NULL) {
        if (original->op != n->op || !fri_shape_equal(&original->shape, &n->shape) || original->dtype != n->dtype)
            return fr_fail(FR_EUSAGE,
                           "checkpoint: op %d was %s %s in the forward pass but is %s %s when the function runs again",
                           r->at, original->op->name, fr_dtype_name(original->dtype), n->op->name,
                           fr_dtype_name(n->dtype));
        fri_node_shed_shadow(original);
        original->shadow = fri_node_retain(n);
        n->original = original;
        /* The program may start another backward at the original's output while holding the output. */
        n->original_consumers =
            original->output != NULL && original->output->handles > 0 ? INT_MAX : original->consumers;
    }
    n->is_shadow = true;
    return r->at++ >= r->last ? FRI_STOP : FR_OK;
}

fr_status fri_segment_enter(fr_node *n) {
    fri_autograd_state *state = fri_autograd();
    if (state->recording != NULL) {
        FRI_TRY(record_node(state->recording, n));
    }
    return state->recompute != NULL ? shadow_node(state->recompute, n) : FR_OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------- */

/* Index of the last node that must still run and lacks a saved tensor; -1: none. */
static int last_needed(const fri_segment_record *g) {
    for (int k = g->count - 1; k >= 0; k--) {
        const fr_node *n = g->nodes[k];
        if (n == NULL || n->executed) continue;
        for (int i = 0; i < n->n_saves; i++)
            if (n->slots[i].kind == FRI_SLOT_INDEX) return k;
    }
    return -1;
}

static fr_status run_again(fri_segment_record *g) {
    fr_tensor **tensors = calloc((size_t)(g->n_in + g->n_out), sizeof(*tensors));
    if (tensors == NULL) return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    fr_status s = FR_OK;
    for (int i = 0; i < g->n_in && s == FR_OK; i++) {
        if (g->in[i].kind == FRI_SLOT_EMPTY) continue;
        s = fri_slot_value(&g->in[i], &tensors[i]);
        if (s == FR_OK && g->in_requires_grad[i]) s = fr_tensor_set_requires_grad(tensors[i], true);
    }
    if (s == FR_OK) s = g->fn(g->ctx, tensors, g->n_in, tensors + g->n_in, g->n_out);
    if (s == FRI_STOP) s = FR_OK;
    for (int i = 0; i < g->n_in + g->n_out; i++) fr_tensor_release(&tensors[i]);
    free(tensors);
    return s;
}

static fr_status recompute(fri_segment_record *g) {
    fri_autograd_state *state = fri_autograd();
    fri_recompute r = {.segment = g, .last = last_needed(g)};
    fri_autograd_state was = *state;
    fr_rng rng = fr_rng_get();
    fr_switches switches = *fri_switches();
    const fri_scope scope = fri_scope_begin("checkpoint", g->module);
    g->references++; /* fn may release the last node of the segment */
    state->recording = NULL;
    state->recompute = &r;
    state->grad_disabled = false;
    state->autocast = g->autocast;
    fr_switches_set(g->switches);
    fr_rng_set(g->rng);
    fr_status s = run_again(g);
    fr_rng_set(rng);
    fr_switches_set(switches);
    state->recording = was.recording;
    state->recompute = was.recompute;
    state->grad_disabled = was.grad_disabled;
    state->autocast = was.autocast;
    state->stats.recomputed_segments++;
    fri_scope_end(scope);
    segment_release(g);
    return s;
}

fr_status fri_segments_ready(fr_node *n) {
    for (int i = 0; i < n->n_saves; i++) {
        for (fri_slot *slot; (slot = fri_slot_found(n, i))->kind == FRI_SLOT_INDEX;) {
            const fr_node *of = slot->owner;
            if (of->segment != NULL) FRI_TRY(recompute(of->segment));
            if (of->shadow == NULL)
                return fr_fail(FR_EUSAGE,
                               "checkpoint: running the function again did not produce the %s it recorded in the "
                               "forward pass; the function must do the same each time",
                               of->op->name);
        }
    }
    return FR_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------- */

static fr_status segment_create(fr_checkpoint_fn *fn, void *ctx, void (*ctx_free)(void *), fr_tensor *const *in,
                                int n_in, int n_out, fri_segment_record **out) {
    fri_segment_record *g = calloc(1, sizeof *g);
    if (g == NULL) return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    *g = (fri_segment_record){.references = 1,
                              .fn = fn,
                              .n_in = n_in,
                              .n_out = n_out,
                              .in = calloc((size_t)n_in + 1, sizeof *g->in),
                              .in_requires_grad = calloc((size_t)n_in + 1, sizeof *g->in_requires_grad),
                              .pseudo = {.op = &checkpoint_op},
                              .rng = fr_rng_get(),
                              .autocast = fri_autocast_get(),
                              .switches = *fri_switches(),
                              .module = fri_scope_module(),
                              .first_birth = fri_storage_next_birth()};
    if (g->in == NULL || g->in_requires_grad == NULL) {
        g->n_in = 0;
        segment_release(g);
        return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    }
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NULL) continue;
        fri_slot_hold(&g->in[i], &g->pseudo, in[i], FR_SAVE_VALUE);
        g->in_requires_grad[i] = in[i]->requires_grad;
    }
    g->ctx = ctx;
    g->ctx_free = ctx_free;
    *out = g;
    return FR_OK;
}

/* Calls fn with empty outputs, as in a recomputation. `out` changes only on success, so `in` and `out` may share
 * slots. */
static fr_status run_fn(fr_checkpoint_fn *fn, void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_tensor **fresh = calloc((size_t)n_out + 1, sizeof(*fresh));
    if (fresh == NULL) return fr_fail(FR_ENOMEM, "checkpoint: out of host memory");
    fr_status s = fn(ctx, in, n_in, fresh, n_out);
    for (int i = 0; i < n_out && s >= 0; i++)
        if (fresh[i] == NULL)
            s = fr_fail(FR_EINVAL, "checkpoint: the function filled no output %d; it was asked for %d", i, n_out);
    for (int i = 0; i < n_out; i++) {
        if (s >= 0) fri_tensor_put(&fresh[i], &out[i]);
        fr_tensor_release(&fresh[i]);
    }
    free(fresh);
    return s;
}

fr_status fr_checkpoint(fr_checkpoint_fn *fn, void *ctx, void (*ctx_free)(void *ctx), fr_tensor *const *in, int n_in,
                        fr_tensor **out, int n_out) {
    fri_autograd_state *state = fri_autograd();
    fri_segment_record *g = NULL;
    fr_status s = FRI_CHECK_NULL(fn, in, out);
    if (s == FR_OK && (n_in < 0 || n_out < 0))
        s = fr_fail(FR_EINVAL, "checkpoint: %d inputs, %d outputs; at least 0", n_in, n_out);
    if (s < 0) {
        if (ctx_free != NULL) ctx_free(ctx);
        return s;
    }
    if (state->grad_disabled || state->recording != NULL) {
        s = run_fn(fn, ctx, in, n_in, out, n_out);
        if (ctx_free != NULL) ctx_free(ctx);
        return s;
    }
    s = segment_create(fn, ctx, ctx_free, in, n_in, n_out, &g);
    if (s < 0) {
        if (ctx_free != NULL) ctx_free(ctx);
        return s;
    }
    state->recording = g;
    s = run_fn(fn, ctx, in, n_in, out, n_out);
    state->recording = NULL;
    segment_release(g);
    return s;
}
