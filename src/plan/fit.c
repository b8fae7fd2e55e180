/* fit.c - the fastest plan within a budget, over two partitions of the model: cuts with a single value, and finer
 * cuts. */
#include "base/clock.h"
#include "base/status.h"
#include "plan/finder.h"

#include <stdlib.h>

/* True if a, of the finer units, is the better plan. */
static bool fit_beats(const fr_fit *a, const fr_fit *b) {
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->smallest < b->smallest;
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    return a->memory.peak_reserved < b->memory.peak_reserved;
}

/* True if the plan recomputes nothing and is as fast as keeping: no partition has a faster plan. */
static bool is_fastest(const fr_fit *f) {
    return f->fits && f->plan.ranges == 0 && f->seconds <= f->keep_seconds;
}

fr_status fr_fit_find(fr_fit_run_fn *run, void *ctx, const fr_fit_opts *opts, fr_fit *out) {
    FRI_NOT_NULL(run, opts, out);
    double began = 1e3 * fri_now();
    fri_cost *cost = NULL;
    fr_fit fine = {0};
    bool large = false;
    fr_status s = FR_OK;
    *out = (fr_fit){0};
    FRI_NOT_NULL(opts->model);
    FR_TRY(s, fri_cost_open(opts->target, &cost));
    FR_TRY(s, fri_find_in(run, ctx, opts, cost, FRI_CHAIN_UNITS, out, &large));
    if (large && !is_fastest(out) && !(opts->any && out->fits) &&
        fri_units(opts->model, FRI_FINE_UNITS, NULL, 0) > fri_units(opts->model, FRI_CHAIN_UNITS, NULL, 0)) {
        FR_TRY(s, fri_find_in(run, ctx, opts, cost, FRI_FINE_UNITS, &fine, &large));
        const int dry_runs = out->dry_runs + fine.dry_runs;
        if (fit_beats(&fine, out)) {
            fine.keep_seconds = out->keep_seconds;
            fine.keep_memory = out->keep_memory;
            const fr_fit other = *out;
            *out = fine;
            fine = other;
        }
        out->dry_runs = dry_runs;
    }
done:
    fr_fit_release(&fine);
    if (cost != NULL) fri_cost_coverage(cost, &out->kernels_measured, &out->kernels_estimated);
    out->milliseconds = 1e3 * fri_now() - began;
    fri_cost_release(&cost);
    return s;
}

void fr_fit_release(fr_fit *fit) {
    if (fit == NULL) return;
    free((void *)(uintptr_t)fit->plan.option);
    free((void *)(uintptr_t)fit->plan.range);
    free((void *)(uintptr_t)fit->plan.first);
    *fit = (fr_fit){0};
}
