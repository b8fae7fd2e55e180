/* test_mse.c - mean squared and absolute error, smooth L1: golden values, gradients, saved bytes, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_mse(in[0], in[1], y);
}

static fr_status run_l1(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_l1(in[0], in[1], y);
}

static fr_status run_smooth(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_smooth_l1(in[0], in[1], golden_real(g, "beta"), y);
}

static const op_suite suites[] = {
    {.op = "mse", .inputs = {"x", "t"}, .run = run},
    {.op = "l1", .inputs = {"x", "t"}, .run = run_l1, .not_half = "equal"},
    {.op = "smooth_l1", .inputs = {"x", "t"}, .run = run_smooth},
};

#define EACH for (int i = 0; i < 3; i++)

OP_SUITES_TESTS(mse, suites, 3)

/* References to both, no copies; without a gradient, no reference. */
Test(mse, saved_bytes) {
    enum { COUNT = 4096 };
    EACH for (int wants = 0; wants < 2; wants++) {
        fr_tensor *x = NULL, *t = NULL, *h = NULL, *loss = NULL;
        fr_memory_stats before, after;
        golden g = golden_open("smooth_l1");
        cr_assert(golden_next(&g));
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 2, FR_F32, test_device(), &x));
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 3, FR_F32, test_device(), &t));
        must(fr_tensor_set_requires_grad(x, wants));
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_mul(x, t, &h));
        must(suites[i].run(&g, (fr_tensor *[]){h, t}, &loss));
        fr_tensor_release(&h);
        must(fr_memory_stats_get(test_device(), &after));
        cr_expect_eq(after.requested - before.requested, (size_t)wants * COUNT * 4 + 512, "%s: %zu bytes are kept",
                     suites[i].op, after.requested - before.requested);
        if (wants) must(fr_backward(loss, NULL));
        while (golden_next(&g)) continue;
        RELEASE_ALL(&x, &t, &loss);
    }
    expect_nothing_left();
}
