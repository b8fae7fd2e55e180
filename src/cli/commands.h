/* commands.h - the table of a trainer's commands.
 *
 * A command is the first word of the command line ("train_vgg plan") or a flag of equal name (--plan). The default is
 * training. */
#ifndef FRI_CLI_COMMANDS_H
#define FRI_CLI_COMMANDS_H

#include "session/session.h"

typedef struct fri_command {
    const char *name, *flag;          /* "plan", "--plan"; flag NULL: the default command */
    const char *operand;              /* "FILE"; NULL: no operand */
    const char *help, *brief;         /* text for --help all; one line for --help */
    fr_status (*run)(fri_session *r); /* NULL: done by another command that reads the flag */
    bool advises;                     /* print advice after FR_ENOMEM */
} fri_command;

extern const fri_command fri_commands[];
extern const int fri_commands_count;

/* Looks up a command by name; NULL: not found. */
const fri_command *fri_command_find(const char *name);

/* Runs the requested commands in table order. *advises: `advises` of the last command. */
fr_status fri_commands_run(fri_session *r, bool *advises);

/* ---- commands ---- */

/* plan_command.c: plans the run, prints the plan and writes the report. FR_ENOMEM: the run exceeds --memory-limit;
 * the sentence gives the bytes needed. */
fr_status fri_plan_command(fri_session *r);
fr_status fri_summary_command(fri_session *r); /* summary.c */
fr_status fri_predict(fri_session *r);         /* predict.c */

/* ---- before, after and around commands ---- */

/* streams.c: call first, so that no file gets the descriptor of a closed standard stream. */
void fri_streams_begin(void);
/* places.c: FR_EINVAL if two outputs of the command are one file, or if an output is also an input. */
fr_status fri_places_check(const fr_train_program *p, const fr_train_opts *o);
/* notes.c: names memory switches of the command that save nothing in this network or raise its peak. */
void fri_switch_notes(const fri_session *r);
/* ranks.c. begin: connects to the other ranks if a launcher started several; only rank 0 prints from then on. note:
 * prints the number of ranks. failed: prints this rank's failure s, with rank and step if there are several ranks,
 * and ends the run of all ranks. */
fr_status fri_ranks_begin(fri_config *c);
void fri_ranks_note(const fri_session *r);
void fri_ranks_failed(const fri_session *r, fr_status s);
/* signals.c: records SIGINT, SIGTERM and SIGHUP; a second signal of a kind ends the process as usual. */
void fri_signals_begin(void);
void fri_signals_end(void);
int fri_signal_seen(void *ctx); /* signal number, or 0 */

#endif
