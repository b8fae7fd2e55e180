/* test_matmul.c - product of matrices: golden values, gradients, saved bytes, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_matmul(in[0], in[1], y);
}

static const op_suite suite = {.op = "matmul", .inputs = {"a", "b"}, .run = run};

OP_SUITE_TESTS(matmul)

/* References to the inputs needed by each gradient, and no copy. */
Test(matmul, saves_what_the_other_gradient_needs) {
    for (int wants = 0; wants < 4; wants++) {
        fr_tensor *a = NULL, *b = NULL, *ha = NULL, *hb = NULL, *y = NULL;
        fr_memory_stats before, after;
        fr_switches switches = fr_switches_default();
        switches.rebuild = false;
        fr_switches_set(switches);
        must(fr_tensor_full(3, (int64_t[]){4, 8, 96}, 2, FR_F32, test_device(), &a));
        must(fr_tensor_full(2, (int64_t[]){96, 160}, 3, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(a, wants & 1));
        must(fr_tensor_set_requires_grad(b, wants & 2));
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_scale(a, 2, &ha));
        must(fr_scale(b, 2, &hb));
        must(fr_matmul(ha, hb, &y));
        const size_t bytes_a = wants & 2 ? fr_tensor_nbytes(ha) : 0, bytes_b = wants & 1 ? fr_tensor_nbytes(hb) : 0;
        fr_tensor_release(&ha);
        fr_tensor_release(&hb);
        must(fr_sum(y, &y));
        must(fr_memory_stats_get(test_device(), &after));
        const size_t want = (bytes_a + 511) / 512 * 512 + (bytes_b + 511) / 512 * 512 + 512;
        cr_expect_eq(after.requested - before.requested, want, "wants %d: %zu bytes are kept, not %zu", wants,
                     after.requested - before.requested, want);
        if (wants > 0) must(fr_backward(y, NULL));
        RELEASE_ALL(&a, &b, &y);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}
