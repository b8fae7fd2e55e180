/* conv2d_winograd.c - 3 x 3 convolutions of stride 1 with a quarter of the multiplications: Winograd's minimal
 * filtering F(4 x 4, 3 x 3) on the points 0, 1, -1, 2, -2, infinity (Lavin and Gray, Fast Algorithms for Convolutional
 * Neural Networks, 2015).
 *
 * A map is cut into tiles of 4 x 4 outputs, each made from 6 x 6 inputs; A, B, G are the paper's matrices.
 *   forward          y = A^T M A + b,  M [36, tiles, K] = V U,  V [36, tiles, C] = B^T x B,  U [36, C, K] = G w G^T
 *   backward input   the same on dy, with w turned by 180 degrees, its channels swapped, and padding 2 - pad
 *   backward weight  dw = G^T S G,  S [36, K, C] = sum over tiles of D^T V,  D [36, tiles, K] = A dy A^T
 * Chunks of tiles and blocks of channels keep U, V, M (D, V, S) within FRI_WINOGRAD_BYTES; they change no bit of y and
 * dx, since a row of a product does not depend on the number of rows (product.h), and S is summed over chunks in order.
 */
#include "base/status.h"
#include "cpu/conv2d_engine.h"
#include "cpu/cpu.h"
#include "cpu/transpose.h"

#include <string.h>

enum {
    PLACES = 36,
    LANES = 64, /* channels per transform */
};

static const float zeros[LANES];

/* ---- one-dimensional transforms of LANES channels or fewer ------------------------------------------------- */

#define ALWAYS_INLINE static inline __attribute__((always_inline))
typedef const float *const *sources;
typedef float *const *targets;

/* B^T: 6 values to 6. */
ALWAYS_INLINE void input_line(int64_t n, sources x, targets y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i], e = x[4][i], f = x[5][i];
        float even = e - 4 * c, odd = d - 4 * b, even2 = e - c, odd2 = 2 * (d - b);
        y[0][i] = 4 * a - 5 * c + e;
        y[1][i] = even + odd;
        y[2][i] = even - odd;
        y[3][i] = even2 + odd2;
        y[4][i] = even2 - odd2;
        y[5][i] = 4 * b - 5 * d + f;
    }
}

/* A^T: 6 values to 4. */
ALWAYS_INLINE void output_line(int64_t n, sources x, targets y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i], e = x[4][i], f = x[5][i];
        float even = b + c, odd = b - c, even2 = d + e, odd2 = d - e;
        y[0][i] = a + even + even2;
        y[1][i] = odd + 2 * odd2;
        y[2][i] = even + 4 * even2;
        y[3][i] = odd + 8 * odd2 + f;
    }
}

/* A: 4 values to 6. */
ALWAYS_INLINE void gradient_line(int64_t n, sources x, targets y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i];
        float even = a + c, odd = b + d, even2 = a + 4 * c, odd2 = 2 * b + 8 * d;
        y[0][i] = a;
        y[1][i] = even + odd;
        y[2][i] = even - odd;
        y[3][i] = even2 + odd2;
        y[4][i] = even2 - odd2;
        y[5][i] = d;
    }
}

/* G: 3 values to 6. */
ALWAYS_INLINE void filter_line(int64_t n, sources x, targets y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[2][i];
        float even = (a + c) * (-1.0f / 6), odd = b * (-1.0f / 6);
        float even2 = a * (1.0f / 24) + c * (1.0f / 6), odd2 = b * (1.0f / 12);
        y[0][i] = a * 0.25f;
        y[1][i] = even + odd;
        y[2][i] = even - odd;
        y[3][i] = even2 + odd2;
        y[4][i] = even2 - odd2;
        y[5][i] = c;
    }
}

/* G^T: 6 values to 3. */
ALWAYS_INLINE void weight_line(int64_t n, sources x, targets y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i], e = x[4][i], f = x[5][i];
        float even = b + c, odd = b - c, even2 = d + e, odd2 = d - e;
        y[0][i] = a * 0.25f - even * (1.0f / 6) + even2 * (1.0f / 24);
        y[1][i] = odd2 * (1.0f / 12) - odd * (1.0f / 6);
        y[2][i] = f - even * (1.0f / 6) + even2 * (1.0f / 6);
    }
}

/* ---- two-dimensional transforms: columns into a buffer, then rows -------------------------------------------- */

/* L x L^T for x [from, from] to y [to, to], each element a row of n channels. */
#define TRANSFORM_2D(name, line, from, to)                                \
    ALWAYS_INLINE void name##_2d(int64_t n, sources x, targets y) {       \
        float half[to][from][LANES];                                      \
        for (int j = 0; j < from; j++) {                                  \
            const float *in[from];                                        \
            float *out[to];                                               \
            for (int i = 0; i < from; i++) in[i] = x[i * from + j];       \
            for (int i = 0; i < to; i++) out[i] = half[i][j];             \
            line(n, in, out);                                             \
        }                                                                 \
        for (int i = 0; i < to; i++) {                                    \
            const float *in[from];                                        \
            for (int j = 0; j < from; j++) in[j] = half[i][j];            \
            line(n, in, y + i * to);                                      \
        }                                                                 \
    }                                                                     \
    FRI_CLONES static void name##_tile(int64_t n, sources x, targets y) { \
        if (n == LANES) /* loops of known length */                       \
            name##_2d(LANES, x, y);                                       \
        else if (n == LANES / 2)                                          \
            name##_2d(LANES / 2, x, y);                                   \
        else                                                              \
            name##_2d(n, x, y);                                           \
    }
TRANSFORM_2D(input, input_line, 6, 6)
TRANSFORM_2D(output, output_line, 6, 4)
TRANSFORM_2D(gradient, gradient_line, 4, 6)
TRANSFORM_2D(filter, filter_line, 3, 6)
TRANSFORM_2D(weight, weight_line, 6, 3)

/* ---- tiles of a map ---------------------------------------------------------------------------------------- */

/* Tiles of a map. The window of tile i begins at row and column (4 * position in the grid - pad). */
typedef struct map {
    int64_t h, w, c, pad_h, pad_w; /* elements [n, h, w, c] */
    int64_t grid_h, grid_w;        /* tiles of an image */
} map;

/* Offset of element (i, j) of a tile's window, -1 outside of the map. */
static int64_t element(const map *m, int64_t tile, int64_t i, int64_t j) {
    int64_t image = tile / (m->grid_h * m->grid_w), place = tile % (m->grid_h * m->grid_w);
    int64_t h = place / m->grid_w * 4 - m->pad_h + i, w = place % m->grid_w * 4 - m->pad_w + j;
    return h < 0 || h >= m->h || w < 0 || w >= m->w ? -1 : ((image * m->h + h) * m->w + w) * m->c;
}

/* Operands of a step: a chunk of tiles, and blocks of input and output channels in the sense of forward. dx reads
 * gradients of output channels and computes input channels, so for dx `in` counts K and `out` counts C. */
typedef struct step {
    int64_t tile, tiles, in, out;
} step;

typedef void transform(int64_t n, sources x, targets y);

/* Transforms of tiles or filters, for channels first .. first + channels. A piece takes up to LANES channels. */
typedef struct job {
    const fri_conv2d_desc *d;
    const map *m;
    const float *from;
    float *to;
    int64_t first, channels, rows; /* transformed data is [36, rows, channels] */
    int64_t row;                   /* the first tile, or the first filter */
    int64_t size;                  /* of windows, and their transform */
    transform *f;
    const float *bias; /* may be NULL */
    fr_dtype type;     /* of filters */
} job;

/* Runs the pieces of `rows` tiles or filters, on all threads unless the threads work alone. */
static void run_job(const job *j, fri_piece *piece, int64_t rows, bool alone) {
    fri_parallel(rows * fri_ceil_div(j->channels, LANES), alone ? 1 : fr_threads_get(), piece, j);
}

/* Transforms windows of size x size. */
static void take_tile(const void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t blocks = fri_ceil_div(j->channels, LANES), t = task / blocks, c = task % blocks * LANES;
    const float *in[PLACES];
    float *out[PLACES];
    for (int64_t i = 0; i < j->size * j->size; i++) {
        int64_t at = element(j->m, j->row + t, i / j->size, i % j->size);
        in[i] = at < 0 ? zeros : j->from + at + j->first + c;
    }
    for (int64_t i = 0; i < PLACES; i++) out[i] = j->to + (i * j->rows + t) * j->channels + c;
    j->f(fri_min_i64(LANES, j->channels - c), in, out);
}

FRI_CLONES static void add_bias(int64_t n, const float *b, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] += b[i];
}

/* y = v + b (+ y), rectified. */
FRI_CLONES static void finish(int64_t n, const float *v, const float *b, bool accumulate, fri_activation relu,
                              float *y) {
    const float ceiling = fri_ceiling(relu);
    for (int64_t i = 0; i < n; i++) {
        float sum = accumulate ? v[i] + b[i] + y[i] : v[i] + b[i];
        y[i] = relu != FRI_ACTIVATION_NONE ? fri_relu_below(sum, ceiling) : sum;
    }
}

/* Writes the outputs of tiles inside the map. */
static void put_tile(const void *context, int64_t task, int thread) {
    const job *j = context;
    const fri_conv2d_desc *d = j->d;
    const bool tail = d->accumulate || d->relu != FRI_ACTIVATION_NONE;
    const int64_t blocks = fri_ceil_div(j->channels, LANES), t = task / blocks, c = task % blocks * LANES;
    const int64_t n = fri_min_i64(LANES, j->channels - c);
    const float *in[PLACES], *b = j->bias;
    float *out[16], *to[16], outside[LANES], sums[16][LANES];
    for (int64_t i = 0; i < PLACES; i++) in[i] = j->from + (i * j->rows + t) * j->channels + c;
    for (int64_t i = 0; i < 16; i++) {
        int64_t at = element(j->m, j->row + t, i / 4, i % 4);
        to[i] = at < 0 ? outside : j->to + at + j->first + c;
        out[i] = tail ? sums[i] : to[i];
    }
    output_tile(n, in, out);
    for (int64_t i = 0; i < 16 && b != NULL; i++) {
        if (to[i] == outside) continue;
        if (tail)
            finish(n, sums[i], b + j->first + c, d->accumulate, d->relu, to[i]);
        else
            add_bias(n, b + j->first + c, to[i]);
    }
}

/* ---- filters ----------------------------------------------------------------------------------------------- */

enum { LINE = 16 }; /* input channels of a cache line, transposed at once for up to LANES filters */

/* Computes U [36, C, channels] of output channels. */
static void take_filters(const void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t blocks = fri_ceil_div(j->channels, LANES), k = task % blocks * LANES, all = j->d->c;
    const int64_t n = fri_min_i64(LANES, j->channels - k), from = task / blocks * LINE;
    const int64_t line = fri_min_i64(LINE, all - from);
    float taps[9][LINE][LANES], wide[LANES * LINE], *out[PLACES];
    const float *in[9];
    const int64_t first = (j->first + k) * 9 * all + from;
    for (int64_t i = 0; i < 9 && j->type == FR_F32; i++)
        fri_transpose(n, line, j->from + first + i * all, 9 * all, taps[i][0], LANES);
    for (int64_t i = 0; i < 9 && j->type != FR_F32; i++) {
        for (int64_t f = 0; f < n; f++)
            fri_cpu_widen(j->type, line, fri_cpu_at(j->type, j->from, first + (f * 9 + i) * all), wide + f * LINE);
        fri_transpose(n, line, wide, LINE, taps[i][0], LANES);
    }
    for (int64_t c = 0; c < line; c++) {
        for (int64_t i = 0; i < 9; i++) in[i] = taps[i][c];
        for (int64_t i = 0; i < PLACES; i++) out[i] = j->to + (i * all + from + c) * j->channels + k;
        filter_tile(n, in, out);
    }
}

/* Computes U [36, K, channels] of input channels, with filters rotated by 180 degrees. */
static void take_turned_filter(const void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t blocks = fri_ceil_div(j->channels, LANES), k = task / blocks, c = task % blocks * LANES;
    const int64_t n = fri_min_i64(LANES, j->channels - c);
    const float *in[9];
    float *out[PLACES], wide[9][LANES];
    for (int64_t i = 0; i < 9; i++)
        in[i] = fri_cpu_load(j->type, j->from, (k * 9 + 8 - i) * j->d->c + j->first + c, n, wide[i]);
    for (int64_t i = 0; i < PLACES; i++) out[i] = j->to + (i * j->d->k + k) * j->channels + c;
    filter_tile(n, in, out);
}

/* Writes dw of output channels row .. row + rows from S [36, rows, channels]. */
static void put_weight(const void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t blocks = fri_ceil_div(j->channels, LANES), k = task / blocks, c = task % blocks * LANES;
    const int64_t n = fri_min_i64(LANES, j->channels - c), first = (j->row + k) * 9 * j->d->c + j->first + c;
    const float *in[PLACES];
    float *out[9], wide[9][LANES];
    for (int64_t i = 0; i < PLACES; i++) in[i] = j->from + (i * j->rows + k) * j->channels + c;
    for (int64_t i = 0; i < 9; i++) out[i] = fri_cpu_target(j->type, j->to, first + i * j->d->c, wide[i]);
    weight_tile(n, in, out);
    for (int64_t i = 0; i < 9; i++) fri_cpu_store(j->type, j->to, first + i * j->d->c, n, out[i]);
}

/* ---- planning ---------------------------------------------------------------------------------------------- */

static map map_of(const fri_conv2d_desc *d, bool of_y, int64_t pad_h, int64_t pad_w, bool grid_of_y) {
    return (map){.h = of_y ? d->p : d->h,
                 .w = of_y ? d->q : d->w,
                 .c = of_y ? d->k : d->c,
                 .pad_h = pad_h,
                 .pad_w = pad_w,
                 .grid_h = fri_ceil_div(grid_of_y ? d->p : d->h, 4),
                 .grid_w = fri_ceil_div(grid_of_y ? d->q : d->w, 4)};
}

/* Threads that work alone; each needs memory for our product. */
static int64_t workers_of(void) {
    return fri_min_i64(fr_threads_get(), FRI_BATCH_THREADS);
}

/* Floats of U, V, M per product; the rest is for the scratch of products. */
static int64_t floats_of(void) {
    return (FRI_WINOGRAD_BYTES - (1 << 20)) / 4 / PLACES;
}

/* The largest divisor of n up to limit. */
static int64_t divisor(int64_t n, int64_t limit) {
    int64_t i = fri_max_i64(1, fri_min_i64(n, limit));
    while (n % i != 0) i--;
    return i;
}

static bool fits(const fri_conv2d_desc *d) {
    bool plain = d->stride_h == 1 && d->stride_w == 1 && d->dilation_h == 1 && d->dilation_w == 1 && d->groups == 1;
    return plain && d->dtype == FR_F32 && d->bias_dtype == FR_F32 && d->r == 3 && d->s == 3 && d->pad_h <= 2 &&
           d->pad_w <= 2;
}

/* The rule was measured beside direct convolutions by a library (2 threads, AMD Zen 5; time over the direct one's in
 * forward, dx and dw, 8 images, pad 1). Only properties of a layer may be asked here, never d->n, nor a limit of memory
 * (conv2d_engine.h).
 *
 *   map, channels                              map, channels
 *   56, 64 -> 64      0.44 0.46 0.50           4, 128 -> 256     1.04 0.82 0.48
 *   14, 256 -> 256    0.52 0.44 0.49           6, 256 -> 256     1.11 0.86 0.73   (9 outputs of a tile's 16 are used)
 *   7, 512 -> 512     0.85 0.60 0.57           4, 128 -> 32      1.26 1.15 0.59   (dw alone is taken)
 *   8, 64 -> 64       0.75 0.62 0.62           14, 64 -> 32      1.47 0.76 0.85   (transforms outweigh the product)
 *   4, 512 -> 512     0.81 0.85 0.63           20, 32 -> 32      0.51 0.53 0.77
 * Transforming the filters costs what some ten tiles cost, so single images of small maps lose; the rule is made for 8
 * and more. */
bool fri_conv2d_winograd_pays(const fri_conv2d_desc *d, fri_pass pass) {
    bool dx = pass == FRI_PASS_BACKWARD_INPUT;
    int64_t h = dx ? d->h : d->p, w = dx ? d->w : d->q, tiles = fri_ceil_div(h, 4) * fri_ceil_div(w, 4);
    const bool dw = pass == FRI_PASS_BACKWARD_WEIGHT;
    int64_t min = tiles >= 196 ? 16 : tiles >= 49 ? 20 : tiles >= 4 || dw ? 24 : 128, filled = tiles >= 4 ? 10 : 16;
    return fits(d) && h * w >= filled * tiles && d->c * d->k >= min * (d->c + d->k);
}

/* Rows of V and M per chunk. The number is odd, because an even number would map many of the 36 products to the same
 * cache sets. */
static int64_t rows_of(const fri_conv2d_engine *e, int64_t tiles) {
    return e->pass == FRI_PASS_BACKWARD_WEIGHT ? tiles : tiles | 1;
}

/* Chooses blocks of channels whose products outweigh the repeated transforms, and as many tiles as fit each worker's
 * memory, at most `max`; 0 if no such block is worth the transforms. Chunks of dw have one size, because they
 * determine the order of its sums. */
static int64_t choose_blocks(fri_conv2d_engine *e, int64_t workers, int64_t widest_in, int64_t widest_out) {
    enum { MIN = 16, WEIGHT_CHUNK = 64 };
    int64_t in = e->in, out = e->out, min = 1, max = 256, room = floats_of() / workers;
    if (e->pass == FRI_PASS_BACKWARD_WEIGHT) {
        e->in_block = divisor(in, widest_in);
        e->out_block = divisor(out, widest_out);
        min = max = WEIGHT_CHUNK;
    } else {
        e->in_block = in;
        e->out_block =
            divisor(out, fri_min_i64(fri_min_i64(fri_max_i64(64, 16384 / in), room * 2 / 3 / in), widest_out));
    }
    if (e->out_block < fri_min_i64(MIN, out) || e->in_block < fri_min_i64(MIN, in)) return 0;
    int64_t fit = fri_max_i64(0, room - e->in_block * e->out_block) / (e->in_block + e->out_block);
    if (fit < min) return 0;
    int64_t tiles = fri_min_i64(fit, max);
    return e->pass == FRI_PASS_BACKWARD_WEIGHT ? tiles : (tiles - 1) | 1;
}

/* Divides the work among threads that do not wait for each other. Threads that share a chunk wait twice per chunk and
 * read what other threads have just written: up to twice the time if they do not share a cache or are preempted. If
 * memory suffices, each thread works alone: on tiles with all filters, or on channels with all inputs, which in
 * layers of 512 channels costs a tenth more than ideal sharing. Bits are equal. */
static bool try_split(fri_conv2d_engine *e, fri_conv2d_split split, int64_t worth) {
    enum { NARROWEST = 32, ENOUGH = 72 }; /* channels; tiles per chunk: 48 to 256 take equal time */
    const bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
    const int64_t workers = workers_of();
    const int64_t out = split == FRI_SPLIT_OUT ? e->out / workers : e->out;
    const int64_t in = split == FRI_SPLIT_IN ? e->in / workers : e->in;
    int64_t fit = choose_blocks(e, workers, fri_min_i64(128, in), dw ? fri_min_i64(64, out) : out);
    if (fit < fri_min_i64(worth, e->tiles) || e->out_block < NARROWEST || e->in_block < NARROWEST) return false;
    if (split == FRI_SPLIT_OUT && e->out / e->out_block % workers != 0) return false;
    if (split == FRI_SPLIT_IN && e->in / e->in_block % workers != 0) return false;
    e->split = split;
    int64_t tiles = split == FRI_SPLIT_TILES ? fri_ceil_div(e->tiles, workers) : e->tiles;
    if (!dw) {
        fit = fri_min_i64(fit, ENOUGH - 1);
        tiles = rows_of(e, fri_ceil_div(tiles, fri_ceil_div(tiles, fit)));
    }
    e->chunk = fri_min_i64(fit, tiles);
    return true;
}

/* Threads on separate channels would compute V of several chunks again for each of many blocks. If memory leaves wide
 * blocks, all threads instead compute V of all tiles once. */
static void try_shared(fri_conv2d_engine *e) {
    enum { MANY = 4, NARROWEST = 16 };
    const int64_t workers = workers_of(), rows = rows_of(e, e->tiles), room = (floats_of() - rows * e->in) / workers;
    if (e->chunk >= e->tiles || e->out < MANY * workers * e->out_block || room <= 0) return;
    const int64_t fit = fri_min_i64(room / (e->in + rows), e->out / workers), block = divisor(e->out, fit);
    if (block < NARROWEST || e->out / block % workers != 0) return;
    e->shared = true;
    e->out_block = block, e->chunk = e->tiles;
}

static bool choose_split(fri_conv2d_engine *e) {
    enum { WORTH = 32, WORTH_OUT = 16 }; /* tiles per chunk */
    const int64_t threads = workers_of();
    if (threads == 1) return false;
    if (e->pass == FRI_PASS_BACKWARD_WEIGHT)
        return try_split(e, FRI_SPLIT_OUT, WORTH) || try_split(e, FRI_SPLIT_IN, WORTH);
    if (e->tiles >= 4 * WORTH * threads && try_split(e, FRI_SPLIT_TILES, WORTH)) return true;
    if (!try_split(e, FRI_SPLIT_OUT, WORTH_OUT)) return false;
    try_shared(e);
    return true;
}

static void plan_product(fri_conv2d_engine *e, int slot, int64_t tiles, fri_accum accum, size_t *scratch) {
    const int64_t in = e->in_block, out = e->out_block, rows = rows_of(e, tiles);
    fri_matmul_desc p = {.batch = PLACES, .accum = accum};
    p.alone = e->split != FRI_SPLIT_NONE;
    p.n = p.b_row = p.c_row = e->pass == FRI_PASS_BACKWARD_WEIGHT ? in : out;
    p.b_col = 1;
    if (e->pass == FRI_PASS_BACKWARD_WEIGHT) {
        p.m = p.a_col = out, p.k = tiles, p.a_row = 1;
        p.a_batch = tiles * out, p.b_batch = tiles * in, p.c_batch = out * in;
    } else {
        p.m = tiles, p.k = p.a_row = in, p.a_col = 1;
        p.a_batch = rows * in, p.b_batch = in * out, p.c_batch = rows * out;
    }
    fri_product_plan(&p, &e->product[slot]);
    if (e->product[slot].bytes > *scratch) *scratch = e->product[slot].bytes;
}

static size_t lay_out(fri_conv2d_engine *e, size_t scratch) {
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
    size_t place = PLACES * sizeof(float);
    int64_t rows = rows_of(e, e->chunk);
    e->bytes = 0;
    e->v_at = fri_part(&e->bytes, place * (size_t)(rows * e->in_block));
    const size_t common = e->shared ? e->bytes : 0;
    e->u_at = fri_part(&e->bytes, place * (size_t)((dw ? e->chunk : e->in_block) * e->out_block));
    e->m_at = fri_part(&e->bytes, place * (size_t)((dw ? e->in_block : rows) * e->out_block));
    e->scratch_at = fri_part(&e->bytes, scratch);
    e->worker_bytes = e->bytes - common;
    e->workers = e->split == FRI_SPLIT_NONE ? 1 : workers_of();
    e->bytes = common + (size_t)e->workers * e->worker_bytes;
    return e->bytes;
}

/* The full chunk decides whether a plan exists, whatever the number of tiles, so batches do not matter. The scratch of
 * products, which grows with the threads and the width of vectors, comes on top and decides nothing. */
void fri_conv2d_winograd_plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT, dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    size_t scratch = 0;
    e->method = FRI_CONV2D_NONE;
    if (!fits(d)) return;
    map m = map_of(d, dx, 0, 0, !dx);
    e->in = dx ? d->k : d->c, e->out = dx ? d->c : d->k;
    e->tiles = d->n * m.grid_h * m.grid_w;
    e->chunk = choose_blocks(e, 1, 128, dw ? 128 : e->out);
    if (e->chunk == 0) return;
    if (!choose_split(e)) e->chunk = fri_min_i64(choose_blocks(e, 1, 128, dw ? 128 : e->out), e->tiles);
    int64_t tiles[3] = {e->chunk, dw && e->tiles > e->chunk ? e->chunk : 0, e->tiles % e->chunk};
    scratch = 0;
    for (int i = 0; i < 3; i++)
        if (tiles[i] > 0) plan_product(e, i, tiles[i], dw && i > 0 ? FRI_ADD : FRI_SET, &scratch);
    lay_out(e, scratch);
    e->method = FRI_CONV2D_WINOGRAD;
}

/* ---- running ----------------------------------------------------------------------------------------------- */

typedef struct run {
    const fri_conv2d_engine *e;
    map in, out;
    const float *a, *b, *bias;
    float *y, *v, *u, *m;
    char *workspace;
} run;

/* Computes V of the block of input channels at `first`. */
static void take_input(const run *r, int64_t tile, int64_t tiles, int64_t first, bool alone) {
    const int64_t channels = r->e->shared ? r->e->in : r->e->in_block;
    run_job(&(job){NULL, &r->in, r->a, r->v, first, channels, rows_of(r->e, tiles), tile, 6, input_tile}, take_tile,
            tiles, alone);
}

/* Work of all threads between two products: writes the results of the finished step (done, or NULL) and computes the
 * operands of the next step (or NULL), except operands left from the previous step. */
static void transform_between_products(const run *r, const step *done, const step *next) {
    const fri_conv2d_engine *e = r->e;
    const fri_conv2d_desc *d = &e->d;
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT, dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    bool same_tiles = done != NULL && next != NULL && done->tile == next->tile;
    bool same_v = same_tiles && done->in == next->in;
    bool same_u = done != NULL && next != NULL && done->out == next->out && (!dw || same_tiles);
    bool complete = done != NULL && (!dw || done->tile + done->tiles == e->tiles);
    const bool alone = e->split != FRI_SPLIT_NONE;
    const int64_t in = e->in_block, out = e->out_block;
    if (complete && dw)
        run_job(&(job){d, NULL, r->m, r->y, done->in, in, out, done->out, .type = e->weight_type}, put_weight, out,
                alone);
    else if (complete)
        run_job(&(job){d, &r->out, r->m, r->y, done->out, out, rows_of(e, done->tiles), done->tile, .bias = r->bias},
                put_tile, done->tiles, alone);
    if (next == NULL) return;
    if (!same_v && !e->shared) take_input(r, next->tile, next->tiles, next->in, alone);
    if (same_u) return;
    const job u =
        {d, &r->out, r->b, r->u, next->out, out, next->tiles, next->tile, 4, gradient_tile, .type = e->weight_type};
    if (dw)
        run_job(&u, take_tile, next->tiles, alone);
    else if (dx)
        run_job(&u, take_turned_filter, d->k, alone);
    else
        run_job(&u, take_filters, fri_ceil_div(d->c, LINE), alone);
}

/* Runs the tiles and channels from `from` to `to` in a worker's workspace. */
static void run_part(run r, step from, step to, char *workspace) {
    const fri_conv2d_engine *e = r.e;
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT;
    if (!e->shared) r.v = (float *)(void *)(workspace + e->v_at);
    r.u = (float *)(void *)(workspace + e->u_at);
    r.m = (float *)(void *)(workspace + e->m_at);
    step now = {0}, before;
    const step *done = NULL;
    for (now.out = from.out; now.out < to.out; now.out += e->out_block) {
        for (now.in = from.in; now.in < to.in; now.in += e->in_block) {
            for (now.tile = from.tile; now.tile < to.tile; now.tile += now.tiles) {
                now.tiles = fri_min_i64(e->chunk, to.tile - now.tile);
                transform_between_products(&r, done, &now);
                const fri_product *p = &e->product[now.tiles < e->chunk ? 2 : dw && now.tile > 0 ? 1 : 0];
                fri_product_run(p, dw ? r.u : r.v, dw ? r.v : r.u, NULL, r.m, workspace + e->scratch_at);
                before = now;
                done = &before;
            }
        }
    }
    if (done != NULL) transform_between_products(&r, done, NULL);
}

/* Runs worker i's part. Tiles are divided in whole chunks, so that only the last worker has a shorter chunk. */
static void run_worker(const void *context, int64_t i, int thread) {
    const run *r = context;
    const fri_conv2d_engine *e = r->e;
    const int64_t out = e->out / e->workers, in = e->in / e->workers;
    const int64_t tiles = fri_ceil_div(fri_ceil_div(e->tiles, e->chunk), e->workers) * e->chunk;
    step from = {0}, to = {.tile = e->tiles, .in = e->in, .out = e->out};
    switch (e->split) {
    case FRI_SPLIT_NONE: break;
    case FRI_SPLIT_TILES: from.tile = i * tiles, to.tile = fri_min_i64(from.tile + tiles, e->tiles); break;
    case FRI_SPLIT_OUT: from.out = i * out, to.out = from.out + out; break;
    case FRI_SPLIT_IN: from.in = i * in, to.in = from.in + in; break;
    }
    run_part(*r, from, to, r->workspace + (size_t)i * e->worker_bytes);
}

void fri_conv2d_winograd_run(const fri_conv2d_engine *e, const float *a, const float *b, const float *bias, float *out,
                             char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    bool dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    run r = {.e = e, .a = a, .b = b, .bias = bias, .y = out, .workspace = workspace};
    r.in = dx ? map_of(d, true, 2 - d->pad_h, 2 - d->pad_w, false) : map_of(d, false, d->pad_h, d->pad_w, true);
    r.out = map_of(d, !dx, 0, 0, !dx);
    r.v = (float *)(void *)(workspace + e->v_at);
    if (e->shared) take_input(&r, 0, e->tiles, 0, false);
    fri_parallel(e->workers, (int)e->workers, run_worker, &r);
}
