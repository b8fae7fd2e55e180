/* test_conv2d.c - convolution: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <string.h>

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

OP_SUITE_TESTS(conv2d)

static fr_tensor *small_numbers(int64_t n, int64_t h, int64_t w, int64_t c, unsigned state) {
    static float v[2 * 56 * 56 * 40];
    fr_tensor *x = NULL;
    for (int64_t i = 0; i < n * h * w * c; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = (float)((int)(state >> 16) % 3 - 1);
    }
    must(fr_tensor_from_host(v, 4, (int64_t[]){n, h, w, c}, FR_F32, test_device(), &x));
    return x;
}

/* dw [K, C] of a 1 x 1 convolution: sums of -1, 0 and 1 over 6272 pixels, which f32 holds exactly. */
Test(conv2d, narrow_weight_gradient) {
    enum { PIXELS = 2 * 56 * 56, C = 24, K = 40 };
    static float x_of[PIXELS * C], dy_of[PIXELS * K], dw_of[K * C];
    fr_tensor *x = small_numbers(2, 56, 56, C, 1), *dy = small_numbers(2, 56, 56, K, 2), *y = NULL;
    fr_tensor *w = small_numbers(K, 1, 1, C, 3);
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_conv2d(x, w, NULL, NULL, &y));
    must(fr_backward(y, dy));
    must(fr_tensor_to_host(x, x_of));
    must(fr_tensor_to_host(dy, dy_of));
    must(fr_tensor_to_host(fr_tensor_get_grad(w), dw_of));
    for (int k = 0; k < K; k++)
        for (int c = 0; c < C; c++) {
            float sum = 0;
            for (int i = 0; i < PIXELS; i++) sum += dy_of[i * K + k] * x_of[i * C + c];
            cr_assert_eq(dw_of[k * C + c], sum, "dw[%d, %d]: %g, not %g", k, c, (double)dw_of[k * C + c], (double)sum);
        }
    RELEASE_ALL(&x, &w, &y, &dy);
    expect_nothing_left();
}

/* Terms of equal sign show a sum in a single f32: 2e-4 for 224 x 224 pixels. */
Test(conv2d, weight_gradients_over_many_pixels_are_near_sums_in_f64) {
    static const struct {
        int64_t n, size, c;
        double most;
    } cases[] = {{1, 224, 3, 1e-5}, {1, 224, 8, 1e-5}, {1, 224, 1, 1e-5}, {64, 32, 3, 1e-5}, {16, 224, 3, 1e-4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t n = cases[i].n, size = cases[i].size, c = cases[i].c, middle = 4 * c;
        fr_tensor *x = NULL, *w = NULL, *y = NULL, *dy = NULL;
        float dw[2 * 9 * 8];
        must(fr_tensor_full(4, (int64_t[]){n, size, size, c}, 1.0 / 3, FR_F32, FR_CPU, &x));
        must(fr_tensor_full(4, (int64_t[]){2, 3, 3, c}, 1, FR_F32, FR_CPU, &w));
        must(fr_tensor_full(4, (int64_t[]){n, size, size, 2}, 0.7, FR_F32, FR_CPU, &dy));
        must(fr_tensor_set_requires_grad(w, true));
        must(fr_conv2d(x, w, NULL, FR_CONV2D_OPTS(.padding = 1), &y));
        must(fr_backward(y, dy));
        must(fr_tensor_to_host(fr_tensor_get_grad(w), dw));
        const double exact = (double)(1.0f / 3) * 0.7f * (double)(n * size * size);
        cr_expect(fabs(dw[middle] / exact - 1) < cases[i].most, "case %zu: %g, not %g", i, (double)dw[middle], exact);
        RELEASE_ALL(&x, &w, &y, &dy);
    }
    expect_nothing_left();
}
