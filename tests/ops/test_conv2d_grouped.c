/* test_conv2d_grouped.c - convolutions of groups of channels beside plain sums in f64: values, bits, and the shapes
 * that the loops take. Results and workspaces are full of NaN before a run. */
#include "ops/conv2d_ways.h"

typedef struct shape {
    int h, w, c, group, r, s, stride_h, stride_w, pad_h, pad_w, dilation;
} shape;

/* Groups of a part of a vector, of a vector and of several; last vectors that overlap; maps of several tiles and
 * blocks of columns; strides, padding to spare, dilation; runs of taps. */
static const shape shapes[] = {
    {7, 29, 32, 4, 3, 3, 1, 1, 1, 1, 1},  {9, 12, 24, 4, 3, 3, 2, 2, 1, 1, 1}, {6, 17, 48, 8, 3, 3, 1, 1, 1, 1, 1},
    {8, 15, 104, 8, 3, 3, 2, 2, 1, 1, 1}, {3, 3, 128, 4, 3, 3, 1, 1, 1, 1, 1}, {4, 70, 16, 8, 3, 3, 1, 1, 1, 1, 1},
    {5, 140, 16, 4, 3, 3, 2, 2, 1, 1, 1}, {6, 7, 32, 4, 1, 1, 1, 1, 0, 0, 1},  {9, 11, 32, 8, 3, 3, 1, 1, 2, 2, 2},
    {8, 9, 32, 4, 5, 5, 1, 2, 2, 2, 1},   {7, 8, 48, 8, 2, 4, 3, 1, 0, 3, 1},  {1, 1, 20, 4, 3, 3, 1, 1, 1, 1, 1},
    {2, 5, 16, 8, 3, 2, 2, 2, 2, 1, 1},   {9, 8, 24, 8, 7, 6, 1, 1, 3, 2, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static fri_conv2d_desc desc_of(const shape *s, int64_t n) {
    return (fri_conv2d_desc){.dtype = FR_F32,
                             .bias_dtype = FR_F32,
                             .n = n,
                             .h = s->h,
                             .w = s->w,
                             .c = s->c,
                             .k = s->c,
                             .r = s->r,
                             .s = s->s,
                             .p = (s->h + 2 * s->pad_h - s->dilation * (s->r - 1) - 1) / s->stride_h + 1,
                             .q = (s->w + 2 * s->pad_w - s->dilation * (s->s - 1) - 1) / s->stride_w + 1,
                             .stride_h = s->stride_h,
                             .stride_w = s->stride_w,
                             .pad_h = s->pad_h,
                             .pad_w = s->pad_w,
                             .dilation_h = s->dilation,
                             .dilation_w = s->dilation,
                             .groups = s->c / s->group};
}

Test(conv2d_grouped, is_near_sums_in_f64) {
    for (int i = 0; i < SHAPES; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
            const fri_conv2d_desc d = desc_of(&shapes[i], 3);
            ways_data t = ways_make(&d, pass);
            const double off = ways_off(&t, FRI_CONV2D_GROUPED);
            cr_expect(off <= 1e-6, "case %d, pass %d: off by %.3g of the largest", i, pass, off);
            ways_drop(&t);
        }
}

/* y and dx have the order of the products by pointers. */
Test(conv2d_grouped, bits_are_those_of_products) {
    for (int i = 0; i < SHAPES; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_INPUT; pass++) {
            const fri_conv2d_desc d = desc_of(&shapes[i], 2);
            ways_data t = ways_make(&d, pass);
            char *got = ways_run(&t, FRI_CONV2D_GROUPED), *want = ways_run(&t, FRI_CONV2D_INDIRECT);
            int64_t others = 0;
            for (int64_t j = 0; j < t.results; j++) others += ((float *)(void *)got)[j] != ((float *)(void *)want)[j];
            cr_expect_eq(others, 0, "case %d, pass %d: %lld of %lld results", i, pass, (long long)others,
                         (long long)t.results);
            free(got);
            free(want);
            ways_drop(&t);
        }
}

Test(conv2d_grouped, bits_do_not_depend_on_threads_or_batch) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc d = desc_of(&shapes[i], 3);
        ways_expect_same_bits(&d, FRI_CONV2D_GROUPED);
    }
}

/* dw's sums, which have an order of their own, are those of every vector width. */
Test(conv2d_grouped, weights_have_the_bits_of_each_width) {
#if defined(__x86_64__)
    const fri_conv2d_own *const loops[] = {&fri_conv2d_grouped_v3, &fri_conv2d_grouped_v4};
    const int widths = fri_cpu_lanes() == FRI_LANES_AVX512 ? 2 : fri_cpu_lanes() == FRI_LANES_AVX2 ? 1 : 0;
    for (int i = 0; i < SHAPES && widths == 2; i++) {
        const fri_conv2d_desc d = desc_of(&shapes[i], 5);
        ways_data t = ways_make(&d, FRI_PASS_BACKWARD_WEIGHT);
        char *result[2];
        for (int k = 0; k < 2; k++) {
            fri_conv2d_engine e = {.d = d, .pass = FRI_PASS_BACKWARD_WEIGHT};
            loops[k]->plan(&e);
            char *workspace = ways_room(e.bytes);
            result[k] = ways_room((size_t)t.results * sizeof(float));
            loops[k]->run_weight(&e, t.a, t.b, result[k], workspace);
            free(workspace);
        }
        cr_expect_eq(memcmp(result[0], result[1], (size_t)t.results * sizeof(float)), 0, "case %d", i);
        free(result[0]);
        free(result[1]);
        ways_drop(&t);
    }
    if (widths < 2) cr_skip("the processor has no AVX-512");
#else
    cr_skip("one width of vectors");
#endif
}

Test(conv2d_grouped, takes_groups_of_four_and_eight) {
    static const struct {
        shape s;
        bool taken;
    } cases[] = {
        {{3, 3, 32, 4, 3, 3, 1, 1, 1, 1, 1}, true},   {{12, 12, 48, 8, 3, 3, 1, 1, 1, 1, 1}, true},
        {{8, 8, 48, 16, 3, 3, 1, 1, 1, 1, 1}, false}, {{8, 8, 32, 2, 3, 3, 1, 1, 1, 1, 1}, false},
        {{8, 8, 32, 4, 3, 3, 3, 3, 1, 1, 1}, false},  {{8, 8, 12, 4, 3, 3, 1, 1, 1, 1, 1}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fri_conv2d_desc d = desc_of(&cases[i].s, 2);
        const char *way = fri_cpu_conv2d_impl(&d, FRI_PASS_FORWARD);
        cr_expect_eq(strcmp(way, "grouped") == 0, cases[i].taken, "case %d: %s", (int)i, way);
    }
}
