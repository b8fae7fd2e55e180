/* fit.h - a run inside a budget: what to keep, what batch, what advice. Everything here is made of dry runs. */
#ifndef FRI_SESSION_FIT_H
#define FRI_SESSION_FIT_H

#include "session/dry.h"

/* fit.c: --memory-budget and --batch-size fit. Sets batch_size, unit_plan (which shows *fit) and memory_limit of
 * c->opts so that the run fits, and prints what was chosen. FR_ENOMEM: nothing fits; the sentence names the smallest
 * budget and the op that sets it. */
fr_status fri_fit(fri_config *c, fr_fit *fit);

/* workspace.c: on a GPU, where --workspace-limit is not set, each convolution may take what leaves the run's planned
 * peak as it is: *scratch, held by c's switches and the thread's. A run that cannot be planned keeps the default. */
void fri_workspace_choose(fri_config *c, fr_scratch **scratch);

/* train_only.c: --train-only auto becomes words in c->opts, and a table of what trains is printed. */
fr_status fri_train_only_choose(fri_config *c);

/* prefix.c: --prefix-parts auto becomes a number in c->opts. */
fr_status fri_prefix_choose(fri_config *c);

/* Largest reserved bytes of a run, training or evaluation, as planned. */
size_t fri_planned_reserved(const fri_train_plan *p);
/* The plan of a run as it will go, in the arena or not, within this limit: FR_ENOMEM if it does not fit. */
fr_status fri_plan_run(const fri_config *c, size_t limit, fri_train_plan *out);
/* Does the run fit into this limit? FR_OK: yes, *reserved is what it takes; FR_ENOMEM: no. */
fr_status fri_fits(const fri_config *c, size_t limit, size_t *reserved);
/* Sets the switches that cost no time, for the whole run. */
void fri_fit_switches(fri_config *c);
/* The fastest plan for a budget, or with `any` the first, under these switches. */
fr_status fri_fit_find(const fri_config *c, size_t budget, bool any, fr_fit *out);
/* The largest batch that fits into `budget`, 0 if none does. */
fr_status fri_fit_largest_batch(const fri_config *c, size_t budget, bool choose, int64_t *out);

/* One letter per unit, brackets around what runs again: "[kk]ee[k[rr]e]". Returns text. */
enum { FRI_UNITS_TEXT = 3 * FR_MAX_UNITS + 1 };
const char *fri_units_text(const fr_unit_plan *p, char text[FRI_UNITS_TEXT]);

/* plan_all.c: --plan=all. */
fr_status fri_plan_all(const fri_config *c);

/* advise.c: what to add to the command after it ran out of memory; each line is a dry run under the limit that was hit,
 * or, where there was none, under what was reserved then. */
fr_status fri_advise(const fri_config *c, FILE *out);

/* calibrate.c: --calibrate. begin makes the dry run and starts the clock, end stops it and keeps the times. */
fr_status fri_calibration_begin(const fri_config *c, fr_calibration **out);
fr_status fri_calibration_end(const fri_config *c, fr_calibration **p, bool keep);

#endif
