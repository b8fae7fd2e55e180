/* test_bounds.c - sizes, offsets and numbers out of range are refused before any computation. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>

#include "support/golden.h"

static const int64_t far[] = {INT64_MAX, INT64_MAX / 2, (int64_t)1 << 32, (int64_t)1 << 31, -2, INT64_MIN};
enum { FAR = sizeof far / sizeof *far };

static fr_tensor *zeros(int rank, const int64_t *shape) {
    fr_tensor *x = NULL;
    must(fr_tensor_zeros(rank, shape, FR_F32, test_device(), &x));
    return x;
}

/* A padding of INT64_MAX once gave a wrong shape and FR_OK. */
Test(bounds, windows) {
    fr_tensor *x = zeros(4, (int64_t[]){1, 8, 8, 4}), *w = zeros(4, (int64_t[]){4, 3, 3, 4}), *y = NULL;
    for (int i = 0; i < FAR; i++)
        for (int k = 0; k < 7; k++) {
            fr_conv2d_opts conv = *FR_CONV2D_OPTS();
            int64_t *const field[] = {&conv.stride,   &conv.stride_w,   &conv.padding, &conv.padding_w,
                                      &conv.dilation, &conv.dilation_w, &conv.groups};
            *field[k] = far[i];
            expect_refused(fr_conv2d(x, w, NULL, &conv, &y), FR_EINVAL, "conv2d", "-1..2147483647", y);
            fr_pool2d_opts pool = *FR_POOL2D_OPTS();
            int64_t *const of_pool[] = {&pool.stride,   &pool.stride_w,   &pool.padding, &pool.padding_w,
                                        &pool.dilation, &pool.dilation_w, &pool.kernel_w};
            *of_pool[k] = far[i];
            expect_refused(fr_maxpool2d(x, 2, &pool, &y), FR_EINVAL, "maxpool2d", "-1..2147483647", y);
            expect_refused(fr_avgpool2d(x, 2, &pool, &y), FR_EINVAL, "avgpool2d", "-1..2147483647", y);
        }
    for (int i = 0; i < FAR; i++) {
        expect_refused(fr_maxpool2d(x, far[i], NULL, &y), FR_EINVAL, "maxpool2d", "kernel", y);
        expect_refused(fr_upsample(x, far[i], 2, FR_UPSAMPLE_NEAREST, false, &y), FR_EINVAL, "upsample", "size", y);
        expect_refused(fr_upsample(x, 2, far[i], FR_UPSAMPLE_BILINEAR, true, &y), FR_EINVAL, "upsample", "size", y);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    expect_nothing_left();
}

Test(bounds, narrow0) {
    fr_tensor *x = zeros(2, (int64_t[]){4, 2}), *y = NULL;
    for (int i = 0; i < FAR; i++)
        for (int k = 0; k < FAR; k++) {
            expect_refused(fr_tensor_narrow0(x, far[i], far[k], &y), FR_ESHAPE, "narrow0", "4 rows", y);
            expect_refused(fr_tensor_narrow0(x, far[i], 1, &y), FR_ESHAPE, "narrow0", "4 rows", y);
            expect_refused(fr_tensor_narrow0(x, 1, far[k], &y), FR_ESHAPE, "narrow0", "4 rows", y);
        }
    must(fr_tensor_narrow0(x, 4, 0, &y));
    fr_tensor_release(&y);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(bounds, numbers) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    fr_tensor *x = zeros(4, (int64_t[]){2, 2, 2, 3}), *c = zeros(1, (int64_t[]){3}), *y = NULL;
    for (int i = 0; i < 3; i++)
        for (int train = 0; train < 2; train++) {
            expect_refused(fr_batchnorm2d(x, c, c, c, c, FR_BATCHNORM2D_OPTS(.train = train, .eps = bad[i]), &y),
                           FR_EINVAL, "batchnorm2d", "eps", y);
            expect_refused(fr_batchnorm2d(x, c, c, c, c, FR_BATCHNORM2D_OPTS(.train = train, .momentum = bad[i]), &y),
                           FR_EINVAL, "batchnorm2d", "momentum", y);
            expect_refused(fr_inplace_abn(x, c, c, c, c, FR_BATCHNORM2D_OPTS(.train = train, .eps = bad[i]), 0.1, &y),
                           FR_EINVAL, "inplace_abn", "eps", y);
            expect_refused(fr_leaky_relu(x, bad[i], &y), FR_EINVAL, "leaky_relu", "slope", y);
        }
    fr_tensor_release(&x);
    fr_tensor_release(&c);
    expect_nothing_left();
}
