/* igemm.c - indirect matrix products (igemm.h), compiled for every vector width (lanes.h).
 *
 * A tile of C stays in registers. A is read in place through one pointer per row and tap. B is packed into a panel of
 * at most DEPTH terms and the width of a tile; the panel stays in the first-level cache for a block of rows. */
#include "cpu/igemm.h"

#include <string.h>

#include "cpu/lanes.h"
#include "cpu/transpose.h"

#if defined(FRI_LANES_V4)
enum { ROWS = 12 };
#elif defined(FRI_LANES_V3)
enum { ROWS = 6 };
#elif defined(__aarch64__)
enum { ROWS = 8 }; /* a vector holds four terms of a row; an instruction multiplies by one of them */
#else
enum { ROWS = 4 };
#endif
enum {
    VECTORS = 2,
    WIDTH = VECTORS * FRI_VECTOR,
    DEPTH = FRI_IGEMM_RUN,
    TAPS = 16,          /* maximum per panel */
    TILES = 40,         /* maximum per block of rows */
    PACKED = 72 / ROWS, /* tiles of A, transposed, that are packed at a time */
    POINTERS = 2048,    /* to the pixels of a block */
    FEWEST = (ROWS + 3) / 4,
    SHORT = 8, /* a row's terms of several taps are gathered if a tap has fewer */
};

typedef struct panels {
    float panel[DEPTH * WIDTH], left[PACKED * DEPTH * ROWS]; /* left: transposed tiles, or gathered terms */
    const float *from[POINTERS];                             /* [tile][tap][row], or the pixels of a panel */
    float *to[TILES][ROWS];
    int64_t tap; /* whose pixels are in `from` */
    bool meets;  /* one of them lies inside of the map */
} panels;

static const float zeros[DEPTH + WIDTH]; /* a padding pixel */

/* ---- tiles ------------------------------------------------------------------------------------------------- */

/* Row i of the tile begins at c[i] + column. */
typedef struct tile {
    float *const *c;
    int64_t column, columns;
    int rows;
    const float *bias;             /* per column or per row; NULL: 0 */
    bool bias_of_rows, add, joins; /* add: adds C before the first term; joins: adds C after the last term */
    fri_activation relu;           /* applied to the result */
} tile;

FRI_INLINE void begin_tile(const int rows, const int vectors, const tile *s, fri_lanes (*t)[VECTORS]) {
    if (s->bias != NULL && s->bias_of_rows) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vectors; j++) t[i][j] = (fri_lanes){0} + s->bias[i];
    } else {
        for (int j = 0; j < vectors; j++) {
            const fri_lanes v = s->bias != NULL ? FRI_LANES_AT(s->bias + j * FRI_VECTOR) : (fri_lanes){0};
            for (int i = 0; i < rows; i++) t[i][j] = v;
        }
    }
    if (!s->add) return;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) t[i][j] += FRI_LANES_AT(s->c[i] + s->column + j * FRI_VECTOR);
}

typedef int32_t lane_mask __attribute__((vector_size(FRI_VECTOR * 4)));

FRI_INLINE void end_tile(const int rows, const int vectors, const tile *s, fri_lanes (*t)[VECTORS]) {
    if (s->joins) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vectors; j++) t[i][j] += FRI_LANES_AT(s->c[i] + s->column + j * FRI_VECTOR);
    }
    if (s->relu != FRI_ACTIVATION_NONE) {
        const fri_lanes most = (fri_lanes){0} + fri_ceiling(s->relu);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vectors; j++) {
                const lane_mask v = (lane_mask)t[i][j] & ~(t[i][j] < 0), above = t[i][j] > most;
                t[i][j] = (fri_lanes)((v & ~above) | ((lane_mask)most & above));
            }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) *(fri_lanes *)(s->c[i] + s->column + j * FRI_VECTOR) = t[i][j];
}

/* Adds to t the products of a line of B and one term of each row; `term` is an expression of the row, i. */
#define ADD_LINE(rows, vectors, line, term)                                                                     \
    do {                                                                                                        \
        fri_lanes y[VECTORS];                                                                                   \
        _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++) y[j] = FRI_LANES_AT((line) + j * FRI_VECTOR); \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++)                                                 \
            _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++) t[i][j] += y[j] * (term);                 \
    } while (0)

/* a[tap * ROWS + row]: pointer to `depth` dense terms. */
FRI_INLINE void rows_tile(const int rows, const int vectors, int64_t taps, int64_t depth, const float *const *a,
                          const float *b, int64_t pitch, const tile *s) {
    fri_lanes t[ROWS][VECTORS];
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
            for (int e = 0; e < 4; e++, b += pitch) ADD_LINE(rows, vectors, b, x[i][e]);
        }
#endif
        for (; l < 0; l++, b += pitch) ADD_LINE(rows, vectors, b, p[i][l]);
    }
    end_tile(rows, vectors, s, t);
}

/* a [depth, ROWS] and b [depth, vectors] are packed. */
FRI_INLINE void columns_tile(const int vectors, int64_t depth, const float *a, const float *b, const tile *s) {
    fri_lanes t[ROWS][VECTORS];
    begin_tile(ROWS, vectors, s, t);
    for (int64_t l = 0; l < depth; l++, a += ROWS, b += vectors * FRI_VECTOR) {
#if defined(__aarch64__)
        const fri_four x[2] = {*(const fri_four *)a, *(const fri_four *)(a + 4)};
        ADD_LINE(ROWS, vectors, b, x[i / 4][i % 4]);
#else
        ADD_LINE(ROWS, vectors, b, a[i]);
#endif
    }
    end_tile(ROWS, vectors, s, t);
}

static int vectors_of(int64_t columns) {
    return (int)fri_min_i64(VECTORS, fri_vectors(columns));
}

/* Narrow tiles have functions of their own. */
#define BY_VECTORS(vectors, call) \
    if ((vectors) == 1) {         \
        call(1);                  \
    } else {                      \
        call(VECTORS);            \
    }

/* pitch: distance between terms of B; a constant in a panel. */
static void full_rows(int64_t taps, int64_t depth, const float *const *a, const float *b, int64_t pitch,
                      const tile *s) {
#define CALL(rows, v)                                             \
    if (pitch == (v)*FRI_VECTOR)                                  \
        rows_tile(rows, v, taps, depth, a, b, (v)*FRI_VECTOR, s); \
    else                                                          \
        rows_tile(rows, v, taps, depth, a, b, pitch, s)
#define CALL_ALL(v)  CALL(ROWS, v)
#define CALL_HALF(v) CALL(ROWS / 2, v)
#define CALL_FEW(v)  CALL(FEWEST, v)
    if (s->rows > ROWS / 2) {
        BY_VECTORS(vectors_of(s->columns), CALL_ALL)
    } else if (s->rows > FEWEST) {
        BY_VECTORS(vectors_of(s->columns), CALL_HALF)
    } else {
        BY_VECTORS(vectors_of(s->columns), CALL_FEW)
    }
}

static void full_columns(int64_t depth, const float *a, const float *b, const tile *s) {
#define CALL_COLUMNS(v) columns_tile(v, depth, a, b, s)
    BY_VECTORS(vectors_of(s->columns), CALL_COLUMNS)
}

/* A copy of a tile of C, used if C has fewer rows than the tile or rows shorter than its vectors. */
typedef struct tile_copy {
    float line[ROWS][WIDTH], bias[WIDTH], *c[ROWS];
    tile inner;
} tile_copy;

static const tile *copy_tile(const tile *s, tile_copy *o) {
    const size_t bytes = (size_t)s->columns * sizeof(float);
    if (s->rows == ROWS && s->columns % FRI_VECTOR == 0) return s;
    o->inner = *s;
    o->inner.c = o->c, o->inner.column = 0;
    for (int i = 0; i < ROWS; i++) {
        o->c[i] = o->line[i];
        if ((s->add || s->joins) && i < s->rows) memcpy(o->line[i], s->c[i] + s->column, bytes);
    }
    if (s->bias != NULL && !s->bias_of_rows) o->inner.bias = memcpy(o->bias, s->bias, bytes);
    return &o->inner;
}

static void copy_back(const tile *s, const tile *made) {
    for (int i = 0; s != made && i < s->rows; i++)
        memcpy(s->c[i] + s->column, made->c[i], (size_t)s->columns * sizeof(float));
}

static void rows_any(int64_t taps, int64_t depth, const float *const *a, const float *b, int64_t pitch, const tile *s) {
    tile_copy o;
    const tile *made = copy_tile(s, &o);
    full_rows(taps, depth, a, b, pitch, made);
    copy_back(s, made);
}

static void columns_any(int64_t depth, const float *a, const float *b, const tile *s) {
    tile_copy o;
    const tile *made = copy_tile(s, &o);
    full_columns(depth, a, b, made);
    copy_back(s, made);
}

/* ---- pixels ------------------------------------------------------------------------------------------------ */

/* Position of a pixel in the grid. */
typedef struct position {
    int64_t image, y, x;
} position;

static position position_of(const fri_igemm *s, int64_t at) {
    const int64_t grid = s->grid_h * s->grid_w;
    return (position){at / grid, at % grid / s->grid_w, at % s->grid_w};
}

static void next_pixel(const fri_igemm *s, position *w) {
    if (++w->x < s->grid_w) return;
    w->x = 0;
    if (++w->y == s->grid_h) w->y = 0, w->image++;
}

static const float *pixel_of(const fri_igemm *s, const position *w, const fri_igemm_tap *tap, int64_t first) {
    const int64_t y = w->y * s->step_h + tap->y, x = w->x * s->step_w + tap->x;
    if ((uint64_t)y >= (uint64_t)s->a_h || (uint64_t)x >= (uint64_t)s->a_w) return zeros;
    return s->a + ((w->image * s->a_h + y) * s->a_w + x) * s->a_pitch + first;
}

static float *to_of(const fri_igemm *s, const position *w) {
    const int64_t y = w->y * s->c_step_h + s->c_y, x = w->x * s->c_step_w + s->c_x;
    return s->c + ((w->image * s->c_h + y) * s->c_w + x) * s->c_pitch;
}

/* Terms in a panel: first .. first + depth of taps tap .. tap + taps. */
typedef struct chunk {
    int64_t tap, taps, first, depth;
} chunk;

static bool next_chunk(const fri_igemm *s, chunk *k) {
    k->first += k->depth;
    if (k->first >= s->depth) k->tap += k->taps, k->first = 0;
    if (k->tap >= s->taps) return false;
    k->depth = fri_min_i64(DEPTH, s->depth - k->first);
    k->taps = fri_min_i64(fri_min_i64(TAPS, s->taps - k->tap), fri_max_i64(1, DEPTH / s->depth));
    return true;
}

static void set_pointers(const fri_igemm *s, const chunk *k, int64_t first, int64_t rows, panels *r) {
    position w = position_of(s, first);
    for (int64_t i = 0; i < fri_ceil_div(rows, ROWS) * ROWS; i++) {
        const float **from = r->from + i / ROWS * k->taps * ROWS + i % ROWS;
        if (i >= rows) { /* repeats the last pixel */
            for (int64_t t = 0; t < k->taps; t++) from[t * ROWS] = from[t * ROWS - 1];
            r->to[i / ROWS][i % ROWS] = r->to[i / ROWS][i % ROWS - 1];
            continue;
        }
        r->to[i / ROWS][i % ROWS] = to_of(s, &w);
        for (int64_t t = 0; t < k->taps; t++) from[t * ROWS] = pixel_of(s, &w, &s->tap[k->tap + t], k->first);
        next_pixel(s, &w);
    }
}

static bool gathered(const fri_igemm *s, int64_t taps) {
    return s->depth < SHORT && taps > 1;
}

/* Gathers the terms of all taps of each row, so that the inner loop has one tap. */
static void gather(const chunk *k, int64_t rows, panels *r) {
    const int64_t terms = k->taps * k->depth;
    for (int64_t i = 0; i < fri_ceil_div(rows, ROWS) * ROWS; i++) {
        const float *const *from = r->from + i / ROWS * k->taps * ROWS + i % ROWS;
        float *to = r->left + i * terms;
        for (int64_t t = 0; t < k->taps; t++, to += k->depth)
            for (int64_t l = 0; l < k->depth; l++) to[l] = from[t * ROWS][l];
    }
    for (int64_t i = 0; i < fri_ceil_div(rows, ROWS) * ROWS; i++) r->from[i] = r->left + i * terms;
}

/* ---- C = A B ----------------------------------------------------------------------------------------------- */

/* Copies one line of a panel. */
FRI_INLINE void copy_line(int64_t columns, int64_t wide, const float *from, float *to) {
    if (columns == WIDTH) { /* constant length */
        memcpy(to, from, WIDTH * sizeof *to);
        return;
    }
    memcpy(to, from, (size_t)columns * sizeof *to);
    memset(to + columns, 0, (size_t)(wide - columns) * sizeof *to);
}

/* Packs columns j .. j + columns of B, filled with zeros up to a whole vector. */
static void pack(const fri_igemm *s, const chunk *k, int64_t j, int64_t columns, float *to) {
    const int64_t wide = fri_vectors(columns) * FRI_VECTOR;
    for (int64_t t = 0; t < k->taps; t++, to += k->depth * wide) {
        const float *b = s->b + s->tap[k->tap + t].weight + k->first * s->b_row + j * s->b_col;
        if (s->b_col != 1) fri_transpose(columns, k->depth, b, s->b_col, to, wide);
        for (int64_t l = 0; l < k->depth; l++)
            if (s->b_col == 1)
                copy_line(columns, wide, b + l * s->b_row, to + l * wide);
            else
                memset(to + l * wide + columns, 0, (size_t)(wide - columns) * sizeof *to);
    }
}

static void run_block(const fri_igemm *s, const fri_igemm_part *part, int64_t first, int64_t rows, panels *r) {
    chunk k = {0};
    while (next_chunk(s, &k)) {
        const bool begins = k.tap == 0 && k.first == 0;
        const bool ends = k.tap + k.taps == s->taps && k.first + k.depth == s->depth;
        set_pointers(s, &k, first, rows, r);
        const bool gathers = gathered(s, k.taps);
        const int64_t taps = gathers ? 1 : k.taps, depth = k.taps * k.depth / taps;
        if (gathers) gather(&k, rows, r);
        for (int64_t j = part->column; j < part->column_end; j += WIDTH) {
            tile t = {.column = j,
                      .columns = fri_min_i64(WIDTH, part->column_end - j),
                      .bias = begins && s->bias != NULL ? s->bias + j : NULL,
                      .add = begins && s->add,
                      .joins = !begins,
                      .relu = ends ? s->relu : FRI_ACTIVATION_NONE};
            /* Few rows: reading B in place is faster than packing. */
            const bool direct = s->b_col == 1 && k.taps == 1 && rows <= ROWS && t.columns % FRI_VECTOR == 0;
            const float *b = direct ? s->b + s->tap[k.tap].weight + k.first * s->b_row + j : r->panel;
            const int64_t pitch = direct ? s->b_row : fri_vectors(t.columns) * FRI_VECTOR;
            if (!direct) pack(s, &k, j, t.columns, r->panel);
            for (int64_t i = 0; i < rows; i += ROWS) {
                t.rows = (int)fri_min_i64(ROWS, rows - i);
                t.c = r->to[i / ROWS];
                rows_any(taps, depth, r->from + i / ROWS * taps * ROWS, b, pitch, &t);
            }
        }
    }
}

/* Few rows: computes C^T = B^T A^T, so that B is read in place; the panel holds the pixels. */
static void run_few(const fri_igemm *s, const fri_igemm_part *part, panels *r) {
    const int64_t rows = part->row_end - part->row, wide = fri_vectors(rows) * FRI_VECTOR;
    const float *from[ROWS * TAPS];
    float line[ROWS][WIDTH], bias[ROWS] = {0}, *to[ROWS];
    chunk k = {0};
    while (next_chunk(s, &k)) {
        const bool begins = k.tap == 0 && k.first == 0, add = !begins || s->add;
        const bool ends = k.tap + k.taps == s->taps && k.first + k.depth == s->depth;
        set_pointers(s, &k, part->row, rows, r);
        memset(r->panel, 0, (size_t)(k.taps * k.depth * wide) * sizeof(float));
        for (int64_t i = 0; i < rows; i++)
            for (int64_t t = 0; t < k.taps; t++) {
                const float *pixel = r->from[(i / ROWS * k.taps + t) * ROWS + i % ROWS];
                for (int64_t l = 0; l < k.depth; l++) r->panel[(t * k.depth + l) * wide + i] = pixel[l];
            }
        for (int64_t j = part->column; j < part->column_end; j += ROWS) {
            tile t = {.rows = (int)fri_min_i64(ROWS, part->column_end - j),
                      .columns = wide,
                      .c = to,
                      .bias = begins && s->bias != NULL ? bias : NULL,
                      .bias_of_rows = true,
                      .add = begins && s->add,
                      .joins = !begins,
                      .relu = ends ? s->relu : FRI_ACTIVATION_NONE};
            for (int e = 0; e < ROWS; e++) {
                const int64_t column = fri_min_i64(j + e, part->column_end - 1);
                for (int64_t u = 0; u < k.taps; u++)
                    from[u * ROWS + e] = s->b + s->tap[k.tap + u].weight + column * s->b_col + k.first;
                to[e] = line[e];
                if (s->bias != NULL) bias[e] = s->bias[column];
                for (int64_t i = 0; add && i < rows; i++) line[e][i] = r->to[i / ROWS][i % ROWS][column];
            }
            full_rows(k.taps, k.depth, from, r->panel, wide, &t);
            for (int64_t i = 0; i < rows; i++)
                for (int e = 0; e < t.rows; e++) r->to[i / ROWS][i % ROWS][j + e] = line[e][i];
        }
    }
}

/* Writes empty sums (no taps): the bias or 0. */
static void run_empty(const fri_igemm *s, const fri_igemm_part *part) {
    position w = position_of(s, part->row);
    for (int64_t i = part->row; i < part->row_end; i++, next_pixel(s, &w)) {
        float *to = to_of(s, &w);
        for (int64_t j = part->column; j < part->column_end; j++) {
            const float sum = (s->bias != NULL ? s->bias[j] : 0) + (s->add ? to[j] : 0);
            to[j] = s->relu != FRI_ACTIVATION_NONE ? fri_relu_below(sum, fri_ceiling(s->relu)) : sum;
        }
    }
}

static void run(const fri_igemm *s, const fri_igemm_part *part, void *scratch) {
    if (s->taps == 0) {
        run_empty(s, part);
        return;
    }
    if (s->b_row == 1 && part->row_end - part->row <= WIDTH && part->column_end - part->column > WIDTH) {
        run_few(s, part, scratch);
        return;
    }
    const int64_t taps = fri_min_i64(fri_min_i64(TAPS, s->taps), fri_max_i64(1, DEPTH / s->depth));
    int64_t tiles = fri_min_i64(TILES, POINTERS / (taps * ROWS));
    if (gathered(s, taps)) tiles = fri_min_i64(tiles, PACKED * DEPTH / (taps * s->depth));
    const int64_t block = tiles * ROWS;
    for (int64_t i = part->row; i < part->row_end; i += block)
        run_block(s, part, i, fri_min_i64(block, part->row_end - i), scratch);
}

/* ---- sums over pixels -------------------------------------------------------------------------------------- */

/* Packs terms first .. first + depth of rows i .. i + rows: [tile, depth, ROWS]. Results of rows after the last row are
 * never used, so these are not written. */
static void pack_left(const fri_igemm *s, int64_t first, int64_t depth, int64_t i, int64_t rows, float *to) {
    for (int64_t k = 0; k < rows; k += ROWS) {
        const float *a = s->b + first * s->b_row + i + k;
        const int64_t some = rows - k;
        for (int64_t l = 0; l < depth; l++, a += s->b_row, to += ROWS)
            if (some >= ROWS)
                memcpy(to, a, ROWS * sizeof *to); /* constant length */
            else
                memcpy(to, a, (size_t)some * sizeof *to);
    }
}

/* Copies `columns` floats of each pixel from channel `first` on; from[l]: the pixel's first channel, or zeros. */
FRI_INLINE void copy_columns(size_t columns, int64_t depth, int64_t wide, const float *const *from, int64_t first,
                             float *to) {
    for (int64_t l = 0; l < depth; l++, to += wide)
        memcpy(to, from[l] == zeros ? zeros : from[l] + first, columns * sizeof *to);
}

/* Packs columns at .. at + columns (of all taps) of terms first .. first + depth, filled with zeros up to a whole
 * vector. Returns false if all meet only padding. */
static bool pack_pixels(const fri_igemm *s, int64_t first, int64_t depth, int64_t at, int64_t columns, panels *r) {
    const int64_t wide = fri_vectors(columns) * FRI_VECTOR, end = at + columns;
    float *to = r->panel;
    bool meets = false;
    for (int64_t n; at < end; at += n, to += n) {
        const int64_t tap = at / s->columns, j = at % s->columns;
        n = fri_min_i64(end - at, s->columns - j);
        if (tap != r->tap) {
            position w = position_of(s, first);
            r->tap = tap, r->meets = false;
            for (int64_t l = 0; l < depth; l++, next_pixel(s, &w)) {
                r->from[l] = pixel_of(s, &w, &s->tap[tap], 0);
                r->meets |= r->from[l] != zeros;
            }
        }
        meets |= r->meets;
        if (n == WIDTH) /* constant lengths; 3: colours */
            copy_columns(WIDTH, depth, wide, r->from, j, to);
        else if (n == 3)
            copy_columns(3, depth, wide, r->from, j, to);
        else
            copy_columns((size_t)n, depth, wide, r->from, j, to);
    }
    for (int64_t l = 0; columns < wide && l < depth; l++)
        memset(r->panel + l * wide + columns, 0, (size_t)(wide - columns) * sizeof(float));
    return meets;
}

/* Adds terms first .. first + depth to rows i .. i + rows, which are packed. */
static void add_pixels(const fri_igemm *s, const fri_igemm_part *part, int64_t first, int64_t depth, int64_t i,
                       int64_t rows, panels *r) {
    r->tap = -1;
    for (int64_t at = part->column; at < part->column_end; at += WIDTH) {
        float *to[ROWS];
        tile t = {.columns = fri_min_i64(WIDTH, part->column_end - at), .c = to, .joins = first > 0 || s->add};
        const int64_t terms = pack_pixels(s, first, depth, at, t.columns, r) ? depth : 0;
        for (int64_t k = 0; k < rows; k += ROWS) {
            t.rows = (int)fri_min_i64(ROWS, rows - k);
            for (int e = 0; e < ROWS; e++) to[e] = s->c + (i + fri_min_i64(k + e, rows - 1)) * s->c_pitch + at;
            columns_any(terms, r->left + k * depth, r->panel, &t);
        }
    }
}

static void run_pixels(const fri_igemm *s, const fri_igemm_part *part, void *scratch) {
    panels *r = scratch;
    const int64_t pixels = s->images * s->grid_h * s->grid_w;
    for (int64_t first = 0; first < pixels; first += FRI_IGEMM_RUN) {
        const int64_t depth = fri_min_i64(FRI_IGEMM_RUN, pixels - first);
        for (int64_t i = part->row; i < part->row_end; i += PACKED * ROWS) {
            const int64_t rows = fri_min_i64(PACKED * ROWS, part->row_end - i);
            pack_left(s, first, depth, i, rows, r->left);
            add_pixels(s, part, first, depth, i, rows, r);
        }
    }
}

const fri_igemm_kernel FRI_FOR(fri_igemm_loops) = {ROWS, WIDTH, sizeof(panels), run, run_pixels};
