/* recorded.h - --cuda-graph: training steps that are recorded and run again (unstable/capture.h).
 *
 * A step on a full batch, and one on the short batch of --keep-last, runs as always at first; then it is walked through
 * once more while the device records it, and from the next one on the host lays the batch where the record expects it
 * and launches the record. The arena sees to it that addresses repeat. Whenever something is to be looked at (a loss
 * that overflowed), or the arena's places have changed, steps run as always again. */
#ifndef FRI_SESSION_RECORDED_H
#define FRI_SESSION_RECORDED_H

#include "session/arena.h"

#include <frugal/unstable.h>

struct fri_step_values;

typedef struct fri_recorded_step {
    fr_capture *capture;            /* NULL: such a step does not come */
    struct fri_step_values *values; /* its names for what comes back */
    fr_input_place *places;         /* of its batches, one per piece */
    int failures;
    int64_t departures; /* of the arena, when it was captured */
} fri_recorded_step;

typedef struct fri_train_graph {
    fri_recorded_step full, shorter;
    fr_dtype dtype[2]; /* of the last batch that was laid out as always */
    fr_shape shape[2];
    int64_t captures, replays;
    char reason[FRI_ARENA_REASON]; /* why steps ran as always, if --cuda-graph asked for it */
} fri_train_graph;

struct fri_session;
/* Takes what the captures need of the device, in a dry run, too. */
fr_status fri_train_graph_prepare(struct fri_session *r);
void fri_train_graph_release(struct fri_session *r);
/* What was recorded is no longer the step: something begins to train. */
void fri_train_graph_forget(struct fri_session *r);

/* Is a step of this kind recorded, and does nothing speak against running the record? */
bool fri_train_graph_holds(struct fri_session *r, fri_part part);
fr_status fri_train_graph_replay(struct fri_session *r, fri_part part, struct fri_step_values *v);

/* Before a step that runs as always: what its batches look like. After it: records one like it, if that is wanted.
 * Failing is no error: the reason is kept. */
void fri_train_graph_batch(struct fri_session *r, const fr_tensor *images, const fr_tensor *targets);
void fri_train_graph_capture(struct fri_session *r, fri_part part);

#endif
