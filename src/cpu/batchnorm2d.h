/* batchnorm2d.h - how batch norm's kernels cut x [rows, c] into tiles.
 *
 *     x [rows, c]                         row chunks x channel blocks of at most C_BLOCK
 *     partial sums [chunks][c] in real    one tile writes one piece of one row of it
 *     per channel, over the chunks        added or merged in order, in f64
 *
 * A chunk has at most 1024 rows, so that an f32 sum never has more than 1024 terms; chunks depend on the shape only. */
#ifndef FRI_CPU_BATCHNORM2D_H
#define FRI_CPU_BATCHNORM2D_H

#include "cpu/cpu.h"

enum {
    C_BLOCK = 512, /* channels per tile, so that accumulators stay in L1 */
    TILE = 2048,   /* elements of half data converted at a time */
    COMBINE = 64,  /* channels whose partial sums one task adds up */
};

/* ---- tiles --------------------------------------------------------------------------------------------------- */

static inline int64_t chunk_rows(const fri_batchnorm2d_desc *d) {
    return fri_min_i64(1024, fri_max_i64(32, fri_ceil_div(d->rows, 64)));
}

static inline int64_t chunks(const fri_batchnorm2d_desc *d) {
    return fri_ceil_div(d->rows, chunk_rows(d));
}

typedef struct tile {
    int64_t row, rows; /* rows row .. row + rows */
    int64_t c, width;  /* channels c .. c + width */
    int64_t chunk;
} tile;

static inline int64_t tiles(const fri_batchnorm2d_desc *d) {
    return chunks(d) * fri_ceil_div(d->c, C_BLOCK);
}

static inline tile tile_at(const fri_batchnorm2d_desc *d, int64_t i) {
    int64_t blocks = fri_ceil_div(d->c, C_BLOCK);
    tile t = {.chunk = i / blocks, .c = i % blocks * C_BLOCK};
    t.row = t.chunk * chunk_rows(d);
    t.rows = fri_min_i64(chunk_rows(d), d->rows - t.row);
    t.width = fri_min_i64(C_BLOCK, d->c - t.c);
    return t;
}

/* Rows of a tile per step: all, or as many as fit the conversion buffer. */
static inline int64_t step_rows(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? t->rows : fri_max_i64(1, TILE / t->width);
}

/* Distance between rows of load_rows' result. */
static inline int64_t pitch(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? d->c : t->width;
}

static inline const real *load_rows(const fri_batchnorm2d_desc *d, const tile *t, const void *x, int64_t row,
                                    int64_t rows, real *buf) {
    if (x == NULL) return NULL;
    if (d->dtype == FRI_REAL_DTYPE) return (const real *)x + row * d->c + t->c;
    if (t->width == d->c) return fri_cpu_load(d->dtype, x, row * d->c, rows * d->c, buf);
    for (int64_t i = 0; i < rows; i++) fri_cpu_load(d->dtype, x, (row + i) * d->c + t->c, t->width, buf + i * t->width);
    return buf;
}

/* ---- workspace ------------------------------------------------------------------------------------------- */

/* [chunks][c] twice and [c] twice: fri_cpu_batchnorm2d_workspace. */
typedef struct scratch {
    real *partial_a, *partial_b; /* [chunks][c] */
    real *a, *b;                 /* [c] */
} scratch;

static inline fr_status scratch_of(const fri_exec *e, const fri_batchnorm2d_desc *d, scratch *w) {
    void *memory = NULL;
    FRI_TRY(fri_cpu_workspace(e, "batchnorm2d", fri_cpu_batchnorm2d_workspace(d), &memory));
    w->partial_a = memory;
    if (memory == NULL) return FR_OK; /* no elements */
    w->partial_b = w->partial_a + chunks(d) * d->c;
    w->a = w->partial_b + chunks(d) * d->c;
    w->b = w->a + d->c;
    return FR_OK;
}

#endif
