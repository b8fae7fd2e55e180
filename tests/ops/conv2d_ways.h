/* conv2d_ways.h - a way of src/cpu/conv2d_engine.h beside the plain loops of gradient checks, for tests of the
 * way. */
#ifndef FRI_TESTS_CONV2D_WAYS_H
#define FRI_TESTS_CONV2D_WAYS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/half.h"
#include "cpu/conv2d_engine.h"
#include "support/golden.h"

typedef struct ways_data {
    fri_conv2d_desc d;
    fri_pass pass;
    int64_t results;
    void *a, *b, *bias; /* as taken by fri_conv2d_engine_run */
    double *expected;   /* in f64 */
} ways_data;

/* Full of NaN. */
static inline void *ways_room(size_t bytes) {
    void *p = aligned_alloc(64, bytes / 64 * 64 + 64);
    cr_assert_not_null(p);
    memset(p, 0xff, bytes / 64 * 64 + 64);
    return p;
}

/* Numbers in [-1, 1) that the type can hold. */
static inline void *ways_numbers(fr_dtype t, int64_t n, unsigned *state, double *wide) {
    char *v = ways_room((size_t)n * fr_dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        const float f = (float)(int)(*state >> 8) / (1 << 23) - 1;
        const fri_bf16 h = fri_bf16_from_f32(f);
        wide[i] = t == FR_F32 ? f : fri_f32_from_bf16(h);
        memcpy(v + i * (int64_t)fr_dtype_size(t), t == FR_F32 ? (const void *)&f : (const void *)&h, fr_dtype_size(t));
    }
    return v;
}

static inline ways_data ways_make(const fri_conv2d_desc *desc, fri_pass pass) {
    unsigned state = 1;
    ways_data t = {.d = *desc, .pass = pass};
    const int64_t x = t.d.n * t.d.h * t.d.w * t.d.c, y = t.d.n * t.d.p * t.d.q * t.d.k;
    const int64_t w = t.d.k * t.d.r * t.d.s * (t.d.c / t.d.groups);
    const int64_t a = pass == FRI_PASS_BACKWARD_INPUT ? y : x, b = pass == FRI_PASS_BACKWARD_WEIGHT ? y : w;
    double *wide_a = ways_room((size_t)a * 8), *wide_b = ways_room((size_t)b * 8);
    double *wide_bias = ways_room((size_t)t.d.k * 8);
    const fri_kernels *f64 = &fri_backend_get(FR_CPU)->kernels_f64;
    const fri_exec exec = {0};
    fri_conv2d_desc d = t.d;
    t.a = ways_numbers(d.dtype, a, &state, wide_a);
    t.b = ways_numbers(d.dtype, b, &state, wide_b);
    t.bias = ways_numbers(d.dtype, d.k, &state, wide_bias);
    t.results = pass == FRI_PASS_FORWARD ? y : pass == FRI_PASS_BACKWARD_INPUT ? x : w;
    t.expected = ways_room((size_t)t.results * 8);
    d.dtype = d.bias_dtype = FR_F64;
    if (pass == FRI_PASS_FORWARD) must(f64->conv2d_forward(&exec, &d, wide_a, wide_b, wide_bias, t.expected));
    if (pass == FRI_PASS_BACKWARD_INPUT) must(f64->conv2d_backward_input(&exec, &d, wide_b, wide_a, t.expected));
    if (pass == FRI_PASS_BACKWARD_WEIGHT) must(f64->conv2d_backward_weight(&exec, &d, wide_a, wide_b, t.expected));
    free(wide_a);
    free(wide_b);
    free(wide_bias);
    return t;
}

static inline void ways_drop(ways_data *t) {
    free(t->a);
    free(t->b);
    free(t->bias);
    free(t->expected);
}

/* The result of images first .. first + n; free it. */
static inline char *ways_run_images(const ways_data *t, fri_conv2d_method method, int64_t first, int64_t n) {
    const fri_conv2d_desc *d = &t->d;
    const int64_t size = (int64_t)fr_dtype_size(d->dtype), x = d->h * d->w * d->c, y = d->p * d->q * d->k;
    const bool dx = t->pass == FRI_PASS_BACKWARD_INPUT, dw = t->pass == FRI_PASS_BACKWARD_WEIGHT;
    fri_conv2d_desc some = *d;
    fri_conv2d_engine e;
    some.n = n;
    fri_conv2d_engine_plan(&some, t->pass, method, &e);
    cr_assert_eq(e.method, method);
    char *workspace = ways_room(e.bytes), *out = ways_room((size_t)(dw ? t->results : n * (dx ? x : y)) * (size_t)size);
    fri_conv2d_engine_prepare(&e, t->b, workspace);
    fri_conv2d_engine_run(&e, (char *)t->a + first * (dx ? y : x) * size, (char *)t->b + (dw ? first * y * size : 0),
                          dx || dw ? NULL : t->bias, out, workspace);
    for (size_t i = 0; i < 64; i++) /* of ways_room, behind the workspace */
        cr_assert_eq((uint8_t)workspace[e.bytes + i], 0xff, "pass %d writes behind its %zu bytes", t->pass, e.bytes);
    free(workspace);
    return out;
}

static inline char *ways_run(const ways_data *t, fri_conv2d_method method) {
    return ways_run_images(t, method, 0, t->d.n);
}

static inline double ways_value(const ways_data *t, const void *results, int64_t i) {
    return t->d.dtype == FR_F32 ? ((const float *)results)[i] : fri_f32_from_bf16(((const fri_bf16 *)results)[i]);
}

/* The largest difference from the sums in f64, as a share of the largest sum. */
static inline double ways_off(const ways_data *t, fri_conv2d_method method) {
    char *got = ways_run(t, method);
    double largest = 0, off = 0;
    for (int64_t j = 0; j < t->results; j++) {
        const double by = fabs(ways_value(t, got, j) - t->expected[j]);
        if (!(by <= off)) off = by;
        largest = fmax(largest, fabs(t->expected[j]));
    }
    free(got);
    return off / largest;
}

/* Each pass of f32 on 1 to 8 threads, and y and dx of a batch cut after its first image. POINTWISE has dw. */
static inline void ways_expect_same_bits(const fri_conv2d_desc *d, fri_conv2d_method method) {
    const int before = fr_threads_get();
    const bool alone = method == FRI_CONV2D_POINTWISE;
    for (fri_pass pass = alone ? FRI_PASS_BACKWARD_WEIGHT : FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT;
         pass++) {
        ways_data t = ways_make(d, pass);
        must(fr_threads_set(1));
        char *one = ways_run(&t, method);
        for (int threads = 2; threads <= 8; threads += 1 + threads / 4) {
            must(fr_threads_set(threads));
            char *got = ways_run(&t, method);
            cr_expect_eq(memcmp(got, one, (size_t)t.results * sizeof(float)), 0, "pass %d: %d threads", pass, threads);
            free(got);
        }
        if (pass != FRI_PASS_BACKWARD_WEIGHT) {
            const size_t image = (size_t)(t.results / d->n) * sizeof(float);
            char *first = ways_run_images(&t, method, 0, 1), *rest = ways_run_images(&t, method, 1, d->n - 1);
            cr_expect_eq(memcmp(first, one, image), 0, "%dx%d %d->%d, pass %d: the first image alone", (int)d->h,
                         (int)d->w, (int)d->c, (int)d->k, pass);
            cr_expect_eq(memcmp(rest, one + image, image * (size_t)(d->n - 1)), 0, "pass %d: the rest", pass);
            free(first);
            free(rest);
        }
        free(one);
        ways_drop(&t);
    }
    must(fr_threads_set(before));
}

/* A weight gradient that normalizes x has the bits of a weight gradient after batch norm's kernel. */
static inline void ways_expect_reads_norm(const fri_conv2d_desc *desc, fri_conv2d_method method) {
    static const fri_activation acts[] = {FRI_ACTIVATION_NONE, FRI_ACTIVATION_RELU, FRI_ACTIVATION_RELU6,
                                          FRI_ACTIVATION_SILU};
    enum { MEAN, INVSTD, GAMMA, BETA, VECTORS };
    const fri_backend *cpu = fri_backend_get(FR_CPU);
    const fri_exec exec = {0};
    const int before = fr_threads_get();
    double *wide = ways_room((size_t)desc->c * sizeof *wide);
    float *vector[VECTORS];
    unsigned state = 7;
    for (int i = 0; i < VECTORS; i++) vector[i] = ways_numbers(FR_F32, desc->c, &state, wide);
    for (int i = 0; i < 8; i++) {
        const bool affine = i % 2;
        ways_data t = ways_make(desc, FRI_PASS_BACKWARD_WEIGHT);
        const fri_conv2d_norm norm = {vector[MEAN], vector[INVSTD], affine ? vector[GAMMA] : NULL,
                                      affine ? vector[BETA] : NULL, acts[i / 2]};
        const fri_batchnorm2d_desc plain = {.dtype = FR_F32, .rows = t.d.n * t.d.h * t.d.w, .c = t.d.c};
        void *x = t.a, *made = ways_room((size_t)(plain.rows * plain.c) * sizeof(float));
        must(cpu->kernels.batchnorm2d_apply(&exec, &plain, x, norm.mean, norm.invstd, norm.gamma, norm.beta, NULL,
                                            norm.act, made));
        t.a = made;
        char *expected = ways_run(&t, method);
        t.a = x;
        t.d.norm = &norm;
        for (int threads = 1; threads <= 3; threads += 2) {
            must(fr_threads_set(threads));
            char *got = ways_run(&t, method);
            cr_expect_eq(memcmp(got, expected, (size_t)t.results * sizeof(float)), 0,
                         "%dx%d %d->%d, activation %d, affine %d, %d threads", (int)t.d.h, (int)t.d.w, (int)t.d.c,
                         (int)t.d.k, (int)norm.act, affine, threads);
            free(got);
        }
        must(fr_threads_set(before));
        free(expected);
        free(made);
        ways_drop(&t);
    }
    for (int i = 0; i < VECTORS; i++) free(vector[i]);
    free(wide);
}

#endif
