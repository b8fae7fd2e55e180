/* parse.h - reads the command line by the table of flags. */
#ifndef FRI_CLI_PARSE_H
#define FRI_CLI_PARSE_H

#include "session/flags.h"

/* Reads argv from left to right into *o, which holds the defaults; of two flags that contradict each other the later
 * wins. The word of a command (commands.h) becomes its flag in argv. FR_OK; FR_END after --help or --version, which
 * were printed to `out`; FR_EINVAL with a sentence. */
fr_status fri_flags_parse(const fr_train_program *p, int argc, char **argv, fr_train_opts *o, FILE *out);

/* The accepted spelling nearest to `word` ("--epochs" for "--epohcs") in buf, or NULL if none is near. */
const char *fri_flag_nearest(const fr_train_program *p, const char *word, char buf[FRI_FLAG_TEXT_BYTES]);

/* help.c: --help, the flags that one needs first, a line each; --help all, every flag, as a manual page. */
void fri_help_brief(const fr_train_program *p, FILE *out);
void fri_help_print(const fr_train_program *p, FILE *out);

#endif
