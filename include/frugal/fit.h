/* fit.h - the fastest way to run a chain of units inside a number of bytes.
 *
 * A program that can make a dry run of its step (plan.h) under a plan for its units (fr_checkpoint_plan in net.h) hands
 * it to fr_fit_find. A few dry runs measure what each unit costs when it keeps, encodes, rebuilds, moves out or
 * recomputes what it saves; dynamic programming over bytes and time then finds the fastest plan by that model, and a
 * dry run under the budget says whether it really fits. What does not fit to the byte is not returned. */
#ifndef FRUGAL_FIT_H
#define FRUGAL_FIT_H

#include <frugal/memory.h>
#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One dry run of everything that must fit, from fr_plan_begin to fr_plan_end, with fr_checkpoint_plan(model, plan, ...)
 * as the forward pass and fr_memory_limit_set(FR_META, limit) at its beginning (SIZE_MAX: none). *peak: the statistics
 * of the section with the largest reserved memory. FR_ENOMEM where the limit is too small; any other failure ends the
 * search. */
typedef fr_status fr_fit_run_fn(void *ctx, const fr_unit_plan *plan, size_t limit, fr_memory_stats *peak);

typedef struct fr_fit_opts {
    fr_device target FR_DEFAULT(FR_CPU); /* whose kernel times count */
    fr_module *model FR_DEFAULT(NULL);   /* whose layers the plans are for; the run's, or another of the same network */
    size_t budget FR_DEFAULT(SIZE_MAX);  /* bytes of reserved memory; SIZE_MAX: no limit, the fastest plan */
    bool offload FR_DEFAULT(false);      /* the offload file may be used */
    bool any FR_DEFAULT(false);          /* any plan that fits will do: the search ends at the first, or tells only
                                          * that there is none */
} fr_fit_opts;
#define FR_FIT_DEFAULTS  .budget = SIZE_MAX
#define FR_FIT_OPTS(...) FR_OPTS(fr_fit_opts, FR_FIT_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_fit_opts, FR_FIT_OPTS())

typedef struct fr_fit {
    bool fits;
    fr_unit_plan plan;           /* fits: the plan; else, without `any`, the one that needs least. Owned by the fit */
    fr_memory_stats memory;      /* of the plan's dry run, within the budget if it fits */
    double seconds;              /* of a step, predicted */
    double keep_seconds;         /* of a step that keeps everything and recomputes nothing */
    fr_memory_stats keep_memory; /* and its memory */
    size_t smallest;             /* does not fit: the least budget under which a plan was found */
    int dry_runs;
    double milliseconds;
    int64_t kernels_measured, kernels_estimated; /* calls in those dry runs whose time is from a measurement, or not */
} fr_fit;

/* Two partitions are tried: cuts where one value is handed on, and where several values are handed on within them
 * (residual blocks, the middle of a U-Net) finer ones; the plan says which (fr_unit_plan.first). The same failure as
 * the dry run's where that fails for another reason than memory. */
FR_API fr_status fr_fit_find(fr_fit_run_fn *run, void *ctx, const fr_fit_opts *opts, fr_fit *out);
FR_API void fr_fit_release(fr_fit *fit);

/* Seconds that a dry run's slowest step would take on `target`: called once before run, once after. */
typedef struct fr_fit_clock fr_fit_clock;
FR_API fr_status fr_fit_clock_begin(fr_device target, fr_fit_clock **out);
FR_API void fr_fit_clock_end(fr_fit_clock **clock, double *seconds);

/* Kernel times, measured in a run's second step, for the clock and for fr_fit_find (--calibrate). A dry run names the
 * kernels of a step, with their dimensions; the run calls the same ones in the same order. Each pair of calls stands
 * around such a run, on one thread; asynchronous devices are waited for after every kernel. */
typedef struct fr_calibration fr_calibration;
FR_API fr_status fr_calibration_create(fr_calibration **out);
FR_API fr_status fr_calibration_dry_begin(fr_calibration *c);
FR_API void fr_calibration_dry_end(fr_calibration *c);
FR_API fr_status fr_calibration_run_begin(fr_calibration *c);
FR_API void fr_calibration_run_end(fr_calibration *c);

typedef struct fr_calibration_result {
    size_t measured, known; /* kernels of the run; times in the file */
    char path[1024];        /* of the file, "" where there is no cache folder */
} fr_calibration_result;
/* Adds the run's times to the file of `device`. FR_EUSAGE if dry run and run did not call the same kernels. */
FR_API fr_status fr_calibration_save(const fr_calibration *c, fr_device device, fr_calibration_result *out);
FR_API void fr_calibration_release(fr_calibration **c);

#ifdef __cplusplus
}
#endif
#endif
