/* fit.h - the fastest way to run a chain of units inside a number of bytes.
 *
 * The program passes fr_fit_find a function: a dry run (plan.h) of the training step under a plan for the units
 * (fr_checkpoint_plan in net.h). A few dry runs measure each unit's cost of keeping, encoding, rebuilding, offloading
 * and recomputing. Dynamic programming over bytes and time then finds the fastest plan of the model, and a dry run
 * under the budget checks the plan. Only plans that fit to the byte are returned. */
#ifndef FRUGAL_FIT_H
#define FRUGAL_FIT_H

#include <frugal/memory.h>
#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A dry run of the whole training, from fr_plan_begin to fr_plan_end, with fr_checkpoint_plan(model, plan, ...) as
 * the forward pass and fr_memory_limit_set(FR_META, limit) at its beginning (SIZE_MAX: none). *peak: the statistics
 * of the section with the largest reserved memory. FR_ENOMEM if the limit is too small; all further errors end the
 * search. */
typedef fr_status fr_fit_run_fn(void *ctx, const fr_unit_plan *plan, size_t limit, fr_memory_stats *peak);

typedef struct fr_fit_opts {
    fr_device target FR_DEFAULT(FR_CPU); /* device of the kernel times */
    fr_module *model FR_DEFAULT(NULL);   /* the network of the plans; the run's module, or an equal one */
    size_t budget FR_DEFAULT(SIZE_MAX);  /* bytes of reserved memory; SIZE_MAX: no limit, the fastest plan */
    bool offload FR_DEFAULT(false);      /* the offload file may be used */
    bool any FR_DEFAULT(false);          /* the search ends at the first plan that fits */
} fr_fit_opts;
#define FR_FIT_DEFAULTS  .budget = SIZE_MAX
#define FR_FIT_OPTS(...) FR_OPTS(fr_fit_opts, FR_FIT_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_fit_opts, FR_FIT_OPTS())

typedef struct fr_fit {
    bool fits;
    fr_unit_plan plan;           /* fits: the plan; else, without `any`, the plan with the smallest need. Owned by
                                  * the fit */
    fr_memory_stats memory;      /* of the plan's dry run, within the budget if it fits */
    double seconds;              /* of a step, predicted */
    double keep_seconds;         /* of a step without recomputation */
    fr_memory_stats keep_memory; /* memory of a step without recomputation */
    size_t smallest;             /* does not fit: the smallest budget with a plan */
    int dry_runs;
    double milliseconds;
    int64_t kernels_measured, kernels_estimated; /* calls of the dry runs with a measured time, with an estimated
                                                  * time */
} fr_fit;

/* Tries two partitions of the network: cuts with a single live value, and finer cuts with several live values (inside
 * residual blocks, in the middle of a U-Net); fr_unit_plan.first names the partition. Returns the dry run's error,
 * except FR_ENOMEM. */
FR_API fr_status fr_fit_find(fr_fit_run_fn *run, void *ctx, const fr_fit_opts *opts, fr_fit *out);
FR_API void fr_fit_release(fr_fit *fit);

/* Predicts the seconds of a dry run's slowest step on `target`: begin before the dry run, end after. */
typedef struct fr_fit_clock fr_fit_clock;
FR_API fr_status fr_fit_clock_begin(fr_device target, fr_fit_clock **out);
FR_API void fr_fit_clock_end(fr_fit_clock **clock, double *seconds);

/* Kernel times, measured in a run's second step, for the clock and for fr_fit_find (--calibrate). A dry run names the
 * kernels of a step, with dimensions; the run calls equal kernels in equal order. Each pair of calls encloses a run,
 * on the calling thread; the host waits for asynchronous devices after every kernel. */
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
/* Adds the run's times to the file of `device`. FR_EUSAGE if dry run and run called different kernels. */
FR_API fr_status fr_calibration_save(const fr_calibration *c, fr_device device, fr_calibration_result *out);
FR_API void fr_calibration_release(fr_calibration **c);

#ifdef __cplusplus
}
#endif
#endif
