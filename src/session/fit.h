/* fit.h - chooses switches and batch size for a memory budget. Every function here works by dry runs. */
#ifndef FRI_SESSION_FIT_H
#define FRI_SESSION_FIT_H

#include "autograd/run.h"
#include "plan/calibration.h"
#include "session/dry.h"
#include "session/model.h"
#include "session/step.h"

/* fit.c: --memory-budget and --batch-size fit. Sets batch_size, unit_plan (points into *fit) and memory_limit of
 * c->opts so that the run fits, and prints the choice. FR_ENOMEM: nothing fits; the sentence names the smallest
 * budget and the limiting op. */
fr_status fri_fit(fri_config *c, fr_fit *fit);

/* room.c: chooses by the free memory of a GPU, unless --memory-budget or --rebuild is given. Rebuild is off if the run
 * then fits. Else rebuild is on where another memory flag is given, and the free memory is the budget where none is. */
fr_status fri_room_choose(fri_config *c, fri_run_memory *of);

/* workspace.c: on a GPU without --workspace-limit, each convolution may use as much scratch as leaves the planned
 * peak unchanged. *scratch is referenced by the switches of c and the thread. Without a plan, the default holds. */
void fri_workspace_choose(fri_config *c, fri_scratch_limits **scratch);

/* train_only.c: replaces --train-only auto by words in c->opts and prints a table of the trained layers. */
fr_status fri_train_only_choose(fri_config *c);

/* prefix.c: replaces --prefix-parts auto by a number in c->opts. */
fr_status fri_prefix_choose(fri_config *c);

/* Planned peak of reserved bytes, the larger of training and evaluation. */
size_t fri_planned_reserved(const fri_train_plan *p);
/* Peaks of a dry run, each the larger of training and evaluation. */
typedef struct fri_trial {
    bool fits;       /* the run fits the limit */
    bool workspaces; /* as in fri_train_plan */
    size_t requested, allocated, reserved;
} fri_trial;
/* Plans the run under this limit. A run that does not fit has no peaks, or with `anyway` those without a limit. */
fr_status fri_try(const fri_config *c, size_t limit, bool anyway, fri_trial *out);
/* Like fri_try, for the answer alone. `choose`: units and switches may be chosen, as --memory-budget does. */
fr_status fri_try_budget(const fri_config *c, size_t budget, bool choose, bool *fits);
/* Turns on the switches that cost no time. */
void fri_fit_switches(fri_config *c);
/* Fastest plan for a budget under the switches of c; `any`: the first plan that fits. */
fr_status fri_fit_find(const fri_config *c, size_t budget, bool any, fr_fit *out);
/* Largest batch that fits `budget`; 0: none. */
fr_status fri_fit_largest_batch(const fri_config *c, size_t budget, bool choose, int64_t *out);

/* One letter per unit, brackets around recomputed ranges: "[kk]ee[k[rr]e]". Returns text. */
enum { FRI_UNITS_TEXT = 3 * FR_MAX_UNITS + 1 };
const char *fri_units_text(const fr_unit_plan *p, char text[FRI_UNITS_TEXT]);

/* calibrate.c: --calibrate. `begin` makes the dry run and starts timing kernels; `end` stops, `keep` stores the
 * times. */
fr_status fri_calibration_begin(const fri_config *c, fri_calibration **out);
fr_status fri_calibration_end(const fri_config *c, fri_calibration **p, bool keep);

#endif
