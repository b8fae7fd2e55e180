/* test_pool.c - a run's memory pool: counts of bytes, threads that may free memory, rights of a forked child. */
#include "memory/event.h"
#include "plan/section.h"
#include "memory/report.h"

#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(e) cr_assert_eq((e), FR_OK, "%s", fr_last_error())

enum { KIB = 1024 };

static fr_tensor *bytes(int64_t n) {
    fr_tensor *t = NULL;
    OK(fr_tensor_empty(1, (int64_t[]){n}, FR_U8, FR_CPU, &t));
    return t;
}

static fr_memory_stats stats(void) {
    fr_memory_stats t;
    OK(fr_memory_stats_get(FR_CPU, &t));
    return t;
}

static fr_memory_stats process(void) {
    fr_memory_stats t;
    OK(fri_memory_process_get(FR_CPU, &t));
    return t;
}

static fr_pool *pool_begin(fr_pool_state *was) {
    fr_pool *p = NULL;
    OK(fr_pool_create(FR_CPU, &p));
    OK(fr_pool_begin(p, was));
    return p;
}

Test(pool, counts_what_its_thread_takes_between_begin_and_end) {
    fr_pool_state was;
    fr_tensor *outside = bytes(512), *inside = NULL;
    fr_pool *p = pool_begin(&was);
    cr_expect_eq(stats().requested, 0);
    inside = bytes(2048);
    cr_expect_eq(stats().requested, 2048);
    cr_expect_eq(process().requested, 2560);
    OK(fr_memory_limit_set(FR_CPU, 4 << 20));
    fr_pool_end(was);
    cr_expect_eq(stats().requested, 512);
    cr_expect_eq(stats().limit, SIZE_MAX);
    fr_tensor_release(&inside); /* returns to the pool of the allocation, not to the current pool */
    cr_expect_eq(stats().frees, 0);
    cr_expect_eq(process().requested, 512);
    fr_tensor_release(&outside);
    fr_pool_release(&p);
    cr_expect_null(p);
}

Test(pool, nests_and_ends_with_the_one_before) {
    fr_pool_state was_outer, was_inner;
    fr_pool *outer = pool_begin(&was_outer), *inner = pool_begin(&was_inner);
    fr_tensor *t = bytes(1024);
    cr_expect_eq(stats().requested, 1024);
    fr_pool_end(was_inner);
    cr_expect_eq(stats().requested, 0);
    fr_pool_end(was_outer);
    fr_tensor_release(&t);
    fr_pool_release(&inner);
    fr_pool_release(&outer);
}

Test(pool, lives_as_long_as_its_last_block) {
    fr_pool_state was;
    fr_pool *p = pool_begin(&was);
    fr_tensor *t = bytes(100 * KIB), *cached = bytes(3 << 20);
    fr_tensor_release(&cached);
    fr_pool_end(was);
    cr_expect_gt(process().reserved, 20 << 20);
    fr_pool_release(&p);
    cr_expect_eq(process().reserved, 2 << 20, "what nobody uses goes back at once");
    OK(fr_tensor_fill(t, 7));
    fr_tensor_release(&t);
    cr_expect_eq(process().reserved, 0);
}

Test(pool, given_up_inside_its_scope_serves_until_the_end) {
    fr_pool_state was;
    fr_pool *p = pool_begin(&was);
    fr_pool_release(&p);
    fr_tensor *t = bytes(1000);
    cr_expect_eq(stats().requested, 1024);
    fr_tensor_release(&t);
    fr_pool_end(was);
    cr_expect_eq(process().reserved, 0);
}

static void *release(void *t) {
    fr_tensor_release(&(fr_tensor *){t});
    return NULL;
}

static void on_event(void *ctx, const fr_event *e) {
    int *frees = ctx;
    *frees += e->kind == FR_EVENT_FREE;
}

Test(pool, hears_of_blocks_that_another_thread_frees) {
    fr_pool_state was;
    pthread_t thread;
    int frees = 0;
    fr_pool *p = pool_begin(&was);
    OK(fr_event_subscribe(on_event, &frees));
    fr_tensor *t = bytes(1000);
    cr_assert_eq(pthread_create(&thread, NULL, release, t), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(frees, 1);
    cr_expect_eq(stats().requested, 0);
    fr_event_unsubscribe(on_event, &frees);
    fr_pool_end(was);
    fr_pool_release(&p);
}

/* ---- an arena belongs to the thread that follows its plan ---------------------------------------------------- */

typedef struct elsewhere {
    fr_pool *pool;
    fr_tensor *t;
} elsewhere;

static void *take_elsewhere(void *ctx) {
    elsewhere *e = ctx;
    fr_pool_state was;
    OK(fr_pool_begin(e->pool, &was));
    e->t = bytes(1 << 20);
    fr_pool_end(was);
    return NULL;
}

static fr_plan *planned_megabyte(void) {
    fr_plan *plan = NULL;
    fr_tensor *t = NULL;
    OK(fr_plan_begin(FR_CPU, &plan));
    OK(fr_plan_section(plan, "step"));
    OK(fr_tensor_empty(1, (int64_t[]){1 << 20}, FR_U8, FR_META, &t));
    fr_tensor_release(&t);
    OK(fr_plan_end(plan));
    return plan;
}

Test(pool, serves_other_threads_beside_the_arena) {
    fr_pool_state was;
    pthread_t thread;
    fr_plan *plan = planned_megabyte();
    elsewhere e = {.pool = pool_begin(&was)};
    OK(fr_plan_install(plan, FR_CPU, NULL));
    OK(fr_plan_follow(FR_CPU, 0));
    cr_assert_eq(pthread_create(&thread, NULL, take_elsewhere, &e), 0);
    pthread_join(thread, NULL);
    fr_tensor *t = bytes(1 << 20);
    cr_expect_not(fri_plan_departed(FR_CPU), "the planned allocation finds its place");
    fr_tensor_release(&t);
    fr_tensor_release(&e.t);
    OK(fr_plan_uninstall(FR_CPU));
    fr_pool_end(was);
    fr_pool_release(&e.pool);
    fr_plan_release(&plan);
}

Test(pool, bad_arguments_are_refused) {
    fr_pool *p = NULL;
    fr_pool_state was;
    fr_memory_stats t;
    cr_expect_eq(fr_pool_create(FR_CPU, NULL), FR_EINVAL);
    cr_expect_eq(fr_pool_create((fr_device)9, &p), FR_EDEVICE);
    cr_expect_eq(fr_pool_begin(NULL, &was), FR_EINVAL);
    cr_expect_eq(fri_memory_process_get(FR_CPU, NULL), FR_EINVAL);
    cr_expect_eq(fri_memory_process_get((fr_device)9, &t), FR_EDEVICE);
    fr_pool_release(NULL);
    fr_pool_release(&p);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* Runs fn in a child of fork; its result, or -1 if it did not end within ten seconds. */
static int in_child(int (*fn)(void *ctx), void *ctx) {
    pid_t child = fork();
    int status = 0;
    cr_assert_geq(child, 0);
    if (child == 0) {
        alarm(10);
        _exit(fn(ctx));
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static fr_status convolve(void) {
    fr_tensor *x = NULL, *w = NULL, *y = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_full(4, (int64_t[]){2, 16, 16, 8}, 1, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_tensor_full(4, (int64_t[]){8, 3, 3, 8}, 1, FR_F32, FR_CPU, &w));
    FR_TRY(s, fr_conv2d(x, w, NULL, NULL, &y));
    FR_TRY(s, fr_relu(y, &y));
done:
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    fr_tensor_release(&y);
    return s;
}

static int convolves(void *ctx) {
    (void)ctx;
    return convolve() == FR_OK ? 0 : 1;
}

/* Child of a process with tensors: the library refuses memory, and lets the child read, write and release. */
static int goes_on(void *t) {
    fr_tensor *own = t;
    fr_pool *pool = NULL;
    fr_memory_stats stats;
    if (convolve() != FR_EUSAGE || fr_pool_create(FR_CPU, &pool) != FR_EUSAGE) return 1;
    if (fr_memory_stats_get(FR_CPU, &stats) != FR_EUSAGE) return 2;
    if (fri_memory_process_get(FR_CPU, &stats) != FR_EUSAGE) return 2;
    if (fr_tensor_fill(own, 3) != FR_OK || ((float *)fr_tensor_data(own))[99999] != 3) return 3;
    fr_tensor_release(&own);
    return 0;
}

Test(fork, a_child_of_an_unused_library_uses_it) {
    cr_expect_eq(in_child(convolves, NULL), 0);
}

Test(fork, a_child_of_a_used_library_is_refused_and_does_not_hang) {
    fr_tensor *t = NULL;
    OK(fr_threads_set(2));
    OK(convolve());
    OK(fr_tensor_full(1, (int64_t[]){100000}, 1, FR_F32, FR_CPU, &t));
    cr_expect_eq(in_child(goes_on, t), 0);
    OK(convolve());
    fr_tensor_release(&t);
}

static atomic_bool over;

static void *keeps_the_locks_busy(void *ctx) {
    (void)ctx;
    for (int i = 0; !over; i++) {
        fr_tensor *t = bytes(512 * (i % 64 + 1));
        fr_tensor_release(&t);
    }
    return NULL;
}

Test(fork, a_child_does_not_wait_for_locks_of_threads_that_are_not_there) {
    pthread_t thread;
    fr_tensor *t = NULL;
    OK(fr_tensor_full(1, (int64_t[]){100000}, 1, FR_F32, FR_CPU, &t));
    cr_assert_eq(pthread_create(&thread, NULL, keeps_the_locks_busy, NULL), 0);
    for (int i = 0; i < 50; i++) {
        int status = in_child(goes_on, t);
        cr_expect_eq(status, 0, "fork %d: %d", i, status);
    }
    over = true;
    pthread_join(thread, NULL);
    fr_tensor_release(&t);
}
