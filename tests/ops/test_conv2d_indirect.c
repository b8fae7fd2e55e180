/* test_conv2d_indirect.c - compares convolutions by pointers to pixels with plain sums in f64: values, bits, and the
 * choice of the method. Results and workspaces are full of NaN before each run. */
#include "ops/conv2d_ways.h"

typedef struct shape {
    int h, w, c, k, r, s, stride_h, stride_w, pad_h, pad_w, dilation, groups;
} shape;

/* Channels below, at and above the size of a tile; one pixel; results without a tap (y: padding wider than the filter;
 * dx: strides step over pixels; dw: taps outside of the map); more taps and longer sums than a panel holds; more rows
 * than a block holds. */
static const shape shapes[] = {
    {9, 7, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1},   {9, 7, 17, 33, 3, 3, 2, 2, 1, 1, 1, 1},
    {1, 1, 128, 70, 3, 3, 1, 1, 1, 1, 1, 1},  {2, 2, 130, 200, 3, 3, 1, 1, 1, 1, 1, 1},
    {8, 6, 3, 64, 7, 7, 2, 2, 3, 3, 1, 1},    {5, 5, 300, 40, 1, 1, 1, 1, 0, 0, 1, 1},
    {6, 6, 40, 300, 1, 1, 2, 2, 0, 0, 1, 1},  {5, 9, 12, 8, 3, 3, 1, 1, 2, 2, 2, 4},
    {7, 7, 6, 6, 2, 2, 1, 1, 0, 0, 1, 6},     {2, 2, 16, 16, 2, 2, 1, 1, 3, 3, 1, 1},
    {2, 2, 64, 128, 2, 1, 3, 3, 0, 0, 1, 1},  {9, 8, 5, 7, 5, 4, 3, 2, 2, 1, 1, 1},
    {1, 13, 1, 1, 1, 3, 1, 1, 0, 1, 1, 1},    {6, 6, 10, 9, 5, 5, 1, 1, 2, 2, 1, 1},
    {40, 41, 24, 20, 1, 1, 1, 1, 0, 0, 1, 1}, {3, 3, 600, 5, 2, 2, 1, 1, 1, 1, 1, 1},
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
                             .p = (s->h + 2 * s->pad_h - s->dilation * (s->r - 1) - 1) / s->stride_h + 1,
                             .q = (s->w + 2 * s->pad_w - s->dilation * (s->s - 1) - 1) / s->stride_w + 1,
                             .stride_h = s->stride_h,
                             .stride_w = s->stride_w,
                             .pad_h = s->pad_h,
                             .pad_w = s->pad_w,
                             .dilation_h = s->dilation,
                             .dilation_w = s->dilation,
                             .groups = s->groups};
}

Test(conv2d_indirect, is_near_sums_in_f64) {
    for (int i = 0; i < SHAPES; i++)
        for (int64_t n = 1; n <= 25; n += 12)
            for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
                const fri_conv2d_desc d = desc_of(&shapes[i], n);
                ways_data t = ways_make(&d, pass);
                const double off = ways_off(&t, FRI_CONV2D_INDIRECT);
                cr_expect(off <= 2e-6, "case %d, %d images, pass %d: off by %.3g of the largest", i, (int)n, pass, off);
                ways_drop(&t);
            }
}

/* Terms of taps of few channels are gathered for fewer rows than the map has. */
Test(conv2d_indirect, taps_of_few_channels_on_a_large_map) {
    static const shape layer = {40, 40, 7, 20, 5, 5, 1, 1, 2, 2, 1, 1};
    for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
        const fri_conv2d_desc d = desc_of(&layer, 1);
        ways_data t = ways_make(&d, pass);
        const double off = ways_off(&t, FRI_CONV2D_INDIRECT);
        cr_expect(off <= 2e-6, "pass %d: off by %.3g of the largest", pass, off);
        ways_drop(&t);
    }
}

/* Rows, columns and terms beside the sizes of tiles, of vectors and of a run. */
Test(conv2d_indirect, products_of_every_size_are_near_sums_in_f64) {
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 24, 25, 32, 33};
    static const int columns[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65};
    static const int terms[] = {1, 2, 3, 4, 5, 159, 160, 161, 321};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
            for (size_t k = 0; k < sizeof terms / sizeof *terms; k++)
                for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
                    const bool dw = pass == FRI_PASS_BACKWARD_WEIGHT, dx = pass == FRI_PASS_BACKWARD_INPUT;
                    const int pixels = dw ? terms[k] : rows[i], c = dw ? columns[j] : dx ? columns[j] : terms[k];
                    const shape s = {1, pixels, c, dw ? rows[i] : dx ? terms[k] : columns[j], 1, 1, 1, 1, 0, 0, 1, 1};
                    const fri_conv2d_desc d = desc_of(&s, 1);
                    ways_data t = ways_make(&d, pass);
                    const double off = ways_off(&t, FRI_CONV2D_INDIRECT);
                    cr_expect(off <= 2e-6, "%d x %d x %d, pass %d: off by %.3g of the largest", rows[i], columns[j],
                              terms[k], pass, off);
                    ways_drop(&t);
                }
}

Test(conv2d_indirect, bits_do_not_depend_on_threads_or_batch) {
    for (int i = 0; i < SHAPES; i++) {
        const fri_conv2d_desc few = desc_of(&shapes[i], 3), many = desc_of(&shapes[i], 29);
        ways_expect_same_bits(&few, FRI_CONV2D_INDIRECT);
        ways_expect_same_bits(&many, FRI_CONV2D_INDIRECT);
    }
}

/* An image has equal bits in batches of 1 to 16. */
Test(conv2d_indirect, bits_are_equal_in_batches_of_1_to_16) {
    static const shape layers[] = {{4, 4, 64, 96, 3, 3, 2, 2, 1, 1, 1, 1}, {1, 1, 96, 130, 1, 1, 1, 1, 0, 0, 1, 1}};
    for (int i = 0; i < 2; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass < FRI_PASS_BACKWARD_WEIGHT; pass++) {
            const fri_conv2d_desc d = desc_of(&layers[i], 16);
            ways_data t = ways_make(&d, pass);
            char *all = ways_run(&t, FRI_CONV2D_INDIRECT);
            for (int64_t n = 1; n < 16; n++) {
                char *some = ways_run_images(&t, FRI_CONV2D_INDIRECT, 0, n);
                cr_expect_eq(memcmp(some, all, (size_t)(t.results / 16 * n) * sizeof(float)), 0,
                             "layer %d, pass %d: %d images", i, pass, (int)n);
                free(some);
            }
            free(all);
            ways_drop(&t);
        }
}

/* y = relu6(y + conv(x, w) + b), as inference networks call it; the last shape has no tap inside of the map. */
Test(conv2d_indirect, one_pass_adds_and_rectifies) {
    static const shape outside = {1, 1, 16, 24, 1, 1, 5, 5, 2, 2, 1, 1};
    for (int i = 0; i <= SHAPES; i++) {
        fri_conv2d_desc d = desc_of(i < SHAPES ? &shapes[i] : &outside, 2);
        ways_data t = ways_make(&d, FRI_PASS_FORWARD);
        fri_conv2d_engine e;
        d.accumulate = true, d.relu = FRI_ACTIVATION_RELU6;
        fri_conv2d_engine_plan(&d, FRI_PASS_FORWARD, FRI_CONV2D_INDIRECT, &e);
        char *workspace = ways_room(e.bytes);
        float *y = ways_room((size_t)t.results * sizeof *y);
        for (int64_t j = 0; j < t.results; j++) y[j] = (float)(j % 7) - 2;
        fri_conv2d_engine_run(&e, t.a, t.b, t.bias, y, workspace);
        for (int64_t j = 0; j < t.results; j++) {
            const double expected = fmin(6, fmax(0, t.expected[j] + (double)(j % 7) - 2));
            cr_assert(fabs(y[j] - expected) <= 1e-4, "case %d, element %lld: %g, expected %g", i, (long long)j,
                      (double)y[j], expected);
        }
        free(workspace);
        free(y);
        ways_drop(&t);
    }
}

static uint64_t hash_of(const char *data, int64_t floats) {
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < floats; i++) {
        uint32_t word;
        memcpy(&word, data + 4 * i, 4);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

/* One table for AVX2 with FMA, AVX-512 and NEON. SSE2 has no fused multiply-add: other bits. */
Test(conv2d_indirect, bits_are_equal_on_every_processor) {
    static const uint64_t expected[SHAPES][3] = {
        {0xec5e004d58d26724, 0xfe688a406a4f68c4, 0xf7b3d542e4de049c},
        {0x72462de741c8dbac, 0x849c6e3716321e11, 0x42aac46807a4ecb8},
        {0xe6c7cf9820741c4d, 0x393fd0eab59f34a2, 0x2161a29f3d177f3a},
        {0xa8ca97a77f3fdb0b, 0xcd12e25c8cba20f3, 0xf04abb9e5effe648},
        {0x8aa352067b843d01, 0x81a18958464008ec, 0x1410c577e36ed406},
        {0xedeaa9ec89ab10c0, 0x3b9e483cfca01cf0, 0xc415338145cd8327},
        {0xdfbc25f516e532c4, 0xa59e5bbeb5633d62, 0x2cc3b10f1da695a4},
        {0xafbd281a2849e000, 0xf272d30e48db8874, 0x5b1327709c4f2b4d},
        {0x464c356b4f42eae4, 0x8ec86da7d0c2b5c1, 0x24680b6b8c9ee8f3},
        {0xb42162b6a9283b80, 0x3aaeebe9896e9b50, 0x4f5a990e8640b439},
        {0x52907097d07cb611, 0xfeee8a5a49a16d78, 0x526eba750eba84eb},
        {0xb44ab60a8a69c2ae, 0x4a8538f20ffca5f1, 0x8c0faf01e3d37def},
        {0x782dc13c80140fa0, 0x9348e10c90398545, 0x56b230b8eccfde0d},
        {0x5c66413475634bf3, 0xb8acc49c753ed9dd, 0x9ec5cba784d17ce2},
        {0x07f5a47b64687248, 0xb51f8bff9578d761, 0x56fe22a7a33ac04f},
        {0x8c5d42c02f97b195, 0x2d2233b84bc81bea, 0x703ce480fbd00578},
    };
#if defined(__x86_64__)
    if (fri_cpu_lanes() == FRI_LANES_BASELINE)
        cr_skip_test("%s", __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")
                               ? "FRUGAL_ISA leaves no instruction with a fused multiply-add"
                               : "this processor has no AVX2 with a fused multiply-add");
#endif
    for (int i = 0; i < SHAPES; i++)
        for (int pass = 0; pass < 3; pass++) {
            const fri_conv2d_desc d = desc_of(&shapes[i], 5);
            ways_data t = ways_make(&d, (fri_pass)pass);
            char *got = ways_run(&t, FRI_CONV2D_INDIRECT);
            const uint64_t hash = hash_of(got, t.results);
            cr_expect_eq(hash, expected[i][pass], "case %d, pass %d: 0x%016llx, %s", i, pass, (unsigned long long)hash,
                         fri_cpu_isa_name());
            free(got);
            ways_drop(&t);
        }
}

/* Weights are packed at once, in slabs of the memory that a limit leaves, or panel by panel; rows or columns are
 * divided among threads: equal bits. */
Test(conv2d_indirect, packing_and_threads_change_no_bit) {
    static const shape layers[] = {{15, 14, 170, 75, 3, 3, 1, 1, 1, 1, 1, 1},
                                   {14, 15, 330, 64, 1, 1, 1, 1, 0, 0, 1, 1},
                                   {21, 20, 3, 200, 7, 7, 1, 1, 3, 3, 1, 1},
                                   {13, 12, 64, 530, 2, 2, 1, 1, 0, 0, 1, 1}};
    for (int i = 0; i < 4; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_INPUT; pass++) {
            uint64_t first = 0;
            for (int limit = 0; limit < 4; limit++)
                for (int threads = 1; threads <= 3; threads++) {
                    fri_conv2d_desc d = desc_of(&layers[i], 2);
                    fr_threads_set(threads);
                    d.workspace_limit = (size_t[]){0, 400 << 10, 600 << 10, 1}[limit];
                    ways_data t = ways_make(&d, pass);
                    char *got = ways_run(&t, FRI_CONV2D_INDIRECT);
                    const uint64_t hash = hash_of(got, t.results);
                    if (first == 0) first = hash;
                    cr_expect_eq(hash, first, "case %d, pass %d, limit %d, %d threads", i, pass, limit, threads);
                    free(got);
                    ways_drop(&t);
                }
        }
}

/* Threads without work get no scratch, and results have the bits of one thread. */
Test(conv2d_indirect, many_threads) {
    for (int i = 0; i < SHAPES; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
            uint64_t first = 0;
            size_t one = 0;
            for (int k = 0; k < 4; k++) {
                const fri_conv2d_desc d = desc_of(&shapes[i], 5);
                const int64_t work = d.n * d.p * d.q * d.k * (d.c / d.groups) * d.r * d.s, tasks = 1 + work / (1 << 18);
                fri_conv2d_engine e;
                fr_threads_set((int[]){1, 2, 13, 64}[k]);
                fri_conv2d_engine_plan(&d, pass, FRI_CONV2D_INDIRECT, &e);
                if (k == 0) one = e.bytes;
                cr_expect_leq(e.bytes, one + (size_t)(tasks - 1) * (96 << 10), "case %d, pass %d: %zu bytes, %d tasks",
                              i, pass, e.bytes, (int)tasks);
                ways_data t = ways_make(&d, pass);
                char *got = ways_run(&t, FRI_CONV2D_INDIRECT);
                const uint64_t hash = hash_of(got, t.results);
                if (k == 0) first = hash;
                cr_expect_eq(hash, first, "case %d, pass %d, %d threads", i, pass, fr_threads_get());
                free(got);
                ways_drop(&t);
            }
        }
}

/* A pass by the kernels for half data, for the first `images`. */
static fri_bf16 *half_pass(const ways_data *t, int64_t images, size_t limit) {
    const fri_kernels *k = &fri_backend_get(FR_CPU)->kernels;
    fri_conv2d_desc d = t->d;
    size_t bytes = 0;
    d.n = images, d.workspace_limit = limit;
    must((t->pass == FRI_PASS_FORWARD          ? k->conv2d_forward_workspace
          : t->pass == FRI_PASS_BACKWARD_INPUT ? k->conv2d_backward_input_workspace
                                               : k->conv2d_backward_weight_workspace)(&d, &bytes));
    const fri_exec exec = {.workspace = ways_room(bytes), .workspace_bytes = bytes};
    fri_bf16 *out = ways_room((size_t)t->results * sizeof *out);
    if (t->pass == FRI_PASS_FORWARD)
        must(k->conv2d_forward(&exec, &d, t->a, t->b, t->bias, out));
    else if (t->pass == FRI_PASS_BACKWARD_INPUT)
        must(k->conv2d_backward_input(&exec, &d, t->b, t->a, out));
    else
        must(k->conv2d_backward_weight(&exec, &d, t->a, t->b, out));
    free(exec.workspace);
    return out;
}

/* bf16 data is multiplied in bf16 where the processor can, and in f32 elsewhere. No bit depends on the number of
 * images, on threads, or on pieces of rows under a limit. */
Test(conv2d_indirect, bf16) {
    static const shape layers[] = {{9, 7, 16, 34, 3, 3, 2, 2, 1, 1, 1, 1},  {14, 9, 330, 70, 1, 1, 1, 1, 0, 0, 1, 1},
                                   {6, 6, 40, 300, 1, 1, 2, 2, 0, 0, 1, 1}, {9, 8, 6, 18, 5, 4, 1, 1, 2, 1, 1, 1},
                                   {5, 5, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1},    {8, 8, 64, 7, 1, 1, 1, 1, 0, 0, 1, 1}};
    for (int i = 0; i < 6; i++)
        for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_INPUT; pass++) {
            fri_conv2d_desc d = desc_of(&layers[i], 4);
            d.dtype = d.bias_dtype = FR_BF16;
            const bool even = (pass == FRI_PASS_FORWARD ? d.c : d.k) % 2 == 0;
            cr_expect_eq(strcmp(fri_cpu_conv2d_impl(&d, pass), "bf16:indirect") == 0, even && fri_igemm_reads_bf16(),
                         "case %d, pass %d: %s", i, pass, fri_cpu_conv2d_impl(&d, pass));
            ways_data t = ways_make(&d, pass);
            fri_bf16 *whole = half_pass(&t, 4, 0);
            double largest = 0;
            for (int64_t j = 0; j < t.results; j++) largest = fmax(largest, fabs(t.expected[j]));
            for (int64_t j = 0; j < t.results; j++)
                cr_assert(fabs(fri_f32_from_bf16(whole[j]) - t.expected[j]) <= largest / 256,
                          "case %d, pass %d, element %lld: %g, expected %g", i, pass, (long long)j,
                          (double)fri_f32_from_bf16(whole[j]), t.expected[j]);
            for (int cut = 0; cut < 3; cut++) {
                fr_threads_set(1 + cut);
                fri_bf16 *part = half_pass(&t, cut + 1, cut == 2 ? 1 : 0);
                cr_expect_eq(memcmp(part, whole, (size_t)(t.results / 4 * (cut + 1)) * sizeof *part), 0,
                             "case %d, pass %d, cut %d", i, pass, cut);
                free(part);
            }
            free(whole);
            ways_drop(&t);
        }
}

/* Pieces of dw and dx follow the shape, so a limit of the workspace changes no bit of half data. (Numbers are those of
 * bf16, which f16 reads as others.) */
Test(conv2d_indirect, a_limit_changes_no_bit_of_half_data) {
    static const shape layers[] = {{32, 32, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1},
                                   {9, 7, 16, 34, 3, 3, 2, 2, 1, 1, 1, 1},
                                   {40, 24, 17, 20, 5, 4, 1, 1, 2, 1, 1, 1},
                                   {180, 160, 24, 20, 3, 3, 1, 1, 1, 1, 1, 1}};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 6; k++) {
            const fri_pass pass = (fri_pass)(k % 3);
            fri_conv2d_desc d = desc_of(&layers[i], 4);
            d.dtype = d.bias_dtype = FR_BF16;
            ways_data t = ways_make(&d, pass);
            if (k >= 3) t.d.dtype = t.d.bias_dtype = FR_F16;
            fri_bf16 *whole = half_pass(&t, 4, 0);
            for (size_t limit = 1; limit <= 1 << 20; limit *= 64) {
                fri_bf16 *part = half_pass(&t, 4, limit);
                cr_expect_eq(memcmp(part, whole, (size_t)t.results * sizeof *part), 0, "case %d, pass %d, limit %zu", i,
                             k, limit);
                free(part);
            }
            free(whole);
            ways_drop(&t);
        }
}

/* y and dx of half data are those of f32 data with the same values, rounded: weights that are widened while they are
 * packed, or, of few rows, while they are read. */
Test(conv2d_indirect, halves_are_products_of_f32) {
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < 8; k++) {
            const fri_pass pass = (fri_pass)(k & 1);
            const fri_conv2d_desc wide = desc_of(&shapes[i], k & 4 ? 29 : 1);
            fri_conv2d_desc d = wide;
            d.dtype = d.bias_dtype = FR_BF16;
            ways_data t = ways_make(&d, pass), of_f32 = ways_make(&wide, pass);
            if (k & 2) t.d.dtype = t.d.bias_dtype = FR_F16;
            const fr_dtype type = t.d.dtype;
            if (strcmp(fri_cpu_conv2d_impl(&t.d, pass), "widened:indirect") == 0) {
                const int64_t weights = d.k * d.r * d.s * (d.c / d.groups);
                fri_cpu_widen(type, pass == 0 ? d.n * d.h * d.w * d.c : d.n * d.p * d.q * d.k, t.a, of_f32.a);
                fri_cpu_widen(type, weights, t.b, of_f32.b);
                if (pass == 0) fri_cpu_widen(type, d.k, t.bias, of_f32.bias);
                float *expected = (float *)(void *)ways_run(&of_f32, FRI_CONV2D_INDIRECT);
                fri_bf16 *got = half_pass(&t, d.n, 0), *rounded = ways_room((size_t)t.results * sizeof *rounded);
                fri_cpu_narrow(type, t.results, expected, rounded);
                cr_expect_eq(memcmp(got, rounded, (size_t)t.results * sizeof *got), 0,
                             "case %d, pass %d, %s, %d images", i, pass, fr_dtype_name(type), (int)d.n);
                free(expected);
                free(got);
                free(rounded);
            }
            ways_drop(&t);
            ways_drop(&of_f32);
        }
}

/* A weight gradient by Winograd's transforms adds up over pieces of half data. */
Test(conv2d_indirect, weight_gradients_of_several_pieces) {
    const shape layer = {20, 20, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1};
    fri_conv2d_desc d = desc_of(&layer, 48); /* 9.8 MB of x and dy in f32, where a piece has 4 MiB */
    d.dtype = d.bias_dtype = FR_BF16;
    cr_expect_str_eq(fri_cpu_conv2d_impl(&d, FRI_PASS_BACKWARD_WEIGHT), "widened:winograd:f4x3");
    ways_data t = ways_make(&d, FRI_PASS_BACKWARD_WEIGHT);
    fri_bf16 *got = half_pass(&t, d.n, 0);
    double largest = 0;
    for (int64_t j = 0; j < t.results; j++) largest = fmax(largest, fabs(t.expected[j]));
    for (int64_t j = 0; j < t.results; j++)
        cr_assert(fabs(fri_f32_from_bf16(got[j]) - t.expected[j]) <= largest / 256, "element %lld: %g, expected %g",
                  (long long)j, (double)fri_f32_from_bf16(got[j]), t.expected[j]);
    free(got);
    ways_drop(&t);
}

/* Every byte of a result that is larger than the caches arrives. */
Test(conv2d_indirect, large_results) {
    const shape wide = {224, 224, 16, 48, 1, 1, 1, 1, 0, 0, 1, 1}, narrow = {224, 224, 48, 16, 1, 1, 1, 1, 0, 0, 1, 1};
    for (fri_pass pass = FRI_PASS_FORWARD; pass <= FRI_PASS_BACKWARD_WEIGHT; pass++) {
        const fri_conv2d_desc d = desc_of(pass == FRI_PASS_BACKWARD_INPUT ? &narrow : &wide, 3);
        ways_data t = ways_make(&d, pass);
        const double off = ways_off(&t, FRI_CONV2D_INDIRECT), most = pass == FRI_PASS_BACKWARD_WEIGHT ? 1e-4 : 1e-6;
        cr_expect(off <= most, "pass %d: off by %.3g of the largest", pass, off);
        ways_drop(&t);
    }
}

/* Every layer without loops of its own, whatever its batch. */
Test(conv2d_indirect, is_taken_without_another_method) {
    static const shape layers[] = {
        {4, 4, 16, 48, 3, 3, 1, 1, 1, 1, 1, 1},
        {7, 7, 64, 256, 1, 1, 1, 1, 0, 0, 1, 1},
        {14, 14, 64, 256, 1, 1, 1, 1, 0, 0, 1, 1},
        {2, 2, 512, 512, 3, 3, 1, 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int64_t n = 1; n <= 100; n *= 10)
            for (int pass = 0; pass < 3; pass++) {
                fri_conv2d_desc d = desc_of(&layers[i], n);
                cr_expect_str_eq(fri_cpu_conv2d_impl(&d, pass), "indirect", "layer %zu, pass %d", i, pass);
                for (d.dtype = FR_F16; d.dtype <= FR_BF16; d.dtype++) {
                    const bool bf16 = d.dtype == FR_BF16 && pass < 2 && fri_igemm_reads_bf16();
                    cr_expect_str_eq(fri_cpu_conv2d_impl(&d, pass), bf16 ? "bf16:indirect" : "widened:indirect",
                                     "layer %zu, pass %d", i, pass);
                }
            }
}
