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

Test(conv_transpose2d, rejects_bad_args) {
    fr_tensor *x = NULL, *w = NULL, *b = NULL, *wide = NULL, *half = NULL, *flat = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 4}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){4, 3, 2, 3}, FR_F32, test_device(), &w));
    must(fr_tensor_zeros(4, (int64_t[]){4, 3, 2, 3}, FR_F16, test_device(), &half));
    must(fr_tensor_zeros(1, (int64_t[]){3}, FR_F16, test_device(), &b));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, test_device(), &wide));
    must(fr_tensor_zeros(2, (int64_t[]){2, 90}, FR_F32, test_device(), &flat));
    expect_refused(fr_conv_transpose2d(NULL, w, NULL, NULL, &y), FR_EINVAL, "conv_transpose2d", "NULL", y);
    expect_refused(fr_conv_transpose2d(flat, w, NULL, NULL, &y), FR_ESHAPE, "[2, 90]", "rank 4", y);
    expect_refused(fr_conv_transpose2d(x, half, NULL, NULL, &y), FR_EDTYPE, "f32", "f16", y);
    expect_refused(fr_conv_transpose2d(x, w, b, NULL, &y), FR_EDTYPE, "b is f16", "x is f32", y);
    expect_refused(fr_conv_transpose2d(x, w, wide, NULL, &y), FR_ESHAPE, "b has shape [4]", "[3]", y);
    expect_refused(fr_conv_transpose2d(w, x, NULL, NULL, &y), FR_ESHAPE, "3 channels", "expects 2", y);
    fr_tensor *planes = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 4, 5, 6}, FR_F32, test_device(), &planes));
    expect_refused(fr_conv_transpose2d(planes, w, NULL, NULL, &y), FR_ESHAPE, "[N, H, W, C]", "look like [N, C,", y);
    fr_tensor_release(&planes);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.groups = 3), &y), FR_ESHAPE, "4 channels", "groups 3", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.groups = 0), &y), FR_EINVAL, "groups 0", ">= 1", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.stride = 0), &y), FR_EINVAL, "stride 0", ">= 1", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.dilation = 0), &y), FR_EINVAL, "dilation 0", ">= 1", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.stride = 2, .output_padding = 2), &y), FR_EINVAL,
                   "output_padding 2", "below the stride", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.stride = 3, .stride_w = 1, .output_padding = 2), &y),
                   FR_EINVAL, "output_padding 2", "below the stride", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.padding = 4), &y), FR_ESHAPE, "[2, 5, 6, 4]", "-1 x -1", y);
    expect_refused(fr_conv_transpose2d(x, w, NULL, OPTS(.stride = INT32_MAX), &y), FR_ESHAPE, "[2, 5, 6, 4]", "image",
                   y);
    RELEASE_ALL(&x, &w, &b, &wide, &half, &flat);
    expect_nothing_left();
}
