/* test_conv2d_depthwise.c - our own gradient of depthwise weights beside plain sums in f64: values, bits, memory, and
 * where it is taken. Results and workspaces are full of NaN before it runs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/half.h"
#include "cpu/conv2d_engine.h"
#include "support/golden.h"

enum { IMAGES = 3 };

typedef struct shape {
    int h, w, c, r, s, stride, pad_h, pad_w;
} shape;

/* Maps that no tap or not each tap meets, channels beside the 16 of a vector and the 64 of a part, rows of several
 * strips (40 x 50), more parts than rows (1 x 1). */
static const shape shapes[] = {
    {1, 1, 16, 3, 3, 1, 1, 1},   {2, 2, 40, 3, 3, 1, 1, 1},   {3, 3, 17, 3, 3, 2, 1, 1},   {3, 9, 16, 3, 3, 1, 0, 2},
    {2, 2, 960, 3, 3, 1, 1, 1},  {7, 7, 33, 5, 5, 1, 2, 2},   {14, 14, 80, 5, 5, 2, 2, 2}, {9, 6, 24, 5, 5, 1, 0, 4},
    {40, 50, 19, 5, 5, 1, 2, 2}, {7, 7, 768, 7, 7, 1, 3, 3},  {8, 8, 96, 7, 7, 1, 3, 3},   {15, 9, 20, 7, 7, 2, 3, 3},
    {2, 2, 16, 7, 7, 1, 3, 3},   {6, 12, 130, 5, 3, 1, 2, 1}, {12, 6, 16, 3, 7, 2, 1, 0},  {9, 9, 70, 1, 5, 1, 0, 2},
    {5, 40, 31, 7, 3, 2, 6, 2},  {9, 25, 16, 7, 7, 2, 3, 3},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static fri_conv2d_desc desc_of(const shape *s, fr_dtype t) {
    return (fri_conv2d_desc){.dtype = t,
                             .bias_dtype = t,
                             .n = IMAGES,
                             .h = s->h,
                             .w = s->w,
                             .c = s->c,
                             .k = s->c,
                             .r = s->r,
                             .s = s->s,
                             .p = (s->h + 2 * s->pad_h - s->r) / s->stride + 1,
                             .q = (s->w + 2 * s->pad_w - s->s) / s->stride + 1,
                             .stride_h = s->stride,
                             .stride_w = s->stride,
                             .pad_h = s->pad_h,
                             .pad_w = s->pad_w,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = s->c};
}

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, bytes / 64 * 64 + 64);
    cr_assert_not_null(p);
    memset(p, 0xff, bytes / 64 * 64 + 64);
    return p;
}

typedef struct data {
    fri_conv2d_desc d;
    int64_t weights;
    void *x, *dy;
    double *expected; /* the gradient, by the plain loops of gradient checks */
} data;

/* Numbers in [-1, 1) that the type can hold. */
static void *numbers(fr_dtype t, int64_t n, unsigned *state, double *wide) {
    char *v = room((size_t)n * fr_dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        const float f = (float)(int)(*state >> 8) / (1 << 23) - 1;
        const fri_bf16 h = fri_bf16_from_f32(f);
        wide[i] = t == FR_F32 ? f : fri_f32_from_bf16(h);
        memcpy(v + i * (int64_t)fr_dtype_size(t), t == FR_F32 ? (const void *)&f : (const void *)&h, fr_dtype_size(t));
    }
    return v;
}

static data make(const shape *s, fr_dtype type) {
    unsigned state = 1;
    data t = {.d = desc_of(s, type), .weights = s->c * s->r * s->s};
    const int64_t x = t.d.n * t.d.h * t.d.w * t.d.c, y = t.d.n * t.d.p * t.d.q * t.d.k;
    double *wide_x = room((size_t)x * 8), *wide_dy = room((size_t)y * 8);
    fri_conv2d_desc d = t.d;
    fri_exec exec = {0};
    t.x = numbers(type, x, &state, wide_x);
    t.dy = numbers(type, y, &state, wide_dy);
    t.expected = room((size_t)t.weights * 8);
    d.dtype = d.bias_dtype = FR_F64;
    must(fri_backend_get(FR_CPU)->kernels_f64.conv2d_backward_weight(&exec, &d, wide_x, wide_dy, t.expected));
    free(wide_x);
    free(wide_dy);
    return t;
}

static void drop(data *t) {
    free(t->x);
    free(t->dy);
    free(t->expected);
}

/* The gradient by the backend's kernel; free it. */
static char *run(const data *t) {
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    size_t bytes = 0;
    must(k->conv2d_backward_weight_workspace(&t->d, &bytes));
    fri_exec exec = {.workspace = room(bytes), .workspace_bytes = bytes};
    char *dw = room((size_t)t->weights * fr_dtype_size(t->d.dtype));
    cr_assert_str_eq(fri_cpu_conv2d_impl(&t->d, FRI_PASS_BACKWARD_WEIGHT), "depthwise");
    must(k->conv2d_backward_weight(&exec, &t->d, t->x, t->dy, dw));
    free(exec.workspace);
    return dw;
}

Test(conv2d_depthwise, is_near_sums_in_f64) {
    static const fr_dtype types[] = {FR_F32, FR_BF16};
    for (int i = 0; i < 2 * SHAPES; i++) {
        const fr_dtype type = types[i % 2];
        data t = make(&shapes[i / 2], type);
        char *got = run(&t);
        double largest = 0, off = 0;
        for (int64_t j = 0; j < t.weights; j++) {
            const double value = type == FR_F32 ? ((const float *)(void *)got)[j]
                                                : fri_f32_from_bf16(((const fri_bf16 *)(void *)got)[j]);
            const double by = fabs(value - t.expected[j]);
            if (!(by <= off)) off = by;
            largest = fmax(largest, fabs(t.expected[j]));
        }
        cr_expect(off <= (type == FR_F32 ? 2e-6 : 1.0 / 256) * largest, "case %d, %s: off by %.3g, the largest is %.3g",
                  i / 2, fr_dtype_name(type), off, largest);
        free(got);
        drop(&t);
    }
}

Test(conv2d_depthwise, bits_do_not_depend_on_threads) {
    const int before = fr_threads_get();
    for (int i = 0; i < SHAPES; i++) {
        data t = make(&shapes[i], FR_F32);
        must(fr_threads_set(1));
        char *one = run(&t);
        for (int threads = 2; threads <= 8; threads += 1 + threads / 4) {
            must(fr_threads_set(threads));
            char *got = run(&t);
            cr_expect_eq(memcmp(got, one, (size_t)t.weights * sizeof(float)), 0, "case %d: %d threads", i, threads);
            free(got);
        }
        free(one);
        drop(&t);
    }
    must(fr_threads_set(before));
}

/* By shape and type, never by batch, in less scratch than the library's 256 times the weights. */
Test(conv2d_depthwise, is_taken_where_the_library_is_slow) {
    static const struct {
        shape s;
        bool taken;
    } layers[] = {
        {{7, 7, 960, 5, 5, 1, 2, 2}, true},   {{7, 7, 768, 7, 7, 1, 3, 3}, true},
        {{2, 2, 960, 3, 3, 1, 1, 1}, true},   {{4, 4, 960, 3, 3, 1, 1, 1}, false},
        {{4, 3, 960, 3, 3, 1, 1, 1}, true},   {{112, 112, 32, 3, 3, 1, 1, 1}, false},
        {{14, 14, 15, 5, 5, 1, 2, 2}, false}, {{14, 14, 32, 5, 4, 1, 2, 2}, false},
        {{14, 14, 32, 8, 7, 1, 3, 3}, false}, {{14, 14, 32, 5, 5, 3, 2, 2}, false},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int64_t n = 1; n <= 100; n *= 10)
            for (int pass = 0; pass < 3; pass++) {
                fri_conv2d_desc d = desc_of(&layers[i].s, FR_F32);
                const bool expected = layers[i].taken && pass == FRI_PASS_BACKWARD_WEIGHT;
                size_t bytes = 0;
                d.n = n;
                cr_expect_eq(strcmp(fri_cpu_conv2d_impl(&d, pass), "depthwise") == 0, expected,
                             "layer %zu, pass %d: %s", i, pass, fri_cpu_conv2d_impl(&d, pass));
                must(fri_backend_get(FR_CPU)->kernels.conv2d_backward_weight_workspace(&d, &bytes));
                cr_expect(!layers[i].taken || bytes <= 16 * 64 * (size_t)(d.c + 15) * (size_t)(d.r * d.s),
                          "layer %zu: %zu bytes", i, bytes);
            }
    fri_conv2d_desc plain = desc_of(&layers[0].s, FR_F32), dilated = plain, twice = plain, half = plain;
    fri_conv2d_desc bf16 = desc_of(&layers[5].s, FR_BF16);
    cr_expect_str_eq(fri_cpu_conv2d_impl(&bf16, FRI_PASS_BACKWARD_WEIGHT), "depthwise");
    dilated.dilation_w = 2, dilated.q -= 4;
    twice.k *= 2;
    half.dtype = half.bias_dtype = FR_F16;
    cr_expect_str_neq(fri_cpu_conv2d_impl(&dilated, FRI_PASS_BACKWARD_WEIGHT), "depthwise");
    cr_expect_str_neq(fri_cpu_conv2d_impl(&twice, FRI_PASS_BACKWARD_WEIGHT), "depthwise");
    cr_expect_str_eq(fri_cpu_conv2d_impl(&half, FRI_PASS_BACKWARD_WEIGHT), "widened:depthwise");
}
