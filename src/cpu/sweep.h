/* sweep.h - sums of products of f32, made in tiles of registers: matrix products, and convolutions without columns.
 *
 * Each sum is made of runs of at most FRI_SWEEP_RUN terms, taken in order with one fused multiply-add a term (SSE2 has
 * none: it multiplies, then adds); runs are added in order. Runs keep rounding errors small in sums of thousands of
 * terms. So a sum's bits depend on no other size than its own length, on no cut of rows and columns, on no number of
 * threads, and on no width of vectors: NEON, AVX2 and AVX-512 give the same. */
#ifndef FRI_CPU_SWEEP_H
#define FRI_CPU_SWEEP_H

#include "backend/kernels.h"

enum { FRI_SWEEP_RUN = 160 }; /* a panel of so many terms stays in the first cache */

/* A tap of a filter: the pixel that is read, beside the window's first one, and the offset of the tap's weights. */
typedef struct fri_sweep_tap {
    int64_t y, x, weight;
} fri_sweep_tap;

/* C [pixels, columns] = sum over taps of A [pixels, depth] B [depth, columns]. Pixels are those of a grid, image by
 * image. A matrix is a map of one row, and its product has one tap. */
typedef struct fri_sweep {
    int64_t images, grid_h, grid_w, depth, columns, taps;
    const fri_sweep_tap *tap;
    /* A: pixel (y, x) of the grid reads pixel (y step_h + tap.y, x step_w + tap.x) of the map, zeros outside. */
    const float *a;
    int64_t a_h, a_w, a_pitch, step_h, step_w;
    /* B: element (l, j) is b[tap.weight + l b_row + j b_col]; one of the two strides is 1. */
    const float *b;
    int64_t b_row, b_col;
    /* C: pixel (y, x) of the grid is pixel (y c_step_h + c_y, x c_step_w + c_x). */
    float *c;
    int64_t c_h, c_w, c_pitch, c_y, c_x, c_step_h, c_step_w;
    const float *bias; /* of each column, or NULL */
    bool add;          /* to what C holds */
    fri_activation relu;
} fri_sweep;

/* The part of C that a thread makes. */
typedef struct fri_sweep_part {
    int64_t row, row_end, column, column_end;
} fri_sweep_part;

typedef struct fri_sweep_kernel {
    int64_t rows, columns; /* of a tile: parts begin at multiples of them */
    size_t scratch;        /* bytes that a thread needs */
    void (*run)(const fri_sweep *s, const fri_sweep_part *part, void *scratch);
    /* C [depth, taps, columns] = sum over pixels of B [pixel, depth] A [pixel of a tap, columns]: element (i, tap, j)
     * is c[i c_pitch + tap.weight + j], and pixels of B are b_row apart. A part's columns count all taps. */
    void (*run_pixels)(const fri_sweep *s, const fri_sweep_part *part, void *scratch);
} fri_sweep_kernel;

#endif
