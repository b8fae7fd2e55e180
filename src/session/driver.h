/* driver.h - the order of a run: epochs, steps and their batches, evaluations, saves.
 *
 * The order stands in driver.c and nowhere else. How each of its parts is done is said by an fri_execution: on the
 * device (real.c), or on meta (session/dry.c); and by an fri_stepping for what a step is made of. So a plan goes
 * through what its run goes through. */
#ifndef FRI_SESSION_DRIVER_H
#define FRI_SESSION_DRIVER_H

#include "session/session.h"

/* How a step is done. batch lays the i-th of its --accumulate batches out on the device, the first one before the step
 * begins; train makes its loss and gradients; update follows the last one. */
typedef struct fri_stepping {
    fr_status (*batch)(void *ctx, int64_t i);
    fr_status (*train)(void *ctx, int64_t i);
    fr_status (*update)(void *ctx);
} fri_stepping;

/* One optimizer step. It does not wait for an asynchronous device: *v holds readbacks of its numbers. */
fr_status fri_drive_step(fri_session *r, const fri_stepping *how, void *ctx, fri_step_values *v);

/* Parts of an epoch. */
typedef struct fri_epoch {
    int64_t full; /* steps on full batches */
    bool shorter; /* a step on the short batch */
    bool evaluation;
    int64_t to_last; /* epochs after it; 0: it is the last */
} fri_epoch;

/* How a run is done. `alike` parts of one kind follow each other, the first of them is asked for, and *done of them are
 * over then: 1, unless a dry run knows that the others leave the allocator as they find it. NULL: nothing to do. */
typedef struct fri_execution {
    fr_status (*epoch_begin)(void *ctx, const fri_epoch *e, int64_t *skip); /* so many epochs, this one first */
    fr_status (*step)(void *ctx, fri_section part, int64_t alike, int64_t *done);
    fr_status (*step_over)(void *ctx); /* r->step counts it */
    fr_status (*save)(void *ctx, bool last);
    fr_status (*prefetch)(void *ctx); /* another step of the epoch follows */
    fr_status (*steps_over)(void *ctx);
    fr_status (*evaluate)(void *ctx, fri_section part, int64_t alike, int64_t *done);
    fr_status (*evaluation_over)(void *ctx, fr_status s); /* s: what became of it; is returned, or a later failure */
    fr_status (*epoch_over)(void *ctx);
} fri_execution;

/* Runs from r->step, which a resumed run has set, to the end. */
fr_status fri_drive(fri_session *r, const fri_execution *how, void *ctx);

#endif
