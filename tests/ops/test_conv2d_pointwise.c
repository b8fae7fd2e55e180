/* test_conv2d_pointwise.c - our own weight gradients of 1 x 1 convolutions of few channels beside plain sums in f64:
 * values, bits, and the shapes they take. Results and workspaces are full of NaN before a run. */
#include "ops/conv2d_ways.h"

static fri_conv2d_desc desc_of(int64_t n, int64_t h, int64_t w, int64_t c, int64_t k) {
    return (fri_conv2d_desc){.dtype = FR_F32,
                             .bias_dtype = FR_F32,
                             .n = n,
                             .h = h,
                             .w = w,
                             .c = c,
                             .k = k,
                             .r = 1,
                             .s = 1,
                             .p = h,
                             .q = w,
                             .stride_h = 1,
                             .stride_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1};
}

/* One, two or three vectors at a time; channels beside the 16 of a vector and the 8 of a tile; rows beside those of a
 * tile, a task and a block; fewer blocks than parts. */
static const struct {
    int h, w, c, k;
} shapes[] = {
    {28, 28, 16, 96}, {28, 28, 96, 16}, {29, 31, 24, 144}, {29, 31, 144, 24}, {28, 29, 32, 16},  {31, 28, 17, 40},
    {28, 28, 40, 17}, {1, 7, 32, 192},  {3, 5, 192, 32},   {28, 28, 31, 256}, {28, 28, 250, 25}, {1, 1, 16, 16},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

Test(conv2d_pointwise, is_near_sums_in_f64) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc d = desc_of(3, shapes[i].h, shapes[i].w, shapes[i].c, shapes[i].k);
        ways_data t = ways_make(&d, FRI_PASS_BACKWARD_WEIGHT);
        const double off = ways_off(&t, FRI_CONV2D_POINTWISE);
        cr_expect(off <= 1e-6, "case %d: off by %.3g of the largest", i, off);
        ways_drop(&t);
    }
}

Test(conv2d_pointwise, bits_do_not_depend_on_threads_or_batch) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc d = desc_of(3, shapes[i].h, shapes[i].w, shapes[i].c, shapes[i].k);
        ways_expect_same_bits(&d, FRI_CONV2D_POINTWISE);
    }
}

Test(conv2d_pointwise, normalizes_what_it_reads) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc d = desc_of(3, shapes[i].h, shapes[i].w, shapes[i].c, shapes[i].k);
        ways_expect_reads_norm(&d, FRI_CONV2D_POINTWISE);
    }
}

/* A width that the processor lacks crashes; a narrower width shows in no result, but takes longer. */
Test(conv2d_pointwise, vectors_are_as_wide_as_the_levels) {
    const char *level = fri_cpu_isa_name();
    const fri_lanes_width width = fri_cpu_lanes();
    cr_expect_eq(width == FRI_LANES_AVX512, strncmp(level, "avx512", 6) == 0, "%s", level);
    cr_expect_eq(width == FRI_LANES_AVX2, strcmp(level, "avx2") == 0, "%s", level);
#if defined(__x86_64__)
    const fri_conv2d_own *const depthwise[] = {&fri_conv2d_depthwise, &fri_conv2d_depthwise_v3,
                                               &fri_conv2d_depthwise_v4};
    const fri_conv2d_own *const pointwise[] = {&fri_conv2d_pointwise, &fri_conv2d_pointwise_v3,
                                               &fri_conv2d_pointwise_v4};
    const fri_conv2d_desc d = desc_of(1, 28, 28, 16, 16);
    fri_conv2d_engine e;
    fri_conv2d_engine_plan(&d, FRI_PASS_BACKWARD_WEIGHT, FRI_CONV2D_POINTWISE, &e);
    cr_expect_eq(e.own, pointwise[width]);
    fri_conv2d_engine_plan(&d, FRI_PASS_FORWARD, FRI_CONV2D_DEPTHWISE, &e);
    cr_expect_eq(e.own, depthwise[width]);
#endif
}

/* Own kernels are chosen by shape and type, never by batch. */
Test(conv2d_pointwise, is_taken_where_narrow_maps_are_large) {
    static const struct {
        int h, c, k;
        bool taken;
    } layers[] = {
        {112, 16, 96, true},  {56, 144, 24, true},  {28, 32, 192, true}, {28, 256, 32, true}, {27, 32, 192, false},
        {28, 33, 192, false}, {28, 257, 32, false}, {56, 15, 64, false}, {56, 64, 15, false}, {56, 64, 64, false},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int64_t n = 1; n <= 100; n *= 10)
            for (int pass = 0; pass < 3; pass++) {
                fri_conv2d_desc d = desc_of(n, layers[i].h, layers[i].h, layers[i].c, layers[i].k);
                const bool taken = layers[i].taken && pass == FRI_PASS_BACKWARD_WEIGHT;
                cr_expect_eq(strcmp(fri_cpu_conv2d_impl(&d, pass), "pointwise") == 0, taken, "layer %zu, pass %d: %s",
                             i, pass, fri_cpu_conv2d_impl(&d, pass));
                d.stride_h = d.stride_w = 2;
                d.p = d.q = (d.h - 1) / 2 + 1;
                cr_expect_str_neq(fri_cpu_conv2d_impl(&d, pass), "pointwise", "layer %zu, strided", i);
            }
    fri_conv2d_desc half = desc_of(1, 56, 56, 24, 144), bf16 = half;
    half.dtype = half.bias_dtype = FR_F16;
    bf16.dtype = bf16.bias_dtype = FR_BF16;
    cr_expect_str_eq(fri_cpu_conv2d_impl(&half, FRI_PASS_BACKWARD_WEIGHT), "widened:pointwise");
    cr_expect_str_neq(fri_cpu_conv2d_impl(&bf16, FRI_PASS_BACKWARD_WEIGHT), "pointwise");
}
