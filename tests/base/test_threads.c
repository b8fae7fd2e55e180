/* test_threads.c - a system that starts few threads or none: functions report the lack or continue with fewer.
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
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int left = 1 << 20;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument) {
    return atomic_fetch_sub(&left, 1) > 0 ? __real_pthread_create(t, a, f, argument) : EAGAIN;
}

Test(threads, the_number_that_starts_is_counted) {
    cr_expect_eq(fri_threads_startable(5), 5);
    left = 3;
    cr_expect_eq(fri_threads_startable(5), 3);
    left = 0;
    cr_expect_eq(fri_threads_startable(5), 0);
    cr_expect_eq(fri_threads_startable(0), 0);
}

Test(threads, more_than_can_be_started_are_refused_with_both_numbers) {
    int was = fr_threads_get();
    left = 3;
    cr_expect_eq(fr_threads_set(64), FR_EUSAGE);
    cr_expect_not_null(strstr(fr_last_error(), "64 threads are requested, but this process may start 4"), "%s",
                       fr_last_error());
    cr_expect_eq(fr_threads_get(), was, "a refused number was set");
    left = 3;
    cr_expect_eq(fr_threads_set(4), FR_OK, "%s", fr_last_error());
    cr_expect_eq(fr_threads_get(), 4);
    cr_expect_eq(fr_threads_set(3), FR_OK, "what was possible once is tried again");
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

Test(threads, a_team_is_started_before_its_first_use) {
    const int before = threads_alive();
    cr_assert_eq(fr_threads_set(3), FR_OK);
    fri_threads_start();
    cr_expect_eq(threads_alive(), before + 2);
}

Test(threads, idle_ones_sleep_where_others_use_the_processors) {
    cr_expect(!fri_threads_crowded(false, 0.09, 100), "too early to tell");
    cr_expect(!fri_threads_crowded(false, 0.2, 30));
    cr_expect(fri_threads_crowded(false, 0.2, 31));
    cr_expect(fri_threads_crowded(true, 0.9, 0), "too early to tell");
    cr_expect(fri_threads_crowded(true, 2, 161));
    cr_expect(!fri_threads_crowded(true, 2, 160));
    const int before = threads_alive();
    unsetenv("OMP_WAIT_POLICY");
    for (int i = 0; i < 2; i++) {
        fri_threads_sleep(true);
        fri_threads_sleep(true);
        for (int k = 0; k < 1000 && threads_alive() < before + omp_get_num_procs() + 1; k++) usleep(1000);
        cr_expect_eq(threads_alive(), before + omp_get_num_procs() + 1);
        fri_threads_sleep(false);
        for (int k = 0; k < 1000 && threads_alive() > before; k++) usleep(1000);
        cr_expect_eq(threads_alive(), before);
    }
    setenv("OMP_WAIT_POLICY", "active", 1);
    fri_threads_sleep(true);
    cr_expect_eq(threads_alive(), before, "the environment decides");
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
    omp_set_num_threads(1);
    cr_expect_eq(fr_threads_get(), 1, "a number that the program gave to OpenMP is taken away");
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
