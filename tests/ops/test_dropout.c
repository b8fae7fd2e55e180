/* test_dropout.c - dropped elements: which, how many, equal in backward, with and without a stored mask, on any
 * thread count. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { N = 4, H = 9, W = 10, C = 12, COUNT = N * H * W * C };

typedef fr_status dropout_fn(fr_tensor *x, double p, bool train, fr_tensor **y);

static fr_tensor *ones(fr_dtype t) {
    fr_tensor *x = NULL;
    must(fr_tensor_full(4, (int64_t[]){N, H, W, C}, 1, t, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    return x;
}

/* y and dx of one seeded call on ones, dy = ones: both are the scaled mask. */
static void run(dropout_fn *op, double p, bool encode, float *y_out, float *dx_out) {
    fr_tensor *x = ones(FR_F32), *y = NULL, *dy = NULL;
    fr_switches s = fr_switches_default();
    s.encode = encode;
    fr_switches_set(s);
    fr_seed(5);
    must(op(x, p, true, &y));
    must(fr_tensor_full(4, fr_tensor_shape(y), 1, FR_F32, test_device(), &dy));
    must(fr_backward(y, dy));
    must(fr_tensor_to_host(y, y_out));
    must(fr_tensor_to_host(fr_tensor_get_grad(x), dx_out));
    RELEASE_ALL(&x, &y, &dy);
    fr_switches_set(fr_switches_default());
}

Test(dropout, drops_the_share_and_scales_the_rest) {
    static float y[COUNT], dx[COUNT];
    static const double ps[] = {0.1, 0.5, 0.9};
    for (int i = 0; i < 3; i++) {
        double p = ps[i], kept = 0;
        run(fr_dropout, p, true, y, dx);
        for (int k = 0; k < COUNT; k++) {
            cr_assert(y[k] == 0 || fabs(y[k] - 1 / (1 - p)) < 1e-5, "element %d is %g", k, (double)y[k]);
            kept += y[k] != 0;
        }
        double sigma = sqrt(COUNT * p * (1 - p));
        cr_expect(fabs(kept - COUNT * (1 - p)) < 5 * sigma, "p %g kept %g of %d", p, kept, COUNT);
        cr_expect_eq(memcmp(y, dx, sizeof y), 0, "backward drops other elements");
    }
    expect_nothing_left();
}

Test(dropout, stored_mask_and_threads_change_nothing) {
    static float y[COUNT], dx[COUNT], y2[COUNT], dx2[COUNT];
    dropout_fn *ops[] = {fr_dropout, fr_dropout2d, fr_stochastic_depth};
    int threads = fr_threads_get();
    for (int i = 0; i < 3; i++) {
        run(ops[i], 0.3, true, y, dx);
        run(ops[i], 0.3, false, y2, dx2);
        cr_expect_eq(memcmp(y, y2, sizeof y), 0);
        cr_expect_eq(memcmp(dx, dx2, sizeof dx), 0);
        must(fr_threads_set(threads == 1 ? 2 : 1));
        run(ops[i], 0.3, true, y2, dx2);
        must(fr_threads_set(threads));
        cr_expect_eq(memcmp(y, y2, sizeof y), 0, "another thread count, other elements");
    }
    expect_nothing_left();
}

/* Two calls drop different elements; an equal seed brings both back. */
Test(dropout, every_call_draws_anew) {
    fr_tensor *x = ones(FR_F32), *y[4] = {0};
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0) fr_seed(3);
        must(fr_dropout(x, 0.4, true, &y[i]));
    }
    size_t bytes = fr_tensor_nbytes(x);
    float *first = malloc(bytes), *other = malloc(bytes);
    must(fr_tensor_to_host(y[0], first));
    must(fr_tensor_to_host(y[1], other));
    cr_expect_neq(memcmp(first, other, bytes), 0, "the second call drops what the first dropped");
    must(fr_tensor_to_host(y[2], other));
    cr_expect_eq(memcmp(first, other, bytes), 0, "the same seed, another mask");
    free(first);
    free(other);
    for (int i = 0; i < 4; i++) fr_tensor_release(&y[i]);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(dropout, dropout2d_drops_whole_channels) {
    static float y[COUNT], dx[COUNT];
    int dropped = 0;
    run(fr_dropout2d, 0.4, true, y, dx);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            float first = y[n * H * W * C + c];
            dropped += first == 0;
            for (int k = 0; k < H * W; k++) cr_assert_eq(y[(n * H * W + k) * C + c], first);
        }
    cr_expect(dropped > 0 && dropped < N * C, "%d of %d channels dropped", dropped, N * C);
    expect_nothing_left();
}

Test(dropout, stochastic_depth_drops_whole_images) {
    static float y[COUNT], dx[COUNT];
    int dropped = 0;
    run(fr_stochastic_depth, 0.4, true, y, dx);
    for (int n = 0; n < N; n++) {
        const float first = y[n * H * W * C];
        dropped += first == 0;
        for (int k = 0; k < H * W * C; k++) cr_assert_eq(y[n * H * W * C + k], first);
    }
    cr_expect(dropped > 0 && dropped < N, "%d of %d images dropped", dropped, N);
    cr_expect_eq(memcmp(y, dx, sizeof y), 0, "backward drops other images");
    expect_nothing_left();
}

static fr_status apply(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    return ((dropout_fn * (*)[1]) ctx)[0][0](in[0], 0.4, true, out);
}

Test(dropout, gradcheck) {
    cpu_only("gradient checks are in f64, which CUDA does not compute");
    dropout_fn *ops[][1] = {{fr_dropout}, {fr_dropout2d}, {fr_stochastic_depth}};
    for (int i = 0; i < 3; i++) {
        fr_tensor *x = NULL;
        fr_seed(6);
        must(fr_tensor_normal(4, (int64_t[]){2, 3, 4, 5}, 0, 1, FR_F64, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_gradcheck(apply, &ops[i], &x, 1, NULL));
        fr_tensor_release(&x);
    }
    expect_nothing_left();
}

Test(dropout, eval_and_edges) {
    fr_tensor *x = ones(FR_F32), *y = NULL;
    double sum = 0;
    must(fr_dropout(x, 0.5, false, &y));
    cr_expect_eq(y, x, "eval mode is the identity");
    must(fr_dropout(x, 1, true, &y));
    must(fr_sum(y, &y));
    must(fr_tensor_item(y, &sum));
    cr_expect_eq(sum, 0.0);
    fr_tensor_release(&y);
    expect_refused(fr_dropout(x, 1.5, true, &y), FR_EINVAL, "1.5", "0..1", y);
    expect_refused(fr_dropout(NULL, 0.5, true, &y), FR_EINVAL, "dropout", "NULL", y);
    must(fr_reshape(x, 2, (int64_t[]){N, -1}, &y));
    fr_tensor *z = NULL;
    expect_refused(fr_dropout2d(y, 0.5, true, &z), FR_ESHAPE, "[4, 1080]", "rank 4", z);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}
