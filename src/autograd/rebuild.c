/* rebuild.c - recomputes an op's output from values that are kept anyway.
 *
 * A node can be rebuilt if its op has a rebuild function and if each input of the function is a held leaf, a
 * rebuildable output, or a storage that the node can hold. Batch norm reads its own saved input and statistics; relu,
 * add and concat read their inputs. Convolutions are never rebuilt, because recomputing convolutions is slow. Nodes
 * of checkpoint segments are not rebuilt either: their inputs come from running the segment, and a rebuilt input
 * would recompute all earlier segments at once. Rebuilding never holds more new bytes than rebuilding frees. */
#include "autograd/node.h"

#include "base/status.h"
#include "memory/event.h"

/* Longest chain of ops to rebuild. Rebuilding a chain of residual blocks takes time in proportion to its length at
 * every use, so longer chains are cut by keeping a value (13: a norm, then add and relu of six blocks). */
enum { MAX_DEPTH = 13 };

static bool output_alive(const fr_node *n) {
    return n->output != NULL && n->output->version == n->output_version;
}

static bool needs_input(const fr_node *n, int i) {
    return i < FRI_REBUILD_INPUTS && (n->op->rebuild_inputs >> i & 1);
}

static fri_slot *kept_input(fr_node *n, int i) {
    return &n->slots[n->n_saves + i];
}

fr_node *fri_rebuild_input(fr_node *n, int i) {
    return needs_input(n, i) && kept_input(n, i)->kind == FRI_SLOT_EMPTY ? n->edges[i].node : NULL;
}

/* True if a slot keeps the full value anyway. Slots that need only a sign may become bits and do not count. */
static bool held_anyway(const fri_storage *s) {
    for (const fri_slot *slot = s->savers; slot != NULL; slot = slot->next)
        if (!(slot->flags & FR_SAVE_SIGN)) return true;
    return false;
}

/* Length of the chain that rebuilding n would run, or 0 if n cannot be rebuilt. `level`: number of ops between n and
 * the requested node; the search ends at MAX_DEPTH. *held grows by the bytes that only fri_rebuild_hold would keep
 * alive. Bytes shared by two inputs count twice. */
static int chain_depth(fr_node *n, int level, size_t *held) {
    if (level > 0 && n->op->rebuild_alone) return 0;
    if (n->rebuild.depth > 0) return n->executed ? 0 : n->rebuild.depth;
    if (n->op->rebuild == NULL || n->executed || n->segment != NULL || n->n_inputs > FRI_REBUILD_INPUTS) return 0;
    if (level >= MAX_DEPTH) return 0;
    int deepest = 0;
    bool only_leaves = true;
    for (int i = 0; i < n->n_inputs; i++) {
        if (!needs_input(n, i) || kept_input(n, i)->kind != FRI_SLOT_EMPTY) continue;
        only_leaves = false;
        fr_node *up = n->edges[i].node;
        if (up == NULL) return 0;
        size_t below = 0;
        int d = chain_depth(up, level + 1, &below);
        if (d == 0 && !output_alive(up)) return 0;
        if (d > 0)
            *held += below;
        else if (!held_anyway(up->output))
            *held += up->output->block->requested;
        if (d > deepest) deepest = d;
    }
    const fr_switches *switches = fri_switches();
    if (n->op->rebuild_from_leaf && only_leaves ? switches->cache_casts : !switches->rebuild) return 0;
    const int depth = deepest + (n->op->rebuild_steps > 0 ? n->op->rebuild_steps : 1);
    return depth <= MAX_DEPTH ? depth : 0;
}

bool fri_rebuildable(fr_node *n, size_t freed) {
    size_t held = 0;
    return chain_depth(n, 0, &held) > 0 && held <= freed;
}

fr_status fri_rebuild_hold(fr_node *n, int level) {
    size_t unused = 0;
    if (n->rebuild.depth > 0) return FR_OK;
    const int depth = chain_depth(n, level, &unused);
    for (int i = 0; i < n->n_inputs; i++) {
        if (!needs_input(n, i) || kept_input(n, i)->kind != FRI_SLOT_EMPTY) continue;
        fr_node *up = n->edges[i].node;
        if (chain_depth(up, level + 1, &unused) > 0) {
            FRI_TRY(fri_rebuild_hold(up, level + 1));
        } else {
            fr_tensor *value = NULL;
            FRI_TRY(fri_tensor_on_storage(up->output, up->output_offset, &up->shape, up->dtype, &value));
            fri_slot_hold(kept_input(n, i), n, value, FR_SAVE_VALUE);
            fr_tensor_release(&value);
        }
    }
    n->rebuild.depth = depth;
    return FR_OK;
}

/* ---- rebuilding ---------------------------------------------------------------------------------------------- */

/* Node that must run to provide input i of n; NULL if the value is available or was released for good. */
static fr_node *missing_source(fr_node *n, int i) {
    fr_node *up = n->edges[i].node;
    if (up == NULL || kept_input(n, i)->kind != FRI_SLOT_EMPTY || output_alive(up)) return NULL;
    return up->executed && !fri_rebuild_wanted(up) ? NULL : up;
}

static fr_status value_of(fr_node *n, int users, size_t *room, fr_tensor **out); /* *out is NULL */

/* Runs the longest chain first, while no other input is alive, so a residual network keeps a single value alive. */
static fr_status run_on(fr_node *n, size_t *room, fr_tensor **in, fr_tensor **out) {
    int first = 0, deepest = -1;
    for (int i = 0; i < n->n_inputs; i++) {
        const fr_node *up = needs_input(n, i) ? missing_source(n, i) : NULL;
        if (up == NULL || up->rebuild.depth <= deepest) continue;
        first = i;
        deepest = up->rebuild.depth;
    }
    for (int k = 0; k < n->n_inputs; k++) {
        const int i = k == 0 ? first : k <= first ? k - 1 : k;
        if (!needs_input(n, i)) continue;
        fr_node *up = n->edges[i].node;
        FRI_TRY(kept_input(n, i)->kind != FRI_SLOT_EMPTY ? fri_slot_value(kept_input(n, i), &in[i])
                                                         : value_of(up, up->rebuild.users, room, &in[i]));
        if (!n->op->rebuild_parts) continue;
        FRI_TRY(n->op->rebuild(n, in, out));
        fr_tensor_release(&in[i]);
    }
    return n->op->rebuild_parts ? FR_OK : n->op->rebuild(n, in, out);
}

static fr_status run_op(fr_node *n, size_t *room, fr_tensor **out) {
    fr_tensor *in[FRI_REBUILD_INPUTS] = {0};
    fr_status s = run_on(n, room, in, out);
    for (int i = 0; i < n->n_inputs; i++) fr_tensor_release(&in[i]);
    return s;
}

/* Note [Kept in backward]
 * Each block of a residual chain needs the value before the block, and rebuilding starts at the beginning of the
 * chain, so time would grow with the square of the length. Backward next needs the values closest to the requested
 * value, and keeps as many as fit into bytes that were alive earlier in the same backward. The peak does not rise. */
static fr_status value_of(fr_node *n, int users, size_t *room, fr_tensor **out) {
    if (n->rebuild.kept != NULL) {
        *out = fr_tensor_retain(n->rebuild.kept);
        return FR_OK;
    }
    if (output_alive(n)) return fri_tensor_on_storage(n->output, n->output_offset, &n->shape, n->dtype, out);
    if (n->executed && !fri_rebuild_wanted(n))
        return fr_fail(FR_EUSAGE,
                       "backward: a saved tensor is rebuilt from op %s, whose graph was already used by an earlier "
                       "backward pass and has been freed",
                       n->op->name);
    if (n->n_inputs > FRI_REBUILD_INPUTS || n->op->rebuild == NULL)
        return fr_fail(FR_EINTERNAL, "rebuild: op %s cannot be rebuilt", n->op->name);
    const bool keeps = users > 0 && n->bytes <= *room;
    if (keeps) *room -= n->bytes;
    bool was = fr_no_grad_begin();
    const fri_scope scope = fri_scope_begin(n->op->name, n->module);
    fri_event_mark(FR_EVENT_ASIDE_BEGIN);
    fr_status s = run_op(n, room, out);
    if (s == FR_OK && !fri_backward_runs(n->is_shadow ? n->original : n)) fri_settle_own_signs(n, *out);
    if (s == FR_OK && keeps) n->rebuild.kept = fr_tensor_retain(*out);
    fri_event_mark(FR_EVENT_ASIDE_END);
    fri_scope_end(scope);
    fr_no_grad_end(was);
    return s;
}

fr_node *fri_rebuild_source(fr_node *n, int index) {
    const fri_slot *slot = fri_slot_found(n, index);
    fr_node *from = slot->source;
    const bool sole =
        slot->kind == FRI_SLOT_REBUILD && from->rebuild.kept == NULL && !output_alive(from) && from->rebuild.users == 1;
    return sole ? from : NULL;
}

fr_status fri_rebuild_value(fr_node *n, int users, fr_tensor **out) {
    size_t room = fri_backward_room(n->device);
    room = room > n->bytes ? room - n->bytes : 0; /* the requested value is alive in any case */
    fr_status s = value_of(n, users, &room, out);
    fri_backward_note();
    return s;
}
