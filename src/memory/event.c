/* event.c - see event.h. */
#include "memory/event.h"

#include "base/status.h"

enum { SUBSCRIBERS = 16 };

static struct {
    fri_event_fn *fn;
    void *ctx;
} subscribers[SUBSCRIBERS];
static int count;
static bool muted;
static uint64_t next_index;

fr_status fri_event_subscribe(fri_event_fn *fn, void *ctx) {
    if (count == SUBSCRIBERS)
        return fri_fail(FR_ENOMEM, "memory events: all %d subscriber places are taken", SUBSCRIBERS);
    subscribers[count].fn = fn;
    subscribers[count].ctx = ctx;
    count++;
    return FR_OK;
}

void fri_event_unsubscribe(fri_event_fn *fn, void *ctx) {
    for (int i = 0; i < count; i++)
        if (subscribers[i].fn == fn && subscribers[i].ctx == ctx) {
            for (int j = i + 1; j < count; j++) subscribers[j - 1] = subscribers[j];
            count--;
            return;
        }
}

bool fri_event_wanted(void) {
    return count > 0;
}

void fri_event_mute(bool on) {
    muted = on;
}

void fri_event_emit(fri_event *e) {
    if (muted && e->kind != FRI_EVENT_SEGMENT_ALLOC && e->kind != FRI_EVENT_SEGMENT_FREE) return;
    e->index = next_index++;
    for (int i = 0; i < count; i++) subscribers[i].fn(subscribers[i].ctx, e);
}

void fri_event_mark(fri_event_kind kind) {
    if (!fri_event_wanted()) return;
    fri_event e = {.kind = kind,
                   .tag = {.op = fri_scope_op(), .module = fri_scope_module(), .phase = fri_scope_phase()}};
    fri_event_emit(&e);
}
