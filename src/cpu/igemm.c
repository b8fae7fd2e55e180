/* igemm.c - indirect matrix products (igemm.h), compiled for every vector width (lanes.h).
 *
 * A tile of C stays in registers. A is read in place through one pointer per row and tap. B is read from panels: the
 * terms of a run for the columns of a tile, packed once for all blocks of rows (product.c), or in scratch
 * for a block; a B with short rows is read in place. */
#include "cpu/igemm_tile.h"

enum {
    DEPTH = FRI_IGEMM_RUN,
    TAPS = FRI_IGEMM_TAPS,
    BLOCK = FRI_IGEMM_BLOCK,
    NEAR = 512,        /* floats between rows of B up to which B is read in place */
    NEAR_PIXELS = 256, /* and between pixels of A in sums over pixels */
};

/* A task's scratch and what lies beside it. */
typedef struct panels {
    const float **from; /* [tile][tap][row], or the pixels of a panel */
    float *panel;
    float *left;                    /* gathered terms, or the last rows of a transposed A */
    float spare[FRI_IGEMM_COLUMNS]; /* results of rows past the last */
    float window[DEPTH];            /* terms of a window across the border */
    float *to[BLOCK];
    int64_t tap; /* the tap of the pixels in `from` */
    bool inside; /* a pixel lies inside of the map */
} panels;

static void lay_out(const fri_igemm *s, bool pixels, void *scratch, panels *r) {
    const fri_igemm_scratch size = fri_igemm_scratch_of(s, pixels);
    r->panel = scratch;
    r->from = (const float **)(void *)(r->panel + size.panel);
    r->left = (float *)(void *)(r->from + size.pointers);
}

static const float zeros[DEPTH + FRI_IGEMM_COLUMNS]; /* a padding pixel */

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

FRI_INLINE void copy_floats(int64_t n, const float *from, float *to) {
    enum { FOUR = 4 };
    if (n < FOUR) {
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
        return;
    }
    const int64_t wide = n >= FRI_VECTOR ? FRI_VECTOR : FOUR;
    for (int64_t i = 0; i < n; i += wide) { /* the last vector overlaps */
        const int64_t at = fri_min_i64(i, n - wide);
        if (wide == FRI_VECTOR)
            *(fri_lanes *)(to + at) = FRI_LANES_AT(from + at);
        else
            *(fri_four *)(to + at) = *(const fri_four *)(from + at);
    }
}

/* Terms of a window of s->span neighbours: in place, or copied to `copy` with zeros outside of the map. */
static const float *window_of(const fri_igemm *s, const position *w, const fri_igemm_tap *tap, float *copy) {
    const int64_t y = w->y * s->step_h + tap->y, x = w->x * s->step_w + tap->x;
    const int64_t from = fri_max_i64(0, -x), to = fri_min_i64(s->span, s->a_w - x);
    if ((uint64_t)y >= (uint64_t)s->a_h || from >= to) return zeros;
    const float *row = s->a + ((w->image * s->a_h + y) * s->a_w + x) * s->a_pitch;
    if (to - from == s->span) return row;
    for (int64_t l = 0; l < s->span * s->a_pitch; l++)
        copy[l] = l >= from * s->a_pitch && l < to * s->a_pitch ? row[l] : 0;
    return copy;
}

/* True if row i of A begins at a + i a_pitch. */
static bool is_matrix(const fri_igemm *s) {
    return s->taps == 1 && s->span == 0 && s->step_h == 1 && s->step_w == 1 && s->tap->y == 0 && s->tap->x == 0 &&
           s->grid_h == s->a_h && s->grid_w == s->a_w;
}

/* True if row i of C begins at c + i c_pitch. */
static bool fills_matrix(const fri_igemm *s) {
    return s->c_step_h == 1 && s->c_step_w == 1 && s->c_y == 0 && s->c_x == 0 && s->grid_h == s->c_h &&
           s->grid_w == s->c_w;
}

/* Pointers to rows of C; pointers after the last repeat the last row. */
static void set_targets(const fri_igemm *s, int64_t first, int64_t rows, panels *r) {
    const bool dense = fills_matrix(s);
    position w = position_of(s, first);
    for (int64_t i = 0; i < fri_ceil_div(rows, ROWS) * ROWS; i++) {
        if (i >= rows)
            r->to[i] = r->to[i - 1];
        else if (dense)
            r->to[i] = s->c + (first + i) * s->c_pitch;
        else
            r->to[i] = to_of(s, &w), next_pixel(s, &w);
    }
}

static void set_pointers(const fri_igemm *s, const fri_igemm_chunk *k, int64_t first, int64_t rows, panels *r) {
    const int64_t all = fri_ceil_div(rows, ROWS) * ROWS;
    if (is_matrix(s)) {
        const float *at = s->a + first * s->a_pitch + k->first;
        for (int64_t i = 0; i < all; i++) r->from[i] = at + fri_min_i64(i, rows - 1) * s->a_pitch;
        return;
    }
    position w = position_of(s, first);
    for (int64_t i = 0; i < all; i++) {
        const float **from = r->from + i / ROWS * k->taps * ROWS + i % ROWS;
        for (int64_t t = 0; t < k->taps; t++)
            from[t * ROWS] = i >= rows ? from[t * ROWS - 1] : pixel_of(s, &w, &s->tap[k->tap + t], k->first);
        if (i < rows) next_pixel(s, &w);
    }
}

static bool gathered(const fri_igemm *s, int64_t taps) {
    return s->span > 0 || (s->depth < FRI_IGEMM_SHORT && taps > 1);
}

/* Gathers the terms of all taps of each row, for an inner loop with one tap. */
static void gather(const fri_igemm *s, const fri_igemm_chunk *k, int64_t first, int64_t rows, panels *r) {
    const int64_t terms = k->taps * k->depth;
    position w = position_of(s, first);
    for (int64_t i = 0; i < rows; i++, next_pixel(s, &w)) {
        float *to = r->left + i * terms;
        for (int64_t t = k->tap; t < k->tap + k->taps; t++, to += k->depth) {
            const float *from =
                s->span > 0 ? window_of(s, &w, &s->tap[t], r->window) : pixel_of(s, &w, &s->tap[t], k->first);
            copy_floats(k->depth, from, to);
        }
    }
    for (int64_t i = 0; i < fri_ceil_div(rows, ROWS) * ROWS; i++)
        r->from[i] = r->left + fri_min_i64(i, rows - 1) * terms;
}

/* ---- C = A B ----------------------------------------------------------------------------------------------- */

#if defined(FRI_LANES_BF16)
/* Packs columns of terms first .. first + depth of a tap: two lines become a line of pairs. */
static void pack_lines(const fri_igemm *s, int64_t tap, int64_t first, int64_t depth, const columns *c, float *to) {
    typedef uint16_t term __attribute__((may_alias));
    const term *b = (const term *)(const void *)s->b + s->tap[tap].weight + 2 * first * s->b_row + c->at;
    term *pair = (term *)(void *)to;
    for (int64_t l = 0; l < depth; l++, b += 2 * s->b_row)
        for (int v = 0; v < c->vectors; v++, pair += 2 * FRI_VECTOR) {
            const term *even = b + place(c->vectors, v, c->last), *odd = even + s->b_row;
            for (int e = 0; e < (c->some > 0 ? c->some : FRI_VECTOR); e++)
                pair[2 * e] = even[e], pair[2 * e + 1] = odd[e];
        }
}
#else
/* Packs lines of half terms. */
static void widen_lines(const fri_igemm *s, int64_t at, int64_t depth, const columns *c, float *to) {
    const int64_t wide = c->vectors * FRI_VECTOR, dense = c->some > 0 ? c->some : wide - FRI_VECTOR;
    for (int64_t l = 0; l < depth; l++, at += s->b_row, to += wide) {
        fri_cpu_widen(s->b_type, dense, fri_cpu_at(s->b_type, s->b, at), to);
        if (c->some == 0) fri_cpu_widen(s->b_type, FRI_VECTOR, fri_cpu_at(s->b_type, s->b, at + c->last), to + dense);
    }
}

static void pack_lines(const fri_igemm *s, int64_t tap, int64_t first, int64_t depth, const columns *c, float *to) {
    enum { AHEAD = 12 }; /* lines lie far apart: later ones are fetched ahead */
    const int64_t at = s->tap[tap].weight + first * s->b_row + c->at;
    if (s->b_type != FR_F32) {
        widen_lines(s, at, depth, c, to);
        return;
    }
    const float *b = s->b + at;
    for (int64_t l = 0; l < depth; l++, b += s->b_row, to += c->vectors * FRI_VECTOR) {
        if (c->some > 0) copy_floats(c->some, b, to);
        for (int j = 0; c->some == 0 && j < c->vectors; j++) {
            __builtin_prefetch(b + AHEAD * s->b_row + j * FRI_VECTOR);
            *(fri_lanes *)(to + j * FRI_VECTOR) = FRI_LANES_AT(b + place(c->vectors, j, c->last));
        }
    }
}
#endif

/* Packs `n` columns of half terms from element `at` on, whose terms are neighbours. */
static void widen_columns(const fri_igemm *s, int64_t at, int64_t n, int64_t depth, float *to, int64_t wide) {
    enum { GROUP = 4 };
    float terms[GROUP][DEPTH];
    for (int64_t j = 0; j < n; j += GROUP) {
        const int64_t some = fri_min_i64(GROUP, n - j);
        for (int64_t i = 0; i < some; i++)
            fri_cpu_widen(s->b_type, depth, fri_cpu_at(s->b_type, s->b, at + (j + i) * s->b_col), terms[i]);
        fri_transpose(some, depth, terms[0], DEPTH, to + j, wide);
    }
}

/* The numbers of the first and of the last two lanes of every four of a vector, and of another's beside them. */
#define LANES_LOW(i)  i, i + FRI_VECTOR, i + 1, i + 1 + FRI_VECTOR
#define LANES_HIGH(i) i + 2, i + 2 + FRI_VECTOR, i + 3, i + 3 + FRI_VECTOR
#define PAIRS_LOW(i)  i, i + 1, i + FRI_VECTOR, i + 1 + FRI_VECTOR
#define PAIRS_HIGH(i) i + 2, i + 3, i + 2 + FRI_VECTOR, i + 3 + FRI_VECTOR
#if defined(FRI_LANES_V4)
#define SHUFFLE(a, b, f) __builtin_shufflevector(a, b, f(0), f(4), f(8), f(12))
#elif defined(FRI_LANES_V3)
#define SHUFFLE(a, b, f) __builtin_shufflevector(a, b, f(0), f(4))
#else
#define SHUFFLE(a, b, f) __builtin_shufflevector(a, b, f(0))
#endif

/* Four terms of every fourth column. */
FRI_INLINE fri_lanes four_terms(const float *b, int64_t pitch) {
#if defined(FRI_LANES_V3) || defined(FRI_LANES_V4)
#define JOIN(i)                                                                                                        \
    __builtin_shufflevector(*(const fri_four *)(b + 4 * (i)*pitch), *(const fri_four *)(b + 4 * ((i) + 1) * pitch), 0, \
                            1, 2, 3, 4, 5, 6, 7)
#if defined(FRI_LANES_V3)
    return JOIN(0);
#else
    return __builtin_shufflevector(JOIN(0), JOIN(2), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
#else
    (void)pitch;
    return FRI_LANES_AT(b);
#endif
}

/* Packs a vector of columns of B whose terms are neighbours. Columns lie far apart: the next ones are fetched ahead. */
static void pack_vector(const float *b, int64_t pitch, int64_t depth, bool more, float *to, int64_t wide) {
    enum { LINE = 16 };
    int64_t l = 0;
    for (; l + 4 <= depth; l += 4, to += 4 * wide) {
        for (int64_t i = 0; more && l % LINE == 0 && i < FRI_VECTOR; i++)
            __builtin_prefetch(b + (FRI_VECTOR + i) * pitch + l);
        const fri_lanes x[] = {four_terms(b + l, pitch), four_terms(b + pitch + l, pitch),
                               four_terms(b + 2 * pitch + l, pitch), four_terms(b + 3 * pitch + l, pitch)};
        const fri_lanes even = SHUFFLE(x[0], x[1], LANES_LOW), odd = SHUFFLE(x[2], x[3], LANES_LOW);
        const fri_lanes third = SHUFFLE(x[0], x[1], LANES_HIGH), fourth = SHUFFLE(x[2], x[3], LANES_HIGH);
        *(fri_lanes *)to = SHUFFLE(even, odd, PAIRS_LOW);
        *(fri_lanes *)(to + wide) = SHUFFLE(even, odd, PAIRS_HIGH);
        *(fri_lanes *)(to + 2 * wide) = SHUFFLE(third, fourth, PAIRS_LOW);
        *(fri_lanes *)(to + 3 * wide) = SHUFFLE(third, fourth, PAIRS_HIGH);
    }
    for (; l < depth; l++, to += wide)
        for (int64_t j = 0; j < FRI_VECTOR; j++) to[j] = b[j * pitch + l];
}

/* Packs columns of a run of terms. */
static void pack_panel(const fri_igemm *s, const fri_igemm_chunk *k, const columns *c, float *to) {
    const int64_t wide = c->vectors * FRI_VECTOR, dense = c->some > 0 ? c->some : wide - FRI_VECTOR;
    for (int64_t t = k->tap; t < k->tap + k->taps; t++, to += k->depth * wide) {
        const int64_t at = s->tap[t].weight + k->first + c->at * s->b_col;
        if (c->some > 0) memset(to, 0, (size_t)(k->depth * wide) * sizeof *to);
        if (s->b_col == 1) {
            pack_lines(s, t, k->first, k->depth, c, to);
        } else if (s->b_type != FR_F32) {
            widen_columns(s, at, dense, k->depth, to, wide);
            if (c->some == 0) widen_columns(s, at + c->last * s->b_col, FRI_VECTOR, k->depth, to + dense, wide);
        } else if (c->some > 0) {
            fri_transpose(c->some, k->depth, s->b + at, s->b_col, to, wide);
        } else {
            for (int j = 0; j < c->vectors; j++)
                pack_vector(s->b + at + place(c->vectors, j, c->last) * s->b_col, s->b_col, k->depth,
                            j + 1 < c->vectors, to + j * FRI_VECTOR, wide);
        }
    }
}

/* Floats of all packed panels before `panel` for a run: panels lie one after the other. */
static int64_t packed_at(const fri_igemm_chunk *k, const columns *c) {
    return k->taps * k->depth * c->at;
}

static int64_t packed_size(const fri_igemm *s, const fri_igemm_chunk *k) {
    return k->taps * k->depth * fri_vectors(s->columns) * FRI_VECTOR;
}

static void pack(const fri_igemm *s, const fri_igemm_part *part) {
    fri_igemm_chunk k = part->before;
    float *to = part->packed;
    for (int64_t i = 0; i < part->chunks && fri_igemm_next(s, &k); i++, to += packed_size(s, &k))
        for (int64_t p = part->panel; p < part->panel_end; p++) {
            const columns c = panel_at(s->columns, p);
            pack_panel(s, &k, &c, to + packed_at(&k, &c));
        }
}

/* Few rows: reading B in place is faster than packing. */
static bool in_place(const fri_igemm *s, int64_t taps, int64_t rows) {
    return !s->bf16 && s->b_type == FR_F32 && s->b_col == 1 && taps == 1 && (rows <= ROWS || s->b_row <= NEAR);
}

/* Fetches a tile's rows of the next block: terms of rows far apart come too late otherwise. */
static void fetch_rows(const float *const *row, int64_t ahead, int64_t depth) {
    enum { LINE = 16 };
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t l = 0; l < depth; l += LINE) __builtin_prefetch(row[i] + ahead + l, 0, 2);
}

static void run_block(const fri_igemm *s, const fri_igemm_part *part, int64_t first, int64_t rows, panels *r) {
    fri_igemm_chunk k = part->before;
    const float *packed = part->packed;
    set_targets(s, first, rows, r);
    for (int64_t n = 0; n < part->chunks && fri_igemm_next(s, &k); n++) {
        const bool begins = k.tap == 0 && k.first == 0;
        const bool ends = k.tap + k.taps == s->taps && k.first + k.depth == s->depth;
        const bool gathers = gathered(s, k.taps);
        const int64_t taps = gathers ? 1 : k.taps, depth = k.taps * k.depth / taps;
        if (gathers)
            gather(s, &k, first, rows, r);
        else
            set_pointers(s, &k, first, rows, r);
        for (int64_t p = part->panel; p < part->panel_end; p++) {
            const columns c = panel_at(s->columns, p);
            tile t = {.column = c.at,
                      .last = c.last,
                      .vectors = c.vectors,
                      .bias = begins && s->bias != NULL ? s->bias + c.at : NULL,
                      .add = begins && s->add,
                      .joins = !begins,
                      .relu = ends ? s->relu : FRI_ACTIVATION_NONE};
            lines b = {r->panel, c.vectors * FRI_VECTOR, (c.vectors - 1) * FRI_VECTOR};
            if (packed != NULL)
                b.b = packed + packed_at(&k, &c);
            else if (in_place(s, k.taps, rows) && c.some == 0)
                b = (lines){s->b + s->tap[k.tap].weight + k.first * s->b_row + c.at, s->b_row, c.last};
            else
                pack_panel(s, &k, &c, r->panel);
            for (int64_t i = 0; i < rows; i += ROWS) {
                t.rows = (int)fri_min_i64(ROWS, rows - i);
                t.c = r->to + i;
                if (p == part->panel && is_matrix(s) && first + i + BLOCK + ROWS <= part->row_end)
                    fetch_rows(r->from + i, BLOCK * s->a_pitch, depth);
                rows_any(taps, depth, r->from + i * taps, &b, c.some, &t);
            }
        }
        if (packed != NULL) packed += packed_size(s, &k);
    }
}

/* Few rows: computes C^T = B^T A^T, so that B is read in place; the panel holds the pixels. */
static void run_few(const fri_igemm *s, const fri_igemm_part *part, int64_t column, int64_t column_end, panels *r) {
    const int64_t rows = part->row_end - part->row, wide = fri_vectors(rows) * FRI_VECTOR;
    const float *from[ROWS * TAPS];
    float term[ROWS][DEPTH], line[ROWS][FRI_IGEMM_COLUMNS], bias[ROWS] = {0}, *to[ROWS];
    fri_igemm_chunk k = {0};
    set_targets(s, part->row, rows, r);
    while (fri_igemm_next(s, &k)) {
        const bool begins = k.tap == 0 && k.first == 0, add = !begins || s->add;
        const bool ends = k.tap + k.taps == s->taps && k.first + k.depth == s->depth;
        const int64_t terms = k.taps * k.depth;
        gather(s, &k, part->row, rows, r);
        memset(r->panel, 0, (size_t)(terms * wide) * sizeof(float));
        fri_transpose(rows, terms, r->left, terms, r->panel, wide);
        for (int64_t j = column; j < column_end; j += ROWS) {
            tile t = {.rows = (int)fri_min_i64(ROWS, column_end - j),
                      .last = wide - FRI_VECTOR,
                      .vectors = (int)(wide / FRI_VECTOR),
                      .c = to,
                      .bias = begins && s->bias != NULL ? bias : NULL,
                      .bias_of_rows = true,
                      .add = begins && s->add,
                      .joins = !begins,
                      .relu = ends ? s->relu : FRI_ACTIVATION_NONE};
            for (int e = 0; e < ROWS; e++) {
                const int64_t at = fri_min_i64(j + e, column_end - 1);
                for (int64_t u = 0; u < k.taps; u++) {
                    const int64_t b = s->tap[k.tap + u].weight + at * s->b_col + k.first;
                    from[u * ROWS + e] = fri_cpu_load(s->b_type, s->b, b, k.depth, term[e] + u * k.depth);
                }
                to[e] = line[e];
                if (s->bias != NULL) bias[e] = s->bias[at];
                for (int64_t i = 0; add && i < rows; i++) line[e][i] = r->to[i][at];
            }
            for (int64_t u = 0; u < k.taps; u++) fetch_rows(from + u * ROWS, ROWS * s->b_col, k.depth);
            full_rows(k.taps, k.depth, from, &(lines){r->panel, wide, wide - FRI_VECTOR}, &t);
            for (int64_t i = 0; i < rows; i++)
                for (int e = 0; e < t.rows; e++) r->to[i][j + e] = line[e][i];
        }
    }
}

/* Writes empty sums (no taps): the bias or 0. */
static void run_empty(const fri_igemm *s, const fri_igemm_part *part, int64_t column, int64_t column_end) {
    position w = position_of(s, part->row);
    for (int64_t i = part->row; i < part->row_end; i++, next_pixel(s, &w)) {
        float *to = to_of(s, &w);
        for (int64_t j = column; j < column_end; j++) {
            const float sum = (s->bias != NULL ? s->bias[j] : 0) + (s->add ? to[j] : 0);
            to[j] = s->relu != FRI_ACTIVATION_NONE ? fri_relu_below(sum, fri_ceiling(s->relu)) : sum;
        }
    }
}

static void run(const fri_igemm *s, const fri_igemm_part *part, void *scratch) {
    panels r;
    const columns end = panel_at(s->columns, part->panel_end - 1);
    const int64_t column = panel_at(s->columns, part->panel).at;
    const int64_t column_end = end.some > 0 ? s->columns : end.at + end.last + FRI_VECTOR;
    lay_out(s, false, scratch, &r);
    if (s->taps == 0)
        run_empty(s, part, column, column_end);
    else if (s->b_row == 1 && part->row_end - part->row <= 2 * FRI_VECTOR && column_end - column > WIDTH)
        run_few(s, part, column, column_end, &r);
    else {
        const int64_t block = gathered(s, s->taps) ? BLOCK / 2 : BLOCK; /* gathered rows fit panels.left */
        for (int64_t i = part->row; i < part->row_end; i += block)
            run_block(s, part, i, fri_min_i64(block, part->row_end - i), &r);
    }
}

#if defined(FRI_LANES_BF16)
#define run_pixels NULL
#else
/* ---- sums over pixels -------------------------------------------------------------------------------------- */

/* Copies columns j .. j + n of a tap's terms for pixels first .. first + depth. Notes whether one lies in the map. */
static void copy_tap(const fri_igemm *s, int64_t first, int64_t depth, int64_t tap, int64_t j, int64_t n, int64_t wide,
                     float *to, panels *r) {
    if (s->span > 0) {
        position w = position_of(s, first);
        r->inside = false;
        for (int64_t l = 0; l < depth; l++, next_pixel(s, &w)) {
            const float *from = window_of(s, &w, &s->tap[tap], r->window);
            r->inside |= from != zeros;
            copy_floats(n, from + j, to + l * wide);
        }
        return;
    }
    if (tap != r->tap) {
        position w = position_of(s, first);
        r->tap = tap, r->inside = false;
        for (int64_t l = 0; l < depth; l++, next_pixel(s, &w)) {
            r->from[l] = pixel_of(s, &w, &s->tap[tap], 0);
            r->inside |= r->from[l] != zeros;
        }
    }
    for (int64_t l = 0; l < depth; l++) {
        const float *from = r->from[l] == zeros ? zeros : r->from[l] + j;
        if (n == WIDTH) /* constant length */
            copy_floats(WIDTH, from, to + l * wide);
        else
            copy_floats(n, from, to + l * wide);
    }
}

/* Packs columns at .. at + n (of all taps) of pixels first .. first + depth. Returns false if all are padding. */
static bool pack_pixels(const fri_igemm *s, int64_t first, int64_t depth, int64_t at, int64_t n, int64_t wide,
                        float *to, panels *r) {
    bool inside = false;
    for (int64_t some, end = at + n; at < end; at += some, to += some) {
        const int64_t j = at % s->columns;
        some = fri_min_i64(end - at, s->columns - j);
        copy_tap(s, first, depth, at / s->columns, j, some, wide, to, r);
        inside |= r->inside;
    }
    return inside;
}

/* Packs the columns of a panel. */
static bool pack_columns(const fri_igemm *s, int64_t first, int64_t depth, const columns *c, panels *r) {
    const int64_t wide = c->vectors * FRI_VECTOR, dense = c->some > 0 ? c->some : c->last + FRI_VECTOR;
    for (int64_t l = 0; c->some > 0 && l < depth; l++)
        for (int64_t j = dense; j < wide; j++) r->panel[l * wide + j] = 0;
    return pack_pixels(s, first, depth, c->at, dense, wide, r->panel, r);
}

/* Copies the last rows of B^T, fewer than a tile's, for pixels first .. first + depth. */
static void pack_last(const fri_igemm *s, int64_t first, int64_t depth, int64_t row, int64_t rows, float *to) {
    const float *b = s->b + first * s->b_row + row;
    for (int64_t l = 0; l < depth; l++, b += s->b_row)
        for (int64_t i = 0; i < ROWS; i++) to[l * ROWS + i] = i < rows ? b[i] : 0;
}

static void add_pixels(const fri_igemm *s, const fri_igemm_part *part, int64_t first, int64_t depth, panels *r) {
    const int64_t rows = part->row_end - part->row, rest = rows % ROWS;
    const int64_t all = s->columns * s->taps;
    const bool direct = is_matrix(s) && s->a_pitch <= NEAR_PIXELS;
    if (rest > 0) pack_last(s, first, depth, part->row_end - rest, rest, r->left);
    r->tap = -1;
    for (int64_t p = part->panel; p < part->panel_end; p++) {
        const columns c = panel_at(all, p);
        lines x = {r->panel, c.vectors * FRI_VECTOR, c.last};
        float *to[ROWS];
        tile t = {.last = c.last, .vectors = c.vectors, .c = to, .joins = first > 0 || s->add};
        int64_t terms = depth;
        if (direct && c.some == 0)
            x = (lines){s->a + first * s->a_pitch + c.at, s->a_pitch, c.last};
        else
            terms = pack_columns(s, first, depth, &c, r) ? depth : 0;
        for (int64_t i = part->row; i < part->row_end; i += ROWS) {
            t.rows = (int)fri_min_i64(ROWS, part->row_end - i);
            for (int e = 0; e < ROWS; e++) to[e] = e < t.rows ? s->c + (i + e) * s->c_pitch + c.at : r->spare;
            if (t.rows == ROWS)
                columns_any(terms, s->b + first * s->b_row + i, s->b_row, &x, c.some, &t);
            else
                columns_any(terms, r->left, ROWS, &x, c.some, &t);
        }
    }
}

static void run_pixels(const fri_igemm *s, const fri_igemm_part *part, void *scratch) {
    const int64_t pixels = s->images * s->grid_h * s->grid_w;
    panels r;
    lay_out(s, true, scratch, &r);
    for (int64_t first = 0; first < pixels; first += DEPTH)
        add_pixels(s, part, first, fri_min_i64(DEPTH, pixels - first), &r);
}
#endif

const fri_igemm_kernel FRI_FOR(fri_igemm_loops) = {ROWS, WIDTH, pack, run, run_pixels};
