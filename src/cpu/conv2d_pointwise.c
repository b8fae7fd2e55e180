/* conv2d_pointwise.c - weight gradients of 1 x 1 convolutions that are narrow on one side, on large maps. Tiles of
 * igemm.c take 1.04 to 1.8 times as long.
 *
 *   dw [K, C] = dy^T x      over N P Q rows
 *
 * dw is summed over blocks of rows, and these over parts that follow the shape. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "cpu/lanes.h"

enum {
    NARROW = 32, /* maximum channels of the narrow side, and of the wide side: */
    WIDE = 256,
    MIN_AREA = 28 * 28,                      /* pixels of a map */
    MAX_VECTORS = 3,                         /* per tile */
    PARTS = 16,                              /* of the rows, for dw */
    BLOCK_ROWS = 32,                         /* rows of x and dy that stay in the caches while dw's tiles use them */
    TILE_CHANNELS = FRI_LANES_REGISTERS / 4, /* of the narrow side, in a tile of dw */
};

static bool pays(const fri_conv2d_desc *d, fri_pass pass) {
    return pass == FRI_PASS_BACKWARD_WEIGHT && d->dtype == FR_F32 && d->groups == 1 && d->r == 1 && d->s == 1 &&
           d->stride_h == 1 && d->stride_w == 1 && d->pad_h == 0 && d->pad_w == 0 && d->p * d->q >= MIN_AREA &&
           fri_min_i64(d->c, d->k) >= FRI_LANES_MIN && fri_min_i64(d->c, d->k) <= NARROW &&
           fri_max_i64(d->c, d->k) <= WIDE;
}

static void plan(fri_conv2d_engine *e) {
    const int64_t wide = fri_vectors(fri_max_i64(e->d.c, e->d.k)) * FRI_VECTOR;
    e->parts = fri_min_i64(PARTS, fri_ceil_div(e->d.n * e->d.p * e->d.q, BLOCK_ROWS));
    e->sum_at = fri_part(&e->bytes, (size_t)(e->parts * fri_min_i64(e->d.c, e->d.k) * wide) * sizeof(float));
}

/* sum [narrow, wide] = a^T b with a [M, narrow] and b [M, wide]: x and dy, or dy and x. */
typedef struct gradient {
    int64_t narrow, wide, vectors;
    const float *a, *b;
    bool narrow_x;            /* a is x */
    fri_conv2d_reader reader; /* of x */
    int64_t rows, parts;      /* of a and b; sums over parts of the rows */
    float *part;              /* [parts, narrow, vectors, lanes] */
} gradient;

/* sum += a^T b over `rows` rows, for channels i .. i + channels of a and `taken` vectors v, v + 1, ... of b. first:
 * prefetches the next block's vectors a few at a time, during the multiplications. */
FRI_INLINE void tile_of_sum(const int channels, const int taken, const bool first, const gradient *g, int64_t rows,
                            const float *a, const float *b, int64_t v, float *sum) {
    fri_lanes total[TILE_CHANNELS][MAX_VECTORS] = {0}, value[MAX_VECTORS];
    int64_t at[MAX_VECTORS];
#pragma GCC unroll 3
    for (int j = 0; j < taken; j++) at[j] = fri_vector_at(g->wide, v + j);
    for (int64_t m = 0; m < rows; m++) {
#pragma GCC unroll 3
        for (int j = 0; j < taken; j++) {
            if (first) __builtin_prefetch(b + (m + BLOCK_ROWS) * g->wide + at[j], 0, 2);
            value[j] = FRI_LANES_AT(b + m * g->wide + at[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < channels; i++)
#pragma GCC unroll 3
            for (int j = 0; j < taken; j++) total[i][j] += a[m * g->narrow + i] * value[j];
    }
#pragma GCC unroll 8
    for (int i = 0; i < channels; i++)
#pragma GCC unroll 3
        for (int j = 0; j < taken; j++)
            *(fri_lanes *)(sum + i * g->vectors * FRI_VECTOR + j * FRI_VECTOR) += total[i][j];
}

FRI_INLINE void sum_block(const int taken, const gradient *g, int64_t rows, const float *a, const float *b,
                          float *sum) {
    for (int64_t v = 0; v < g->vectors; v += taken) {
        int64_t i = TILE_CHANNELS;
        tile_of_sum(TILE_CHANNELS, taken, true, g, rows, a, b, v, sum + v * FRI_VECTOR);
        for (; i + TILE_CHANNELS <= g->narrow; i += TILE_CHANNELS)
            tile_of_sum(TILE_CHANNELS, taken, false, g, rows, a + i, b, v, sum + (i * g->vectors + v) * FRI_VECTOR);
        for (; i < g->narrow; i++)
            tile_of_sum(1, taken, false, g, rows, a + i, b, v, sum + (i * g->vectors + v) * FRI_VECTOR);
    }
}

/* Separate function: under the address sanitizer, gcc 12 misplaces vectors in frames with large arrays (gcc bug
 * 110027). */
static __attribute__((noinline)) void sum_rows(const gradient *g, int64_t rows, const float *a, const float *b,
                                               float *sum) {
    if (g->vectors % 3 == 0)
        sum_block(3, g, rows, a, b, sum);
    else if (g->vectors % 2 == 0)
        sum_block(2, g, rows, a, b, sum);
    else
        sum_block(1, g, rows, a, b, sum);
}

static void sum_part(const void *context, int64_t i, int thread) {
    const gradient *g = context;
    const int64_t size = g->narrow * g->vectors * FRI_VECTOR, to = (i + 1) * g->rows / g->parts;
    __attribute__((aligned(64))) float values[BLOCK_ROWS * WIDE];
    float *sum = g->part + i * size;
    memset(sum, 0, (size_t)size * sizeof *sum);
    for (int64_t m = i * g->rows / g->parts, rows; m < to; m += rows) {
        const float *a = g->a + m * g->narrow, *b = g->b + m * g->wide;
        rows = fri_min_i64(BLOCK_ROWS, to - m);
        if (g->reader.mean != NULL) {
            const int64_t c = g->narrow_x ? g->narrow : g->wide;
            const float **x = g->narrow_x ? &a : &b;
            fri_conv2d_read(&g->reader, 0, rows, c, c, *x, values);
            *x = values;
        }
        sum_rows(g, rows, a, b, sum);
    }
}

/* Adds the parts in order into dw [K, C]. */
static void add_parts(const gradient *g, float *dw) {
    const int64_t size = g->narrow * g->vectors * FRI_VECTOR;
    for (int64_t i = 0; i < g->narrow; i++)
        for (int64_t j = 0; j < g->wide; j++) {
            const int64_t v = fri_min_i64(j / FRI_VECTOR, g->vectors - 1), lane = j - fri_vector_at(g->wide, v);
            const float *at = g->part + (i * g->vectors + v) * FRI_VECTOR + lane;
            float sum = 0;
            for (int64_t n = 0; n < g->parts; n++) sum += at[n * size];
            dw[g->narrow_x ? j * g->narrow + i : i * g->wide + j] = sum;
        }
}

static void run_weight(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const bool narrow_x = d->c <= d->k;
    const gradient g = {.narrow = fri_min_i64(d->c, d->k),
                        .wide = fri_max_i64(d->c, d->k),
                        .vectors = fri_vectors(fri_max_i64(d->c, d->k)),
                        .a = narrow_x ? x : dy,
                        .b = narrow_x ? dy : x,
                        .narrow_x = narrow_x,
                        .reader = fri_conv2d_reader_of(e, workspace),
                        .rows = d->n * d->p * d->q,
                        .parts = e->parts,
                        .part = (float *)(void *)(workspace + e->sum_at)};
    fri_parallel(e->parts, fr_threads_get(), sum_part, &g);
    add_parts(&g, dw);
}

static bool reads_norm(const fri_conv2d_desc *d) {
    (void)d;
    return true;
}

const fri_conv2d_own FRI_FOR(fri_conv2d_pointwise) = {pays, reads_norm, plan, .run_weight = run_weight};
