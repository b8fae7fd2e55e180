/* conv2d_pixels.c - convolutions of maps so small that many taps of the filter lie outside: a matrix product over the
 * batch for each pair of an output pixel and a tap inside of the map. Of a 3 x 3 filter on 2 x 2 pixels those are 16 of
 * 36 pairs, on one pixel one of 9; columns (conv2d_im2col.c) multiply the zeros too.
 *
 *   forward          y  [N, K] of a pixel = b + sum over taps of x [N, C] of a pixel, w [K, C]^T of a tap
 *   backward input   dx [N, C] of a pixel = sum over taps of dy [N, K] of a pixel, w [K, C] of a tap
 *   backward weight  dw [K, C] of a tap   = sum over output pixels of dy [N, K]^T of a pixel, x [N, C] of a pixel
 *
 * A thread makes blocks of the result's channels (dw: of K) whole, tap by tap: bits depend on the layer only, and on
 * the batch in dw. */
#include "base/status.h"
#include "cpu/conv2d_engine.h"
#include "cpu/team.h"
#include "cpu/transpose.h"

#include <string.h>

enum { BLOCK = 64, MOST = 64 }; /* channels per block; maximum number of results (pixels, or taps for dw) in `seen` */

/* Time over that of columns and of the library's convolution, forward, dx, dw; 2 threads, AMD Zen 4, oneDNN 2.6.3,
 * pad 1.
 *
 *   map, channels     64 images                            8 images
 *   1, 512 -> 512     0.12 0.12 0.14   0.18 0.26 0.10      0.17 0.16 0.30   0.09 0.08 0.23
 *   1, 64 -> 64       0.18 0.23 0.11   0.29 0.28 0.13      0.21 0.33 0.22   0.15 0.14 0.13
 *   2, 512 -> 512     0.50 0.52 0.41   0.43 0.55 0.41      0.64 0.61 0.57   0.24 0.26 0.50
 *   2, 256 -> 256     0.46 0.54 0.44   0.46 0.54 0.44      0.74 0.87 0.67   0.26 0.35 0.44
 *   2, 128 -> 128     0.46 0.62 0.44   0.74 0.73 0.37      0.98 1.19 1.28   0.53 0.55 0.80
 *   2, 64 -> 64       1.06 1.00 0.33   0.93 0.88 0.50      1.48 1.69 0.73   1.43 0.65 0.64   (calls weigh more)
 *   2 -> 1, 256 -> 512, stride 2
 *                     0.55 0.50 0.54   0.37 0.32 0.17      0.83 0.60 0.81   0.38 0.27 0.15
 *   4 -> 2, 256 -> 512, stride 2
 *                     0.86 0.80 0.86   0.74 0.68 0.52      1.32 0.99 1.31   0.82 0.73 0.54
 *   3, 256 -> 256     0.64 0.71 0.46   0.70 1.04 0.62      0.93 1.01 1.10   0.61 0.80 1.17
 * With ONEDNN_MAX_CPU_ISA=AVX2 2, 512 -> 512 takes 0.54 0.52 1.2 to 1.5 of columns; it is not taken there: resnet18's
 * golden run, whose norms see one pixel of each image, multiplies any last bit by a thousand and misses its bound. */
bool fri_conv2d_pixels_pays(const fri_conv2d_desc *d) {
    const bool f32 = d->dtype == FR_F32 && d->bias_dtype == FR_F32;
    if (fri_cpu_lanes() < FRI_LANES_AVX512 || !f32 || d->groups != 1 || d->r * d->s == 1 || d->r * d->s > MOST ||
        d->h * d->w > 4)
        return false;
    if (d->p * d->q == 1) return true;
    return d->p * d->q <= 4 && d->c * d->k >= 64 * (d->c + d->k);
}

static int64_t channels_of(const fri_conv2d_engine *e) {
    return e->pass == FRI_PASS_BACKWARD_INPUT ? e->d.c : e->d.k;
}

static fri_matmul_desc product(const fri_conv2d_engine *e, int64_t block, bool add) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t x_row = d->h * d->w * d->c, y_row = d->p * d->q * d->k, w_row = d->r * d->s * d->c;
    fri_matmul_desc p = {FR_F32, FR_F32, FR_F32, FR_F32, .alone = true, .accum = add ? FRI_ADD : FRI_SET};
    switch (e->pass) {
    case FRI_PASS_FORWARD:
        p.m = d->n, p.k = d->c, p.n = block, p.bias = !add;
        p.a_row = x_row, p.a_col = 1, p.b_row = block, p.b_col = 1, p.c_row = y_row;
        break;
    case FRI_PASS_BACKWARD_INPUT:
        p.m = d->n, p.k = d->k, p.n = block;
        p.a_row = y_row, p.a_col = 1, p.b_row = block, p.b_col = 1, p.c_row = x_row;
        break;
    case FRI_PASS_BACKWARD_WEIGHT:
        p.m = block, p.k = d->n, p.n = d->c;
        p.a_row = 1, p.a_col = y_row, p.b_row = x_row, p.b_col = 1, p.c_row = w_row;
        break;
    }
    return p;
}

/* The method is FRI_CONV2D_NONE if the library has no such product. */
fr_status fri_conv2d_pixels_plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t channels = channels_of(e), tail = channels % BLOCK;
    size_t scratch = 0;
    e->method = FRI_CONV2D_NONE;
    if (tail == 1) return FR_OK; /* a column with non-adjacent elements */
    for (int i = 0; i < 4; i++) {
        const int64_t block = i / 2 ? tail : BLOCK;
        if (block == 0 || block > channels) continue;
        const fri_matmul_desc p = product(e, block, i % 2);
        FRI_TRY(fri_product_plan(&p, &e->product[i]));
        if (e->product[i].op == NULL) return FR_OK;
        if (e->product[i].bytes > scratch) scratch = e->product[i].bytes;
    }
    e->method = FRI_CONV2D_PIXELS;
    e->workers = fri_max_i64(1, fri_min_i64(fr_threads_get(), fri_ceil_div(channels, BLOCK)));
    if (e->pass == FRI_PASS_FORWARD) e->bias_at = fri_part(&e->bytes, (size_t)d->k * sizeof(float));
    const size_t common = e->bytes;
    if (e->pass != FRI_PASS_BACKWARD_WEIGHT)
        e->weight_at = fri_part(&e->bytes, (size_t)((d->k + d->c - channels) * BLOCK) * sizeof(float));
    e->scratch_at = fri_part(&e->bytes, scratch);
    e->worker_bytes = e->bytes - common;
    e->bytes = common + (size_t)e->workers * e->worker_bytes;
    return FR_OK;
}

/* Fills result i of a block, which no tap reached. */
static void fill(const fri_conv2d_engine *e, int64_t i, int64_t first, int64_t block, const float *bias, float *out) {
    const fri_conv2d_desc *d = &e->d;
    const size_t width = (size_t)block * sizeof(float);
    switch (e->pass) {
    case FRI_PASS_FORWARD:
        for (int64_t n = 0; n < d->n; n++) memcpy(out + (n * d->p * d->q + i) * d->k + first, bias + first, width);
        break;
    case FRI_PASS_BACKWARD_INPUT:
        for (int64_t n = 0; n < d->n; n++) memset(out + (n * d->h * d->w + i) * d->c + first, 0, width);
        break;
    case FRI_PASS_BACKWARD_WEIGHT:
        for (int64_t k = first; k < first + block; k++)
            memset(out + (k * d->r * d->s + i) * d->c, 0, (size_t)d->c * sizeof(float));
        break;
    }
}

/* Factors and result of a pair; index of the result. */
typedef struct pair {
    const float *left, *right;
    float *result;
    int64_t to;
} pair;

static pair pair_of(const fri_conv2d_engine *e, int64_t first, int64_t tap, int64_t x, int64_t y, const float *a,
                    const float *b, const float *filters, float *out) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t weights = (first * d->r * d->s + tap) * d->c;
    switch (e->pass) {
    case FRI_PASS_FORWARD: return (pair){a + x * d->c, filters, out + y * d->k + first, y};
    case FRI_PASS_BACKWARD_INPUT: return (pair){a + y * d->k, filters, out + x * d->c + first, x};
    default: return (pair){b + y * d->k + first, a + x * d->c, out + weights, tap};
    }
}

/* Input pixel under a tap at an output pixel, or -1 outside of the map. */
static int64_t input_of(const fri_conv2d_desc *d, int64_t tap, int64_t y) {
    const int64_t h = y / d->q * d->stride_h - d->pad_h + tap / d->s * d->dilation_h;
    const int64_t w = y % d->q * d->stride_w - d->pad_w + tap % d->s * d->dilation_w;
    return h < 0 || h >= d->h || w < 0 || w >= d->w ? -1 : h * d->w + w;
}

/* Copies the filters of a tap densely: summed channels in rows, a block of the others. With other strides, a row's
 * bits depend on the number of rows up to 3 (oneDNN 2.6.3, AVX-512). */
static void take_filters(const fri_conv2d_engine *e, int64_t first, int64_t block, int64_t tap, const float *w,
                         float *to) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t row = d->r * d->s * d->c;
    if (e->pass == FRI_PASS_FORWARD)
        fri_transpose(block, d->c, w + first * row + tap * d->c, row, to, block);
    else
        for (int64_t k = 0; k < d->k; k++)
            memcpy(to + k * block, w + k * row + tap * d->c + first, (size_t)block * sizeof *to);
}

/* Computes channels first .. first + BLOCK of the result. */
static fr_status run_block(const fri_conv2d_engine *e, int64_t first, const float *a, const float *b, const float *bias,
                           float *out, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const bool forward = e->pass == FRI_PASS_FORWARD;
    const int64_t taps = d->r * d->s, block = fri_min_i64(BLOCK, channels_of(e) - first);
    float *filters = (float *)(void *)(workspace + e->weight_at);
    uint64_t seen = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        bool taken = e->pass == FRI_PASS_BACKWARD_WEIGHT;
        for (int64_t y = 0; y < d->p * d->q; y++) {
            const int64_t x = input_of(d, tap, y);
            if (x < 0) continue;
            if (!taken) take_filters(e, first, block, tap, b, filters);
            taken = true;
            const pair now = pair_of(e, first, tap, x, y, a, b, filters, out);
            const fri_product *p = &e->product[2 * (block < BLOCK) + (seen >> now.to & 1)];
            FRI_TRY(fri_product_run(p, now.left, now.right, forward ? bias + first : NULL, now.result,
                                    workspace + e->scratch_at));
            seen |= (uint64_t)1 << now.to;
        }
    }
    const int64_t results = forward ? d->p * d->q : e->pass == FRI_PASS_BACKWARD_INPUT ? d->h * d->w : taps;
    for (int64_t i = 0; i < results; i++)
        if (!(seen >> i & 1)) fill(e, i, first, block, bias, out);
    return FR_OK;
}

typedef struct pixel_loop {
    const fri_conv2d_engine *e;
    const float *a, *b, *bias;
    float *out;
    char *workspace;
    fri_team_failure *failure;
} pixel_loop;

static void block_piece(const void *context, int64_t i, int thread) {
    const pixel_loop *l = context;
    char *workspace = l->workspace + (size_t)thread * l->e->worker_bytes;
    fri_team_note(l->failure, run_block(l->e, i * BLOCK, l->a, l->b, l->bias, l->out, workspace));
}

fr_status fri_conv2d_pixels_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias,
                                float *out, char *workspace) {
    fri_team_failure f = {FR_OK, ""};
    fri_parallel(fri_ceil_div(channels_of(e), BLOCK), (int)e->workers, block_piece,
                 &(pixel_loop){e, a, b, bias, out, workspace, &f});
    return fri_team_told(&f);
}
