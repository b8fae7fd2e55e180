/* signals.c - Ctrl-C and SIGTERM end the run after the step. */
#include "train/run.h"

#include <signal.h>

static volatile sig_atomic_t seen;
static struct sigaction was_interrupt, was_terminate;

static void note(int number) {
    seen = number;
}

void fri_signals_begin(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    seen = 0;
    sigaction(SIGINT, &action, &was_interrupt);
    sigaction(SIGTERM, &action, &was_terminate);
}

void fri_signals_end(void) {
    sigaction(SIGINT, &was_interrupt, NULL);
    sigaction(SIGTERM, &was_terminate, NULL);
}

int fri_signal_seen(void) {
    return seen;
}
