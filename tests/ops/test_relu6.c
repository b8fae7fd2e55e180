/* test_relu6.c - rectifier with a ceiling: golden values, gradients, encodings, in-place, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <math.h>
#include <string.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_relu6(in[0], y);
}

static const op_suite suite = {.op = "relu6", .inputs = {"x"}, .run = run, .kink = 0.02, .not_half = "special"};

OP_SUITE_TESTS(relu6)

Test(relu6, inplace_equals_plain) {
    suite_inplace_equals_plain(fr_relu6, fr_relu6_inplace, 2, 3);
}

/* The gradient passes between 0 and 6, whether y or 1 bit of each element is kept; every bit of a
 * byte counts. With encode n / 8 bytes are left, else y. */
Test(relu6, what_passes_the_gradient_however_it_is_kept) {
    enum { COUNT = 8 * 1024 + 3 };
    static const float each[] = {NAN, -1, 2, 0, 6, 5.75f, 7}, want[] = {0, 0, 1, 0, 0, 1, 0};
    static float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = each[i % 7];
    for (int encode = 0; encode < 2; encode++) {
        fr_switches switches = fr_switches_default();
        fr_tensor *x = NULL, *y = NULL;
        fr_memory_stats stats;
        switches.encode = encode;
        switches.rebuild = false;
        fr_switches_set(switches);
        must(fr_tensor_from_host(values, 1, (int64_t[]){COUNT}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_relu6(x, &y));
        must(fr_sum(y, &y));
        must(fr_memory_stats_get(test_device(), &stats));
        const size_t kept = encode ? (COUNT + 7) / 8 : COUNT * sizeof(float);
        cr_expect_eq(stats.requested_by[FR_MEM_ACTIVATION], (kept + 511) / 512 * 512, "encode %d: %zu bytes", encode,
                     stats.requested_by[FR_MEM_ACTIVATION]);
        must(fr_backward(y, NULL));
        const float *got = host_of(fr_tensor_get_grad(x));
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(got[i], want[i % 7], "encode %d: dx is %g where x is %g", encode, got[i], values[i]);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        expect_nothing_left();
    }
}

/* A pool behind relu6 must not take the mask over: the pool's codes do not record the ceiling. */
Test(relu6, a_max_pool_leaves_the_mask) {
    static const float values[] = {7, 1, 2, 3, -1, -2, -3, -4}, want[] = {0, 0, 0, 1, 0, 0, 0, 0};
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_from_host(values, 4, (int64_t[]){1, 2, 4, 1}, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 1, &y));
    must(fr_relu6(y, &y));
    must(fr_maxpool2d(y, 2, NULL, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    const float *got = host_of(fr_tensor_get_grad(x));
    for (int i = 0; i < 8; i++) cr_expect_eq(got[i], want[i], "dx is %g where x is %g", got[i], values[i]);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}
