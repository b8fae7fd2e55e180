/* threads.c - see threads.h. */
#include "base/threads.h"

#include "base/container.h"
#include "base/env.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

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
static int threads_alive(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    if (d == NULL) return 0;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A joined thread still counts for a moment, also against a limit. */
static void wait_for_joined(int before) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && threads_alive() > before; i++) nanosleep(&moment, NULL);
}

int fri_threads_startable(int n) {
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    sigset_t all, was;
    int before = threads_alive(), started = 0;
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
    wait_for_joined(before);
    return started;
}

/* ---- idle threads on processors shared with other programs -----------------------------------------------------
 *
 * OpenMP's idle threads wait for work in a loop of some 3 ms. On a processor shared with another program, the loop
 * takes time from the thread with work, and a training takes 10 times as long. In a process with more threads of OpenMP
 * than processors, the loop ends after a microsecond and the thread sleeps (libgomp's manual: GOMP_SPINCOUNT). A team
 * of idle threads raises the number while the processors are busy. OMP_WAIT_POLICY or GOMP_SPINCOUNT in the environment
 * decide otherwise. */
static struct idle_team {
    pthread_mutex_t lock;
    pthread_cond_t over;
    pthread_t thread;
    pid_t process; /* the process with the team; 0: none. A child after fork has none */
    bool end;
    struct rusage seen;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *keep_team(void *unused) {
    static atomic_int started;
    (void)unused;
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
    atomic_fetch_add(&started, 1);
    pthread_mutex_lock(&idle.lock);
    while (!idle.end) pthread_cond_wait(&idle.over, &idle.lock);
    pthread_mutex_unlock(&idle.lock);
    return NULL;
}

static void start_team(void) {
    const int threads = omp_get_num_procs() + 1;
    sigset_t all, was;
    if (fri_threads_startable(threads) < threads) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    idle.end = false;
    if (pthread_create(&idle.thread, NULL, keep_team, NULL) == 0) idle.process = getpid();
    pthread_sigmask(SIG_SETMASK, &was, NULL);
}

/* Unloading ends the team, because the thread must not return into unloaded code. */
__attribute__((destructor)) static void end_team(void) {
    if (idle.process != getpid()) return;
    pthread_mutex_lock(&idle.lock);
    idle.end = true;
    pthread_cond_signal(&idle.over);
    pthread_mutex_unlock(&idle.lock);
    pthread_join(idle.thread, NULL);
    idle.process = 0;
}

void fri_threads_sleep(bool on) {
    if (!on)
        end_team();
    else if (idle.process != getpid() && getenv("OMP_WAIT_POLICY") == NULL && getenv("GOMP_SPINCOUNT") == NULL)
        start_team();
}

bool fri_threads_crowded(bool crowded, double seconds, long preempted) {
    if (seconds < (crowded ? 1 : 0.1)) return crowded;
    return (double)preempted > (crowded ? 80 : 150) * seconds;
}

static double processor_seconds(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* One thread looks at a time. */
static void look_at_load(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rusage now;
    if (pthread_mutex_trylock(&lock) != 0) return;
    getrusage(RUSAGE_SELF, &now);
    const bool was = idle.process == getpid();
    const double seconds = processor_seconds(&now) - processor_seconds(&idle.seen);
    const bool crowded = fri_threads_crowded(was, seconds, now.ru_nivcsw - idle.seen.ru_nivcsw);
    if (crowded != was) fri_threads_sleep(crowded);
    if (crowded != was || seconds >= 1) idle.seen = now;
    pthread_mutex_unlock(&lock);
}

/* ---- their number ---------------------------------------------------------------------------------------------- */

/* OpenMP's own default is OMP_NUM_THREADS, else the affinity. */
void fri_threads_choose(void) {
    if (++fri_here.threads_asked % 64 == 0 && omp_get_max_threads() > 1) look_at_load();
    if (fri_here.threads_chosen) return;
    fri_here.threads_chosen = true;
    const char *asked = fri_env_get()->threads;
    const int quota = fri_container_get()->processors;
    int n = asked != NULL ? atoi(asked) : 0;
    if (n < 1 || n > FRI_THREADS_MOST) n = getenv("OMP_NUM_THREADS") == NULL ? quota : 0;
    if (n > 0 && (n != quota || n < omp_get_max_threads()))
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
        return fr_fail(FR_EUSAGE, "threads_set: %d threads are requested, but this process may start %d", n, started);
    if (n > known_to_start) known_to_start = n;
    fri_here.threads_chosen = true;
    omp_set_num_threads(n);
    return FR_OK;
}

/* The first use makes the team, and OpenMP keeps the team. The count gives the region an effect, because compilers
 * drop empty regions. */
void fri_threads_start(void) {
    static atomic_int started;
#pragma omp parallel
    atomic_fetch_add(&started, 1);
}

/* ---- loops ----------------------------------------------------------------------------------------------------- */

void fri_parallel(int64_t pieces, int threads, fri_piece *piece, const void *context) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && pieces > 1)
    for (int64_t i = 0; i < pieces; i++) piece(context, i, omp_get_thread_num());
}
