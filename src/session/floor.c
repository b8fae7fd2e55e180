/* floor.c - see floor.h. */
#include "session/floor.h"

static void event(void *ctx, const fri_event *e) {
    fri_floor *f = ctx;
    bool memory = e->kind == FRI_EVENT_ALLOC || e->kind == FRI_EVENT_FREE;
    if (memory && e->device != f->device) return;
    fri_largest_op_event(&f->op, e);
    f->largest = f->op.bytes;
}

fr_status fri_floor_begin(fri_floor *f, fr_device device) {
    *f = (fri_floor){.device = device};
    fri_largest_op_begin(&f->op);
    fr_status s = fri_event_subscribe(event, f);
    f->listening = s == FR_OK;
    return s;
}

void fri_floor_end(fri_floor *f) {
    if (f->listening) fri_event_unsubscribe(event, f);
    f->listening = false;
}
