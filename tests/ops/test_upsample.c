/* test_upsample.c - resizing: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdlib.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_upsample(in[0], golden_int(g, "output_size", 0), golden_int(g, "output_size", 1),
                       golden_int(g, "bilinear", 0) ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST,
                       golden_int(g, "align_corners", 0) != 0, y);
}

static const op_suite suite = {.op = "upsample", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(upsample)

/* Inputs of weight 0 cannot spoil an output: 0 times inf or NaN is NaN. */
Test(upsample, a_neighbour_of_weight_0_is_not_read) {
    static const double poison[] = {NAN, INFINITY};
    enum { H = 3, W = 4, P = 5, Q = 7 }; /* with align_corners every second output is a source */
    for (int k = 0; k < 2; k++)
        for (int half = 0; half < 3; half++) {
            const fr_dtype t = (fr_dtype[]){FR_F32, FR_F16, FR_BF16}[half];
            fr_tensor *x = NULL, *y = NULL, *dy = NULL;
            float in[H][W], g[P][Q];
            for (int i = 0; i < H; i++)
                for (int j = 0; j < W; j++) in[i][j] = (float)(i * W + j);
            for (int i = 0; i < P; i++)
                for (int j = 0; j < Q; j++) g[i][j] = 1;
            in[1][2] = (float)poison[k];
            g[2][4] = (float)poison[k]; /* the gradient of the output for the poisoned source */
            must(fr_tensor_from_host(in, 4, (int64_t[]){1, H, W, 1}, FR_F32, test_device(), &x));
            must(fr_tensor_from_host(g, 4, (int64_t[]){1, P, Q, 1}, FR_F32, test_device(), &dy));
            must(fr_cast(x, t, &x));
            must(fr_cast(dy, t, &dy));
            must(fr_tensor_set_requires_grad(x, true));
            must(fr_upsample(x, P, Q, FR_UPSAMPLE_BILINEAR, true, &y));
            must(fr_backward(y, dy));
            double *v = values_of(y), *dx = values_of(fr_tensor_get_grad(x));
            for (int p = 0; p < P; p++)
                for (int q = 0; q < Q; q++) {
                    const bool reads = p > 0 && p < 4 && q > 2 && q < 6;
                    cr_expect_eq(isfinite(v[p * Q + q]) != 0, !reads, "%s: y[%d, %d] is %g", fr_dtype_name(t), p, q,
                                 v[p * Q + q]);
                }
            for (int i = 0; i < H * W; i++)
                cr_expect_eq(isfinite(dx[i]) != 0, i != W + 2, "%s: dx[%d] is %g", fr_dtype_name(t), i, dx[i]);
            if (k == 1) cr_expect_eq(v[2 * Q + 4], INFINITY, "inf passes where it is the source");
            free(v);
            free(dx);
            RELEASE_ALL(&x, &y, &dy);
        }
    expect_nothing_left();
}
