/* command.h - commands of a trainer (plan, summary, predict) and its output. */
#ifndef FRI_TRAINER_COMMAND_H
#define FRI_TRAINER_COMMAND_H

#include "base/atomic_file.h"
#include "session/model.h"
#include "session/state.h"
#include "session/step.h"
#include "session/views.h"

/* plan_command.c: plans the run, prints the plan and writes the report. FR_ENOMEM: the run exceeds --memory-limit;
 * the sentence gives the bytes needed. */
fr_status fri_plan_command(fri_run *r);
fr_status fri_plan_all(const fri_config *c);         /* plan_all.c: --plan=all */
fr_status fri_switches_command(const fri_config *c); /* switches_command.c: --plan=switches */
fr_status fri_summary_command(fri_run *r);           /* summary_command.c */
fr_status fri_predict_command(fri_run *r);           /* predict_command.c */

/* places.c: FR_EINVAL if two outputs of the command are one file, or if an output is also an input. */
fr_status fri_places_check(const fr_train_program *p, const fr_train_opts *o);
/* The file for the mask of image i of --predict. False: the path is too long. */
bool fri_mask_path(const fr_train_opts *o, int64_t i, char path[FRI_TARGET_BYTES]);
/* notes.c: names memory switches of the command that save nothing in this network or raise its peak. */
void fri_switch_notes(const fri_run *r);

/* launch.c. begin: connects to the other ranks if a launcher started several; only rank 0 prints from then on. note:
 * prints the number of ranks. failed: prints this rank's failure s, with rank and step if there are several ranks,
 * and ends the run of all ranks. */
fr_status fri_ranks_begin(fri_config *c);
void fri_ranks_note(const fri_run *r);
void fri_ranks_failed(const fri_run *r, fr_status s, FILE *err);

/* advise.c: suggests flags after the command ran out of memory. Each line is a dry run under the exceeded limit, or
 * without a limit, under the bytes reserved at the failure. */
fr_status fri_advise(const fri_config *c, FILE *out);

/* progress.c: one line that is redrawn on a terminal, plain lines elsewhere; the result at the end; sentences of
 * the run. */
extern const fri_view fri_progress_view;
void fri_progress_said(void *config, fri_saying how, const char *text);
void fri_progress_arena(const fri_run *r); /* prints the lines about the arena */
/* "2 min 13 s", "4.2 s", "1 h 5 min". Returns buf. */
enum { FRI_DURATION_TEXT = 40 };
const char *fri_duration_text(double seconds, char buf[FRI_DURATION_TEXT]);

#endif
