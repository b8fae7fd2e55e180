/* test_inplace_abn.c - in-place activated batch norm: gradient check, near the two separate ops, and saved bytes. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { N = 3, H = 5, W = 4, C = 6 };

static const double slope = 0.2, eps = 1e-5;
static const double slopes[] = {0.2, FR_ABN_IDENTITY, FR_ABN_ELU};

/* x, gamma (both signs), beta; or gamma as the plain op needs it: |gamma| + eps. */
static void make_inputs(fr_dtype dtype, bool plain, fr_tensor **in) {
    fr_dtype real = dtype == FR_F64 ? FR_F64 : FR_F32;
    double gamma[C];
    fr_seed(13);
    must(fr_tensor_normal(4, (int64_t[]){N, H, W, C}, 1, 2, dtype, test_device(), &in[0]));
    for (int i = 0; i < C; i++) {
        gamma[i] = (i % 2 ? -1 : 1) * (0.5 + 0.25 * i);
        if (plain) gamma[i] = fabs(gamma[i]) + eps;
    }
    fr_tensor *wide = NULL;
    must(fr_tensor_from_host(gamma, 1, (int64_t[]){C}, FR_F64, test_device(), &wide));
    must(fr_tensor_empty(1, (int64_t[]){C}, real, test_device(), &in[1]));
    must(fr_tensor_copy(in[1], wide));
    fr_tensor_release(&wide);
    must(fr_tensor_full(1, (int64_t[]){C}, 0.3, real, test_device(), &in[2]));
    for (int i = 0; i < 3; i++) must(fr_tensor_set_requires_grad(in[i], true));
}

static fr_status abn(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    return fr_inplace_abn(in[0], in[1], in[2], NULL, NULL, NULL, *(double *)ctx, out);
}

Test(inplace_abn, gradcheck) {
    cpu_only("gradient checks are in f64, which CUDA does not compute");
    for (int k = 0; k < 3; k++) {
        fr_tensor *in[3] = {0};
        double with = slopes[k];
        make_inputs(FR_F64, false, in);
        must(fr_gradcheck(abn, &with, in, 3, NULL));
        for (int i = 0; i < 3; i++) fr_tensor_release(&in[i]);
    }
    expect_nothing_left();
}

/* y and the gradients of sum(r y^2), r fixed and random: without r a norm alone has no gradient. */
static void run(double with, bool plain, fr_tensor **in, double **result) {
    fr_tensor *y = NULL, *s = NULL;
    make_inputs(FR_F32, plain, in);
    if (plain) {
        must(fr_batchnorm2d(in[0], in[1], in[2], NULL, NULL, NULL, &y));
        must(fr_leaky_relu(y, with, &y));
    } else {
        must(abn(&with, in, 3, &y, 1));
    }
    fr_tensor *r = uniform_tensor(4, (int64_t[]){N, H, W, C});
    must(fr_mul(y, y, &s));
    must(fr_mul(s, r, &s));
    must(fr_sum(s, &s));
    must(fr_backward(s, NULL));
    fr_tensor_release(&r);
    result[0] = values_of(y);
    for (int i = 0; i < 3; i++) result[1 + i] = values_of(fr_tensor_get_grad(in[i]));
    fr_tensor_release(&y);
    fr_tensor_release(&s);
}

/* The bound of docs/ops/inplace_abn.md: a few roundings of the rebuilt x, relative to the largest gradient. */
static void expect_near(double with) {
    static const int count[4] = {N * H * W * C, N * H * W * C, C, C};
    fr_tensor *a[3] = {0}, *b[3] = {0};
    double *x[4], *y[4];
    run(with, true, a, x);
    run(with, false, b, y);
    for (int k = 0; k < 4; k++) {
        double largest = 0;
        for (int i = 0; i < count[k]; i++) largest = fmax(largest, fabs(x[k][i]));
        for (int i = 0; i < count[k]; i++) {
            double want = k == 2 && i % 2 ? -x[k][i] : x[k][i]; /* d|gamma| / dgamma */
            cr_expect(fabs(y[k][i] - want) <= 1e-5 * largest, "result %d element %d: %.9g, separate ops %.9g", k, i,
                      y[k][i], want);
        }
        free(x[k]);
        free(y[k]);
    }
    for (int i = 0; i < 3; i++) {
        fr_tensor_release(&a[i]);
        fr_tensor_release(&b[i]);
    }
}

Test(inplace_abn, near_the_separate_ops) {
    expect_near(slope);
    expect_near(FR_ABN_IDENTITY);
    expect_nothing_left();
}

/* Values, and training and evaluation, of elu: log(y + 1) far below 0 would be -inf. */
Test(inplace_abn, elu) {
    static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};
    for (int t = 0; t < 3; t++)
        for (int train = 0; train < 2; train++) {
            fr_tensor *in[3] = {0}, *mean = NULL, *var = NULL, *y = NULL, *plain = NULL;
            make_inputs(types[t], false, in);
            for (int i = 1; i < 3; i++) must(fr_tensor_fill(in[i], i == 1 ? 20 : -3)); /* some 60 below 0 */
            must(fr_tensor_full(1, (int64_t[]){C}, 0.9, FR_F32, test_device(), &mean));
            must(fr_tensor_full(1, (int64_t[]){C}, 3.5, FR_F32, test_device(), &var));
            const fr_batchnorm2d_opts *o = FR_BATCHNORM2D_OPTS(.train = train);
            must(fr_batchnorm2d(in[0], in[1], in[2], mean, var, o, &plain));
            must(fr_tensor_set_requires_grad(in[1], train)); /* frozen in the evaluation */
            must(fr_inplace_abn(in[0], in[1], in[2], mean, var, o, FR_ABN_ELU, &y));
            double *z = values_of(plain), *got = values_of(y);
            for (int i = 0; i < N * H * W * C; i++) {
                double want = z[i] > 0 ? z[i] : expm1(z[i]);
                /* z is rounded to the type before elu here, after elu there */
                cr_expect(fabs(got[i] - want) <= (t == 0 ? 2e-5 : 0.3) * fmax(1, fabs(want)), "%s: %g, not %g",
                          fr_dtype_name(types[t]), got[i], want);
            }
            must(fr_sum(y, &y));
            must(fr_backward(y, NULL));
            double *dbeta = values_of(fr_tensor_get_grad(in[2])), sum[C] = {0};
            for (int i = 0; i < N * H * W * C; i++) sum[i % C] += z[i] > 0 ? 1 : exp(z[i]);
            for (int i = 0; i < C && t == 0; i++)
                cr_expect(fabs(dbeta[i] - sum[i]) <= 2e-5 * sum[i], "dbeta %d: %g, not %g", i, dbeta[i], sum[i]);
            free(dbeta);
            for (int i = 0; i < 3; i++) {
                double *g = i == 1 && !train ? calloc(C, sizeof *g) : values_of(fr_tensor_get_grad(in[i]));
                for (int64_t k = 0; k < fr_tensor_numel(in[i]); k++)
                    cr_expect(isfinite(g[k]), "%s: gradient %d is %g", fr_dtype_name(types[t]), i, g[k]);
                free(g);
                fr_tensor_release(&in[i]);
            }
            free(z);
            free(got);
            RELEASE_ALL(&y, &plain, &mean, &var);
        }
    expect_nothing_left();
}

/* x = abn(x) keeps a map where batch norm and leaky relu keep two. */
Test(inplace_abn, keeps_one_map) {
    size_t held[2];
    fr_switches s = fr_switches_default();
    s.rebuild = false; /* rebuild would keep a single map of the two ops, too */
    fr_switches_set(s);
    for (int fused = 0; fused < 2; fused++) {
        fr_tensor *in[3] = {0}, *h = NULL, *out = NULL;
        fr_memory_stats t;
        make_inputs(FR_F32, !fused, in);
        must(fr_scale(in[0], 2, &h));
        must(fr_memory_stats_get(test_device(), &t));
        size_t before = t.requested;
        if (fused) {
            must(fr_inplace_abn(h, in[1], in[2], NULL, NULL, NULL, slope, &h));
        } else {
            must(fr_batchnorm2d(h, in[1], in[2], NULL, NULL, NULL, &h));
            must(fr_leaky_relu(h, slope, &h));
        }
        must(fr_mul(h, h, &out)); /* mul needs the result's values */
        must(fr_memory_stats_get(test_device(), &t));
        held[fused] = t.requested - before;
        for (int i = 0; i < 3; i++) fr_tensor_release(&in[i]);
        fr_tensor_release(&h);
        fr_tensor_release(&out);
    }
    size_t map = (N * H * W * C * 4 + 511) / 512 * 512;
    /* mean and invstd both ways; |gamma| + eps is the fused form's third vector */
    cr_expect_eq(held[0] - held[1], map - 512, "saved %d bytes, one map is %zu", (int)(held[0] - held[1]), map);
    expect_nothing_left();
}

/* Frozen statistics and gamma: only y's sign is read, 1 bit per element; dx and dbeta have equal bits. */
Test(inplace_abn, keeps_signs_where_gamma_is_frozen) {
    const size_t map = N * H * W * C * sizeof(float), vector = C * sizeof(float);
    double *grad[2][2];
    size_t kept[2];
    for (int frozen = 0; frozen < 2; frozen++) {
        fr_tensor *in[3] = {0}, *mean = NULL, *var = NULL, *y = NULL;
        fr_memory_stats stats;
        make_inputs(FR_F32, false, in);
        must(fr_tensor_full(1, (int64_t[]){C}, 0.9, FR_F32, test_device(), &mean));
        must(fr_tensor_full(1, (int64_t[]){C}, 3.5, FR_F32, test_device(), &var));
        must(fr_tensor_set_requires_grad(in[1], !frozen));
        must(fr_inplace_abn(in[0], in[1], in[2], mean, var, FR_BATCHNORM2D_OPTS(.train = false), slope, &y));
        must(fr_sum(y, &y));
        must(fr_memory_stats_get(test_device(), &stats));
        kept[frozen] = stats.requested_by[FR_MEM_ACTIVATION];
        must(fr_backward(y, NULL));
        for (int i = 0; i < 2; i++) grad[frozen][i] = values_of(fr_tensor_get_grad(in[2 * i]));
        cr_expect_eq(fr_tensor_get_grad(in[1]) == NULL, frozen);
        for (int i = 0; i < 3; i++) fr_tensor_release(&in[i]);
        RELEASE_ALL(&mean, &var, &y);
    }
    cr_expect_eq(kept[0] - kept[1], (map + 511) / 512 * 512 - 512, "%zu and %zu bytes", kept[0], kept[1]);
    cr_expect_eq(memcmp(grad[0][0], grad[1][0], map / 4 * sizeof(double)), 0, "dx differs");
    cr_expect_eq(memcmp(grad[0][1], grad[1][1], vector / 4 * sizeof(double)), 0, "dbeta differs");
    for (int i = 0; i < 4; i++) free(grad[i / 2][i % 2]);
    expect_nothing_left();
}

Test(inplace_abn, rejects_bad_args) {
    fr_tensor *in[3] = {0}, *y = NULL;
    make_inputs(FR_F32, false, in);
    expect_refused(fr_inplace_abn(in[0], in[1], in[2], NULL, NULL, NULL, 0, &y), FR_EINVAL, "slope is 0", "> 0", y);
    expect_refused(fr_inplace_abn(in[0], NULL, in[2], NULL, NULL, NULL, 0.1, &y), FR_EINVAL, "inplace_abn", "NULL", y);
    expect_refused(fr_inplace_abn(in[1], in[1], in[2], NULL, NULL, NULL, 0.1, &y), FR_ESHAPE, "[6]", "rank 4", y);
    for (int i = 0; i < 3; i++) fr_tensor_release(&in[i]);
    expect_nothing_left();
}
