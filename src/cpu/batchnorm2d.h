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
    int64_t block;                    /* channels of the whole tile: the steps of its parts are equal */
    const fri_batchnorm2d_part *part; /* holds channel c of x */
    int64_t first;                    /* first channel of the part */
} tile;

static inline int64_t tiles(const fri_batchnorm2d_desc *d) {
    return chunks(d) * fri_ceil_div(d->c, C_BLOCK);
}

/* part: all parts of x. */
static inline tile tile_at(const fri_batchnorm2d_desc *d, const fri_batchnorm2d_part *part, int64_t i) {
    int64_t blocks = fri_ceil_div(d->c, C_BLOCK);
    tile t = {.chunk = i / blocks, .c = i % blocks * C_BLOCK, .part = part};
    t.row = t.chunk * chunk_rows(d);
    t.rows = fri_min_i64(chunk_rows(d), d->rows - t.row);
    t.width = t.block = fri_min_i64(C_BLOCK, d->c - t.c);
    return t;
}

/* Moves *s, at first t with width 0, on to the next channels of t that one part of x holds. */
static inline bool next_part(const tile *t, tile *s) {
    s->c += s->width;
    if (s->c == t->c + t->width) return false;
    while (s->c >= s->first + s->part->c) s->first += s->part++->c;
    s->width = fri_min_i64(t->c + t->width, s->first + s->part->c) - s->c;
    return true;
}

/* Runs a statement on the part s_ of each of the tile's pieces. */
#define FOR_PARTS(t_, s_) \
    for (tile s_ = {(t_)->row, (t_)->rows, (t_)->c, 0, (t_)->chunk, (t_)->block, (t_)->part, 0}; next_part((t_), &s_);)

/* Rows of a tile per step: all, or as many as fit the conversion buffer. */
static inline int64_t step_rows(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? t->rows : fri_max_i64(1, TILE / t->block);
}

/* Distance between rows of load_rows' result. */
static inline int64_t pitch(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? d->c : t->width;
}

/* Distance between rows of load_part's result. */
static inline int64_t part_pitch(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? t->part->c : t->width;
}

/* Rows of `width` values in rows of ld, from position `at` on. */
static inline const real *load_values(const fri_batchnorm2d_desc *d, const void *x, int64_t at, int64_t ld,
                                      int64_t rows, int64_t width, real *buf) {
    if (x == NULL) return NULL;
    if (d->dtype == FRI_REAL_DTYPE) return (const real *)x + at;
    if (width == ld) return fri_cpu_load(d->dtype, x, at, rows * ld, buf);
    for (int64_t i = 0; i < rows; i++) fri_cpu_load(d->dtype, x, at + i * ld, width, buf + i * width);
    return buf;
}

static inline const real *load_rows(const fri_batchnorm2d_desc *d, const tile *t, const void *x, int64_t row,
                                    int64_t rows, real *buf) {
    return load_values(d, x, row * d->c + t->c, d->c, rows, t->width, buf);
}

/* Position of a tile's first channel in a row of its part. */
static inline int64_t part_at(const tile *t, int64_t row) {
    return row * t->part->c + t->c - t->first;
}

static inline const real *load_part(const fri_batchnorm2d_desc *d, const tile *t, int64_t row, int64_t rows,
                                    real *buf) {
    return load_values(d, t->part->x, part_at(t, row), t->part->c, rows, t->width, buf);
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
