/* signals.c - Ctrl-C, SIGTERM and a closed terminal end the run after the step: all runs of the process. */
#include "cli/commands.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { SIGNALS = 3 };
static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static atomic_int seen; /* lock-free, so a handler may write it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int runs;
static struct sigaction was[SIGNALS];

static void note_signal(int number) {
    seen = number;
}

/* Signals that are ignored stay ignored: nohup, and jobs that a shell started in the background. */
void fri_signals_begin(void) {
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&lock);
    if (runs++ == 0) {
        seen = 0;
        for (int i = 0; i < SIGNALS; i++)
            if (sigaction(numbers[i], NULL, &was[i]) == 0 && was[i].sa_handler != SIG_IGN)
                sigaction(numbers[i], &action, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void fri_signals_end(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SIGNALS && runs == 1; i++) sigaction(numbers[i], &was[i], NULL);
    runs--;
    pthread_mutex_unlock(&lock);
}

int fri_signal_seen(void *ctx) {
    (void)ctx;
    return seen;
}
