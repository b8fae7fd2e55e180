/* numbers.c - statistics of a run: losses and times of steps, peaks of memory. */

#include "session/step.h"
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

/* Bytes of parameters and optimizer state. The peak may occur before the optimizer's state exists. */
static size_t lasting_bytes(const fr_memory_stats *m) {
    return m->allocated_by[FR_MEM_PARAMETER] + m->allocated_by[FR_MEM_OPTIMIZER];
}

void fri_peak_fold(const fr_memory_stats *now, fr_memory_stats *kept) {
    fr_memory_stats larger = now->peak_allocated > kept->peak_allocated ? *now : *kept;
    const fr_memory_stats *requested = now->peak_requested > kept->peak_requested ? now : kept;
    larger.peak_requested = requested->peak_requested;
    const fr_memory_stats *lasts = lasting_bytes(now) > lasting_bytes(kept) ? now : kept;
    memcpy(larger.allocated_by, lasts->allocated_by, sizeof larger.allocated_by);
    memcpy(larger.at_peak_requested, requested->at_peak_requested, sizeof larger.at_peak_requested);
    larger.peak_reserved = kept->peak_reserved > now->peak_reserved ? kept->peak_reserved : now->peak_reserved;
    *kept = larger;
}

fr_status fri_peak_keep(fr_device d, fr_memory_stats *kept) {
    fr_memory_stats now;
    FRI_TRY(fr_memory_stats_get(d, &now));
    fri_peak_fold(&now, kept);
    return fr_memory_reset_peak(d);
}

static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fri_median_step_ms(const fri_run *r) {
    int64_t done = r->numbers.known - r->at.first_step, first = done > 1 ? 1 : 0, n = done - first;
    if (n < 1 || r->config->opts.device == FR_META) return NAN;
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL) return NAN;
    memcpy(sorted, r->numbers.step_ms + first, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_numbers);
    double median = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    free(sorted);
    return median;
}

double fri_epoch_loss(const fri_run *r) {
    return r->numbers.epoch_targets > 0 ? r->numbers.epoch_loss / r->numbers.epoch_targets : NAN;
}

double fri_epoch_accuracy(const fri_run *r) {
    const bool counted = fri_counts_steps(r->config) && r->numbers.epoch_targets > 0;
    return counted ? r->numbers.epoch_correct / r->numbers.epoch_targets : NAN;
}

double fri_images_per_second(const fri_run *r) {
    return 1000.0 * (double)r->config->opts.optim.batch_size / fri_median_step_ms(r);
}

fr_status fri_step_remember(fri_run *r, double loss, double milliseconds) {
    int64_t i = r->numbers.known - r->at.first_step;
    if (i == r->numbers.capacity) {
        int64_t capacity = r->numbers.capacity > 0 ? 2 * r->numbers.capacity : 1024;
        double *losses = realloc(r->numbers.losses, (size_t)capacity * sizeof *losses);
        if (losses != NULL) r->numbers.losses = losses;
        double *step_ms = realloc(r->numbers.step_ms, (size_t)capacity * sizeof *step_ms);
        if (step_ms != NULL) r->numbers.step_ms = step_ms;
        if (losses == NULL || step_ms == NULL)
            return fr_fail(FR_ENOMEM, "trainer: no host memory for %" PRId64 " losses", capacity);
        r->numbers.capacity = capacity;
    }
    r->numbers.losses[i] = r->numbers.loss = loss;
    r->numbers.step_ms[i] = milliseconds;
    return FR_OK;
}
