/* threads.c - see threads.h. */
#include "base/threads.h"

#include "base/container.h"
#include "base/env.h"
#include "base/status.h"
#include "base/thread.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
} gate;

static void *wait_at(void *argument) {
    gate *g = argument;
    pthread_mutex_lock(&g->lock);
    while (!g->open) pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* The system's number of threads of the process; 0 if unknown. */
static int counted(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    if (d == NULL) return 0;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A joined thread still counts for a moment, also against a limit. */
static void settle(int before) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && counted() > before; i++) nanosleep(&moment, NULL);
}

int fri_threads_startable(int n) {
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    sigset_t all, was;
    int before = counted(), started = 0;
    pthread_t *threads = n > 0 ? calloc((size_t)n, sizeof *threads) : NULL;
    if (threads == NULL) return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was); /* signals are for the program's own threads */
    while (started < n && pthread_create(&threads[started], NULL, wait_at, &g) == 0) started++;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    pthread_mutex_lock(&g.lock);
    g.open = true;
    pthread_cond_broadcast(&g.opened);
    pthread_mutex_unlock(&g.lock);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    pthread_cond_destroy(&g.opened);
    pthread_mutex_destroy(&g.lock);
    settle(before);
    return started;
}

/* OpenMP's own default is OMP_NUM_THREADS, else the affinity. */
void fri_threads_choose(void) {
    if (fri_here.threads_chosen) return;
    fri_here.threads_chosen = true;
    const char *asked = fri_env_get()->threads;
    const int quota = fri_container_get()->processors;
    int n = asked != NULL ? atoi(asked) : 0;
    if (n < 1 || n > FRI_THREADS_MOST) n = getenv("OMP_NUM_THREADS") == NULL ? quota : 0;
    if (n < 1 || (n == quota && n >= omp_get_max_threads())) return;
    omp_set_num_threads(n > omp_get_max_threads() ? 1 + fri_threads_startable(n - 1) : n);
}

int fr_threads_get(void) {
    fri_threads_choose();
    return omp_get_max_threads();
}

/* The largest successful number, which needs no second try. */
static _Atomic int known_to_start = 1;

fr_status fr_threads_set(int n) {
    if (n < 1 || n > FRI_THREADS_MOST)
        return fr_fail(FR_EINVAL, "threads_set: %d threads; must lie in 1..%d", n, FRI_THREADS_MOST);
    int started = n > known_to_start ? 1 + fri_threads_startable(n - 1) : n;
    if (started < n)
        return fr_fail(FR_EUSAGE, "threads_set: %d threads are asked for, and this process may start %d", n, started);
    if (n > known_to_start) known_to_start = n;
    fri_here.threads_chosen = true;
    omp_set_num_threads(n);
    return FR_OK;
}

/* The first use makes the team, and OpenMP keeps the team. The count gives the region an effect, because compilers
 * drop empty regions. */
void fr_threads_start(void) {
    static atomic_int started;
#pragma omp parallel
    atomic_fetch_add(&started, 1);
}
