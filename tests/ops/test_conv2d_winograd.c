/* test_conv2d_winograd.c - Winograd's F(4 x 4, 3 x 3) beside plain sums in f64: values, bits, memory, and where it is
 * taken. Results and workspaces are full of NaN before a pass runs. */
#include "base/process.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "cpu/conv2d_engine.h"
#include "support/golden.h"

static const char *const pass_name[] = {"forward", "dx", "dw"};
enum { PASSES = 3, IMAGES = 3, MOST_BYTES = 8 << 20, GUARD = 4096 };

typedef struct shape {
    int h, w, c, k, pad_h, pad_w;
} shape;

/* Maps of 1 x 1 to 7 x 7, then maps that are no multiples of a tile, channels beside the transforms' 64, several chunks
 * (56 x 56), several blocks of channels (256 and more), and room for some threads to work alone, not for more, on tiles
 * (56 x 56), output channels (8 x 8, 4 x 4), and, in dw, input channels (20 x 20 to 32). The last two are for bits
 * only: of 16 x 16 threads make tiles together, but not three threads, whose blocks would be of 36 channels and
 * 32; of 46 x 46 three threads would have blocks of 53 channels and shorter chunks. */
static const shape shapes[] = {
    {1, 1, 5, 7, 1, 1},     {1, 1, 16, 16, 2, 2},    {2, 2, 16, 3, 1, 1},       {3, 3, 64, 8, 0, 0},
    {4, 4, 8, 64, 1, 1},    {5, 5, 20, 24, 2, 1},    {6, 6, 3, 70, 0, 2},       {7, 7, 67, 35, 1, 1},
    {9, 11, 130, 70, 2, 2}, {33, 17, 20, 24, 0, 1},  {12, 5, 96, 160, 1, 0},    {56, 56, 64, 64, 1, 1},
    {8, 8, 256, 384, 1, 1}, {14, 14, 512, 64, 1, 1}, {20, 20, 64, 384, 1, 1},   {4, 4, 48, 1024, 1, 1},
    {4, 4, 512, 128, 1, 1}, {20, 20, 128, 32, 1, 1}, {16, 16, 256, 1152, 1, 1}, {46, 46, 96, 159, 1, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static fri_conv2d_desc desc_of(const shape *s, int64_t n) {
    return (fri_conv2d_desc){.dtype = FR_F32,
                             .bias_dtype = FR_F32,
                             .n = n,
                             .h = s->h,
                             .w = s->w,
                             .c = s->c,
                             .k = s->k,
                             .r = 3,
                             .s = 3,
                             .p = s->h + 2 * s->pad_h - 2,
                             .q = s->w + 2 * s->pad_w - 2,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = s->pad_h,
                             .pad_w = s->pad_w,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1};
}

typedef struct data {
    fri_conv2d_desc d;
    int64_t elements[PASSES];     /* of the result of a pass: y, dx, dw */
    float *a[PASSES], *b[PASSES]; /* its operands */
    float *bias;
} data;

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, bytes / 64 * 64 + 64);
    cr_assert_not_null(p);
    memset(p, 0xff, bytes / 64 * 64 + 64);
    return p;
}

static float *numbers(int64_t n, unsigned *state) {
    float *v = room((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        v[i] = (float)(int)(*state >> 8) / (1 << 23) - 1;
    }
    return v;
}

static data make(const shape *s) {
    unsigned state = 1;
    data t = {.d = desc_of(s, IMAGES)};
    const fri_conv2d_desc *d = &t.d;
    t.elements[0] = d->n * d->p * d->q * d->k;
    t.elements[1] = d->n * d->h * d->w * d->c;

    t.elements[2] = d->k * 9 * d->c;
    float *x = numbers(t.elements[1], &state), *w = numbers(t.elements[2], &state);
    float *dy = numbers(t.elements[0], &state);
    t.a[0] = x, t.b[0] = w, t.a[1] = dy, t.b[1] = w, t.a[2] = x, t.b[2] = dy;
    t.bias = numbers(d->k, &state);
    return t;
}

static void drop(data *t) {
    free(t->a[0]);
    free(t->b[0]);
    free(t->a[1]);
    free(t->bias);
}

/* The pass over images first .. first + n by the method; free it. NULL: the method cannot. */
static float *run(const data *t, int pass, fri_conv2d_method method, int64_t first, int64_t n) {
    fri_conv2d_desc d = t->d;
    fri_conv2d_engine e;
    d.n = n;
    fri_conv2d_engine_plan(&d, (fri_pass)pass, method, &e);
    if (e.method == FRI_CONV2D_NONE) return NULL;
    cr_expect(method != FRI_CONV2D_WINOGRAD || e.bytes <= MOST_BYTES, "%zu bytes of workspace", e.bytes);
    int64_t in = first * t->elements[pass == 1 ? 0 : 1] / t->d.n;
    float *out = room((size_t)t->elements[pass] * sizeof *out);
    char *workspace = room(e.bytes + GUARD);
    fri_conv2d_engine_prepare(&e, t->b[pass], workspace);
    fri_conv2d_engine_run(&e, t->a[pass] + in, t->b[pass], pass == 0 ? t->bias : NULL, out, workspace);
    for (size_t i = e.bytes; i < e.bytes + GUARD; i++)
        cr_assert_eq((unsigned char)workspace[i], 0xff, "%s, %lldx%lld %lld->%lld: byte %zu behind the workspace",
                     pass_name[pass], (long long)d.h, (long long)d.w, (long long)d.c, (long long)d.k, i - e.bytes);
    free(workspace);
    return out;
}

/* Skips the test where the library has no product that suits. */
static float *winograd(const data *t, int pass, int64_t first, int64_t n) {
    float *out = run(t, pass, FRI_CONV2D_WINOGRAD, first, n);
    if (out == NULL)
        cr_skip_test("the library's products, in the instructions used here, depend on the number of rows");
    return out;
}

static void expect_same(const data *t, int pass, const float *got, const float *expected, int64_t n, const char *what,
                        int64_t number) {
    const fri_conv2d_desc *d = &t->d;
    cr_expect_eq(memcmp(got, expected, (size_t)n * sizeof *got), 0, "%s, %lldx%lld %lld->%lld: %s %lld: bits differ",
                 pass_name[pass], (long long)d->h, (long long)d->w, (long long)d->c, (long long)d->k, what,
                 (long long)number);
}

static double *widened(const float *x, int64_t n) {
    double *v = room((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = x[i];
    return v;
}

/* dw, or the second image's y or dx, in f64, by the plain loops of gradient checks. */
static double *by_sums(const data *t, int pass) {
    const fri_kernels *f64 = &fri_backend_get(FR_CPU)->kernels_f64;
    fri_conv2d_desc d = t->d;
    fri_exec exec = {0};
    d.dtype = d.bias_dtype = FR_F64;
    const int64_t images = pass == 2 ? IMAGES : 1, image = t->elements[pass == 1 ? 0 : 1] / IMAGES;
    double *a = widened(t->a[pass] + (IMAGES - images) / 2 * image, images * image);
    double *b = widened(t->b[pass], pass == 2 ? t->elements[0] : t->elements[2]);
    double *bias = widened(t->bias, d.k), *out = room((size_t)t->elements[pass] * sizeof *out);
    d.n = images;
    if (pass == 0) must(f64->conv2d_forward(&exec, &d, a, b, bias, out));
    if (pass == 1) must(f64->conv2d_backward_input(&exec, &d, b, a, out));
    if (pass == 2) must(f64->conv2d_backward_weight(&exec, &d, a, b, out));
    free(a);
    free(b);
    free(bias);
    return out;
}

Test(conv2d_winograd, is_near_sums_in_f64) {
    for (int i = 0; i < SHAPES - 2; i++) {
        data t = make(&shapes[i]);
        for (int pass = 0; pass < PASSES; pass++) {
            float *got = winograd(&t, pass, 0, IMAGES);
            double *expected = by_sums(&t, pass), largest = 0, off = 0;
            const int64_t n = t.elements[pass] / (pass == 2 ? 1 : IMAGES), at = pass == 2 ? 0 : n;
            for (int64_t j = 0; j < n; j++) {
                double by = fabs(got[at + j] - expected[j]);
                if (!(by <= off)) off = by;
                largest = fmax(largest, fabs(expected[j]));
            }
            cr_expect(off <= winograd_tolerance * largest, "case %d, %s: off by %.3g, the largest value is %.3g", i,
                      pass_name[pass], off, largest);
            free(got);
            free(expected);
        }
        drop(&t);
    }
}

/* The library has made a product for all threads when an equal product is needed for a thread alone. */
Test(conv2d_winograd, three_threads_stay_in_their_workspace) {
    must(fr_threads_set(3));
    for (int i = 0; i < SHAPES; i++) {
        data t = make(&shapes[i]);
        for (int pass = 0; pass < PASSES; pass++) free(winograd(&t, pass, 0, IMAGES));
        cr_expect_eq(fr_threads_get(), 3);
        drop(&t);
    }
}

Test(conv2d_winograd, bits_do_not_depend_on_threads) {
    const int before = fr_threads_get();
    for (int i = 0; i < SHAPES; i++) {
        data t = make(&shapes[i]);
        for (int pass = 0; pass < PASSES; pass++) {
            must(fr_threads_set(1));
            float *one = winograd(&t, pass, 0, IMAGES);
            for (int threads = 2; threads <= 8; threads += 1 + threads / 4) {
                must(fr_threads_set(threads));
                float *got = winograd(&t, pass, 0, IMAGES);
                expect_same(&t, pass, got, one, t.elements[pass], "threads", threads);
                free(got);
            }
            free(one);
        }
        drop(&t);
    }
    must(fr_threads_set(before));
}

Test(conv2d_winograd, a_batch_cut_in_two_gives_the_same_y_and_dx) {
    for (int i = 0; i < SHAPES; i++) {
        data t = make(&shapes[i]);
        for (int pass = 0; pass < 2; pass++) {
            float *whole = winograd(&t, pass, 0, IMAGES);
            int64_t image = t.elements[pass] / IMAGES;
            for (int64_t cut = 1; cut < IMAGES; cut++) {
                float *first = winograd(&t, pass, 0, cut), *rest = winograd(&t, pass, cut, IMAGES - cut);
                expect_same(&t, pass, first, whole, cut * image, "images before", cut);
                expect_same(&t, pass, rest, whole + cut * image, (IMAGES - cut) * image, "images from", cut);
                free(first);
                free(rest);
            }
            free(whole);
        }
        drop(&t);
    }
}

/* U, V and M keep the limit; the scratch of products is each thread's own. The shape alone decides the method. */
Test(conv2d_winograd, keeps_its_limit_and_method_on_any_number_of_threads) {
    static const shape layers[] = {{56, 56, 64, 64, 1, 1},
                                   {28, 28, 128, 128, 1, 1},
                                   {14, 14, 1024, 512, 1, 1},
                                   {12, 12, 512, 512, 1, 1},
                                   {13, 13, 512, 512, 1, 1}};
    static const int counts[] = {1, 2, 13, 16, 64};
    const int before = fr_threads_get();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int pass = 0; pass < PASSES; pass++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                fri_conv2d_desc d = desc_of(&layers[i], 8);
                fri_conv2d_engine e;
                size_t scratch = 0;
                must(fr_threads_set(counts[k]));
                fri_conv2d_engine_plan(&d, (fri_pass)pass, FRI_CONV2D_WINOGRAD, &e);
                cr_expect_eq(fr_threads_get(), counts[k]);
                for (size_t slot = 0; slot < sizeof e.product / sizeof *e.product; slot++)
                    if (e.product[slot].bytes > scratch) scratch = e.product[slot].bytes;
                cr_expect_eq(e.method, FRI_CONV2D_WINOGRAD, "layer %zu, %s, %d threads", i, pass_name[pass], counts[k]);
                cr_expect_leq(e.bytes, MOST_BYTES + (size_t)e.workers * scratch, "layer %zu, %s, %d threads: %zu bytes",
                              i, pass_name[pass], counts[k], e.bytes);
            }
    must(fr_threads_set(before));
}

/* Two threads work alone where possible; on channels where there are few tiles. */
Test(conv2d_winograd, threads_work_alone) {
    static const struct {
        shape s;
        int64_t n;
        fri_conv2d_split split[PASSES];
        bool shared; /* y and dx: V is made once, for all */
    } layers[] = {
        {{56, 56, 64, 64, 1, 1}, 8, {FRI_SPLIT_TILES, FRI_SPLIT_TILES, FRI_SPLIT_OUT}},
        {{56, 56, 64, 64, 1, 1}, 1, {FRI_SPLIT_OUT, FRI_SPLIT_OUT, FRI_SPLIT_OUT}},
        {{28, 28, 512, 512, 1, 1}, 8, {FRI_SPLIT_NONE, FRI_SPLIT_NONE, FRI_SPLIT_OUT}},
        {{56, 56, 128, 32, 1, 1}, 8, {FRI_SPLIT_TILES, FRI_SPLIT_TILES, FRI_SPLIT_IN}},
        {{56, 56, 32, 32, 1, 1}, 8, {FRI_SPLIT_TILES, FRI_SPLIT_TILES, FRI_SPLIT_NONE}},
        {{14, 14, 1024, 512, 1, 1}, 8, {FRI_SPLIT_NONE, FRI_SPLIT_NONE, FRI_SPLIT_OUT}},
        {{7, 7, 512, 512, 1, 1}, 8, {FRI_SPLIT_NONE, FRI_SPLIT_NONE, FRI_SPLIT_OUT}},
        {{7, 7, 384, 384, 1, 1}, 8, {FRI_SPLIT_OUT, FRI_SPLIT_OUT, FRI_SPLIT_OUT}, true},
        {{4, 4, 512, 512, 1, 1}, 8, {FRI_SPLIT_OUT, FRI_SPLIT_OUT, FRI_SPLIT_OUT}},   /* a chunk holds all tiles */
        {{14, 14, 256, 256, 1, 1}, 8, {FRI_SPLIT_OUT, FRI_SPLIT_OUT, FRI_SPLIT_OUT}}, /* blocks are few */
    };
    const int before = fr_threads_get();
    for (int threads = 1; threads <= 2; threads++) {
        must(fr_threads_set(threads));
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            for (int pass = 0; pass < PASSES; pass++) {
                const fri_conv2d_desc d = desc_of(&layers[i].s, layers[i].n);
                fri_conv2d_engine e;
                fri_conv2d_engine_plan(&d, (fri_pass)pass, FRI_CONV2D_WINOGRAD, &e);
                if (e.method == FRI_CONV2D_NONE) continue;
                const bool alone = threads > 1;
                const fri_conv2d_split expected = alone ? layers[i].split[pass] : FRI_SPLIT_NONE;
                cr_expect_eq(e.workers, e.split == FRI_SPLIT_NONE ? 1 : threads);
                cr_expect_eq(e.split, expected, "layer %zu, %s, %d threads: %d", i, pass_name[pass], threads, e.split);
                cr_expect_eq(e.shared, alone && layers[i].shared && pass < 2, "layer %zu, %s", i, pass_name[pass]);
            }
        }
    }
    must(fr_threads_set(before));
}

/* ---- the choice -------------------------------------------------------------------------------------------- */

static bool taken(const fri_conv2d_desc *d, int pass) {
    return strncmp(fri_cpu_conv2d_impl(d, pass), "winograd:f4x3", 13) == 0;
}

Test(conv2d_winograd, is_taken_by_shape_not_by_batch_or_memory) {
    static const struct {
        shape s;
        bool taken[PASSES];
    } layers[] = {
        {{56, 56, 64, 64, 1, 1}, {true, true, true}},     {{7, 7, 512, 512, 1, 1}, {true, true, true}},
        {{8, 8, 256, 256, 1, 1}, {true, true, true}},     {{28, 28, 96, 48, 1, 1}, {true, true, true}},
        {{4, 4, 512, 512, 1, 1}, {true, true, true}},     {{4, 4, 256, 256, 1, 1}, {true, true, true}},
        {{4, 4, 128, 256, 1, 1}, {false, false, true}},   {{4, 3, 512, 512, 1, 1}, {false, false, false}},
        {{14, 14, 128, 32, 1, 1}, {true, true, true}},    {{7, 7, 128, 32, 1, 1}, {true, true, true}},
        {{14, 14, 64, 32, 1, 1}, {false, false, false}},  {{4, 4, 64, 32, 1, 1}, {false, false, false}},
        {{4, 4, 128, 32, 1, 1}, {false, false, true}},    {{4, 4, 64, 48, 1, 1}, {false, false, true}},
        {{14, 14, 48, 48, 1, 1}, {true, true, true}},     {{14, 14, 64, 36, 1, 1}, {false, false, false}},
        {{4, 8, 512, 512, 1, 1}, {true, true, true}},     {{4, 7, 512, 512, 1, 1}, {false, false, false}},
        {{3, 3, 512, 512, 1, 1}, {false, false, false}},  {{2, 2, 512, 512, 1, 1}, {false, false, false}},
        {{6, 6, 256, 256, 1, 1}, {false, false, false}}, /* tiles stick out */
        {{6, 6, 256, 256, 2, 2}, {true, false, true}},   /* of y, 8 x 8, they do not */
        {{56, 56, 32, 32, 1, 1}, {true, true, true}},     {{28, 28, 64, 32, 1, 1}, {true, true, true}},
        {{28, 28, 32, 32, 1, 1}, {false, false, false}}, /* few channels for as many tiles */
        {{52, 52, 32, 32, 1, 1}, {false, false, false}},  {{56, 56, 32, 24, 1, 1}, {false, false, false}},
        {{24, 24, 64, 32, 1, 1}, {false, false, false}},  {{28, 28, 48, 32, 1, 1}, {false, false, false}},
        {{224, 224, 3, 64, 1, 1}, {false, false, false}}, {{56, 56, 64, 64, 3, 3}, {false, false, false}},
    };
    data t = make(&shapes[0]);
    free(winograd(&t, 0, 0, 1)); /* or skips */
    drop(&t);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int pass = 0; pass < PASSES; pass++)
            for (int64_t n = 1; n <= 100; n *= 10)
                for (size_t limit = 0; limit <= 1 << 20; limit += 1 << 20) {
                    fri_conv2d_desc d = desc_of(&layers[i].s, n);
                    d.workspace_limit = limit;
                    cr_expect_eq(taken(&d, pass), layers[i].taken[pass], "layer %zu, %s, %lld images, limit %zu: %s", i,
                                 pass_name[pass], (long long)n, limit, fri_cpu_conv2d_impl(&d, pass));
                }
    fri_conv2d_desc plain = desc_of(&layers[0].s, 8), other[] = {plain, plain, plain, plain, plain};
    other[0].stride_h = 2, other[0].p = 28;
    other[1].dilation_w = 2, other[1].q = 54;
    other[2].groups = 2;
    other[3].dtype = FR_F16;
    other[4].r = 1, other[4].pad_h = 0;
    for (int i = 0; i < 5; i++)
        for (int pass = 0; pass < PASSES; pass++) cr_expect_not(taken(&other[i], pass), "%d, %s", i, pass_name[pass]);
}

Test(conv2d_winograd, exact_convolutions_are_indirect) {
    const shape s = {8, 8, 64, 64, 1, 1};
    data t = make(&s);
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    free(winograd(&t, 0, 0, 1)); /* or skips */
    for (int exact = 0; exact < 2; exact++) {
        fr_exact_convolutions_set(exact);
        cr_expect_eq(fri_exact_convolutions_get(), exact);
        cr_expect_eq(taken(&t.d, 0), !exact);
        size_t bytes = 0;
        must(k->conv2d_forward_workspace(&t.d, &bytes));
        fri_exec exec = {.workspace = room(bytes), .workspace_bytes = bytes};
        float *y = room((size_t)t.elements[0] * sizeof *y);
        float *expected = run(&t, 0, exact ? FRI_CONV2D_INDIRECT : FRI_CONV2D_WINOGRAD, 0, IMAGES);
        must(k->conv2d_forward(&exec, &t.d, t.a[0], t.b[0], t.bias, y));
        expect_same(&t, 0, y, expected, t.elements[0], "exact", exact);
        free(exec.workspace);
        free(y);
        free(expected);
    }
    fr_exact_convolutions_set(false);
    drop(&t);
}

/* ---- half data --------------------------------------------------------------------------------------------- */

static void cast(fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    must(fri_backend_get(FR_CPU)->kernels.cast(&(fri_exec){0}, from, to, n, x, y));
}

/* n values of the type; v becomes the rounded values. */
static void *rounded(fr_dtype t, int64_t n, float *v) {
    void *half = room((size_t)n * fr_dtype_size(t));
    cast(FR_F32, t, n, v, half);
    cast(t, FR_F32, n, half, v);
    return half;
}

/* A pass by the kernels, as f32. bias: of forward. */
static float *by_kernel(const fri_conv2d_desc *d, int pass, int64_t n, const void *a, const void *b,
                        const float *bias) {
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    fri_conv2d_workspace_fn *const workspace[] = {k->conv2d_forward_workspace, k->conv2d_backward_input_workspace,
                                                  k->conv2d_backward_weight_workspace};
    void *half = room((size_t)n * fr_dtype_size(d->dtype));
    float *out = room((size_t)n * sizeof *out);
    size_t bytes = 0;
    must(workspace[pass](d, &bytes));
    fri_exec exec = {.workspace = room(bytes), .workspace_bytes = bytes};
    if (pass == 0) must(k->conv2d_forward(&exec, d, a, b, bias, half));
    if (pass == 1) must(k->conv2d_backward_input(&exec, d, b, a, half));
    if (pass == 2) must(k->conv2d_backward_weight(&exec, d, a, b, half));
    cast(d->dtype, FR_F32, n, half, out);
    free(exec.workspace);
    free(half);
    return out;
}

/* f16 and bf16 are computed on f32 copies: of all images, or, where the caller's limit is small,
 * of rows of tiles, with equal y. */
static void expect_halves(fr_dtype dtype) {
    data t = make(&(shape){20, 20, 64, 64, 1, 1});
    const int64_t *n = t.elements;
    void *x = rounded(dtype, n[1], t.a[0]), *w = rounded(dtype, n[2], t.b[0]), *dy = rounded(dtype, n[0], t.a[1]);
    const void *a[] = {x, dy, x}, *b[] = {w, w, dy};
    const size_t rows_of_ten = (10 + 1) * 2 * 20 * 64 * sizeof(float);
    fri_conv2d_desc d = t.d;
    d.dtype = dtype;
    for (int pass = 0; pass < PASSES; pass++) {
        float *expected = winograd(&t, pass, 0, IMAGES);
        void *half = rounded(dtype, n[pass], expected);
        double largest = 0;
        for (int64_t i = 0; i < n[pass]; i++) largest = fmax(largest, fabs(expected[i]));
        for (int cut = 0; cut < 3; cut++) {
            d.workspace_limit = cut == 2 ? 1 : cut ? rows_of_ten : 0;
            cr_expect_eq(strncmp(fri_cpu_conv2d_impl(&d, pass), "widened:winograd:f4x3", 21), 0, "%s, %s: %s",
                         fr_dtype_name(dtype), pass_name[pass], fri_cpu_conv2d_impl(&d, pass));
            float *got = by_kernel(&d, pass, n[pass], a[pass], b[pass], t.bias);
            if (!cut || pass == 0) {
                expect_same(&t, pass, got, expected, n[pass], "cut in rows", cut);
            } else {
                for (int64_t i = 0; i < n[pass]; i++)
                    cr_assert(fabs(got[i] - expected[i]) <= ldexp(largest, dtype == FR_BF16 ? -7 : -10),
                              "%s, element %lld: %g, not %g", pass_name[pass], (long long)i, got[i], expected[i]);
            }
            free(got);
        }
        free(half);
        free(expected);
    }
    fr_exact_convolutions_set(true);
    cr_expect_null(strstr(fri_cpu_conv2d_impl(&d, 0), "winograd"));
    fr_exact_convolutions_set(false);
    free(x);
    free(w);
    free(dy);
    drop(&t);
}

Test(conv2d_winograd, halves_are_widened_and_go_the_same_way) {
    expect_halves(FR_F16);
    expect_halves(FR_BF16);
}
