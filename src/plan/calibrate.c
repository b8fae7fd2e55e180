/* calibrate.c - see calibrate.h. */
#include "plan/calibration.h"
#include "plan/calibrate.h"

#include <frugal/fit.h>

#include "base/status.h"
#include "base/clock.h"
#include "memory/event.h"

#include <stdlib.h>
#include <string.h>

static void count_steps(void *ctx, const fr_event *e) {
    fri_step_log *l = ctx;
    if (e->kind == FR_EVENT_STEP_BEGIN) l->step++;
    if (e->kind == FR_EVENT_STEP_END && l->step == FRI_CALIBRATION_STEP) l->step++; /* later calls do not count */
}

static void append_call(fri_step_log *l, const fri_kernel_call *call, double seconds) {
    if (l->step != FRI_CALIBRATION_STEP) return;
    if (FRI_ROOM(l->calls, l->count, "kernel times") < 0 || FRI_ROOM(l->seconds, l->count, "kernel times") < 0) {
        l->failed = true;
        return;
    }
    l->calls[l->count] = *call;
    l->seconds[l->count++] = seconds;
}

/* Copies go around the kernel table, so a run does not time copies. */
static bool is_copy(const char *name) {
    return strcmp(name, "copy") == 0 || strcmp(name, "transfer") == 0;
}

static void calibrate_call(void *ctx, const fri_kernel_call *call) {
    if (!is_copy(call->name)) append_call(ctx, call, 0);
}

static void on_begin(void *ctx, const char *kernel) {
    fri_step_log *l = ctx;
    (void)kernel;
    l->began = fri_now();
}

/* Questions about scratch memory are kernels of the table too, but no work. */
static bool is_question(const char *kernel) {
    static const char suffix[] = "_workspace";
    size_t n = strlen(kernel), k = sizeof suffix - 1;
    return n > k && strcmp(kernel + n - k, suffix) == 0;
}

static void on_end(void *ctx, const char *kernel, const fri_backend *b) {
    fri_step_log *l = ctx;
    if (is_question(kernel)) return;
    if (b->device == FR_CUDA && b->synchronize != NULL) (void)b->synchronize(&l->exec);
    append_call(l, &(fri_kernel_call){.name = kernel}, fri_now() - l->began);
}

fr_status fri_step_log_dry(fri_step_log *l) {
    *l = (fri_step_log){0};
    fr_status s = fr_event_subscribe(count_steps, l);
    if (s == FR_OK) l->was_listener = fri_meta_listen((fri_call_listener){calibrate_call, l});
    return s;
}

void fri_step_log_dry_end(fri_step_log *l) {
    fr_event_unsubscribe(count_steps, l);
    (void)fri_meta_listen(l->was_listener);
}

fr_status fri_step_log_run(fri_step_log *l) {
    *l = (fri_step_log){0};
    FRI_TRY(fr_event_subscribe(count_steps, l));
    l->watch = (fri_kernel_watch){on_begin, on_end, l};
    l->was_watch = fri_here.kernel_watch;
    fri_here.kernel_watch = &l->watch;
    return FR_OK;
}

void fri_step_log_run_end(fri_step_log *l) {
    fr_event_unsubscribe(count_steps, l);
    fri_here.kernel_watch = l->was_watch;
}

void fri_step_log_free(fri_step_log *l) {
    free(l->calls);
    free(l->seconds);
    *l = (fri_step_log){0};
}

fr_status fri_calibrate(fri_cost *c, const fri_step_log *dry, const fri_step_log *run) {
    if (dry->failed || run->failed) return fr_fail(FR_ENOMEM, "calibrate: out of host memory");
    if (run->count == 0) return fr_fail(FR_EUSAGE, "calibrate: the run made fewer than %d steps", FRI_CALIBRATION_STEP);
    for (size_t i = 0; i < dry->count && i < run->count; i++)
        if (strcmp(dry->calls[i].name, run->calls[i].name) != 0)
            return fr_fail(FR_EUSAGE, "calibrate: kernel %zu of the step is %s in the dry run but %s in the run", i,
                           dry->calls[i].name, run->calls[i].name);
    if (dry->count != run->count)
        return fr_fail(FR_EUSAGE, "calibrate: the step has %zu kernels in the dry run but %zu in the run", dry->count,
                       run->count);
    for (size_t i = 0; i < run->count; i++) {
        FRI_TRY(fri_cost_add(c, &dry->calls[i], run->seconds[i] > 0 ? run->seconds[i] : 1e-9));
    }
    return FR_OK;
}

/* ---- for programs --------------------------------------------------------------------------------------------- */

struct fri_calibration {
    fri_step_log dry, run;
};

fr_status fri_calibration_create(fri_calibration **out) {
    FRI_NOT_NULL(out);
    fri_calibration *c = calloc(1, sizeof *c);
    if (c == NULL) return fr_fail(FR_ENOMEM, "calibrate: out of host memory");
    fri_calibration_release(out);
    *out = c;
    return FR_OK;
}

fr_status fri_calibration_dry_begin(fri_calibration *c) {
    FRI_NOT_NULL(c);
    return fri_step_log_dry(&c->dry);
}

void fri_calibration_dry_end(fri_calibration *c) {
    if (c != NULL) fri_step_log_dry_end(&c->dry);
}

fr_status fri_calibration_run_begin(fri_calibration *c) {
    FRI_NOT_NULL(c);
    return fri_step_log_run(&c->run);
}

void fri_calibration_run_end(fri_calibration *c) {
    if (c != NULL) fri_step_log_run_end(&c->run);
}

fr_status fri_calibration_save(const fri_calibration *c, fr_device device, fri_calibration_result *out) {
    FRI_NOT_NULL(c, out);
    FRI_OWNED(fri_cost_release) fri_cost *cost = NULL;
    FRI_TRY(fri_cost_open(device, &cost));
    FRI_TRY(fri_calibrate(cost, &c->dry, &c->run));
    FRI_TRY(fri_cost_save(cost));
    *out = (fri_calibration_result){.measured = c->run.count, .known = fri_cost_count(cost)};
    snprintf(out->path, sizeof out->path, "%s", fri_cost_path(cost));
    return FR_OK;
}

void fri_calibration_release(fri_calibration **c) {
    if (c == NULL || *c == NULL) return;
    fri_step_log_free(&(*c)->dry);
    fri_step_log_free(&(*c)->run);
    free(*c);
    *c = NULL;
}
