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

#ifdef __cplusplus
}
#endif
#endif
