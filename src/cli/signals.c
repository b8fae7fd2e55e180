/* signals.c - SIGINT (Ctrl-C), SIGTERM and SIGHUP (closed terminal) end all runs of the process after the step. */
#include "cli/shell.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { SIGNALS = 3 };
static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static atomic_int seen; /* lock-free, so a signal handler may write it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int runs;
static struct sigaction was[SIGNALS];

static void note_signal(int number) {
    seen = number;
}

/* Ignored signals stay ignored: nohup and background jobs of a shell rely on that. */
static void begin_signals(void) {
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

static void end_signals(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SIGNALS && runs == 1; i++) sigaction(numbers[i], &was[i], NULL);
    runs--;
    pthread_mutex_unlock(&lock);
}

void fri_signals_switch(void *ctx, bool on) {
    (void)ctx;
    (on ? begin_signals : end_signals)();
}

int fri_signal_seen(void *ctx) {
    (void)ctx;
    return seen;
}
