/* igemm.h - f32 matrix products whose rows are read through pointers, so that a convolution needs no copied columns
 * (Dukhan, The Indirect Convolution Algorithm, 2019).
 *
 * A sum consists of runs of at most FRI_IGEMM_RUN terms. A run adds its terms in order, one fused multiply-add per term
 * (SSE2 lacks the instruction: multiply, then add), and runs are added in order. Short runs keep rounding errors small
 * in sums of thousands of terms. The bits of a sum depend on its length only: not on the division of rows and columns,
 * the number of threads, the packing, or the width of vectors. NEON, AVX2 and AVX-512 give equal bits. */
#ifndef FRI_CPU_IGEMM_H
#define FRI_CPU_IGEMM_H

#include "backend/kernels.h"
#include "cpu/cpu.h"

enum {
    FRI_IGEMM_RUN = 160,
    FRI_IGEMM_TAPS = 16,    /* maximum per run */
    FRI_IGEMM_BLOCK = 96,   /* rows of A per step of a thread: a multiple of every tile's rows */
    FRI_IGEMM_COLUMNS = 64, /* maximum columns of a panel, on any processor */
    FRI_IGEMM_SHORT = 8,    /* a row's terms of several taps are gathered if a tap has fewer */
};

/* A tap of a filter: offset of the pixel from the window's first pixel, and offset of the tap's weights. */
typedef struct fri_igemm_tap {
    int64_t y, x, weight;
} fri_igemm_tap;

/* C [pixels, columns] = sum over taps of A [pixels, depth] B [depth, columns]. The pixels form a grid for each image. A
 * plain matrix is a map of one row, and its product has one tap. */
typedef struct fri_igemm {
    int64_t images, grid_h, grid_w, depth, columns, taps;
    const fri_igemm_tap *tap;
    /* A: pixel (y, x) of the grid reads pixel (y step_h + tap.y, x step_w + tap.x) of the map, zeros outside.
     * span: pixels of a row, side by side, per tap; 0: one pixel. */
    const float *a;
    int64_t a_h, a_w, a_pitch, step_h, step_w, span;
    /* B: element (l, j) is b[tap.weight + l b_row + j b_col]; one of b_row and b_col is 1. */
    const float *b;
    int64_t b_row, b_col;
    fr_dtype b_type; /* f32; f16 or bf16: widened while it is packed, not for run_pixels */
    /* C: pixel (y, x) of the grid is pixel (y c_step_h + c_y, x c_step_w + c_x). */
    float *c;
    int64_t c_h, c_w, c_pitch, c_y, c_x, c_step_h, c_step_w;
    const float *bias; /* per column, or NULL */
    bool add;          /* adds to C */
    /* A and B hold bf16, for the kernel with AVX512_BF16: a word is a pair of neighbouring terms. Depth, pitches,
     * offsets count words, but those of a B with b_col 1 count terms. */
    bool bf16;
    fri_activation relu;
} fri_igemm;

/* A run of terms: first .. first + depth of taps tap .. tap + taps. */
typedef struct fri_igemm_chunk {
    int64_t tap, taps, first, depth;
} fri_igemm_chunk;

/* The run after k, or the first after {0}; false after the last. */
static inline bool fri_igemm_next(const fri_igemm *s, fri_igemm_chunk *k) {
    k->first += k->depth;
    if (k->first >= s->depth) k->tap += k->taps, k->first = 0;
    if (k->tap >= s->taps) return false;
    k->depth = fri_min_i64(FRI_IGEMM_RUN, s->depth - k->first);
    k->taps = fri_min_i64(fri_min_i64(FRI_IGEMM_TAPS, s->taps - k->tap), fri_max_i64(1, FRI_IGEMM_RUN / s->depth));
    return true;
}

/* Number of elements in a task's scratch, on any processor: pointers to rows or pixels, a panel, gathered terms or the
 * last rows of a transposed A. No less for a product with more rows, taps or columns. */
typedef struct fri_igemm_scratch {
    int64_t pointers, panel, left;
} fri_igemm_scratch;

static inline fri_igemm_scratch fri_igemm_scratch_of(const fri_igemm *s, bool pixels) {
    enum { LINE = 16, FEW = 32, TILE = 8 }; /* columns of a vector; most rows of igemm.c's run_few and of a tile */
    fri_igemm_chunk k = {0};
    if (!pixels && !fri_igemm_next(s, &k)) return (fri_igemm_scratch){0};
    const bool gathers = s->span > 0 || (s->depth < FRI_IGEMM_SHORT && k.taps > 1);
    const int64_t terms = pixels ? fri_min_i64(FRI_IGEMM_RUN, s->images * s->grid_h * s->grid_w) : k.taps * k.depth;
    const int64_t columns = pixels ? s->columns * s->taps : s->columns;
    return (fri_igemm_scratch){.pointers = pixels ? FRI_IGEMM_RUN : FRI_IGEMM_BLOCK * (gathers ? 1 : k.taps),
                               .panel = terms * fri_min_i64(FRI_IGEMM_COLUMNS, fri_ceil_div(columns, LINE) * LINE),
                               .left = terms * (pixels          ? TILE
                                                : gathers       ? FRI_IGEMM_BLOCK / 2
                                                : s->b_row == 1 ? FEW
                                                                : 0)};
}

/* One thread's part of C: rows, and panels of columns, of the runs after `before`. */
typedef struct fri_igemm_part {
    int64_t row, row_end, panel, panel_end;
    fri_igemm_chunk before;
    int64_t chunks; /* number of runs */
    float *packed;  /* B of these runs, or NULL: the thread packs panels one at a time */
} fri_igemm_part;

typedef struct fri_igemm_kernel {
    int64_t rows, columns;                                        /* of a tile; parts begin at multiples of the rows */
    void (*pack)(const fri_igemm *s, const fri_igemm_part *part); /* fills part->packed for the part's panels */
    void (*run)(const fri_igemm *s, const fri_igemm_part *part, void *scratch);
    /* C [depth, taps, columns] = sum over pixels of B [pixel, depth] A [pixel of a tap, columns]: element (i, tap, j)
     * is c[i c_pitch + tap columns + j], and pixels of B are b_row apart. A part's columns count all taps. */
    void (*run_pixels)(const fri_igemm *s, const fri_igemm_part *part, void *scratch);
} fri_igemm_kernel;

#endif
