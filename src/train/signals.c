/* signals.c - Ctrl-C, SIGTERM and a closed terminal end the run after the step. */
#include "train/run.h"

#include <signal.h>

enum { SIGNALS = 3 };
static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t seen;
static struct sigaction was[SIGNALS];

static void note(int number) {
    seen = number;
}

/* What is ignored stays ignored: nohup, and jobs that a shell started in the background. */
void fri_signals_begin(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    seen = 0;
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(numbers[i], NULL, &was[i]) == 0 && was[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

void fri_signals_end(void) {
    for (int i = 0; i < SIGNALS; i++) sigaction(numbers[i], &was[i], NULL);
}

int fri_signal_seen(void) {
    return seen;
}
