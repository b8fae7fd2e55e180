/* test_threads.c - loops on the pool of threads, and a system that starts few threads or none: functions report the
 * lack or continue with fewer.
 *
 * Linked with --wrap: pthread_create fails after `left` threads. */
#include "base/container.h"
#include "base/process.h"
#include "base/threads.h"
#include "data/loader.h"

#include <frugal/base.h>
#include <frugal/data.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int left = 1 << 20;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument) {
    return atomic_fetch_sub(&left, 1) > 0 ? __real_pthread_create(t, a, f, argument) : EAGAIN;
}

Test(threads, more_than_can_be_started_are_refused_with_both_numbers) {
    setenv("FRUGAL_THREADS", "1", 1);
    int was = fr_threads_get();
    left = 3;
    cr_expect_eq(fr_threads_set(64), FR_EUSAGE);
    cr_expect_not_null(strstr(fr_last_error(), "64 threads are requested, but this process may start 4"), "%s",
                       fr_last_error());
    cr_expect_eq(fr_threads_get(), was, "a refused number was set");
    left = 0;
    cr_expect_eq(fr_threads_set(4), FR_OK, "%s", fr_last_error());
    cr_expect_eq(fr_threads_get(), 4);
    cr_expect_eq(fr_threads_set(3), FR_OK, "the workers of the refused call stay");
    cr_expect_eq(fr_threads_set(0), FR_EINVAL);
    cr_expect_eq(fr_threads_set(1 << 30), FR_EINVAL);
}

/* Counts the threads of the process. */
static int threads_alive(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    cr_assert_not_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

Test(threads, the_pool_starts_with_the_number) {
    const int before = threads_alive();
    cr_assert_eq(fr_threads_set(3), FR_OK);
    cr_expect_eq(threads_alive(), before + 2);
    cr_assert_eq(fr_threads_set(2), FR_OK);
    cr_expect_eq(threads_alive(), before + 2, "workers stay");
}

enum { PIECES = 1000, MEMBERS = 3 };

typedef struct counts {
    atomic_int runs[PIECES], in[MEMBERS], wrong;
} counts;

static void count_piece(const void *context, int64_t i, int thread) {
    counts *c = *(counts *const *)context;
    if (thread < 0 || thread >= MEMBERS || atomic_fetch_add(&c->in[thread], 1) != 0) {
        c->wrong++;
        return;
    }
    c->runs[i]++;
    for (volatile int k = 0; k < (i % 7 == 0 ? 2000 : 20); k++) {
    }
    c->in[thread]--;
}

/* Loops of many lengths, with pauses, so loops find workers awake or asleep. */
static void *many_loops(void *unused) {
    counts *c = calloc(1, sizeof *c);
    cr_assert_not_null(c);
    cr_assert_eq(fr_threads_set(MEMBERS), FR_OK);
    for (int64_t n = 0; n <= PIECES; n += n < 20 ? 1 : 49) {
        for (int k = 0; k < 20; k++) fri_parallel(n, MEMBERS, count_piece, &c);
        for (int64_t i = 0; i < PIECES; i++)
            if (atomic_exchange(&c->runs[i], 0) != (i < n ? 20 : 0)) c->wrong++;
        usleep(n % 3 * 40);
    }
    cr_expect_eq(c->wrong, 0);
    free(c);
    return unused;
}

Test(threads, each_piece_runs_once_and_no_two_with_one_number) {
    many_loops(NULL);
}

Test(threads, loops_of_several_callers_share_the_pool) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&t[i], NULL, many_loops, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}

typedef struct meeting {
    atomic_int arrived, met, masked;
} meeting;

/* Waits for the second piece, which only a second thread can run meanwhile. */
static void meet(const void *context, int64_t i, int thread) {
    meeting *m = *(meeting *const *)context;
    sigset_t mask;
    m->arrived++;
    for (int k = 0; k < 50000 && m->arrived < 2; k++) usleep(100);
    m->met += m->arrived == 2;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (thread > 0 && sigismember(&mask, SIGINT) == 1) m->masked++;
    (void)i;
}

Test(threads, sleeping_workers_wake_for_every_loop_and_take_no_signals) {
    cr_assert_eq(fr_threads_set(2), FR_OK);
    for (int k = 0; k < 5; k++) {
        meeting m = {0}, *at = &m;
        usleep(2000);
        fri_parallel(2, 2, meet, &at);
        cr_assert_eq(m.met, 2, "loop %d ran on a single thread", k);
        cr_expect_eq(m.masked, 1);
    }
}

static void inner(const void *context, int64_t i, int thread) {
    atomic_int *sum = *(atomic_int *const *)context;
    *sum += thread == 0 ? (int)i : 1000;
    usleep(200);
}

static void outer(const void *context, int64_t i, int thread) {
    (void)i;
    (void)thread;
    fri_parallel(10, 3, inner, context);
}

Test(threads, a_loop_in_a_piece_runs_alone) {
    atomic_int sum = 0, *at = &sum;
    cr_assert_eq(fr_threads_set(3), FR_OK);
    fri_parallel(2, 2, outer, &at);
    cr_expect_eq(sum, 2 * 45, "the third thread took inner pieces");
}

Test(threads, idle_workers_sleep) {
    many_loops(NULL);
    const clock_t before = clock(); /* of the processors */
    usleep(200000);
    cr_expect_lt(clock() - before, CLOCKS_PER_SEC / 100);
}

#ifdef __SANITIZE_ADDRESS__
/* Children of fork have no leak check: memory of the parent's threads is no leak, but the check would wait. */
static bool in_child;
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void) {
    return in_child;
}
#endif

/* Runs fn in a child of fork; the child ends by exit, so by the library's destructors, within ten seconds. */
static void expect_child_ends(void *(*fn)(void *), void *ctx) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
#ifdef __SANITIZE_ADDRESS__
        in_child = true;
#endif
        alarm(10);
        exit(fn(ctx) == ctx ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
}

Test(threads, a_loop_in_a_child_of_fork_ends) {
    many_loops(NULL);
    for (int k = 0; k < 20; k++) expect_child_ends(many_loops, NULL);
}

/* More threads than the parent has: workers of the child sleep and end. */
static void *grows(void *unused) {
    int n = 0;
    const int before = threads_alive();
    if (before != 1 || fr_threads_get() != 1) return &left;
    for (n = 2; n <= 5; n++) {
        meeting m = {0}, *at = &m;
        if (fr_threads_set(n) != FR_OK || threads_alive() != n) return &left;
        usleep(2000);
        fri_parallel(2, 2, meet, &at);
        if (m.met != 2) return &left;
    }
    return unused;
}

Test(threads, a_child_of_fork_starts_workers_of_its_own) {
    cr_assert_eq(fr_threads_set(3), FR_OK);
    usleep(2000);
    for (int k = 0; k < 5; k++) expect_child_ends(grows, NULL);
}

static atomic_bool enough;

static void *grows_the_pool(void *unused) {
    for (int n = 2; n <= 1000 && !enough; n++) (void)fr_threads_set(n);
    return unused;
}

Test(threads, a_child_of_fork_does_not_wait_for_a_growing_pool) {
    pthread_t t;
#ifdef __SANITIZE_ADDRESS__
    cr_skip("the sanitizer's lock of threads may be held at fork, and the child waits for the lock");
#endif
    cr_assert_eq(fr_threads_set(2), FR_OK);
    cr_assert_eq(pthread_create(&t, NULL, grows_the_pool, NULL), 0);
    for (int k = 0; k < 40; k++) expect_child_ends(grows, NULL);
    enough = true;
    pthread_join(t, NULL);
}

Test(threads, a_process_that_may_start_none_computes_alone) {
    left = 0;
    setenv("FRUGAL_THREADS", "3", 1);
    cr_expect_eq(fr_threads_get(), 1);
    atomic_int sum = 0, *at = &sum;
    fri_parallel(10, 3, inner, &at);
    cr_expect_eq(sum, 45);
}

static void *default_threads(void *out) {
    *(int *)out = fr_threads_get();
    return NULL;
}

Test(threads, each_thread_begins_with_the_number_of_the_environment) {
    int n = 0;
    pthread_t t;
    setenv("FRUGAL_THREADS", "3", 1);
    cr_expect_eq(fr_threads_get(), 3);
    cr_assert_eq(fr_threads_set(2), FR_OK);
    cr_assert_eq(pthread_create(&t, NULL, default_threads, &n), 0);
    pthread_join(t, NULL);
    cr_expect_eq(n, 3);
    cr_expect_eq(fr_threads_get(), 2);
}

static void write_text(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
}

/* Folders as in the kernel. A version 2 group is below another group; version 1 has a folder per kind. */
Test(threads, limits_of_containers_are_read) {
    static const struct {
        const char *groups, *folder, *name, *text, *above; /* above: text of the file in the parent folder */
        int processors;
        size_t memory;
    } cases[] = {
        {"0::/a/b\n", "a/b", "cpu.max", "100000 100000\n", "300000 100000\n", 1, 0},
        {"0::/a/b\n", "a/b", "cpu.max", "max 100000\n", "150000 100000\n", 2, 0},
        {"0::/a/b\n", "a/b", "memory.max", "max\n", "268435456\n", 0, 268435456},
        {"0::/not/there\n", "a", "cpu.max", "50000 100000\n", "max 100000\n", 0, 0},
        {"12:memory:/docker/7\n0::/\n", "memory/docker/7", "memory.limit_in_bytes", "8589934592\n",
         "9223372036854771712\n", 0, 8589934592},
        {"3:cpu,cpuacct:/\n", "cpu", "cpu.cfs_quota_us", "250000\n", "-1\n", 3, 0},
        {"3:cpu,cpuacct:/x\n", "cpu/x", "cpu.cfs_quota_us", "-1\n", "-1\n", 0, 0},
        {"a line of nothing\n", "a", "cpu.max", "100000 100000\n", "100000 100000\n", 0, 0},
    };
    char root[] = "/tmp/frugal-container-XXXXXX", command[192];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[160];
        fri_container c = {7, 7};
        cr_assert_not_null(mkdtemp(strcpy(root, "/tmp/frugal-container-XXXXXX")));
        snprintf(folder, sizeof folder, "%s/%s", root, cases[i].folder);
        snprintf(command, sizeof command, "mkdir -p %s", folder);
        cr_assert_eq(system(command), 0);
        write_text(folder, cases[i].name, cases[i].text);
        write_text(folder, "cpu.cfs_period_us", "100000\n");
        *strrchr(folder, '/') = '\0';
        write_text(folder, cases[i].name, cases[i].above);
        write_text(root, "groups", cases[i].groups);
        snprintf(folder, sizeof folder, "%s/groups", root);
        fri_container_read(folder, root, &c);
        cr_expect_eq(c.processors, cases[i].processors, "case %zu: %d", i, c.processors);
        cr_expect_eq(c.memory, cases[i].memory, "case %zu: %zu", i, c.memory);
        snprintf(command, sizeof command, "rm -r %s", root);
        cr_assert_eq(system(command), 0);
    }
    fri_container_read("/not/there", "/sys/fs/cgroup", &(fri_container){0});
}

enum { IMAGES = 23, SIDE = 6, PIXELS = SIDE * SIDE * 3 };

/* All batches of two epochs in sequence. */
static float *batches(int workers, int may_start, int64_t *count) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    float *all = calloc(2 * IMAGES * PIXELS, sizeof *all);
    *count = 0;
    left = may_start;
    cr_assert_eq(fr_dataset_synthetic(IMAGES, 3, SIDE, SIDE, 3, 1, &d), FR_OK);
    cr_assert_eq(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 4, .workers = workers, .prefetch = 2, .seed = 3), &l),
                 FR_OK, "%s", fr_last_error());
    cr_expect_eq(fri_tensor_loader_workers(l), workers < may_start ? workers : may_start);
    for (int epoch = 0; epoch < 2; epoch++)
        for (;;) {
            fr_status s = fr_loader_next(l, &x, &t);
            if (s == FR_END) break;
            cr_assert_eq(s, FR_OK, "%s", fr_last_error());
            memcpy(all + *count, fr_tensor_data(x), fr_tensor_nbytes(x));
            *count += fr_tensor_numel(x);
        }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
    fr_dataset_release(&d);
    return all;
}

Test(threads, a_loader_goes_on_with_fewer_workers_or_none) {
    int64_t n = 0, m = 0;
    float *expected = batches(0, 0, &n);
    for (int may_start = 0; may_start <= 3; may_start++) {
        float *got = batches(3, may_start, &m);
        cr_expect_eq(m, n, "%d workers", may_start);
        cr_expect_eq(memcmp(got, expected, (size_t)n * sizeof *got), 0, "%d workers: other images", may_start);
        free(got);
    }
    free(expected);
}

static void *uses_the_loader(void *loader) {
    fr_loader *l = loader;
    fr_tensor *x = NULL, *t = NULL;
    if (fr_loader_next(l, &x, &t) != FR_EUSAGE || fr_loader_position_set(l, 0, 0) != FR_EUSAGE) return NULL;
    fr_loader_release(&l);
    return loader;
}

Test(threads, a_child_of_fork_does_not_wait_for_the_workers_of_a_loader) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    cr_assert_eq(fr_dataset_synthetic(IMAGES, 3, SIDE, SIDE, 3, 1, &d), FR_OK);
    cr_assert_eq(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 2, .workers = 3, .prefetch = 2), &l), FR_OK);
    for (int k = 0; k < 5; k++) {
        expect_child_ends(uses_the_loader, l);
        cr_expect_eq(fr_loader_next(l, &x, &t), FR_OK, "%s", fr_last_error());
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
    fr_dataset_release(&d);
}
