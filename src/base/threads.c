/* threads.c - see threads.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* CPU_COUNT */
#endif
#include "base/threads.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/env.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the pool ----------------------------------------------------------------------------------------------------
 *
 * A caller offers the loop to idle workers and runs pieces, too. At the end the caller takes the loop back from workers
 * that have not begun, so a worker without a processor delays no caller. Without idle workers the caller runs alone. */

enum {
    TEAM_MAX = 256,    /* threads of one loop */
    SPIN_US = 20,      /* microseconds that an idle thread spins before it sleeps */
    RUNS_PER_SPAN = 16 /* parts of a span that threads take in turn */
};

typedef struct span {
    _Atomic int64_t next;
    int64_t end, apart[6]; /* spans lie in lines of the cache of their own */
} span;

typedef struct loop {
    fri_piece *piece;
    const void *context;
    int64_t run; /* pieces that a thread takes at once */
    int spans;
    atomic_int members; /* threads that have begun */
    span span[TEAM_MAX];
} loop;

typedef struct worker {
    _Alignas(64) _Atomic uintptr_t offer; /* the loop; RUNNING is added once the worker has begun; 0: idle */
    _Atomic uint32_t asleep, awaited;     /* 1: the worker sleeps until an offer, a caller until the worker's end */
    pthread_t thread;
} worker;

enum { RUNNING = 1 };

static worker workers[FRI_THREADS_MAX];
static atomic_int worker_count; /* grows under `growth`, up to the end of the process or of the library */
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ending;

static void sleep_while_set(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) {
    if (atomic_exchange(word, 0) == 1) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Returns when w->offer is not `value` (idle workers: when the library ends, too): looks for SPIN_US, then sleeps. */
static void wait_while(worker *w, uintptr_t value, _Atomic uint32_t *sleeps) {
    const double until = fri_now() + 1e-6 * SPIN_US;
    while (atomic_load(&w->offer) == value && !(value == 0 && atomic_load(&ending))) {
        if (fri_now() < until) {
            for (int i = 0; i < 16; i++) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                __asm__ volatile("yield");
#endif
            }
            continue;
        }
        atomic_exchange(sleeps, 1); /* before the load: under qemu a store could pass it, and the sleep had no end */
        if (atomic_load(&w->offer) == value && !(value == 0 && atomic_load(&ending))) sleep_while_set(sleeps);
    }
}

/* Runs the pieces of the member's span, then the rest of all spans. */
static void run_pieces(loop *l, int member) {
    for (int k = 0; k < l->spans; k++) {
        span *s = &l->span[(member + k) % l->spans];
        for (;;) {
            const int64_t from = atomic_fetch_add(&s->next, l->run), left = s->end - from;
            if (left <= 0) break;
            const int64_t to = from + (left < l->run ? left : l->run);
            for (int64_t i = from; i < to; i++) l->piece(l->context, i, member);
        }
    }
}

static void *work(void *argument) {
    worker *w = argument;
    fri_here.in_loop = true;
    while (!atomic_load(&ending)) {
        uintptr_t offered = atomic_load(&w->offer);
        if (offered == 0) {
            wait_while(w, 0, &w->asleep);
        } else if (atomic_compare_exchange_strong(&w->offer, &offered, offered | RUNNING)) {
            loop *l = (loop *)offered;
            run_pieces(l, atomic_fetch_add(&l->members, 1));
            atomic_store(&w->offer, 0);
            wake(&w->awaited);
        }
    }
    return NULL;
}

/* A child of fork has no workers; another thread of the parent may have held the lock. */
static void forget_workers(void) {
    growth = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(workers, 0, sizeof *workers * (size_t)atomic_exchange(&worker_count, 0));
    fri_here.threads = 1;
}

/* Enlarges the pool to n workers, or to the number that the system starts; returns the number of workers, at most n. */
static int grow(int n) {
    sigset_t all, was;
    static bool watched;
    if (atomic_load(&worker_count) >= n) return n;
    pthread_mutex_lock(&growth);
    watched = watched || pthread_atfork(NULL, NULL, forget_workers) == 0;
    int count = atomic_load(&worker_count);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was); /* signals are for the program's own threads */
    while (count < n && pthread_create(&workers[count].thread, NULL, work, &workers[count]) == 0) count++;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    atomic_store(&worker_count, count);
    pthread_mutex_unlock(&growth);
    return count < n ? count : n;
}

/* No worker may return into code that has been unloaded. */
__attribute__((destructor)) static void end_workers(void) {
    atomic_store(&ending, true);
    for (int i = 0; i < atomic_load(&worker_count); i++) {
        wake(&workers[i].asleep);
        pthread_join(workers[i].thread, NULL);
    }
}

static bool offer(worker *w, loop *l) {
    uintptr_t idle = 0;
    if (atomic_load(&w->offer) != 0 || !atomic_compare_exchange_strong(&w->offer, &idle, (uintptr_t)l)) return false;
    wake(&w->asleep);
    return true;
}

static void take_back(worker *w, loop *l) {
    uintptr_t offered = (uintptr_t)l;
    if (!atomic_compare_exchange_strong(&w->offer, &offered, 0)) wait_while(w, (uintptr_t)l | RUNNING, &w->awaited);
}

void fri_parallel(int64_t pieces, int threads, fri_piece *piece, const void *context) {
    const int max = threads < TEAM_MAX ? threads : TEAM_MAX, spans = pieces < max ? (int)pieces : max;
    const int count = atomic_load(&worker_count);
    if (spans < 2 || count == 0 || fri_here.in_loop) {
        for (int64_t i = 0; i < pieces; i++) piece(context, i, 0);
        return;
    }
    loop l;
    worker *team[TEAM_MAX];
    int found = 0;
    l.piece = piece;
    l.context = context;
    l.run = 1 + pieces / (spans * RUNS_PER_SPAN);
    l.spans = spans;
    atomic_init(&l.members, 1);
    for (int i = 0; i < spans; i++) {
        atomic_init(&l.span[i].next, pieces * i / spans);
        l.span[i].end = pieces * (i + 1) / spans;
    }
    for (int i = 0; i < count && found < spans - 1; i++)
        if (offer(&workers[i], &l)) team[found++] = &workers[i];
    fri_here.in_loop = true;
    run_pieces(&l, 0);
    fri_here.in_loop = false;
    while (found > 0) take_back(team[--found], &l);
}

/* ---- the number of threads ------------------------------------------------------------------------------------- */

/* 0: no number of threads. */
static int number(const char *text) {
    const int n = text != NULL ? atoi(text) : 0;
    return n >= 1 && n <= FRI_THREADS_MAX ? n : 0;
}

static int processors(void) {
    const int quota = fri_container_get()->processors;
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota > 0 && quota < n) n = quota;
    return n < 1 ? 1 : n > FRI_THREADS_MAX ? FRI_THREADS_MAX : n;
}

int fr_threads_get(void) {
    if (fri_here.threads > 0) return fri_here.threads;
    int n = number(fri_env_get()->threads);
    if (n == 0) n = number(getenv("OMP_NUM_THREADS"));
    if (n == 0) n = processors();
    return fri_here.threads = 1 + grow(n - 1);
}

fr_status fr_threads_set(int n) {
    if (n < 1 || n > FRI_THREADS_MAX)
        return fr_fail(FR_EINVAL, "threads_set: %d threads; must lie in 1..%d", n, FRI_THREADS_MAX);
    const int started = 1 + grow(n - 1);
    if (started < n)
        return fr_fail(FR_EUSAGE, "threads_set: %d threads are requested, but this process may start %d", n, started);
    fri_here.threads = n;
    return FR_OK;
}
