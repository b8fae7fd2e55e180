/* test_twins_images.c - CUDA kernels against their CPU twins: images, tables and optimizers. */
#include "cuda/emulator/races.h"
#include "cuda/twin.h"

TestSuite(twins_images, .init = twin_begin, .timeout = 300);

/* ---- pooling --------------------------------------------------------------------------------------------------- */

static int64_t pooled(int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
    return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

static const fri_pool2d_desc pools[] = {
    {.n = 2, .h = 8, .w = 6, .c = 8, .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2},
    {.n = 2,
     .h = 9,
     .w = 7,
     .c = 3,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride_h = 2,
     .stride_w = 2,
     .pad_h = 1,
     .pad_w = 1},
    {.n = 1, .h = 11, .w = 13, .c = 16, .kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 3, .pad_h = 1},
    {.n = 3,
     .h = 5,
     .w = 5,
     .c = 40,
     .kernel_h = 5,
     .kernel_w = 4,
     .stride_h = 1,
     .stride_w = 1,
     .pad_h = 2,
     .pad_w = 2},
    {.n = 1, .h = 14, .w = 12, .c = 5, .kernel_h = 2, .kernel_w = 3, .stride_h = 5, .stride_w = 4},
    {.n = 2, .h = 7, .w = 5, .c = 16, .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .pad_w = 1},
    {.n = 2, .h = 8, .w = 10, .c = 16, .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 3},
    {.n = 2, .h = 9, .w = 8, .c = 24, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1},
};

#define EACH_POOL(dilation, ...)                                                       \
    for (int ti_ = 0; ti_ < 3; ti_++)                                                  \
        for (size_t pi_ = 0; pi_ < sizeof pools / sizeof *pools; pi_++)                \
            for (int64_t offset = 0; offset < 2; offset++) {                           \
                const fr_dtype t = floats[ti_];                                        \
                fri_pool2d_desc d = pools[pi_];                                        \
                d.dtype = t;                                                           \
                d.dilation_h = d.dilation_w = (dilation);                              \
                d.p = pooled(d.h, d.pad_h, d.dilation_h, d.kernel_h, d.stride_h);      \
                d.q = pooled(d.w, d.pad_w, d.dilation_w, d.kernel_w, d.stride_w);      \
                if (d.p < 1 || d.q < 1) continue;                                      \
                const int64_t in = d.n * d.h * d.w * d.c, out = d.n * d.p * d.q * d.c; \
                __VA_ARGS__                                                            \
            }

static void maxpool(int64_t dilation) {
    static const fr_dtype indices[] = {FR_U8, FR_I32, FR_I64};
    EACH_POOL(dilation, {
        for (int i = 0; i < 3; i++) {
            buf x = numbers_between(t, in, offset, -2, 2, i == 1);
            buf y = blank(t, out, offset);
            buf index = blank(indices[i], out, offset);
            buf dy = numbers(t, out, offset);
            buf dx = blank(t, in, offset);
            buf none = {0};
            BOTH(k->maxpool2d_forward(ex(), &d, p(&x), p(&y), indices[i], p(&none)));
            expect_same("maxpool2d without indices", &y, 0);
            BOTH(k->maxpool2d_forward(ex(), &d, p(&x), p(&y), indices[i], p(&index)));
            expect_same("maxpool2d", &y, 0);
            expect_same("maxpool2d's indices", &index, 0);
            BOTH(k->maxpool2d_mask(ex(), &d, p(&y), indices[i], p(&index)));
            expect_same("maxpool2d_mask", &index, 0);
            BOTH(k->maxpool2d_backward(ex(), &d, indices[i], p(&index), p(&dy), p(&dx)));
            expect_same("maxpool2d_backward", &dx, 0);
            drop(&x), drop(&y), drop(&index), drop(&dy), drop(&dx);
        }
    })
}

Test(twins_images, maxpool2d) {
    maxpool(1);
}

Test(twins_images, maxpool2d_dilated) {
    maxpool(2);
}

Test(twins_images, avgpool2d) {
    EACH_POOL(1, {
        for (int pad = 0; pad < 2; pad++) {
            buf x = numbers(t, in, offset);
            buf y = blank(t, out, offset);
            d.count_include_pad = pad;
            BOTH(k->avgpool2d_forward(ex(), &d, p(&x), p(&y)));
            expect_same("avgpool2d", &y, 0);
            BOTH(k->avgpool2d_backward(ex(), &d, p(&y), p(&x)));
            expect_same("avgpool2d_backward", &x, 0);
            drop(&x), drop(&y);
        }
    })
}

/* ---- depthwise convolutions ------------------------------------------------------------------------------------ */

/* Filters of 3, 5 and 7 with each stride, padding and dilation; channels of whole packs, of part of one, of several
 * blocks; a map smaller than its filter. */
static const fri_conv2d_desc depthwise[] = {
    {.n = 2, .h = 9, .w = 11, .c = 16, .r = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
    {.n = 3, .h = 10, .w = 7, .c = 24, .r = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
    {.n = 2, .h = 31, .w = 8, .c = 72, .r = 3, .stride_h = 1, .stride_w = 1, .pad_h = 0, .pad_w = 2},
    {.n = 2, .h = 33, .w = 6, .c = 520, .r = 3, .stride_h = 2, .stride_w = 2, .pad_h = 0, .pad_w = 1},
    {.n = 2, .h = 9, .w = 8, .c = 16, .r = 3, .stride_h = 2, .stride_w = 2, .pad_h = 2, .pad_w = 2},
    {.n = 1, .h = 8, .w = 9, .c = 264, .r = 3, .stride_h = 1, .stride_w = 2, .pad_h = 0, .pad_w = 2},
    {.n = 2, .h = 12, .w = 13, .c = 5, .r = 3, .stride_h = 1, .stride_w = 1, .pad_h = 2, .pad_w = 2, .dilation_h = 2},
    {.n = 2, .h = 9, .w = 9, .c = 12, .r = 5, .stride_h = 2, .stride_w = 1, .pad_h = 2, .pad_w = 2},
    {.n = 1, .h = 7, .w = 8, .c = 40, .r = 7, .stride_h = 1, .stride_w = 1, .pad_h = 3, .pad_w = 3},
    {.n = 2, .h = 2, .w = 3, .c = 8, .r = 5, .stride_h = 3, .stride_w = 2, .pad_h = 2, .pad_w = 2},
};

Test(twins_images, conv2d_depthwise) {
    for (size_t i = 0; i < sizeof depthwise / sizeof *depthwise; i++)
        for (int ti = 0; ti < 3; ti++)
            for (int64_t offset = 0; offset < 2; offset++) {
                fri_conv2d_desc d = depthwise[i];
                d.dtype = floats[ti];
                d.bias_dtype = offset == 0 ? FR_F32 : d.dtype;
                d.s = d.r;
                d.k = d.groups = d.c;
                d.dilation_h = d.dilation_h > 0 ? d.dilation_h : 1;
                d.dilation_w = 1;
                d.p = pooled(d.h, d.pad_h, d.dilation_h, d.r, d.stride_h);
                d.q = pooled(d.w, d.pad_w, d.dilation_w, d.s, d.stride_w);
                if (offset > 0) d.unaligned = FRI_UNALIGNED_X | FRI_UNALIGNED_Y;
                const int64_t in = d.n * d.h * d.w * d.c, out = d.n * d.p * d.q * d.c;
                buf x = numbers(d.dtype, in, offset), w = numbers(d.dtype, d.c * d.r * d.s, 0);
                buf b = numbers(d.bias_dtype, d.c, 0), y = blank(d.dtype, out, offset), none = {0};
                buf dy = numbers(d.dtype, out, offset), dx = blank(d.dtype, in, offset);
                buf dw = blank(d.dtype, d.c * d.r * d.s, 0);
                d.bias = true;
                BOTH(k->conv2d_forward(ex(), &d, p(&x), p(&w), p(&b), p(&y)));
                expect_same("conv2d_depthwise_forward", &y, rounding(d.dtype));
                d.bias = false;
                BOTH(k->conv2d_forward(ex(), &d, p(&x), p(&w), p(&none), p(&y)));
                expect_same("conv2d_depthwise_forward without a bias", &y, rounding(d.dtype));
                BOTH(k->conv2d_backward_input(ex(), &d, p(&w), p(&dy), p(&dx)));
                expect_same("conv2d_depthwise_input", &dx, rounding(d.dtype));
                BOTH(k->conv2d_backward_weight(ex(), &d, p(&x), p(&dy), p(&dw)));
                expect_same("conv2d_depthwise_weight", &dw, rounding(d.dtype));
                drop(&x), drop(&w), drop(&b), drop(&y), drop(&dy), drop(&dx), drop(&dw);
            }
}

static const int64_t sizes[][4] = {{7, 5, 7, 5}, {8, 6, 4, 3}, {7, 5, 3, 2},   {3, 4, 7, 9},
                                   {6, 1, 1, 1}, {1, 1, 3, 4}, {5, 7, 10, 21}, {17, 19, 1, 1}};

#define EACH_SIZE(...)                                                                                      \
    for (int ti_ = 0; ti_ < 3; ti_++)                                                                       \
        for (size_t si_ = 0; si_ < sizeof sizes / sizeof *sizes; si_++)                                     \
            for (int64_t c = 3; c <= 136; c += c == 3 ? 13 : 120) {                                         \
                const fr_dtype t = floats[ti_];                                                             \
                const int64_t h = sizes[si_][0], w = sizes[si_][1], hh = sizes[si_][2], ww = sizes[si_][3]; \
                const int64_t in = 2 * h * w * c, out = 2 * hh * ww * c;                                    \
                __VA_ARGS__                                                                                 \
            }

Test(twins_images, adaptive_avgpool2d){EACH_SIZE({
    fri_pool2d_desc d = {.dtype = t, .n = 2, .h = h, .w = w, .c = c, .p = hh, .q = ww};
    buf x = numbers(t, in, 0);
    buf y = blank(t, out, 0);
    BOTH(k->adaptive_avgpool2d_forward(ex(), &d, p(&x), p(&y)));
    expect_same("adaptive_avgpool2d", &y, 0);
    BOTH(k->adaptive_avgpool2d_backward(ex(), &d, p(&y), p(&x)));
    expect_same("adaptive_avgpool2d_backward", &x, 0);
    drop(&x), drop(&y);
})}

Test(twins_images, upsample){EACH_SIZE({
    for (int mode = 0; mode < 3; mode++) {
        fri_upsample_desc d = {.dtype = t,
                               .n = 2,
                               .h = h,
                               .w = w,
                               .c = c,
                               .p = hh,
                               .q = ww,
                               .bilinear = mode > 0,
                               .align_corners = mode > 1};
        buf x = numbers(t, in, 0);
        buf y = blank(t, out, 0);
        BOTH(k->upsample_forward(ex(), &d, p(&x), p(&y)));
        expect_same("upsample", &y, mode > 0 ? rounding(t) : 0);
        buf dy = numbers(t, out, 0);
        BOTH(k->upsample_backward(ex(), &d, p(&dy), p(&x)));
        expect_same("upsample_backward", &x, mode > 0 ? rounding(t) : 0);
        drop(&x), drop(&y), drop(&dy);
    }
})}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

/* More bytes than a block moves, and a short last pack. */
Test(twins_images, normalize) {
    static const int64_t channels[] = {1, 3, 4, 16}, pixels[] = {1, 7, 7000};
    fri_race_banks = false; /* bytes lead to the places of a table */
    for (int ti = 0; ti < 3; ti++)
        for (int ci = 0; ci < 4; ci++)
            for (int pi = 0; pi < 3; pi++)
                for (int64_t offset = 0; offset < 2; offset++) {
                    const int64_t n = pixels[pi] * channels[ci] + offset * channels[ci];
                    fri_normalize_desc d = {.dtype = floats[ti], .n = n, .channels = channels[ci]};
                    for (int c = 0; c < channels[ci]; c++) {
                        d.mean[c] = 0.485 - 0.03 * c;
                        d.std[c] = 0.229 + 0.001 * c;
                    }
                    buf x = numbers_between(FR_U8, n, offset, 0, 256, false);
                    buf y = blank(floats[ti], n, offset);
                    BOTH(k->normalize(ex(), &d, p(&x), p(&y)));
                    expect_same("normalize", &y, 0);
                    drop(&x), drop(&y);
                }
}

Test(twins_images, embedding) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {50, 7, 3}, {1000, 30, 16}, {40, 5, 300}};
    for (int ti = 0; ti < 3; ti++)
        for (int si = 0; si < 4; si++)
            for (int out_of_range = 0; out_of_range < 2; out_of_range++) {
                const fr_dtype t = floats[ti];
                fri_embedding_desc d = {.dtype = t,
                                        .n = shapes[si][0],
                                        .vocabulary = shapes[si][1],
                                        .dim = shapes[si][2]};
                buf index = blank(FR_I64, d.n, 0);
                for (int64_t i = 0; i < d.n; i++) set(&index, i, (double)(i * i % d.vocabulary));
                if (out_of_range && d.n > 20) {
                    set(&index, 20, -1);
                    set(&index, 17, (double)d.vocabulary);
                }
                copy_in(&index);
                buf w = numbers(t, d.vocabulary * d.dim, 0);
                buf y = blank(t, d.n * d.dim, 0);
                buf bad = blank(FR_I64, 1, 0);
                BOTH(k->embedding_forward(ex(), &d, p(&index), p(&w), p(&y), p(&bad)));
                expect_same("embedding", &y, 0);
                expect_same("embedding's first bad position", &bad, 0);
                BOTH(k->embedding_backward(ex(), &d, p(&index), p(&y), p(&w)));
                expect_same("embedding_backward", &w, 0);
                drop(&index), drop(&w), drop(&y), drop(&bad);
            }
}

/* Three dimensions, along each; the index smaller than x, with repetitions; positions out of range. */
Test(twins_images, gather_and_scatter) {
    static const int64_t x[] = {5, 40, 7}, size[] = {4, 33, 6};
    for (int ti = 0; ti < 3; ti++)
        for (int dim = 0; dim < 3; dim++)
            for (int out_of_range = 0; out_of_range < 2; out_of_range++) {
                const fr_dtype t = floats[ti];
                fri_gather_desc d = {.dtype = t, .lines = 1, .n = size[dim], .extent = x[dim], .rank = 0};
                int64_t x_stride = 1, index_stride = 1;
                for (int i = 2; i >= 0; i--) {
                    if (i == dim) {
                        d.x_step = x_stride;
                        d.index_step = index_stride;
                    } else {
                        d.lines *= size[i];
                        d.size[d.rank] = size[i];
                        d.x_stride[d.rank] = x_stride;
                        d.index_stride[d.rank++] = index_stride;
                    }
                    x_stride *= x[i];
                    index_stride *= size[i];
                }
                buf index = blank(FR_I64, index_stride, 0), bad = blank(FR_I64, 1, 0);
                for (int64_t i = 0; i < index_stride; i++) set(&index, i, (double)(i * i % d.extent));
                if (out_of_range) set(&index, 20, -1), set(&index, 17, (double)d.extent);
                copy_in(&index);
                buf from = numbers(t, x_stride, 0), y = blank(t, index_stride, 0), to = numbers(t, x_stride, 0);
                BOTH(k->gather(ex(), &d, p(&index), p(&from), p(&y), p(&bad)));
                expect_same("gather", &y, 0);
                expect_same("gather's first bad position", &bad, 0);
                for (int how = 0; how < 3 && !out_of_range; how++) {
                    BOTH(k->scatter(ex(), &d, p(&index), how > 0 ? p(&y) : NULL, how > 1, p(&to), p(&bad)));
                    expect_same("scatter", &to, 0);
                }
                drop(&index), drop(&bad), drop(&from), drop(&y), drop(&to);
            }
}

/* ---- optimizers ------------------------------------------------------------------------------------------------ */

/* Lists of parameters: none, one, and more than one launch holds; empty ones, tails, several chunks, one not
 * aligned. */
enum { MOST_ITEMS = 150 };

typedef struct parameters {
    int count, states;
    buf param[MOST_ITEMS], grad[MOST_ITEMS], state[4][MOST_ITEMS];
    buf step; /* Adam: a count for each */
    fri_step_item items[MOST_ITEMS];
} parameters;

static int64_t length_of(int i, int count) {
    static const int64_t some[] = {5, 0, 1, 1031, 33, 256, 257, 64};
    return count == 1 ? 40000 : i == 3 ? 9001 : some[i % 8];
}

/* Types and numbers of the states: moments, or codes and scales in turn. */
static void make(parameters *all, int count, fr_dtype t, fr_dtype g, int states, fr_dtype state) {
    *all = (parameters){.count = count, .states = states};
    for (int i = 0; i < count; i++) {
        const int64_t n = length_of(i, count), offset = i % 5 == 4,
                      blocks = (n + FRI_SCALE_BLOCK - 1) / FRI_SCALE_BLOCK;
        all->param[i] = numbers(t, n, offset);
        all->grad[i] = numbers(g, n, i % 7 == 6);
        for (int k = 0; k < states; k++)
            all->state[k][i] = state != FR_U8 ? numbers_between(state, n, offset, k == 0 ? -1 : 0, 1, false)
                               : k % 2 == 0   ? numbers_between(FR_U8, n, 0, 0, 255, false)
                                              : numbers_between(FR_F32, blocks, 0, 0.1, 1, false);
    }
}

/* Each parameter has made a different number of steps, 1 the fewest. */
static void count_steps(parameters *all, int count) {
    all->step = blank(FR_F32, count > 0 ? count : 1, 0);
    for (int i = 0; i < count; i++) set(&all->step, i, 1 + i % 5);
    copy_in(&all->step);
}

/* Pointers of the running side. */
static const fri_step_item *items_of(parameters *all) {
    for (int i = 0; i < all->count; i++) {
        all->items[i] = (fri_step_item){.n = all->param[i].n, .param = p(&all->param[i]), .grad = p(&all->grad[i])};
        if (all->step.n > 0) all->items[i].step = (const float *)p(&all->step) + i;
        for (int k = 0; k < all->states; k++) all->items[i].state[k] = p(&all->state[k][i]);
    }
    return all->items;
}

static void expect_parameters(const char *what, const parameters *all, double parameter, double state) {
    for (int i = 0; i < all->count; i++) {
        expect_same(what, &all->param[i], parameter);
        for (int k = 0; k < all->states; k++) expect_same(what, &all->state[k][i], state);
    }
}

static void forget(parameters *all) {
    for (int i = 0; i < all->count; i++) {
        drop(&all->param[i]);
        drop(&all->grad[i]);
        for (int k = 0; k < all->states; k++) drop(&all->state[k][i]);
    }
}

#define EACH_LIST(...)                                        \
    for (int ti_ = 0; ti_ < 3; ti_++)                         \
        for (int gi_ = 0; gi_ < 3; gi_++)                     \
            for (int li_ = 0; li_ < 3; li_++) {               \
                static parameters all;                        \
                const fr_dtype t = floats[ti_];               \
                const fr_dtype g = floats[gi_];               \
                const int count = (int[]){0, 1, 150}[li_];    \
                if (count == 150 && ti_ + gi_ == 3) continue; \
                __VA_ARGS__                                   \
            }

Test(twins_images, sgd){EACH_LIST({
    for (int mode = 0; mode < 5; mode++) {
        fri_sgd_desc d = {.dtype = t,
                          .grad_dtype = g,
                          .lr = 0.1,
                          .momentum = mode > 0 ? 0.9 : 0,
                          .dampening = mode == 2 ? 0.3 : 0,
                          .weight_decay = mode > 1 ? 0.01 : 0,
                          .nesterov = mode == 3,
                          .maximize = mode == 4,
                          .first = mode == 1};
        make(&all, count, t, g, mode > 0 ? 1 : 0, t);
        buf scale = numbers_between(FR_F32, 1, 0, 0.1, 0.2, false);
        buf found = zeros(FR_F32, 1, 0);
        BOTH(k->sgd(ex(), &d, count, items_of(&all), p(&scale), p(&found)));
        expect_parameters("sgd", &all, 0, 0);
        set(&found, 0, 1);
        copy_in(&found);
        BOTH(k->sgd(ex(), &d, count, items_of(&all), p(&scale), p(&found)));
        expect_parameters("sgd after an overflow", &all, 0, 0);
        forget(&all), drop(&scale), drop(&found);
    }
})}

Test(twins_images, adam){EACH_LIST({
    for (int mode = 0; mode < 3; mode++) {
        fri_adam_desc d = {.dtype = t,
                           .grad_dtype = g,
                           .lr = 0.01,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .weight_decay = mode > 0 ? 0.02 : 0,
                           .decoupled = mode == 2,
                           .maximize = mode == 1};
        make(&all, count, t, g, 2, FR_F32);
        count_steps(&all, count);
        buf scale = numbers_between(FR_F32, 1, 0, 0.1, 0.2, false);
        buf found = zeros(FR_F32, 1, 0);
        BOTH(k->adam(ex(), &d, count, items_of(&all), p(&scale), p(&found)));
        expect_parameters("adam", &all, on_gpu ? rounding(t) : 0, on_gpu ? 1e-7 : 0);
        set(&found, 0, 1);
        copy_in(&found);
        BOTH(k->adam(ex(), &d, count, items_of(&all), p(&scale), p(&found)));
        expect_parameters("adam after an overflow", &all, on_gpu ? rounding(t) : 0, on_gpu ? 1e-7 : 0);
        forget(&all), drop(&all.step), drop(&scale), drop(&found);
    }
})}

Test(twins_images, rmsprop) {
    EACH_LIST({
        for (int mode = 0; mode < 4; mode++) {
            fri_rmsprop_desc d = {.dtype = t,
                                  .grad_dtype = g,
                                  .lr = 0.01,
                                  .alpha = 0.9,
                                  .eps = 1e-3,
                                  .momentum = mode & 1 ? 0.9 : 0,
                                  .centered = (mode & 2) != 0,
                                  .weight_decay = mode > 1 ? 0.02 : 0,
                                  .maximize = mode == 1};
            make(&all, count, t, g, 1 + (mode & 1) + (mode >> 1), FR_F32);
            for (int i = 0; i < count; i++) { /* squares are not negative */
                drop(&all.state[0][i]);
                all.state[0][i] = numbers_between(FR_F32, all.param[i].n, i % 5 == 4, 1, 2, false);
            }
            buf scale = numbers_between(FR_F32, 1, 0, 0.1, 0.2, false);
            buf found = zeros(FR_F32, 1, 0);
            for (int overflow = 0; overflow < 2; overflow++) {
                set(&found, 0, overflow);
                copy_in(&found);
                BOTH(k->rmsprop(ex(), &d, count, items_of(&all), p(&scale), p(&found)));
                /* Centered, the root is of a difference. */
                expect_parameters("rmsprop", &all, on_gpu ? rounding(t) : 0, on_gpu ? 1e-5 : 0);
            }
            forget(&all), drop(&scale), drop(&found);
        }
    })
}

/* Maps of both kinds of moments, as ascending numbers easily told apart. */
static buf make_maps(void) {
    buf maps = blank(FR_F32, 512, 0);
    for (int i = 0; i < 256; i++) {
        double x = (i - 127.5) / 127.5;
        set(&maps, i, x * x * x);
        set(&maps, 256 + i, (double)i * i / 65025.0);
    }
    copy_in(&maps);
    return maps;
}

Test(twins_images, adam8) {
    buf maps = make_maps();
    fri_race_banks = false; /* numbers lead to the places of a table */
    EACH_LIST({
        fri_adam_desc d = {.dtype = t, .grad_dtype = g, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
        make(&all, count, t, g, 4, FR_U8);
        count_steps(&all, count);
        buf none = {0};
        BOTH(k->adam8(ex(), &d, p(&maps), count, items_of(&all), p(&none), p(&none)));
        /* GPU: a rounding may change one code; scales are numbers up to 1. */
        expect_parameters("adam8", &all, on_gpu ? rounding(t) : 0, on_gpu ? 0.005 : 0);
        forget(&all), drop(&all.step);
    })
    drop(&maps);
}
