/* dry.h - predicts the exact memory of a training run before the run.
 *
 * fri_train_plan_make() runs on meta all that the command would run on its device: building the model, the first step
 * (which creates the optimizer's state), steady steps, the short last batch of an epoch, evaluations, and steps after
 * an evaluation. Planning prints and writes nothing. Switches, random state and thread count are restored, so a
 * program may plan as often as needed, before or instead of a run.
 *
 *     fri_config trial = *config;       the run's data sets must be open: counts and classes are known
 *     trial.opts.batch_size = 8;        any variation: switches, checkpoint_segments, ...
 *     fri_train_plan plan = {0};
 *     s = fri_train_plan_make(&trial, SIZE_MAX, &plan);
 *     plan.training.peak_allocated      equals the run's --report, as do peak_requested and at_peak
 *     plan.plan                         sections, live tensors, floor (<frugal/plan.h>)
 *     fri_train_plan_release(&plan);
 *
 * Every number of `training` and `evaluation` equals the run's to the byte if the environment is equal (threads,
 * instruction set, library versions). Allocated bytes depend on the allocator's state, so steps are repeated until
 * the state repeats; `settled` says whether it did. */
#ifndef FRI_SESSION_DRY_H
#define FRI_SESSION_DRY_H

#include "plan/section.h"
#include "session/session.h"

#include <frugal/plan.h>

/* Peaks of the evaluation by images in a part, over the trials of a search, which change no evaluation. */
enum { FRI_EVALUATIONS_MOST = 32 };
typedef struct fri_evaluation_peak {
    int64_t images;
    size_t requested, allocated;
} fri_evaluation_peak;
typedef struct fri_evaluations {
    fri_evaluation_peak peak[FRI_EVALUATIONS_MOST];
    int n;
    int64_t last; /* the choice of the trial before */
} fri_evaluations;

typedef struct fri_train_plan {
    fr_plan *plan;
    int section[FRI_PART_COUNT]; /* index of each part's first section; -1: not in this run */
    bool is_evaluation[FRI_PLAN_SECTIONS];
    fr_memory_stats training, evaluation; /* as in fri_run after a run; 0 without evaluations */
    bool workspaces;                      /* false: libraries not available, workspaces count as 0 */
    bool settled;
    double seconds; /* time that planning took */
    int64_t parameters, trained;
    int64_t evaluation_images; /* as in fri_config: the choice, where the config leaves it open */
    uint64_t again;            /* segments recomputed in backward of a full step */
} fri_train_plan;

/* Plans the run of c. limit: as --memory-limit in the run, or SIZE_MAX. FR_ENOMEM: the run would exceed limit.
 * FR_EINVAL, FR_ESHAPE: the network does not accept these batches. On failure *out is empty. */
fr_status fri_train_plan_make(const fri_config *c, size_t limit, fri_train_plan *out);
void fri_train_plan_release(fri_train_plan *p); /* *p may be empty */

/* Gives each block of the plan an offset. Afterwards the plan's numbers are those of a run with --arena. */
fr_status fri_train_plan_use_arena(fri_train_plan *p, fr_placement *out);

/* arena_begin.c: plans the run and reserves its arena. If that fails, the run uses no arena and stores the reason. */
void fri_train_arena_begin(fri_run *r);

#endif
