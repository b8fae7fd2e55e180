/* dnnl_threads.c - oneDNN's threads, which belong to OpenMP.
 *
 * OpenMP's idle threads look for work for some 3 ms, and keep processors from the library's threads and from further
 * programs. In a process with more threads of OpenMP than processors they sleep after a microsecond (libgomp's manual:
 * GOMP_SPINCOUNT). A team of sleeping threads raises the number, unless the environment has a setting of its own. */
#include "cpu/dnnl_module.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int started; /* threads of the sleeping team; the count gives the region an effect */

static void *sleep_as_team(void *unused) {
    (void)unused;
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
    atomic_fetch_add(&started, 1);
    for (;;) pause();
    return NULL;
}

static void start_sleeping_team(void) {
    const int threads = omp_get_num_procs() + 1;
    sigset_t all, was;
    pthread_t thread;
    if (getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL) return;
    if (fri_dnnl_here.startable(threads) < threads) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was); /* signals are for the program's own threads */
    if (pthread_create(&thread, NULL, sleep_as_team, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
}

int fri_dnnl_threads(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_int known = 1; /* the largest number that could start */
    const int n = fri_dnnl_here.threads();
    if (n <= atomic_load(&known)) return n;
    if (fri_dnnl_here.startable(n - 1) < n - 1) return 1;
    atomic_store(&known, n);
    pthread_once(&once, start_sleeping_team);
    return n;
}
