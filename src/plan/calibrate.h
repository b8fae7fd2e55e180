/* calibrate.h - measuring what kernels take, in a step that is run anyway.
 *
 * A dry run names the kernels of a step in order, with their dimensions; the run calls the same ones in the same order.
 * So the k-th time measured belongs to the k-th call named. Both logs count steps (fr_step_begin) from 1 and keep those
 * of one step: the second, where libraries have made their plans and optimizers have their state. */
#ifndef FRI_PLAN_CALIBRATE_H
#define FRI_PLAN_CALIBRATE_H

#include "backend/backend.h"
#include "plan/cost.h"

enum { FRI_CALIBRATION_STEP = 2 };

typedef struct fri_step_log {
    fri_kernel_call *calls; /* of a dry run: everything; of a run: name only */
    double *seconds;        /* of a run */
    size_t count;
    int step;
    bool failed; /* host memory ran out */
    double began;
    fri_exec exec;
    fri_kernel_watch watch;
    fri_call_listener was_listener;
    const fri_kernel_watch *was_watch;
} fri_step_log;

/* Logs what a dry run on this thread calls until end. */
fr_status fri_step_log_dry(fri_step_log *l);
void fri_step_log_dry_end(fri_step_log *l);
/* Logs times on this thread until end; asynchronous devices are waited for after every kernel. */
fr_status fri_step_log_run(fri_step_log *l);
void fri_step_log_run_end(fri_step_log *l);
void fri_step_log_free(fri_step_log *l);

/* Adds the run's times to the table. FR_EUSAGE if the two logs do not name the same kernels. */
fr_status fri_calibrate(fri_cost *c, const fri_step_log *dry, const fri_step_log *run);

#endif
