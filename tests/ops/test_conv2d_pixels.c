/* test_conv2d_pixels.c - convolutions of the smallest maps, by products for pairs of pixels and taps, beside plain
 * sums in f64: values, bits, and the shapes they take. Results and workspaces are full of NaN before a run. */
#include "ops/conv2d_ways.h"

typedef struct shape {
    int h, w, c, k, r, s, stride, pad, dilation;
} shape;

/* Channels below, beside and of several blocks of 64; results that no tap reaches (y: the padding is wider than the
 * filter; dx: strides step over pixels; dw: taps outside of the map everywhere). */
static const shape shapes[] = {
    {2, 2, 64, 64, 3, 3, 1, 1, 1},   {1, 1, 128, 70, 3, 3, 1, 1, 1}, {2, 2, 5, 7, 3, 3, 1, 1, 1},
    {2, 2, 130, 200, 3, 3, 1, 1, 1}, {2, 1, 67, 128, 3, 3, 1, 1, 1}, {1, 4, 64, 33, 3, 3, 1, 1, 1},
    {2, 2, 70, 96, 5, 5, 1, 2, 1},   {2, 2, 96, 70, 3, 3, 2, 1, 1},  {2, 2, 68, 66, 3, 3, 1, 2, 2},
    {2, 2, 16, 16, 2, 2, 1, 3, 1},   {2, 2, 64, 128, 2, 1, 3, 0, 1}, {1, 1, 1, 64, 3, 3, 1, 1, 1},
    {2, 2, 64, 1, 3, 3, 1, 1, 1},    {1, 3, 129, 64, 1, 3, 1, 1, 1},
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
                             .r = s->r,
                             .s = s->s,
                             .p = (s->h + 2 * s->pad - s->dilation * (s->r - 1) - 1) / s->stride + 1,
                             .q = (s->w + 2 * s->pad - s->dilation * (s->s - 1) - 1) / s->stride + 1,
                             .stride_h = s->stride,
                             .stride_w = s->stride,
                             .pad_h = s->pad,
                             .pad_w = s->pad,
                             .dilation_h = s->dilation,
                             .dilation_w = s->dilation,
                             .groups = 1};
}

/* Whether the library has the product (not of vectors whose elements are apart). */
static bool there(const fri_conv2d_desc *d, fri_pass pass) {
    fri_conv2d_engine e;
    must(fri_conv2d_engine_plan(d, pass, FRI_CONV2D_PIXELS, &e));
    return e.method == FRI_CONV2D_PIXELS;
}

Test(conv2d_pixels, is_near_sums_in_f64) {
    if (!fri_product_by_library(0, false)) cr_skip_test("the method is for processors with AVX-512");
    int done = 0;
    for (int i = 0; i < SHAPES; i++) {
        for (int64_t n = 1; n <= 25; n += 12) {
            for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
                const fri_conv2d_desc d = desc_of(&shapes[i], n);
                if (!there(&d, pass)) continue;
                ways_data t = ways_make(&d, pass);
                const double off = ways_off(&t, FRI_CONV2D_PIXELS);
                cr_expect(off <= 2e-6, "case %d, %d images, pass %d: off by %.3g of the largest", i, (int)n, pass, off);
                ways_drop(&t);
                done++;
            }
        }
    }
    cr_expect_geq(done, 9 * (SHAPES - 2));
}

Test(conv2d_pixels, bits_do_not_depend_on_threads_or_batch) {
    if (!fri_product_by_library(0, false)) cr_skip_test("the method is for processors with AVX-512");
    for (int i = 0; i < SHAPES - 3; i++) {
        const fri_conv2d_desc few = desc_of(&shapes[i], 3), many = desc_of(&shapes[i], 29);
        ways_expect_same_bits(&few, FRI_CONV2D_PIXELS);
        ways_expect_same_bits(&many, FRI_CONV2D_PIXELS);
    }
}

static bool taken(const fri_conv2d_desc *d, int pass) {
    return strncmp(fri_cpu_conv2d_impl(d, pass), "pixels+", 7) == 0;
}

/* Own kernels are chosen by shape and type, never by batch. */
Test(conv2d_pixels, is_taken_on_the_smallest_maps) {
    static const struct {
        shape s;
        bool taken;
    } layers[] = {
        {{2, 2, 512, 512, 3, 3, 1, 1, 1}, true},  {{2, 2, 128, 128, 3, 3, 1, 1, 1}, true},
        {{2, 2, 64, 64, 3, 3, 1, 1, 1}, false},   {{1, 1, 64, 64, 3, 3, 1, 1, 1}, true},
        {{2, 2, 64, 64, 3, 3, 2, 1, 1}, true},    {{4, 1, 256, 256, 3, 3, 1, 1, 1}, true},
        {{3, 3, 512, 512, 3, 3, 1, 1, 1}, false}, {{4, 4, 256, 512, 3, 3, 2, 1, 1}, false},
        {{2, 2, 512, 512, 1, 1, 1, 0, 1}, false}, {{2, 2, 256, 256, 5, 5, 1, 2, 1}, true},
        {{2, 2, 256, 256, 9, 9, 1, 4, 1}, false}, {{2, 2, 256, 256, 3, 3, 1, 2, 1}, false},
    };
    const bool wide = fri_product_by_library(0, false);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        for (int64_t n = 1; n <= 100; n *= 10) {
            for (int pass = 0; pass < 3; pass++) {
                const fri_conv2d_desc d = desc_of(&layers[i].s, n);
                cr_expect_eq(taken(&d, pass), layers[i].taken && wide, "layer %zu, pass %d: %s", i, pass,
                             fri_cpu_conv2d_impl(&d, pass));
            }
        }
    }
    fri_conv2d_desc plain = desc_of(&shapes[1], 8), other[] = {plain, plain, plain};
    other[0].groups = 2;
    other[1].dtype = other[1].bias_dtype = FR_BF16;
    other[2].dtype = FR_F16;
    for (int i = 0; i < 2; i++)
        for (int pass = 0; pass < 3; pass++) cr_expect_not(taken(&other[i], pass), "%d, pass %d", i, pass);
    cr_expect_eq(strncmp(fri_cpu_conv2d_impl(&other[2], FRI_PASS_FORWARD), "widened:pixels+", 15) == 0, wide);
}
