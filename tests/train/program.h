/* program.h - runs a trainer as a user does, and keeps its output. */
#ifndef TESTS_TRAIN_PROGRAM_H
#define TESTS_TRAIN_PROGRAM_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct outcome {
    int status;    /* of the exit; 1000 + n if signal n ended the program */
    long resident; /* KiB at most */
    char out[1 << 16], err[1 << 14];
} outcome;

/* "train_vgg" -> its path, from the environment variable FRUGAL_TRAINERS (a folder). */
const char *program_path(const char *name);

/* The device of the run, "cpu" or the value of FRUGAL_TEST_DEVICE, for arguments without --device. */
const char *program_device(void);

/* Runs `name` with the words of `arguments` (separated by blanks) and waits.
 *
 * on_terminal: standard output is a terminal of 200 columns. `signal_after` not NULL: `signal` (0: SIGINT) is sent
 * once the text has appeared on standard output. `prepare` runs in the new process before the program does (limits);
 * `watch` runs here every few milliseconds until it returns true. */
typedef struct how {
    bool on_terminal;
    const char *signal_after;
    int signal;
    void (*prepare)(void);
    bool (*watch)(void);
} how;
outcome program_run_as(how h, const char *name, const char *arguments);
outcome program_run(const char *name, const char *arguments);

/* Is an argument the flag of an add-on that was not built? */
bool program_lacks(const char *arguments);

/* An extended regular expression somewhere in the text, lines joined. */
bool matches(const char *text, const char *expression);

#define EXPECT_MATCH(text, expression) \
    cr_expect(matches((text), (expression)), "no match for /%s/ in: %s", (expression), (text))

#endif
