/* test_batchnorm2d.c - batch norm: golden values, statistics, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "support/op_suite.h"
#include "tensor/tensor.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *mean =
        golden_tensor(g, "running_mean", fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32, test_device());
    fr_tensor *var = golden_tensor(g, "running_var", fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32, test_device());
    fr_status s =
        fr_batchnorm2d(in[0], in[1], in[2], mean, var,
                       FR_BATCHNORM2D_OPTS(.train = golden_int(g, "train", 0) != 0, .eps = golden_real(g, "eps"),
                                           .momentum = golden_real(g, "momentum")),
                       y);
    if (s == FR_OK && golden_field(g, "running_mean_after") != NULL && fr_tensor_dtype(in[0]) == FR_F32) {
        golden_expect(g, "running_mean_after", mean, FR_F32);
        golden_expect(g, "running_var_after", var, FR_F32);
    }
    fr_tensor_release(&mean);
    fr_tensor_release(&var);
    return s;
}

static const op_suite suite = {.op = "batchnorm2d", .inputs = {"x", "gamma", "beta"}, .run = run};

Test(batchnorm2d, forward_golden) {
    suite_forward_golden(&suite);
}

Test(batchnorm2d, gradcheck) {
    suite_gradcheck(&suite);
}

Test(batchnorm2d, accumulates) {
    suite_accumulates(&suite);
}

Test(batchnorm2d, switches_agree) {
    suite_switches_agree(&suite);
}

/* Running statistics are written in place, visibly for every op that saved them; eval mode does not write. */
Test(batchnorm2d, moved_statistics_are_a_new_version) {
    fr_tensor *x = NULL, *mean = NULL, *var = NULL, *y = NULL;
    must(fr_tensor_full(4, (int64_t[]){2, 3, 4, 5}, 1, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(1, (int64_t[]){5}, FR_F32, test_device(), &mean));
    must(fr_tensor_full(1, (int64_t[]){5}, 1, FR_F32, test_device(), &var));
    uint64_t was[] = {fri_tensor_version(mean), fri_tensor_version(var)};
    must(fr_batchnorm2d(x, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = false), &y));
    cr_expect_eq(fri_tensor_version(mean), was[0]);
    cr_expect_eq(fri_tensor_version(var), was[1]);
    must(fr_batchnorm2d(x, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = true), &y));
    cr_expect_eq(fri_tensor_version(mean), was[0] + 1);
    cr_expect_eq(fri_tensor_version(var), was[1] + 1);
    RELEASE_ALL(&x, &mean, &var, &y);
    expect_nothing_left();
}

/* Blocks and chunks of rows are merged: channels of means up to 1,000 deviations, against sums in f64. */
static void expect_statistics(int64_t rows, int64_t c) {
    fr_tensor *x = NULL, *mean = NULL, *var = NULL, *y = NULL;
    must(fr_tensor_normal(4, (int64_t[]){rows, 1, 1, c}, 0, 1, FR_F32, FR_CPU, &x));
    float *v = fr_tensor_data(x);
    for (int64_t i = 0; i < rows * c; i++) v[i] += (float)(i % c % 3 * 500);
    must(fr_tensor_zeros(1, (int64_t[]){c}, FR_F32, FR_CPU, &mean));
    must(fr_tensor_zeros(1, (int64_t[]){c}, FR_F32, FR_CPU, &var));
    must(fr_batchnorm2d(x, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = true, .momentum = 1), &y));
    for (int64_t k = 0; k < c; k++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < rows; i++) sum += (double)v[i * c + k];
        for (int64_t i = 0; i < rows; i++) squares += pow((double)v[i * c + k] - sum / (double)rows, 2);
        const double real_mean = sum / (double)rows, real_var = squares / (double)(rows - 1);
        cr_expect(fabs((double)((float *)fr_tensor_data(mean))[k] - real_mean) <= 2.5e-7 * (1 + fabs(real_mean)),
                  "[%ld, %ld] channel %ld: mean %.9g, not %.9g", (long)rows, (long)c, (long)k,
                  (double)((float *)fr_tensor_data(mean))[k], real_mean);
        cr_expect(fabs((double)((float *)fr_tensor_data(var))[k] - real_var) <= 5e-7 * real_var,
                  "[%ld, %ld] channel %ld: variance %.9g, not %.9g", (long)rows, (long)c, (long)k,
                  (double)((float *)fr_tensor_data(var))[k], real_var);
    }
    RELEASE_ALL(&x, &mean, &var, &y);
}

Test(batchnorm2d, statistics_are_those_of_all_rows) {
    fr_seed(3);
    expect_statistics(2, 3);
    expect_statistics(33, 7);
    expect_statistics(5003, 5);   /* chunks of 79 rows */
    expect_statistics(70001, 12); /* of 1,024 rows, in one block and a part of one */
    expect_statistics(2051, 300); /* blocks of 27 rows */
    expect_statistics(700, 1100); /* three blocks of channels */
    expect_nothing_left();
}

/* A result larger than the caches is written past them, and has the bits of its single images, which are not. */
Test(batchnorm2d, large_results) {
    enum { IMAGES = 8, SIZE = 224 };
    static const int64_t channels[] = {16, 20, 19}; /* lines of 64, 80 and 76 bytes: lines of 76 are not written so */
    for (int i = 0; i < 3; i++) {
        const int64_t c = channels[i], pixels = SIZE * SIZE * c;
        float *of[2] = {malloc((size_t)(IMAGES * pixels) * sizeof **of), malloc((size_t)pixels * sizeof **of)};
        fr_tensor *x = NULL, *mean = NULL, *var = NULL, *y = NULL;
        must(fr_tensor_uniform(4, (int64_t[]){IMAGES, SIZE, SIZE, c}, -1, 1, FR_F32, test_device(), &x));
        must(fr_tensor_uniform(1, (int64_t[]){c}, -1, 1, FR_F32, test_device(), &mean));
        must(fr_tensor_uniform(1, (int64_t[]){c}, 1, 2, FR_F32, test_device(), &var));
        must(fr_batchnorm2d(x, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = false), &y));
        must(fr_tensor_to_host(y, of[0]));
        for (int64_t n = 0; n < IMAGES; n++) {
            fr_tensor *image = NULL, *z = NULL;
            must(fr_tensor_narrow0(x, n, 1, &image));
            must(fr_batchnorm2d(image, NULL, NULL, mean, var, FR_BATCHNORM2D_OPTS(.train = false), &z));
            must(fr_tensor_to_host(z, of[1]));
            cr_expect_eq(memcmp(of[0] + n * pixels, of[1], (size_t)pixels * sizeof **of), 0, "%d channels, image %d",
                         (int)c, (int)n);
            fr_tensor_release(&image);
            fr_tensor_release(&z);
        }
        RELEASE_ALL(&x, &mean, &var, &y);
        free(of[0]);
        free(of[1]);
    }
    expect_nothing_left();
}

/* More channels than a tile has: where relu's gradient is not kept, its rows are as short as the tile. */
Test(batchnorm2d, relus_gradient_of_many_channels) {
    enum { ROWS = 6, MANY = 1032 };
    static float x[ROWS * MANY], dy[ROWS * MANY], dx[ROWS * MANY], mean[MANY], invstd[MANY];
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    const fri_batchnorm2d_desc d = {.dtype = FR_F32, .rows = ROWS, .c = MANY};
    for (int i = 0; i < MANY; i++) mean[i] = (float)(i % 7) / 8, invstd[i] = 1 + (float)(i % 3) / 2;
    for (int i = 0; i < ROWS * MANY; i++) x[i] = (float)(i * 31 % 61) / 16 - 1, dy[i] = (float)(i * 17 % 53) / 32 + 1;
    must(k->batchnorm2d_backward(FRI_EXEC, &d, false, x, mean, invstd, NULL, NULL, FRI_ACTIVATION_RELU, dy, dx, NULL,
                                 NULL));
    for (int i = 0; i < ROWS * MANY; i++)
        cr_expect_eq(dx[i], x[i] > mean[i % MANY] ? dy[i] * invstd[i % MANY] : 0, "row %d, channel %d", i / MANY,
                     i % MANY);
}

enum { CHANNELS = 64 }; /* enough for several blocks in a chunk of rows */

/* x [n, 1, 1, CHANNELS], all channels alike, in training: what becomes of running values that were 0 and 1, and of the
 * first value; of the last channel. */
static void train_once(int64_t n, const float *x, float *mean, float *var, float *first) {
    fr_tensor *in = NULL, *m = NULL, *v = NULL, *y = NULL;
    float *values = calloc((size_t)n * CHANNELS + 1, sizeof *values), vector[CHANNELS];
    for (int64_t i = 0; i < n * CHANNELS; i++) values[i] = x[i / CHANNELS];
    must(fr_tensor_from_host(values, 4, (int64_t[]){n, 1, 1, CHANNELS}, FR_F32, test_device(), &in));
    must(fr_tensor_zeros(1, (int64_t[]){CHANNELS}, FR_F32, test_device(), &m));
    must(fr_tensor_full(1, (int64_t[]){CHANNELS}, 1, FR_F32, test_device(), &v));
    must(fr_batchnorm2d(in, NULL, NULL, m, v, NULL, &y));
    must(fr_tensor_to_host(m, vector));
    *mean = vector[CHANNELS - 1];
    must(fr_tensor_to_host(v, vector));
    *var = vector[CHANNELS - 1];
    must(fr_tensor_to_host(y, values));
    *first = values[0];
    free(values);
    RELEASE_ALL(&in, &m, &v, &y);
}

/* The variance of values above 1.8e19 is no f32. PyTorch: results 0, running variance inf, running mean as ever. */
Test(batchnorm2d, a_variance_beyond_f32_is_infinite_and_not_nan) {
    enum { MANY = 20000 }; /* several blocks and chunks */
    float mean, var, first, *x = calloc(MANY, sizeof *x);
    static const float few[][4] = {{1e25f, 0, 0, 0}, {1e30f, 1.1e30f, .9e30f, 1.05e30f}};
    for (int i = 0; i < 2; i++) {
        train_once(4, few[i], &mean, &var, &first);
        cr_expect(first == 0 && var > 3e38f, "case %d: y %g, running variance %g", i, (double)first, (double)var);
        cr_expect_float_eq(mean, i == 0 ? 2.5e23f : 1.0125e29f, i == 0 ? 1e17f : 1e23f, "case %d: %g", i, (double)mean);
    }
    for (int i = 0; i < MANY; i++) x[i] = i % 2 ? 1e30f : 1.2e30f;
    train_once(MANY, x, &mean, &var, &first);
    cr_expect(first == 0 && var > 3e38f, "y %g, running variance %g", (double)first, (double)var);
    cr_expect_float_eq(mean, 1.1e29f, 1e24f, "%g", (double)mean);
    free(x);
    expect_nothing_left();
}

/* The mean is that of a sum, whatever row is infinite, and the variance is NaN: PyTorch's values on the CPU. */
Test(batchnorm2d, an_infinite_value_makes_an_infinite_mean) {
    enum { ROWS = 20000 };
    float mean, var, first, *x = calloc(ROWS, sizeof *x);
    cpu_only("PyTorch's own kernels for CUDA make a mean of NaN, too");
    static const int place[] = {0, 1, 100, 300, 19999};
    for (int i = 0; i < 5; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            x[place[i]] = sign * INFINITY;
            train_once(ROWS, x, &mean, &var, &first);
            cr_expect(mean == sign * INFINITY, "row %d: %g", place[i], (double)mean);
            cr_expect(isnan(var) && isnan(first), "row %d: variance %g, y %g", place[i], (double)var, (double)first);
            x[7] = -sign * INFINITY;
            train_once(ROWS, x, &mean, &var, &first);
            cr_expect(isnan(mean), "both infinities, row %d: %g", place[i], (double)mean);
            x[7] = x[place[i]] = 0;
        }
    free(x);
    expect_nothing_left();
}

Test(batchnorm2d, an_empty_batch_leaves_the_running_values) {
    float mean, var, first;
    train_once(0, &(float){0}, &mean, &var, &first);
    cr_expect(mean == 0 && var == 1, "running mean %g, variance %g", (double)mean, (double)var);
    expect_nothing_left();
}

Test(batchnorm2d, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *c3 = NULL, *c4 = NULL, *one = NULL;
    must(fr_tensor_full(1, (int64_t[]){3}, 1, FR_F32, test_device(), &c3));
    must(fr_tensor_full(1, (int64_t[]){4}, 1, FR_F32, test_device(), &c4));
    must(fr_tensor_zeros(4, (int64_t[]){1, 1, 1, 3}, FR_F32, test_device(), &one));
    expect_refused(fr_batchnorm2d(NULL, c3, c3, NULL, NULL, NULL, &y), FR_EINVAL, "batchnorm2d", "NULL", y);
    expect_refused(fr_batchnorm2d(x, c4, c4, NULL, NULL, NULL, &y), FR_ESHAPE, "[4]", "[3]", y);
    expect_refused(fr_batchnorm2d(x, c3, NULL, NULL, NULL, NULL, &y), FR_EINVAL, "gamma", "beta", y);
    expect_refused(fr_batchnorm2d(x, c3, c3, NULL, NULL, FR_BATCHNORM2D_OPTS(.train = false), &y), FR_EINVAL,
                   "running_mean", "eval", y);
    expect_refused(fr_batchnorm2d(one, c3, c3, NULL, NULL, NULL, &y), FR_EINVAL, "more than 1", "batch 1", y);
    expect_refused(fr_batchnorm2d(x, meta, meta, NULL, NULL, NULL, &y), FR_EDEVICE, "meta",
                   fr_device_name(test_device()), y);
    RELEASE_ALL(&c3, &c4, &one, &x, &other, &integer, &meta);
    expect_nothing_left();
}
