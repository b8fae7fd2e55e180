/* commands.h - what a trainer can be asked for: the table of commands.
 *
 * A command is the first word of the command line, "train_vgg plan", and a flag of the same name, --plan, which asks
 * for the same. Without any a trainer trains. */
#ifndef FRI_CLI_COMMANDS_H
#define FRI_CLI_COMMANDS_H

#include "session/session.h"

typedef struct fri_command {
    const char *name, *flag;          /* "plan", "--plan"; flag NULL: it is what is done without one */
    const char *operand;              /* "FILE"; NULL: none follows */
    const char *help, *brief;         /* sentences for --help all; a line for --help */
    fr_status (*run)(fri_session *r); /* NULL: another command does it, told by the flag */
    bool advises;                     /* running out of memory is followed by advice */
} fri_command;

extern const fri_command fri_commands[];
extern const int fri_commands_count;

/* The command of that name, or NULL. */
const fri_command *fri_command_find(const char *name);

/* Runs what was asked for, in the table's order. *advises: of the command that ran last. */
fr_status fri_commands_run(fri_session *r, bool *advises);

/* ---- commands of a file each ---- */

/* plan_command.c: plans the run, prints it and writes the report. FR_ENOMEM if it does not fit into --memory-limit: the
 * sentence says what it needs. */
fr_status fri_plan_command(fri_session *r);
fr_status fri_summary_command(fri_session *r); /* summary.c */
fr_status fri_predict(fri_session *r);         /* predict.c */

/* ---- before and around them ---- */

/* streams.c: at the very beginning, so that no file gets the number of a standard stream that is closed. */
void fri_streams_begin(void);
/* places.c: FR_EINVAL if two files that the command writes are one, or one that it writes is one that it reads. */
fr_status fri_places_check(const fr_train_program *p, const fr_train_opts *o);
/* notes.c: a line for each memory switch of the command that saves nothing in this network, or raises its peak. */
void fri_switch_notes(const fri_session *r);
/* ranks.c: begin meets the other ranks, if a launcher started some; those but the first print nothing from then on.
 * note says how many there are. failed says this one's failure s, with rank and step if there are several, and ends
 * the run for all of them. */
fr_status fri_ranks_begin(fri_config *c);
void fri_ranks_note(const fri_session *r);
void fri_ranks_failed(const fri_session *r, fr_status s);
/* signals.c: SIGINT, SIGTERM and SIGHUP are noted; the second one of a kind ends the process as usual. */
void fri_signals_begin(void);
void fri_signals_end(void);
int fri_signal_seen(void *ctx); /* its number, or 0 */

#endif
