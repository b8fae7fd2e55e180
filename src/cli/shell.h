/* shell.h - the terminal's side of a training program: command line, help, signals, standard streams. */
#ifndef FRI_CLI_SHELL_H
#define FRI_CLI_SHELL_H

#include <frugal/train.h>

/* A command is the first word of the command line ("train_vgg plan") or a flag of equal name (--plan). */
typedef struct fri_command {
    const char *name, *flag;  /* "plan", "--plan"; flag NULL: the default, training */
    const char *operand;      /* "FILE"; NULL: no operand */
    const char *help, *brief; /* text for --help all; one line for --help */
} fri_command;
extern const fri_command fri_commands[]; /* help.c; a row without a name ends the table */

/* parse.c: parses argv from left to right into *o, which holds the defaults. Of two contradicting flags the later
 * wins. A command becomes a flag in argv. FR_END: --help or --version was printed to `out`. FR_EINVAL: see the
 * sentence. */
fr_status fri_flags_parse(const fr_train_program *p, int argc, char **argv, fr_train_opts *o, FILE *out);
/* Accepted spelling closest to `word` ("--epochs" for "--epohcs") in buf, or NULL if none is close. */
const char *fri_flag_nearest(const fr_train_program *p, const char *word, char buf[FR_FLAG_TEXT_BYTES]);
/* FR_EUNSUPPORTED with the add-on's name if name[0..n) is a flag of an add-on that was not built, else FR_OK. */
fr_status fri_flag_missing(const char *name, size_t n);

/* help.c: --help (the most useful flags, a line each) and --help all (all flags, as a manual page). */
void fri_help_brief(const fr_train_program *p, FILE *out);
void fri_help_print(const fr_train_program *p, FILE *out);

/* streams.c: call first, so that no file gets the descriptor of a closed standard stream. */
void fri_streams_begin(void);

/* signals.c: records SIGINT, SIGTERM and SIGHUP while switched on; a second signal of a kind ends the process as
 * usual. */
void fri_signals_switch(void *ctx, bool on);
int fri_signal_seen(void *ctx); /* signal number, or 0 */

#endif
