/* main.c - a training program on a terminal: reads the flags, prints, stops at a signal. */
#include "cli/shell.h"

typedef struct command_line {
    const fr_train_program *program;
    int argc;
    char **argv;
} command_line;

static fr_status read_options(void *ctx, fr_train_opts *o) {
    const command_line *c = ctx;
    return fri_flags_parse(c->program, c->argc, c->argv, o, stdout);
}

int fr_train_main(const fr_train_program *p, int argc, char **argv) {
    command_line line = {p, argc, argv};
    fri_streams_begin();
    return fr_train_run(p, argc, argv,
                        &(fr_train_shell){.out = stdout,
                                          .err = stderr,
                                          .read = read_options,
                                          .training = fri_signals_switch,
                                          .interrupted = fri_signal_seen,
                                          .ctx = &line});
}
