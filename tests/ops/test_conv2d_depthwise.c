/* test_conv2d_depthwise.c - our own depthwise convolutions beside plain sums in f64: values, bits, memory, and the
 * shapes they take. Results and workspaces are full of NaN before a run. */
#include "ops/conv2d_ways.h"

enum { IMAGES = 3 };

typedef struct shape {
    int h, w, c, r, s, stride, pad_h, pad_w;
} shape;

/* Maps that no tap or not each tap meets, channels beside the 16 of a vector and the 64 or 256 of a part, rows of
 * several strips (40 x 50), more parts than rows (1 x 1), rows whose inner part is no multiple of the pixels made
 * together. */
static const shape shapes[] = {
    {1, 1, 16, 3, 3, 1, 1, 1},   {2, 2, 40, 3, 3, 1, 1, 1},   {3, 3, 17, 3, 3, 2, 1, 1},    {3, 9, 16, 3, 3, 1, 0, 2},
    {2, 2, 960, 3, 3, 1, 1, 1},  {7, 7, 33, 5, 5, 1, 2, 2},   {14, 14, 80, 5, 5, 2, 2, 2},  {9, 6, 24, 5, 5, 1, 0, 4},
    {40, 50, 19, 5, 5, 1, 2, 2}, {7, 7, 768, 7, 7, 1, 3, 3},  {8, 8, 96, 7, 7, 1, 3, 3},    {15, 9, 20, 7, 7, 2, 3, 3},
    {2, 2, 16, 7, 7, 1, 3, 3},   {6, 12, 130, 5, 3, 1, 2, 1}, {12, 6, 16, 3, 7, 2, 1, 0},   {9, 9, 70, 1, 5, 1, 0, 2},
    {5, 40, 31, 7, 3, 2, 6, 2},  {9, 25, 16, 7, 7, 2, 3, 3},  {16, 33, 48, 3, 3, 1, 1, 1},  {17, 30, 32, 3, 3, 2, 1, 1},
    {16, 31, 40, 3, 3, 2, 0, 0}, {20, 30, 17, 5, 5, 2, 2, 2}, {15, 15, 300, 3, 3, 1, 2, 0}, {10, 31, 16, 3, 3, 2, 1, 2},
    {10, 29, 16, 3, 3, 2, 1, 2},
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

Test(conv2d_depthwise, is_near_sums_in_f64) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc f32 = desc_of(&shapes[i], FR_F32), bf16 = desc_of(&shapes[i], FR_BF16);
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
            ways_data t = ways_make(&f32, pass);
            const double off = ways_off(&t, FRI_CONV2D_DEPTHWISE);
            cr_expect(off <= 1e-6, "case %d, pass %d: off by %.3g of the largest", i, pass, off);
            ways_drop(&t);
        }
        ways_data t = ways_make(&bf16, FRI_PASS_BACKWARD_WEIGHT);
        const double off = ways_off(&t, FRI_CONV2D_DEPTHWISE);
        cr_expect(off <= 1.0 / 256, "case %d, bf16: off by %.3g of the largest", i, off);
        ways_drop(&t);
    }
}

Test(conv2d_depthwise, bits_do_not_depend_on_threads_or_batch) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc d = desc_of(&shapes[i], FR_F32);
        ways_expect_same_bits(&d, FRI_CONV2D_DEPTHWISE);
    }
}

/* The last two maps are normalized in several steps. */
Test(conv2d_depthwise, normalizes_what_it_reads) {
    static const shape large[] = {{60, 70, 96, 3, 3, 1, 1, 1}, {61, 70, 300, 3, 3, 2, 1, 0}};
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    for (int i = 0; i < SHAPES + 2; i++) {
        const shape *s = i < SHAPES ? &shapes[i] : &large[i - SHAPES];
        const fri_conv2d_desc f32 = desc_of(s, FR_F32), bf16 = desc_of(s, FR_BF16);
        cr_expect_eq(k->conv2d_reads_norm(&f32), s->r == 3 && s->s == 3, "case %d", i);
        cr_expect_not(k->conv2d_reads_norm(&bf16), "case %d", i);
        if (k->conv2d_reads_norm(&f32)) ways_expect_reads_norm(&f32, FRI_CONV2D_DEPTHWISE);
    }
}

/* Results larger than the caches are written past them: every byte arrives. */
Test(conv2d_depthwise, large_results) {
    /* Lines of 17 channels begin where such a store may not. */
    static const shape large[] = {{224, 224, 48, 3, 3, 1, 1, 1},
                                  {224, 224, 48, 3, 3, 2, 1, 1},
                                  {360, 400, 17, 3, 3, 1, 1, 1}};
    for (int i = 0; i < 3; i++) {
        const fri_conv2d_desc d = desc_of(&large[i], FR_F32);
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_INPUT; pass++) {
            ways_data t = ways_make(&d, pass);
            const double off = ways_off(&t, FRI_CONV2D_DEPTHWISE);
            cr_expect(off <= 1e-6, "case %d, pass %d: off by %.3g of the largest", i, pass, off);
            ways_drop(&t);
        }
    }
}

/* Depthwise kernels are chosen by shape and type, never by batch; dw takes little scratch. */
Test(conv2d_depthwise, is_taken_by_shape) {
    static const struct {
        shape s;
        bool maps, weights;
    } layers[] = {
        {{7, 7, 960, 5, 5, 1, 2, 2}, true, true},    {{7, 7, 768, 7, 7, 1, 3, 3}, true, true},
        {{2, 2, 960, 3, 3, 1, 1, 1}, true, true},    {{13, 13, 96, 3, 3, 1, 1, 1}, true, true},
        {{14, 14, 96, 3, 3, 1, 1, 1}, true, true},   {{28, 28, 96, 3, 3, 2, 1, 1}, true, true},
        {{27, 26, 96, 3, 3, 2, 1, 1}, true, true},   {{112, 112, 32, 3, 3, 1, 1, 1}, true, true},
        {{14, 14, 15, 5, 5, 1, 2, 2}, false, false}, {{14, 14, 32, 5, 4, 1, 2, 2}, false, false},
        {{14, 14, 32, 8, 7, 1, 3, 3}, false, false}, {{56, 56, 32, 5, 5, 3, 2, 2}, false, false},
        {{28, 28, 32, 3, 3, 1, 3, 1}, false, true},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int64_t n = 1; n <= 100; n *= 10)
            for (int pass = 0; pass < 3; pass++) {
                fri_conv2d_desc d = desc_of(&layers[i].s, FR_F32);
                const bool expected = pass == FRI_PASS_BACKWARD_WEIGHT ? layers[i].weights : layers[i].maps;
                size_t bytes = 0;
                d.n = n;
                cr_expect_eq(strcmp(fri_cpu_conv2d_impl(&d, pass), "depthwise") == 0, expected,
                             "layer %zu, pass %d: %s", i, pass, fri_cpu_conv2d_impl(&d, pass));
                must(fri_backend_get(FR_CPU)->kernels.conv2d_backward_weight_workspace(&d, &bytes));
                cr_expect(!layers[i].weights || bytes <= 16 * 64 * (size_t)(d.c + 15) * (size_t)(d.r * d.s),
                          "layer %zu: %zu bytes", i, bytes);
            }
    fri_conv2d_desc plain = desc_of(&layers[7].s, FR_F32), dilated = plain, twice = plain, half = plain, bf16 = plain;
    bf16.dtype = bf16.bias_dtype = FR_BF16;
    dilated.dilation_w = 2, dilated.q -= 2;
    twice.k *= 2;
    half.dtype = half.bias_dtype = FR_F16;
    for (int pass = 0; pass < 3; pass++) {
        cr_expect_str_neq(fri_cpu_conv2d_impl(&dilated, pass), "depthwise");
        cr_expect_str_neq(fri_cpu_conv2d_impl(&twice, pass), "depthwise");
        cr_expect_str_eq(fri_cpu_conv2d_impl(&half, pass), "widened:depthwise");
        cr_expect_eq(strcmp(fri_cpu_conv2d_impl(&bf16, pass), "depthwise") == 0, pass == FRI_PASS_BACKWARD_WEIGHT);
    }
}
