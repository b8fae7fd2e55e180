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
    fri_kernel_call *calls; /* dry run: all members; run: name only */
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

/* Logs the kernels of the thread's dry run until end. */
fr_status fri_step_log_dry(fri_step_log *l);
void fri_step_log_dry_end(fri_step_log *l);
/* Logs the thread's kernel times until end; the host waits for asynchronous devices after every kernel. */
fr_status fri_step_log_run(fri_step_log *l);
void fri_step_log_run_end(fri_step_log *l);
void fri_step_log_free(fri_step_log *l);

/* Adds the run's times to the table. FR_EUSAGE if the two logs name different kernels. */
fr_status fri_calibrate(fri_cost *c, const fri_step_log *dry, const fri_step_log *run);

#endif
