/* test_conv_transpose2d.c - transposed convolution: golden values, gradients, saved bytes, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_conv_transpose2d(in[0], in[1], in[2],
                               FR_CONV_TRANSPOSE2D_OPTS(.stride = golden_int(g, "stride", 0),
                                                        .stride_w = golden_int(g, "stride", 1),
                                                        .padding = golden_int(g, "padding", 0),
                                                        .padding_w = golden_int(g, "padding", 1),
                                                        .output_padding = golden_int(g, "output_padding", 0),
                                                        .output_padding_w = golden_int(g, "output_padding", 1),
                                                        .dilation = golden_int(g, "dilation", 0),
                                                        .dilation_w = golden_int(g, "dilation", 1),
                                                        .groups = golden_int(g, "groups", 0)),
                               y);
}

static const op_suite suite = {.op = "conv_transpose2d", .inputs = {"x", "w", "b"}, .run = run};

OP_SUITE_TESTS(conv_transpose2d)

/* References to the inputs needed by each gradient, and no copy. */
Test(conv_transpose2d, saves_what_the_other_gradient_needs) {
    for (int wants = 0; wants < 4; wants++) {
        fr_tensor *a = NULL, *b = NULL, *ha = NULL, *hb = NULL, *y = NULL;
        fr_memory_stats before, after;
        fr_switches switches = fr_switches_default();
        switches.rebuild = false;
        fr_switches_set(switches);
        must(fr_tensor_full(4, (int64_t[]){2, 6, 5, 32}, 2, FR_F32, test_device(), &a));
        must(fr_tensor_full(4, (int64_t[]){32, 3, 3, 16}, 3, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(a, wants & 1));
        must(fr_tensor_set_requires_grad(b, wants & 2));
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_scale(a, 2, &ha));
        must(fr_scale(b, 2, &hb));
        must(fr_conv_transpose2d(ha, hb, NULL, NULL, &y));
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

#define OPTS(...) FR_CONV_TRANSPOSE2D_OPTS(__VA_ARGS__)
