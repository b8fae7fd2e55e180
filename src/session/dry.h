/* dry.h - the exact memory of a trainer's run, before the run.
 *
 * fri_train_plan_make() runs on meta what the command would run on its device: building the model, the first step (it
 * creates the optimizer's state), steady steps, the short last batch of an epoch, evaluations, and the steps after one.
 * It prints nothing, writes nothing and leaves no trace: switches, generator and threads are as before, so a program
 * may plan as often as it likes, before the run or instead of it.
 *
 *     fri_config trial = *config;             of a run whose data sets are open: counts and classes are known
 *     trial.opts.batch_size = 8;              any variation: switches, checkpoint_segments, ...
 *     fri_train_plan plan = {0};
 *     s = fri_train_plan_make(&trial, SIZE_MAX, &plan);
 *     plan.training.peak_allocated            what the run's --report will say; peak_requested, at_peak likewise
 *     plan.plan                               sections, live tensors, floor (<frugal/plan.h>)
 *     fri_train_plan_release(&plan);
 *
 * To the byte: every number of `training` and `evaluation` equals the run's, if the run has the same environment
 * (threads, instruction set, library versions). An allocator's state after a step decides what the next one gets, so
 * steps are repeated until that state repeats; `settled` says that it did. */
#ifndef FRI_SESSION_DRY_H
#define FRI_SESSION_DRY_H

#include "session/session.h"

#include <frugal/plan.h>

typedef struct fri_train_plan {
    fr_plan *plan;
    int section[FRI_PART_COUNT]; /* of a part; -1: not in this run. Others only settle */
    bool is_evaluation[FR_PLAN_SECTIONS];
    fr_memory_stats training, evaluation; /* as fri_session's at the run's end; evaluation is all 0 if there is none */
    bool workspaces;                      /* false: this build cannot ask the device's libraries; they count 0 */
    bool settled;
    double seconds; /* that planning took */
    int64_t parameters, trained;
    uint64_t again; /* pieces of the network that a full step runs forward once more in backward */
} fri_train_plan;

/* `limit` holds for the dry run as --memory-limit does for the run: FR_ENOMEM if it does not fit, with the run's own
 * sentence; SIZE_MAX: there is none. FR_EINVAL, FR_ESHAPE: the network does not take these batches. On failure
 * *out holds nothing. */
fr_status fri_train_plan_make(const fri_config *c, size_t limit, fri_train_plan *out);
void fri_train_plan_release(fri_train_plan *p); /* accepts what holds nothing */

/* Places the plan's blocks; from now on its numbers are those of a run with --arena (see fr_plan_use_arena). */
fr_status fri_train_plan_use_arena(fri_train_plan *p, fr_placement *out);

/* arena_begin.c: plans and reserves. A run that cannot have an arena goes on without; the reason is kept. */
void fri_train_arena_begin(fri_session *r);

#endif
