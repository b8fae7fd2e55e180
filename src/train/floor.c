/* floor.c - see floor.h. */
#include "train/floor.h"

static void add(fri_floor *f, size_t bytes) {
    for (int k = 0; k < f->depth && k < FRI_FLOOR_NESTING; k++) {
        f->open[k].live += bytes;
        if (f->open[k].live > f->open[k].most) f->open[k].most = f->open[k].live;
    }
}

/* An op may free what was made before it; its own sum does not go below zero for that. */
static void subtract(fri_floor *f, size_t bytes) {
    for (int k = 0; k < f->depth && k < FRI_FLOOR_NESTING; k++)
        f->open[k].live -= bytes < f->open[k].live ? bytes : f->open[k].live;
}

static void event(void *ctx, const fri_event *e) {
    fri_floor *f = ctx;
    switch (e->kind) {
    case FRI_EVENT_OP_BEGIN:
        if (f->depth < FRI_FLOOR_NESTING) f->open[f->depth].live = f->open[f->depth].most = 0;
        f->depth++;
        break;
    case FRI_EVENT_OP_END:
        if (f->depth == 0) break;
        f->depth--;
        if (f->depth < FRI_FLOOR_NESTING && f->open[f->depth].most > f->largest) f->largest = f->open[f->depth].most;
        break;
    case FRI_EVENT_ALLOC:
        if (e->device == f->device) add(f, e->allocated);
        break;
    case FRI_EVENT_FREE:
        if (e->device == f->device) subtract(f, e->allocated);
        break;
    case FRI_EVENT_STEP_BEGIN: f->depth = 0; break; /* an op that failed may have left its begin behind */
    default: break;
    }
}

fr_status fri_floor_begin(fri_floor *f, fr_device device) {
    *f = (fri_floor){.device = device};
    fr_status s = fri_event_subscribe(event, f);
    f->listening = s == FR_OK;
    return s;
}

void fri_floor_end(fri_floor *f) {
    if (f->listening) fri_event_unsubscribe(event, f);
    f->listening = false;
}
