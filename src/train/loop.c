/* loop.c - epochs of training steps. */
#include "base/status.h"
#include "base/tag.h"
#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double fri_seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fri_peak_fold(const fr_memory_stats *now, fr_memory_stats *kept) {
    fr_memory_stats larger = now->peak_allocated > kept->peak_allocated ? *now : *kept;
    const fr_memory_stats *requested = now->peak_requested > kept->peak_requested ? now : kept;
    larger.peak_requested = requested->peak_requested;
    memcpy(larger.at_peak_requested, requested->at_peak_requested, sizeof larger.at_peak_requested);
    larger.peak_reserved = kept->peak_reserved > now->peak_reserved ? kept->peak_reserved : now->peak_reserved;
    *kept = larger;
}

fr_status fri_peak_keep(fr_device d, fr_memory_stats *kept) {
    fr_memory_stats now;
    fr_status s = FR_OK;
    FR_TRY(s, fr_memory_stats_get(d, &now));
    fri_peak_fold(&now, kept);
    s = fr_memory_reset_peak(d);
done:
    return s;
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fri_median_step_ms(const fri_run *r) {
    int64_t done = r->known - r->first_step, first = done > 1 ? 1 : 0, n = done - first;
    if (n < 1 || r->config->opts.device == FR_META) return NAN;
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL) return NAN;
    memcpy(sorted, r->step_ms + first, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double median = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    free(sorted);
    return median;
}

double fri_images_per_second(const fri_run *r) {
    return 1000.0 * (double)r->config->opts.batch_size / fri_median_step_ms(r);
}

static fr_status remember(fri_run *r, double loss, double milliseconds) {
    int64_t i = r->known - r->first_step;
    if (i == r->capacity) {
        int64_t capacity = r->capacity > 0 ? 2 * r->capacity : 1024;
        double *losses = realloc(r->losses, (size_t)capacity * sizeof *losses);
        if (losses != NULL) r->losses = losses;
        double *step_ms = realloc(r->step_ms, (size_t)capacity * sizeof *step_ms);
        if (step_ms != NULL) r->step_ms = step_ms;
        if (losses == NULL || step_ms == NULL)
            return fri_fail(FR_ENOMEM, "trainer: no host memory for %" PRId64 " losses", capacity);
        r->capacity = capacity;
    }
    r->losses[i] = loss;
    r->step_ms[i] = milliseconds;
    return FR_OK;
}

/* ---- epochs ------------------------------------------------------------------------------------------------ */

typedef struct step_batches {
    fri_run *r;
    int64_t left; /* of the step, after the one that was taken */
} step_batches;

static fr_status next_of_step(void *ctx, fr_tensor **images, fr_tensor **targets) {
    step_batches *b = ctx;
    fr_status s = fri_batch_next(b->r, b->r->loader, images, targets);
    return s == FR_OK && --b->left > 0 ? fri_ahead_fetch(b->r) : s;
}

/* The step's numbers are waited for, kept and shown. A device that runs ahead is at work on the next step meanwhile, so
 * a step lasts from the end of the one before. */
static fr_status step_known(fri_run *r, fri_step_values *v) {
    double loss = NAN;
    fr_status s = FR_OK;
    FR_TRY(s, fri_step_settle(r, v, &loss));
    double now = fri_seconds_now();
    FR_TRY(s, remember(r, loss, 1000 * (now - (r->known_at > v->began ? r->known_at : v->began))));
    r->known_at = now;
    r->known = v->number;
    FR_TRY(s, fri_watch_loss(r, loss));
    s = fri_run_emit(r, FRI_RUN_STEP);
done:
    return s;
}

static fr_status steps_known(fri_run *r, int64_t up_to) {
    fr_status s = FR_OK;
    while (s == FR_OK && r->known < up_to) s = step_known(r, &r->values[r->known % 2]);
    return s;
}

static fr_status one_step(fri_run *r, fri_step_values *v) {
    step_batches of = {r, r->config->opts.accumulate};
    const fri_batches batches = {next_of_step, &of};
    fr_tensor *images = NULL, *targets = NULL;
    fri_part part;
    fr_status s = FR_OK;
    FR_TRY(s, fri_train_arena_next(r, &part));
    if (fri_train_graph_holds(r, part)) return fri_train_graph_replay(r, part, v);
    FR_TRY(s, fri_train_arena_part(r, part));
    FR_TRY(s, next_of_step(&of, &images, &targets));
    fri_train_graph_batch(r, images, targets);
    fri_watch_begin(r);
    FR_TRY(s, fri_train_step(r, &batches, &images, &targets, v));
    fri_watch_end(v);
    fri_train_graph_capture(r, part);
done:
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    return s;
}

/* Steps until the epoch or the run ends; *more is false when the run does. Batches that do not fill a step
 * (--accumulate) are left out. */
static fr_status run_epoch(fri_run *r, bool *more) {
    bool ahead = fri_device_runs_ahead(r->config->opts.device);
    fr_status s = FR_OK;
    int64_t done = r->step - r->epoch * fri_steps_per_epoch(r->config); /* a resumed run begins in the middle */
    if (done == 0) r->epoch_loss = r->epoch_correct = r->epoch_targets = 0;
    FR_TRY(s, fr_loader_position_set(r->loader, r->epoch, done * r->config->opts.accumulate));
    *more = true;
    for (int64_t i = done; *more && i < fri_steps_per_epoch(r->config); i++) {
        fri_step_values *v = &r->values[r->step % 2];
        v->began = fri_seconds_now();
        FR_TRY(s, one_step(r, v));
        r->step++;
        FR_TRY(s, steps_known(r, ahead ? r->step - 1 : r->step));
        if (r->config->opts.empty_cache_every > 0 && r->step % r->config->opts.empty_cache_every == 0)
            FR_TRY(s, fr_memory_empty_cache(r->config->opts.device));
        r->signal = fri_run_interrupted(r);
        *more = r->step < fri_steps_total(r->config) && r->signal == 0;
        if (fri_save_is_due(r, !*more)) FR_TRY(s, steps_known(r, r->step));
        FR_TRY(s, fri_save_due(r, !*more));
        if (*more && i + 1 < fri_steps_per_epoch(r->config)) FR_TRY(s, fri_ahead_fetch(r));
    }
    FR_TRY(s, steps_known(r, r->step));
    FR_TRY(s, fri_late_check_all()); /* bad targets of the last steps */
done:
    return s;
}

fr_status fri_loop(fri_run *r) {
    fr_status s = FR_OK;
    double began = fri_seconds_now();
    bool more = true;
    FR_TRY(s, fri_data_loader(r->config, FR_SPLIT_TRAIN, r->train, &r->loader));
    r->schedule = fri_schedule(r->config);
    FR_TRY(s, fri_run_emit(r, FRI_RUN_BEGIN));
    FR_TRY(s, fri_resume(r));
    r->known = r->first_step;
    r->scale = fr_grad_scaler_scale_of(r->scaler);
    FR_TRY(s, fri_run_emit(r, FRI_RUN_POSITION));
    FR_TRY(s, fri_floor_begin(&r->floor, r->config->opts.device));
    for (r->epoch = r->step / fri_steps_per_epoch(r->config); more; r->epoch++) {
        if (r->step >= fri_steps_total(r->config))
            r->epoch = fri_epochs_total(r->config) - 1; /* resumed at the end: evaluate again */
        if (r->step < fri_steps_total(r->config)) FR_TRY(s, run_epoch(r, &more));
        if (r->step >= fri_steps_total(r->config)) more = false;
        FR_TRY(s, fri_peak_keep(r->config->opts.device, &r->training));
        if (r->signal == 0 && fri_evaluation_due(r->config, r->epoch, !more)) {
            FR_TRY(s, fri_evaluate(r));
            FR_TRY(s, fri_run_emit(r, FRI_RUN_EVALUATION));
        }
        FR_TRY(s, fri_peak_keep(r->config->opts.device, &r->evaluation));
        if (r->signal == 0 && fri_run_interrupted(r) != 0) {
            r->signal = fri_run_interrupted(r);
            more = false;
            FR_TRY(s, fri_save_due(r, true)); /* the signal came in the evaluation */
        }
        r->seconds = fri_seconds_now() - began;
        FR_TRY(s, fri_run_emit(r, FRI_RUN_EPOCH));
    }
done:
    fri_floor_end(&r->floor);
    return s;
}
