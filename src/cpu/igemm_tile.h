/* igemm_tile.h - tiles of a product's C in registers, and panels of columns; for igemm.c.
 *
 * The last vector of a panel overlaps its neighbour if the columns are no multiple of a vector: both compute equal
 * values. */
#ifndef FRI_CPU_IGEMM_TILE_H
#define FRI_CPU_IGEMM_TILE_H

#include <string.h>

#include "cpu/igemm.h"
#include "cpu/lanes.h"
#include "cpu/transpose.h"
#if defined(FRI_LANES_BF16)
#include <immintrin.h>
#endif

#if defined(FRI_LANES_V4)
enum { ROWS = 6, VECTORS = 4 };
#elif defined(FRI_LANES_V3)
enum { ROWS = 6, VECTORS = 2 };
#elif defined(__aarch64__)
enum { ROWS = 8, VECTORS = 2 }; /* a vector holds four terms of a row; an instruction multiplies by one term */
#else
enum { ROWS = 4, VECTORS = 2 };
#endif
enum { WIDTH = VECTORS * FRI_VECTOR, FEWEST = (ROWS + 3) / 4 };
_Static_assert(FRI_IGEMM_BLOCK / 2 % ROWS == 0, "blocks of rows are whole tiles on every processor");
_Static_assert(WIDTH % FRI_VECTOR == 0 && FRI_IGEMM_COLUMNS % WIDTH == 0, "panels fit scratch on every processor");

/* Columns of a panel: whole vectors, the last at `last` from the first column. */
typedef struct columns {
    int64_t at, last;
    int vectors;
    int64_t some; /* columns of a lone, partial vector; else 0 */
} columns;

static int64_t panels_of(int64_t all) {
    return fri_ceil_div(fri_vectors(all), VECTORS);
}

/* Panels have almost equal widths. */
static columns panel_at(int64_t all, int64_t panel) {
    const int64_t count = panels_of(all), vectors = fri_vectors(all);
    const int64_t first = panel * vectors / count, end = (panel + 1) * vectors / count;
    columns o = {.at = first * FRI_VECTOR, .vectors = (int)(end - first), .last = (end - first - 1) * FRI_VECTOR};
    const int64_t left = all - o.at;
    if (left < FRI_VECTOR)
        o.some = left;
    else
        o.last = fri_min_i64(o.last, left - FRI_VECTOR);
    return o;
}

/* ---- tiles ------------------------------------------------------------------------------------------------- */

/* Row i of the tile begins at c[i] + column, its last vector at c[i] + column + last. */
typedef struct tile {
    float *const *c;
    int64_t column, last;
    int vectors, rows;
    const float *bias;             /* per column or per row; NULL: 0 */
    bool bias_of_rows, add, joins; /* add: adds C before the first term; joins: adds C after the last term */
    fri_activation relu;           /* applied to the result */
} tile;

/* Offset of vector j in a row whose last vector is at `last`. */
FRI_INLINE int64_t place(const int vectors, int j, int64_t last) {
    return j == vectors - 1 ? last : j * FRI_VECTOR;
}

/* Runs a statement for every vector of a tile. Unrolled: the tile stays in registers. */
#define EACH_VECTOR(rows, vectors, statement)                                    \
    do {                                                                         \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++)                  \
            _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++) statement; \
    } while (0)

FRI_INLINE void begin_tile(const int rows, const int vectors, const tile *s, fri_lanes (*t)[VECTORS]) {
    if (s->bias != NULL && s->bias_of_rows)
        EACH_VECTOR(rows, vectors, t[i][j] = (fri_lanes){0} + s->bias[i]);
    else if (s->bias != NULL)
        EACH_VECTOR(rows, vectors, t[i][j] = FRI_LANES_AT(s->bias + place(vectors, j, s->last)));
    else
        EACH_VECTOR(rows, vectors, t[i][j] = (fri_lanes){0});
    if (s->add) EACH_VECTOR(rows, vectors, t[i][j] += FRI_LANES_AT(s->c[i] + s->column + place(vectors, j, s->last)));
}

typedef int32_t lane_mask __attribute__((vector_size(FRI_VECTOR * 4)));

FRI_INLINE fri_lanes rectified(fri_lanes t, fri_lanes max) {
    const lane_mask v = (lane_mask)t & ~(t < 0), above = t > max;
    return (fri_lanes)((v & ~above) | ((lane_mask)max & above));
}

/* Stores a tile. All of C is read before the first store, because vectors and rows may overlap. */
FRI_INLINE void end_tile(const int rows, const int vectors, const tile *s, fri_lanes (*t)[VECTORS]) {
    if (s->joins) EACH_VECTOR(rows, vectors, t[i][j] += FRI_LANES_AT(s->c[i] + s->column + place(vectors, j, s->last)));
    if (s->relu != FRI_ACTIVATION_NONE) {
        const fri_lanes max = (fri_lanes){0} + fri_ceiling(s->relu);
        EACH_VECTOR(rows, vectors, t[i][j] = rectified(t[i][j], max));
    }
    EACH_VECTOR(rows, vectors, *(fri_lanes *)(s->c[i] + s->column + place(vectors, j, s->last)) = t[i][j]);
}

#if defined(FRI_LANES_BF16)
/* Adds both products of each lane's two bf16 terms to a sum in f32. */
FRI_INLINE fri_lanes multiply_add(fri_lanes sum, fri_lanes line, float terms) {
    const union {
        __m512 words;
        __m512bh pairs;
    } y = {(__m512)line}, x = {_mm512_set1_ps(terms)};
    return (fri_lanes)_mm512_dpbf16_ps((__m512)sum, y.pairs, x.pairs);
}
#else
FRI_INLINE fri_lanes multiply_add(fri_lanes sum, fri_lanes line, float term) {
    return sum + line * term;
}
#endif

/* Adds to t the products of a line of B and one term of each row; `term` is an expression of the row, i. */
#define ADD_LINE(rows, vectors, line, last, term)                                                                  \
    do {                                                                                                           \
        fri_lanes y[VECTORS];                                                                                      \
        _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++) y[j] =                                           \
            FRI_LANES_AT((line) + place(vectors, j, last));                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++)                                                    \
            _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++) t[i][j] = multiply_add(t[i][j], y[j], term); \
    } while (0)

/* Lines of B: `pitch` floats apart, their last vector at `last`. */
typedef struct lines {
    const float *b;
    int64_t pitch, last;
} lines;

/* a[tap * ROWS + row]: pointer to `depth` dense terms. */
FRI_INLINE void rows_tile(const int rows, const int vectors, int64_t taps, int64_t depth, const float *const *a,
                          const lines *r, const tile *s) {
    fri_lanes t[ROWS][VECTORS];
    const float *b = r->b;
    begin_tile(rows, vectors, s, t);
    for (int64_t tap = 0; tap < taps; tap++, a += ROWS) {
        const float *p[ROWS];
        int64_t l = -depth;
        for (int i = 0; i < rows; i++) p[i] = a[i] + depth;
#if defined(__aarch64__)
        for (; l <= -4; l += 4) {
            fri_four x[ROWS];
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) x[i] = *(const fri_four *)(p[i] + l);
#pragma GCC unroll 4
            for (int e = 0; e < 4; e++, b += r->pitch) ADD_LINE(rows, vectors, b, r->last, x[i][e]);
        }
#endif
        for (; l < 0; l++, b += r->pitch) ADD_LINE(rows, vectors, b, r->last, p[i][l]);
    }
    end_tile(rows, vectors, s, t);
}

/* a: ROWS neighbouring terms, `pitch` floats from those of the next pixel. */
FRI_INLINE void columns_tile(const int vectors, int64_t depth, const float *a, int64_t pitch, const lines *r,
                             const tile *s) {
    fri_lanes t[ROWS][VECTORS];
    const float *b = r->b;
    begin_tile(ROWS, vectors, s, t);
    for (int64_t l = 0; l < depth; l++, a += pitch, b += r->pitch) {
#if defined(__aarch64__)
        const fri_four x[2] = {*(const fri_four *)a, *(const fri_four *)(a + 4)};
        ADD_LINE(ROWS, vectors, b, r->last, x[i / 4][i % 4]);
#else
        ADD_LINE(ROWS, vectors, b, r->last, a[i]);
#endif
    }
    end_tile(ROWS, vectors, s, t);
}

/* Calls the function for a number of vectors. */
#if defined(FRI_LANES_V4)
#define BY_VECTORS(vectors, call) \
    switch (vectors) {            \
    case 1: call(1); break;       \
    case 2: call(2); break;       \
    case 3: call(3); break;       \
    default: call(4); break;      \
    }
#else
#define BY_VECTORS(vectors, call) \
    switch (vectors) {            \
    case 1: call(1); break;       \
    default: call(2); break;      \
    }
#endif

static void full_rows(int64_t taps, int64_t depth, const float *const *a, const lines *r, const tile *s) {
#define CALL_ALL(v)  rows_tile(ROWS, v, taps, depth, a, r, s)
#define CALL_HALF(v) rows_tile(ROWS / 2, v, taps, depth, a, r, s)
#define CALL_FEW(v)  rows_tile(FEWEST, v, taps, depth, a, r, s)
    if (s->rows > ROWS / 2) {
        BY_VECTORS(s->vectors, CALL_ALL)
    } else if (s->rows > FEWEST) {
        BY_VECTORS(s->vectors, CALL_HALF)
    } else {
        BY_VECTORS(s->vectors, CALL_FEW)
    }
}

#if !defined(FRI_LANES_BF16)
static void full_columns(int64_t depth, const float *a, int64_t pitch, const lines *r, const tile *s) {
#define CALL_COLUMNS(v) columns_tile(v, depth, a, pitch, r, s)
    BY_VECTORS(s->vectors, CALL_COLUMNS)
}
#endif

/* A copy of a tile of C whose rows are shorter than a vector. */
typedef struct tile_copy {
    float line[ROWS][FRI_VECTOR], bias[FRI_VECTOR], *c[ROWS];
    tile inner;
} tile_copy;

static const tile *copy_tile(const tile *s, int64_t some, tile_copy *o) {
    if (some == 0) return s;
    o->inner = *s;
    o->inner.c = o->c, o->inner.column = 0;
    for (int i = 0; i < ROWS; i++) {
        o->c[i] = o->line[i];
        for (int64_t j = 0; (s->add || s->joins) && j < some; j++) o->line[i][j] = s->c[i][s->column + j];
    }
    for (int64_t j = 0; s->bias != NULL && j < some; j++) o->bias[j] = s->bias[j];
    if (s->bias != NULL) o->inner.bias = o->bias;
    return &o->inner;
}

static void copy_back(const tile *s, int64_t some, const tile *made) {
    for (int i = 0; s != made && i < s->rows; i++)
        for (int64_t j = 0; j < some; j++) s->c[i][s->column + j] = made->c[i][j];
}

static void rows_any(int64_t taps, int64_t depth, const float *const *a, const lines *r, int64_t some, const tile *s) {
    tile_copy o;
    const tile *made = copy_tile(s, some, &o);
    full_rows(taps, depth, a, r, made);
    copy_back(s, some, made);
}

#if !defined(FRI_LANES_BF16)
static void columns_any(int64_t depth, const float *a, int64_t pitch, const lines *r, int64_t some, const tile *s) {
    tile_copy o;
    const tile *made = copy_tile(s, some, &o);
    full_columns(depth, a, pitch, r, made);
    copy_back(s, some, made);
}
#endif

#endif
