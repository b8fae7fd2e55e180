/* parse.h - parses the command line with the table of flags. */
#ifndef FRI_CLI_PARSE_H
#define FRI_CLI_PARSE_H

#include "session/flags.h"

/* Parses argv from left to right into *o, which holds the defaults. Of two contradicting flags the later wins. A
 * command (commands.h) becomes a flag in argv. FR_END: --help or --version was printed to `out`. FR_EINVAL: see the
 * sentence. */
fr_status fri_flags_parse(const fr_train_program *p, int argc, char **argv, fr_train_opts *o, FILE *out);

/* Accepted spelling closest to `word` ("--epochs" for "--epohcs") in buf, or NULL if none is close. */
const char *fri_flag_nearest(const fr_train_program *p, const char *word, char buf[FRI_FLAG_TEXT_BYTES]);

/* help.c: --help (the most useful flags, a line each) and --help all (all flags, as a manual page). */
void fri_help_brief(const fr_train_program *p, FILE *out);
void fri_help_print(const fr_train_program *p, FILE *out);

#endif
