/* test_maxpool2d.c - max pooling: golden values with ties and NaN, index types, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_maxpool2d(in[0], golden_int(g, "kernel", 0),
                        FR_POOL2D_OPTS(.kernel_w = golden_int(g, "kernel", 1), .stride = golden_int(g, "stride", 0),
                                       .stride_w = golden_int(g, "stride", 1), .padding = golden_int(g, "padding", 0),
                                       .padding_w = golden_int(g, "padding", 1),
                                       .dilation = golden_int(g, "dilation", 0),
                                       .dilation_w = golden_int(g, "dilation", 1)),
                        y);
}

static const op_suite suite = {.op = "maxpool2d", .inputs = {"x"}, .run = run, .skip = "nan nan_twice minus_infinity"};

OP_SUITE_TESTS(maxpool2d)

/* 255 of a byte means "none", so 256 positions need a wider index. */
Test(maxpool2d, the_last_of_256_positions_gets_its_gradient) {
    fr_tensor *x = NULL, *y = NULL;
    float values[256];
    for (int i = 0; i < 256; i++) values[i] = (float)i;
    must(fr_tensor_from_host(values, 4, (int64_t[]){1, 16, 16, 1}, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_maxpool2d(x, 16, NULL, &y));
    must(fr_backward(y, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(x), values));
    for (int i = 0; i < 256; i++) cr_expect_eq(values[i], i == 255, "dx[%d] is %g", i, values[i]);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* The last window of ceil_mode covers the rest, also where the rest is the whole image (PyTorch's values). */
Test(maxpool2d, a_window_larger_than_the_image) {
    static const struct {
        int64_t kernel, stride, padding;
        int n;
        float max[4], mean[4], inside[4]; /* avgpool2d with and without the padding */
    } c[] = {{3, 2, 0, 1, {4}, {2.5f}, {2.5f}},
             {3, 3, 0, 1, {4}, {2.5f}, {2.5f}},
             {4, 3, 0, 1, {4}, {2.5f}, {2.5f}},
             {4, 3, 1, 1, {4}, {.625f}, {2.5f}},
             {3, 2, 1, 4, {1, 2, 3, 4}, {10 / 9.f, 1, 7 / 6.f, 1}, {2.5f, 3, 3.5f, 4}}};
    for (int i = 0; i < 5; i++) {
        fr_tensor *x = NULL, *y[3] = {NULL};
        float v[4] = {0};
        const fr_pool2d_opts o = *FR_POOL2D_OPTS(.stride = c[i].stride, .padding = c[i].padding, .ceil_mode = true);
        fr_pool2d_opts without = o;
        without.count_include_pad = false;
        must(fr_tensor_from_host((float[]){1, 2, 3, 4}, 4, (int64_t[]){1, 2, 2, 1}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_maxpool2d(x, c[i].kernel, &o, &y[0]));
        must(fr_avgpool2d(x, c[i].kernel, &o, &y[1]));
        must(fr_avgpool2d(x, c[i].kernel, &without, &y[2]));
        for (int k = 0; k < 3; k++) {
            const float *expected = k == 0 ? c[i].max : k == 1 ? c[i].mean : c[i].inside;
            cr_assert_eq(fr_tensor_numel(y[k]), c[i].n, "case %d, pool %d", i, k);
            must(fr_tensor_to_host(y[k], v));
            for (int j = 0; j < c[i].n && (i < 4 || k > 0); j++)
                cr_expect_float_eq(v[j], expected[j], 1e-6f, "case %d, pool %d: y[%d] is %g", i, k, j, (double)v[j]);
            must(fr_sum(y[k], &y[k]));
            must(fr_backward(y[k], NULL));
            fr_tensor_release(&y[k]);
        }
        if (i == 0) { /* 1 of the maximum, 1/4 of each average */
            must(fr_tensor_to_host(fr_tensor_get_grad(x), v));
            cr_expect(v[0] == .5f && v[3] == 1.5f, "dx %g, %g", (double)v[0], (double)v[3]);
        }
        fr_tensor_release(&x);
    }
    expect_nothing_left();
}
