/* driver.h - the order of a run: epochs, steps and their batches, evaluations, saves.
 *
 * Only driver.c knows the order. An fri_execution says how each part is done: on the device (real.c) or on meta
 * (dry.c); an fri_stepping does so for the parts of a step. Plan and run share the driver, so a plan passes through
 * all stages of the run. */
#ifndef FRI_SESSION_DRIVER_H
#define FRI_SESSION_DRIVER_H

#include "session/state.h"
#include "session/step.h"

/* Parts of a step. `batch` puts the i-th of the --accumulate batches on the device, the first before the step begins;
 * `train` computes loss and gradients; `update` follows after the last batch. */
typedef struct fri_stepping {
    fr_status (*batch)(void *ctx, int64_t i);
    fr_status (*train)(void *ctx, int64_t i);
    fr_status (*update)(void *ctx);
} fri_stepping;

/* Runs one optimizer step without waiting for an asynchronous device: *v holds readbacks of the step's numbers. */
fr_status fri_drive_step(fri_run *r, const fri_stepping *how, void *ctx, fri_step_values *v);

/* Parts of an epoch. */
typedef struct fri_epoch {
    int64_t full; /* steps on full batches */
    bool shorter; /* a step on the short batch follows */
    bool evaluation;
    int64_t to_last; /* epochs that follow; 0: last epoch */
} fri_epoch;

/* Parts of a run; NULL: nothing to do. A call runs the first of `alike` equal parts; *done: number of parts finished.
 * A device always finishes 1; a dry run finishes all once repeats leave the allocator unchanged. */
typedef struct fri_execution {
    fr_status (*epoch_begin)(void *ctx, const fri_epoch *e, int64_t *skip); /* *skip: epochs to leave out, from e on */
    fr_status (*step)(void *ctx, fri_section part, int64_t alike, int64_t *done);
    fr_status (*step_over)(void *ctx); /* r->step already counts the step */
    fr_status (*save)(void *ctx, bool last);
    fr_status (*prefetch)(void *ctx); /* called if another step of the epoch follows */
    fr_status (*steps_over)(void *ctx);
    fr_status (*evaluation_begin)(void *ctx); /* begins the section of an evaluation's first batch */
    fr_status (*evaluate)(void *ctx, fri_section part, int64_t alike, int64_t *done);
    fr_status (*evaluation_over)(void *ctx, fr_status s); /* s: the evaluation's status; returns s or a later
                                                             failure */
    fr_status (*epoch_over)(void *ctx);
    fr_status (*first_evaluation_over)(void *ctx); /* of a resumed run, before the first step */
} fri_execution;

/* Runs from r->at.step (0, or set by a resume) to the end; r->at.first_evaluation comes first. */
fr_status fri_drive(fri_run *r, const fri_execution *how, void *ctx);

/* real.c: trains on the device. begin: loader, position, saved state. go_on: trains to the end or to an interruption,
 * and can be called again to continue. */
fr_status fri_train_begin(fri_run *r);
fr_status fri_train_loop(fri_run *r);

#endif
