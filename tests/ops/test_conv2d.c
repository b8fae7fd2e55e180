/* test_conv2d.c - convolution: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_conv2d(in[0], in[1], in[2],
                     FR_CONV2D_OPTS(.stride = golden_int(g, "stride", 0), .stride_w = golden_int(g, "stride", 1),
                                    .padding = golden_int(g, "padding", 0), .padding_w = golden_int(g, "padding", 1),
                                    .dilation = golden_int(g, "dilation", 0),
                                    .dilation_w = golden_int(g, "dilation", 1), .groups = golden_int(g, "groups", 0)),
                     y);
}

static const op_suite suite = {.op = "conv2d", .inputs = {"x", "w", "b"}, .run = run};

Test(conv2d, forward_golden) {
    suite_forward_golden(&suite);
}

Test(conv2d, gradcheck) {
    suite_gradcheck(&suite);
}

Test(conv2d, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(conv2d, accumulates) {
    suite_accumulates(&suite);
}

Test(conv2d, switches_agree) {
    suite_switches_agree(&suite);
}

static fr_tensor *zeros(int rank, const int64_t *shape, fr_dtype t) {
    fr_tensor *x = NULL;
    must(fr_tensor_zeros(rank, shape, t, test_device(), &x));
    return x;
}

Test(conv2d, rejects_bad_args) {
    fr_tensor *x = zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32), *w = zeros(4, (int64_t[]){4, 3, 2, 3}, FR_F32);
    fr_tensor *narrow = zeros(4, (int64_t[]){4, 3, 2, 2}, FR_F32), *half = zeros(4, (int64_t[]){4, 3, 2, 3}, FR_F16);
    fr_tensor *b = zeros(1, (int64_t[]){5}, FR_F32), *flat = zeros(2, (int64_t[]){2, 90}, FR_F32), *meta = NULL,
              *y = NULL;
    must(fr_tensor_empty(4, (int64_t[]){4, 3, 2, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_conv2d(NULL, w, NULL, NULL, &y), FR_EINVAL, "conv2d", "NULL", y);
    expect_refused(fr_conv2d(x, narrow, NULL, NULL, &y), FR_ESHAPE, "3 channels", "expects 2", y);
    expect_refused(fr_conv2d(x, half, NULL, NULL, &y), FR_EDTYPE, "f32", "f16", y);
    expect_refused(fr_conv2d(flat, w, NULL, NULL, &y), FR_ESHAPE, "[2, 90]", "rank 4", y);
    expect_refused(fr_conv2d(x, w, b, NULL, &y), FR_ESHAPE, "[5]", "[4]", y);
    expect_refused(fr_conv2d(x, meta, NULL, NULL, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.stride = 0), &y), FR_EINVAL, "stride 0", ">= 1", y);
    expect_refused(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.dilation = 9), &y), FR_ESHAPE, "smaller", "dilation 9", y);
    expect_refused(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.groups = 3), &y), FR_ESHAPE, "3 channels", "groups 3", y);
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    fr_tensor_release(&narrow);
    fr_tensor_release(&half);
    fr_tensor_release(&b);
    fr_tensor_release(&flat);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
