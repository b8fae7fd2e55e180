/* test_conv2d_padding.c - convolutions in which rows or columns of the kernel meet padding only, in memory full of
 * NaN: elements left unwritten, or read before a write, show (op_suite.h).
 *
 * All values are -1, 0 or 1 and no sum has more than 256 terms, so f32, bf16 and f16 hold every result exactly: each
 * is compared with plain loops, bit for bit. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>

#include "support/op_suite.h"

enum { MOST = 256, CASES = 240, CANDIDATES = 5292 };

typedef struct shape {
    int n, h, w, c, k, groups, r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
} shape;

static int out_size(int in, int pad, int dilation, int kernel, int stride) {
    const int room = in + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

/* Does some kernel position along an axis never meet the image? */
static bool padding_only(int in, int pad, int dilation, int kernel, int stride) {
    for (int s = 0; s < kernel; s++) {
        bool meets = false;
        for (int q = 0; q < out_size(in, pad, dilation, kernel, stride); q++) {
            const int at = q * stride + s * dilation - pad;
            meets = meets || (at >= 0 && at < in);
        }
        if (!meets) return true;
    }
    return false;
}

static bool suits(const shape *d) {
    const int p = out_size(d->h, d->pad_h, d->dilation_h, d->r, d->stride_h);
    const int q = out_size(d->w, d->pad_w, d->dilation_w, d->s, d->stride_w);
    const bool rows = padding_only(d->h, d->pad_h, d->dilation_h, d->r, d->stride_h);
    const bool columns = padding_only(d->w, d->pad_w, d->dilation_w, d->s, d->stride_w);
    return p > 0 && q > 0 && (rows || columns) && d->n * p * q <= MOST && d->r * d->s * (d->c / d->groups) <= MOST &&
           d->r * d->s * (d->k / d->groups) <= MOST;
}

/* ---- plain loops ------------------------------------------------------------------------------------------------ */

static float *small_numbers(int n, unsigned *state) {
    float *v = malloc((size_t)n * sizeof *v);
    cr_assert_not_null(v);
    for (int i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        v[i] = (float)((int)(*state >> 16) % 3 - 1);
    }
    return v;
}

typedef struct data {
    shape d;
    int p, q, sizes[3]; /* of x, w, y */
    float *x, *w, *dy;  /* what comes in */
    float *y, *dx, *dw; /* what is expected */
} data;

static void by_loops(data *t) {
    const shape *d = &t->d;
    const int cg = d->c / d->groups, kg = d->k / d->groups;
    for (int n = 0; n < d->n; n++)
        for (int p = 0; p < t->p; p++)
            for (int q = 0; q < t->q; q++)
                for (int r = 0; r < d->r; r++)
                    for (int s = 0; s < d->s; s++) {
                        const int i = p * d->stride_h + r * d->dilation_h - d->pad_h;
                        const int j = q * d->stride_w + s * d->dilation_w - d->pad_w;
                        if (i < 0 || j < 0 || i >= d->h || j >= d->w) continue;
                        for (int k = 0; k < d->k; k++)
                            for (int c = 0; c < cg; c++) {
                                const int x = ((n * d->h + i) * d->w + j) * d->c + k / kg * cg + c;
                                const int w = ((k * d->r + r) * d->s + s) * cg + c;
                                const int y = ((n * t->p + p) * t->q + q) * d->k + k;
                                t->y[y] += t->x[x] * t->w[w];
                                t->dx[x] += t->dy[y] * t->w[w];
                                t->dw[w] += t->dy[y] * t->x[x];
                            }
                    }
}

static data make(const shape *d, unsigned seed) {
    data t = {.d = *d,
              .p = out_size(d->h, d->pad_h, d->dilation_h, d->r, d->stride_h),
              .q = out_size(d->w, d->pad_w, d->dilation_w, d->s, d->stride_w)};
    t.sizes[0] = d->n * d->h * d->w * d->c;
    t.sizes[1] = d->k * d->r * d->s * (d->c / d->groups);
    t.sizes[2] = d->n * t.p * t.q * d->k;
    t.x = small_numbers(t.sizes[0], &seed);
    t.w = small_numbers(t.sizes[1], &seed);
    t.dy = small_numbers(t.sizes[2], &seed);
    t.dx = calloc((size_t)t.sizes[0], sizeof(float));
    t.dw = calloc((size_t)t.sizes[1], sizeof(float));
    t.y = calloc((size_t)t.sizes[2], sizeof(float));
    cr_assert(t.dx != NULL && t.dw != NULL && t.y != NULL);
    by_loops(&t);
    return t;
}

static void drop(data *t) {
    float *const all[] = {t->x, t->w, t->dy, t->y, t->dx, t->dw};
    for (int i = 0; i < 6; i++) free(all[i]);
}

/* ---- the op ------------------------------------------------------------------------------------------------------ */

static fr_tensor *tensor(const float *v, const int64_t *dim, fr_dtype t) {
    fr_tensor *x = NULL;
    must(fr_tensor_from_host(v, 4, dim, FR_F32, test_device(), &x));
    must(fr_cast(x, t, &x));
    return x;
}

static bool same(fr_tensor *t, const float *expected, const char *what, const shape *d) {
    double *v = values_of(t);
    bool all = true;
    for (int64_t i = 0; i < fr_tensor_numel(t) && all; i++) {
        all = v[i] == (double)expected[i];
        cr_expect(all,
                  "%s %s: x [%d, %d, %d, %d], w [%d, %d, %d, %d], stride %d x %d, padding %d x %d, dilation %d x %d, "
                  "groups %d: element %lld is %g, not %g",
                  what, fr_dtype_name(fr_tensor_dtype(t)), d->n, d->h, d->w, d->c, d->k, d->r, d->s, d->c / d->groups,
                  d->stride_h, d->stride_w, d->pad_h, d->pad_w, d->dilation_h, d->dilation_w, d->groups, (long long)i,
                  v[i], (double)expected[i]);
    }
    free(v);
    return all;
}

static void compare(const data *t, fr_dtype dtype) {
    const shape *d = &t->d;
    fr_tensor *x = tensor(t->x, (int64_t[]){d->n, d->h, d->w, d->c}, dtype), *y = NULL;
    fr_tensor *w = tensor(t->w, (int64_t[]){d->k, d->r, d->s, d->c / d->groups}, dtype);
    fr_tensor *dy = tensor(t->dy, (int64_t[]){d->n, t->p, t->q, d->k}, dtype);
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_conv2d(x, w, NULL,
                   FR_CONV2D_OPTS(.stride = d->stride_h, .stride_w = d->stride_w, .padding = d->pad_h,
                                  .padding_w = d->pad_w, .dilation = d->dilation_h, .dilation_w = d->dilation_w,
                                  .groups = d->groups),
                   &y));
    must(fr_backward(y, dy));
    same(y, t->y, "y", d);
    same(fr_tensor_get_grad(x), t->dx, "dx", d);
    same(fr_tensor_get_grad(w), t->dw, "dw", d);
    RELEASE_ALL(&x, &w, &dy, &y);
}

static void compare_all_types(const shape *d, unsigned seed) {
    data t = make(d, seed);
    compare(&t, FR_F32);
    compare(&t, FR_BF16);
    compare(&t, FR_F16);
    drop(&t);
}

/* Both axes alike, or only one with padding to spare; channels for each kind of kernel: few, odd, a vector, groups,
 * depthwise; images of one pixel, of a line, and lines that are long enough for a library's direct convolution. */
static shape candidate(unsigned i) {
    static const int channels[][3] = {{4, 4, 1},   {3, 5, 1},    {16, 16, 1}, {32, 16, 1},
                                      {16, 16, 4}, {16, 16, 16}, {1, 8, 1}};
    static const int sizes[][2] = {{1, 1}, {2, 1}, {1, 2}, {60, 1}, {1, 60}, {3, 2}, {5, 1}};
    static const int kernels[][2] = {{3, 3}, {1, 3}, {3, 1}, {4, 3}, {3, 4}, {5, 5}};
    const int *c = channels[i % 7], *size = sizes[i / 7 % 7], *kernel = kernels[i / 49 % 6];
    const int stride = 1 + (int)(i / 294 % 3), pad = 1 + (int)(i / 882 % 3), dilation = 1 + (int)(i / 2646 % 2);
    return (shape){.n = 2,
                   .h = size[0],
                   .w = size[1],
                   .c = c[0],
                   .k = c[1],
                   .groups = c[2],
                   .r = kernel[0],
                   .s = kernel[1],
                   .stride_h = i % 2 == 0 ? stride : 1,
                   .stride_w = i % 3 != 0 ? stride : 1,
                   .pad_h = kernel[0] > 1 ? pad : 0,
                   .pad_w = kernel[1] > 1 ? pad : 0,
                   .dilation_h = dilation,
                   .dilation_w = i % 5 != 0 ? dilation : 1};
}

Test(conv2d_padding, rows_and_columns_in_padding_only_are_written, .timeout = 240) {
    int cases = 0, columns = 0, rows = 0;
    for (unsigned j = 0; j < CANDIDATES && cases < CASES; j++) {
        const unsigned i = j * 11 % CANDIDATES; /* 11 shares no factor with the cycles of candidate() */
        const shape d = candidate(i);
        if (!suits(&d)) continue;
        cases++;
        columns += padding_only(d.w, d.pad_w, d.dilation_w, d.s, d.stride_w);
        rows += padding_only(d.h, d.pad_h, d.dilation_h, d.r, d.stride_h);
        compare_all_types(&d, i);
    }
    cr_expect(cases == CASES && columns >= CASES / 3 && rows >= CASES / 3,
              "%d cases, %d with columns and %d with rows in padding only", cases, columns, rows);
    expect_nothing_left();
}

/* A library of convolutions left columns of this bf16 dw unwritten: both outer columns of the first, the left column of
 * the second. */
Test(conv2d_padding, smallest_that_were_wrong) {
    const shape both = {.n = 2,
                        .h = 1,
                        .w = 1,
                        .c = 16,
                        .k = 16,
                        .groups = 4,
                        .r = 3,
                        .s = 3,
                        .stride_h = 2,
                        .stride_w = 2,
                        .pad_h = 1,
                        .pad_w = 1,
                        .dilation_h = 1,
                        .dilation_w = 1};
    shape left = both;
    left.w = 2;
    left.stride_w = 3;
    compare_all_types(&both, 1);
    compare_all_types(&left, 2);
    expect_nothing_left();
}

/* The mechanism: no memory handed out holds its old bytes. */
Test(conv2d_padding, memory_is_poisoned) {
    fr_tensor *x = NULL;
    for (int k = 0; k < 4; k++) {
        const fr_dtype t = (fr_dtype[]){FR_F32, FR_BF16, FR_F16, FR_F64}[k];
        must(fr_tensor_zeros(1, (int64_t[]){1000}, t, test_device(), &x));
        fr_tensor_release(&x);
        must(fr_tensor_empty(1, (int64_t[]){1000}, t, test_device(), &x));
        double *v = values_of(x);
        for (int i = 0; i < 1000; i++) cr_assert(v[i] != v[i], "%s: element %d is %g", fr_dtype_name(t), i, v[i]);
        free(v);
        fr_tensor_release(&x);
    }
    expect_nothing_left();
}
