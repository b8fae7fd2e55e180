/* test_softmax.c - softmax and its logarithm: golden values, gradients, saved bytes, in-place, autocast, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <string.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *x, fr_tensor **y) {
    (void)g;
    return fr_softmax(x[0], y);
}

static fr_status run_log(const golden *g, fr_tensor *const *x, fr_tensor **y) {
    (void)g;
    return fr_log_softmax(x[0], y);
}

static const op_suite suites[] = {
    {.op = "softmax", .inputs = {"x"}, .run = run, .not_half = "large"},
    {.op = "log_softmax", .inputs = {"x"}, .run = run_log, .not_half = "large"},
};

#define EACH for (int i = 0; i < 2; i++)

OP_SUITES_TESTS(softmax, suites, 2)

/* y lies over x, which no op saved, and is the only map that stays; equal bits either way. */
Test(softmax, writes_over_x_and_saves_y) {
    enum { ROWS = 64, CLASSES = 66, COUNT = ROWS * CLASSES };
    EACH {
        static float y[COUNT], dx[COUNT];
        for (int inplace = 0; inplace < 2; inplace++) {
            fr_tensor *x = NULL, *h = NULL;
            fr_memory_stats before, after;
            fr_switches switches = fr_switches_default();
            switches.inplace = inplace;
            switches.rebuild = false;
            fr_switches_set(switches);
            fr_seed(4);
            must(fr_tensor_normal(2, (int64_t[]){ROWS, CLASSES}, 0, 3, FR_F32, test_device(), &x));
            must(fr_tensor_set_requires_grad(x, true));
            must(fr_memory_stats_get(test_device(), &before));
            must(fr_scale(x, 1.5, &h));
            const void *was = fr_tensor_data(h);
            must(suites[i].run(NULL, &h, &h));
            cr_expect_eq(fr_tensor_data(h) == was, inplace, "%s, inplace %d", suites[i].op, inplace);
            if (!inplace) memcpy(y, host_of(h), sizeof y);
            cr_expect_eq(memcmp(host_of(h), y, sizeof y), 0, "%s: y differs", suites[i].op);
            must(fr_scale(h, 2, &h));
            must(fr_mul(h, h, &h));
            must(fr_sum(h, &h));
            must(fr_memory_stats_get(test_device(), &after));
            cr_expect_eq(after.requested - before.requested, 2 * sizeof y + 512, "%s: %zu bytes are kept", suites[i].op,
                         after.requested - before.requested);
            must(fr_backward(h, NULL));
            if (!inplace) memcpy(dx, host_of(fr_tensor_get_grad(x)), sizeof dx);
            cr_expect_eq(memcmp(host_of(fr_tensor_get_grad(x)), dx, sizeof dx), 0, "%s: dx differs", suites[i].op);
            fr_tensor_release(&x);
            fr_tensor_release(&h);
        }
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

Test(softmax, computes_in_f32_under_autocast) {
    EACH {
        fr_tensor *x = NULL, *y = NULL;
        must(fr_tensor_zeros(2, (int64_t[]){3, 4}, FR_F16, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        fr_autocast_state was;
        must(fr_autocast_begin(FR_F16, &was));
        must(suites[i].run(NULL, &x, &y));
        fr_autocast_end(was);
        cr_expect_eq(fr_tensor_dtype(y), FR_F32);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        cr_expect_eq(fr_tensor_dtype(fr_tensor_get_grad(x)), FR_F16);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}
