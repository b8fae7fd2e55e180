/* largest_op.c - see largest_op.h. */
#include "plan/largest_op.h"

#include "base/status.h"

#include <frugal/plan.h>
#include <stdlib.h>

void fri_largest_op_begin(fri_largest_op *l) {
    l->bytes = 0;
    l->op = (fr_tag){.op = "", .module = ""};
    l->depth = 0;
}

static void begin_op(fri_largest_op *l, const fr_tag *tag, bool aside) {
    if (l->depth < FRI_OP_NESTING) {
        l->open[l->depth].tag = *tag;
        l->open[l->depth].aside = aside;
        l->open[l->depth].live = l->open[l->depth].max = 0;
        l->open[l->depth].blocks = 0;
    }
    l->depth++;
}

static void end_op(fri_largest_op *l) {
    if (l->depth == 0 || --l->depth >= FRI_OP_NESTING) return;
    if (l->open[l->depth].aside || l->open[l->depth].max <= l->bytes) return;
    l->bytes = l->open[l->depth].max;
    l->op = l->open[l->depth].tag;
}

/* Optimizer state that a fused step makes inside an op stays, and is no part of the op's working set. */
static void take_block(fri_largest_op *l, const fr_event *e) {
    if (e->tag.category == FR_MEM_OPTIMIZER) return;
    if (l->depth == 0 || l->depth > FRI_OP_NESTING || l->open[l->depth - 1].blocks == FRI_OP_BLOCKS) return;
    int i = l->depth - 1, n = l->open[i].blocks++;
    l->open[i].block[n] = e->block;
    l->open[i].size[n] = e->allocated;
    l->open[i].live += e->allocated;
    if (l->open[i].live > l->open[i].max) l->open[i].max = l->open[i].live;
}

/* The block may belong to a different open op, or be older than all. */
static void give_block(fri_largest_op *l, const fr_event *e) {
    int depth = l->depth < FRI_OP_NESTING ? l->depth : FRI_OP_NESTING;
    for (int i = depth - 1; i >= 0; i--)
        for (int k = l->open[i].blocks - 1; k >= 0; k--) {
            if (l->open[i].block[k] != e->block) continue;
            int last = --l->open[i].blocks;
            l->open[i].live -= l->open[i].size[k];
            l->open[i].block[k] = l->open[i].block[last];
            l->open[i].size[k] = l->open[i].size[last];
            return;
        }
}

void fri_largest_op_event(fri_largest_op *l, const fr_event *e) {
    switch (e->kind) {
    case FR_EVENT_OP_BEGIN:
    case FR_EVENT_ASIDE_BEGIN: begin_op(l, &e->tag, e->kind == FR_EVENT_ASIDE_BEGIN); break;
    case FR_EVENT_OP_END:
    case FR_EVENT_ASIDE_END: end_op(l); break;
    case FR_EVENT_ALLOC: take_block(l, e); break;
    case FR_EVENT_FREE: give_block(l, e); break;
    case FR_EVENT_STEP_BEGIN: l->depth = 0; break; /* a failed op may have left an open begin */
    default: break;
    }
}

/* ---- in a run ------------------------------------------------------------------------------------------------ */

struct fr_largest_op {
    fr_device device;
    fri_largest_op op;
};

static void on_event(void *ctx, const fr_event *e) {
    fr_largest_op *l = ctx;
    bool memory = e->kind == FR_EVENT_ALLOC || e->kind == FR_EVENT_FREE;
    if (!memory || e->device == l->device) fri_largest_op_event(&l->op, e);
}

fr_status fr_largest_op_begin(fr_device device, fr_largest_op **out) {
    FRI_NOT_NULL(out);
    FRI_OWNED(fri_free) fr_largest_op *l = calloc(1, sizeof *l);
    if (l == NULL) return fr_fail(FR_ENOMEM, "largest op: out of host memory");
    l->device = device;
    fri_largest_op_begin(&l->op);
    FRI_TRY(fr_event_subscribe(on_event, l));
    fr_largest_op_end(out);
    FRI_MOVE(out, l);
    return FR_OK;
}

size_t fr_largest_op_bytes(const fr_largest_op *l) {
    return l != NULL ? l->op.bytes : 0;
}

void fr_largest_op_end(fr_largest_op **l) {
    if (l == NULL || *l == NULL) return;
    fr_event_unsubscribe(on_event, *l);
    free(*l);
    *l = NULL;
}
