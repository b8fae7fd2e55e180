/* clock.c - predicted time of a dry run: the sum of measured or estimated kernel times of the slowest step. */
#include "base/status.h"
#include "memory/event.h"
#include "plan/calibration.h"
#include "plan/cost.h"

#include <frugal/fit.h>
#include <stdlib.h>

struct fri_fit_clock {
    fri_cost *cost;
    double step, slowest;
    fri_call_listener was;
};

static void clock_event(void *ctx, const fr_event *e) {
    fri_fit_clock *c = ctx;
    if (e->kind == FR_EVENT_STEP_BEGIN) c->step = 0;
    if (e->kind == FR_EVENT_STEP_END && c->step > c->slowest) c->slowest = c->step;
}

static void clock_call(void *ctx, const fri_kernel_call *call) {
    fri_fit_clock *c = ctx;
    c->step += fri_cost_seconds(c->cost, call);
}

fr_status fri_fit_clock_begin(fr_device target, fri_fit_clock **out) {
    FRI_NOT_NULL(out);
    FRI_OWNED(fri_cost_release) fri_cost *cost = NULL;
    FRI_OWNED(fri_free) fri_fit_clock *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "fit: out of host memory");
    FRI_TRY(fri_cost_open(target, &cost));
    FRI_TRY(fr_event_subscribe(clock_event, c));
    FRI_MOVE(&c->cost, cost);
    c->was = fri_meta_listen((fri_call_listener){clock_call, c});
    FRI_MOVE(out, c);
    return FR_OK;
}

void fri_fit_clock_end(fri_fit_clock **p, double *seconds) {
    if (p == NULL || seconds == NULL) return;
    fri_fit_clock *c = *p;
    *p = NULL;
    *seconds = 0;
    if (c == NULL) return;
    fr_event_unsubscribe(clock_event, c);
    (void)fri_meta_listen(c->was);
    *seconds = c->slowest;
    fri_cost_release(&c->cost);
    free(c);
}
