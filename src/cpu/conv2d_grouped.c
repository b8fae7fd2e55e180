/* conv2d_grouped.c - convolutions of groups of 4 or 8 channels, as many into as out of a group.
 *
 * Lanes are output channels (of the input's gradient: input channels), and term t of a lane is channel t of the lane's
 * group. A row of the input is spread once: for each t a vector whose lanes hold their own term t, or, where a group
 * fills whole vectors, one number. Each filter tap then multiplies what lies in the first cache: no lane multiplies
 * zeros, and a group costs no product of its own. y and dx have the order and so the bits of igemm.c: bias, taps in
 * order, channels in order, in runs of 16 taps. dw is summed over the pixels of a row, then over rows, images and parts
 * of the images. */
#include "cpu/conv2d_engine.h"
#include "cpu/lanes.h"

#include <string.h>
#if defined(FRI_LANES_V3) || defined(FRI_LANES_V4)
#include <immintrin.h>
#endif

enum {
    SPREAD = 12288, /* floats of spread rows on the stack of a task */
    TILE = 12,      /* pixels of a row in registers */
    WIDEST = 16,    /* lanes, on any processor */
    MIN_WIDTH = 6,  /* columns of y, for dw of 8 channels */
    NARROW = 12,    /* and for y and dx where a group fills a vector */
    MAX_SLOTS = 16, /* spread rows */
    MAX_TAPS = 64,  /* of a filter */
    TERMS = 4,      /* of a tile of dw, for three taps */
    PARTS = 32,     /* of dw's images, times sixteens of channels */
};

/* Floats per term of a pixel. */
static int64_t spread_of(int64_t group) {
    return group < FRI_VECTOR ? FRI_VECTOR : 1;
}

/* Columns of the input that fit on any processor: blocks of columns, whose order is dw's, are equal. */
static int64_t columns_most(const fri_conv2d_desc *d) {
    const int64_t group = d->c / d->groups, slots = (d->r - 1) * d->dilation_h + 1;
    return SPREAD / (slots * group * WIDEST);
}

/* Columns of the input under `out` columns of y. */
static int64_t columns_under(const fri_conv2d_desc *d, int64_t out) {
    return (out - 1) * d->stride_w + (d->s - 1) * d->dilation_w + 1;
}

static bool pays(const fri_conv2d_desc *d, fri_pass pass) {
    const int64_t group = d->c / fri_max_i64(1, d->groups);
    const bool wide = pass == FRI_PASS_BACKWARD_WEIGHT ? d->q >= MIN_WIDTH : group < FRI_VECTOR || d->q >= NARROW;
    return d->dtype == FR_F32 && d->bias_dtype == FR_F32 && d->groups > 1 && d->c == d->k && !d->accumulate &&
           d->relu == FRI_ACTIVATION_NONE && (group == 4 || (group == 8 && wide)) && d->c >= FRI_LANES_MIN &&
           d->stride_w <= 2 && d->pad_w <= (d->s - 1) * d->dilation_w && d->r * d->s <= MAX_TAPS &&
           (d->r - 1) * d->dilation_h < MAX_SLOTS && columns_most(d) >= columns_under(d, TILE);
}

static bool reads_norm(const fri_conv2d_desc *d) {
    (void)d;
    return false;
}

static int64_t taps_of(const fri_conv2d_desc *d) {
    return d->r * d->s;
}

static void plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t group = d->c / d->groups, weights = fri_vectors(d->c) * FRI_VECTOR * taps_of(d) * group;
    if (e->pass == FRI_PASS_BACKWARD_WEIGHT) {
        e->parts = fri_min_i64(d->n, fri_ceil_div(PARTS * 16, d->c));
        e->sum_at = fri_part(&e->bytes, (size_t)(e->parts * weights) * sizeof(float));
        return;
    }
    e->weight_at = fri_part(&e->bytes, (size_t)weights * sizeof(float));
}

/* Converts w [K, taps, group] to [vectors, taps, group, lanes]. */
static void prepare(const fri_conv2d_engine *e, const float *w, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t taps = taps_of(d), group = d->c / d->groups;
    float *to = (float *)(void *)(workspace + e->weight_at);
    const bool forward = e->pass == FRI_PASS_FORWARD;
    for (int64_t v = 0; v < fri_vectors(d->c); v++) {
        int64_t from[FRI_VECTOR];
        for (int64_t lane = 0; lane < FRI_VECTOR; lane++) {
            const int64_t c = fri_vector_at(d->c, v) + lane, in = c % group;
            from[lane] = forward ? c * taps * group : (c - in) * taps * group + in;
        }
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t t = 0; t < group; t++)
                for (int64_t lane = 0; lane < FRI_VECTOR; lane++)
                    *to++ = w[from[lane] + tap * group + t * (forward ? 1 : taps * group)];
    }
}

/* ---- spread rows ------------------------------------------------------------------------------------------------- */

/* Rows of a vector's channels, columns `first` .. `first + columns` of one image: [slot][term][column]. */
typedef struct rows {
    const float *image; /* at the group's or vector's first channel */
    int64_t height, width, pitch, group, first, columns, slots;
    int64_t held[MAX_SLOTS]; /* row in each slot, or -1 */
    float *at;
} rows;

#if defined(FRI_LANES_V4)
FRI_INLINE fri_lanes term_of(fri_lanes x, int64_t group, int64_t t) {
    int32_t from[FRI_VECTOR];
    for (int32_t l = 0; l < FRI_VECTOR; l++) from[l] = l / (int32_t)group * (int32_t)group + (int32_t)t;
    return (fri_lanes)_mm512_permutexvar_ps(_mm512_loadu_si512(from), (__m512)x);
}
#elif defined(FRI_LANES_V3)
FRI_INLINE fri_lanes term_of(fri_lanes x, int64_t group, int64_t t) {
    int32_t from[FRI_VECTOR];
    for (int32_t l = 0; l < FRI_VECTOR; l++) from[l] = l / (int32_t)group * (int32_t)group + (int32_t)t;
    return (fri_lanes)_mm256_permutevar8x32_ps((__m256)x, _mm256_loadu_si256((const __m256i *)(const void *)from));
}
#else /* each group has whole vectors */
FRI_INLINE fri_lanes term_of(fri_lanes x, int64_t group, int64_t t) {
    (void)group, (void)t;
    return x;
}
#endif

/* Pixels lie far apart: those of the next row, `below` pixels on, are fetched ahead. */
FRI_INLINE void spread_vectors(const int group, const float *from, int64_t pitch, int64_t n, int64_t below, int64_t row,
                               float *to) {
    for (int64_t i = 0; i < n; i++, to += FRI_VECTOR) {
        const fri_lanes x = FRI_LANES_AT(from + i * pitch);
        __builtin_prefetch(from + (i + below) * pitch);
#pragma GCC unroll 8
        for (int t = 0; t < group; t++) *(fri_lanes *)(to + t * row) = term_of(x, group, t);
    }
}

/* The spread row `y` of the image. */
static const float *row_at(rows *r, int64_t y) {
    const int64_t slot = y % r->slots, each = spread_of(r->group), row = r->columns * each;
    float *to = r->at + slot * r->group * row;
    if (r->held[slot] == y) return to;
    r->held[slot] = y;
    const int64_t left = fri_min_i64(r->columns, fri_max_i64(0, -r->first));
    const int64_t end = fri_max_i64(left, fri_min_i64(r->columns, r->width - r->first));
    const float *from = r->image + (y * r->width + r->first + left) * r->pitch;
    for (int64_t t = 0; t < r->group; t++) {
        memset(to + t * row, 0, (size_t)(left * each) * sizeof *to);
        memset(to + t * row + end * each, 0, (size_t)((r->columns - end) * each) * sizeof *to);
    }
    if (each == 1)
        for (int64_t i = left; i < end; i++, from += r->pitch)
            for (int64_t t = 0; t < r->group; t++) to[t * row + i] = from[t];
    else if (r->group == 4)
        spread_vectors(4, from, r->pitch, end - left, r->width, row, to + left * each);
    else
        spread_vectors(8, from, r->pitch, end - left, r->width, row, to + left * each);
    return to;
}

/* ---- forward and backward input ---------------------------------------------------------------------------------- */

typedef struct grouped {
    const fri_conv2d_engine *e;
    const float *in, *weight, *bias;
    float *out, *sum;
    const float *dy;
    int64_t group, vectors, blocks, block; /* columns of out in a block */
    int64_t strands;                       /* of vectors: those that overlap belong to one task */
    int64_t in_h, in_w, out_h, out_w;
} grouped;

typedef struct tap {
    const float *x, *w; /* first column of the tile's first pixel; vectors of the group's terms */
} tap;

/* sum + a term of the lanes from a spread row, times y. */
FRI_INLINE fri_lanes add_term(const bool vectors, fri_lanes sum, const float *p, fri_lanes y) {
    if (vectors) return sum + FRI_LANES_AT(p) * y;
    return sum + *p * y;
}

/* `pixels` pixels of y, `to` floats apart, from pixels `step` apart: bias or the sum of earlier runs, then the taps. */
FRI_INLINE void tile(const int pixels, const int step, const bool vectors, int64_t n, const tap *taps, int64_t at,
                     int64_t group, int64_t row, const float *bias, bool joins, float *y, int64_t to) {
    const int each = vectors ? FRI_VECTOR : 1;
    fri_lanes sum[TILE];
    fri_lanes begin = {0};
    if (bias != NULL && !joins) begin = FRI_LANES_AT(bias);
#pragma GCC unroll 12
    for (int i = 0; i < pixels; i++) sum[i] = begin;
    for (int64_t k = 0; k < n; k++) {
        const float *x = taps[k].x + at * step * each, *w = taps[k].w;
        for (int64_t t = 0; t < group; t++, x += row, w += FRI_VECTOR) {
            const fri_lanes weight = FRI_LANES_AT(w);
#pragma GCC unroll 12
            for (int i = 0; i < pixels; i++) sum[i] = add_term(vectors, sum[i], x + i * step * each, weight);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < pixels; i++) {
        fri_lanes *p = (fri_lanes *)(y + i * to);
        if (joins) sum[i] += *p;
        *p = sum[i];
    }
}

FRI_INLINE void tiles(const int step, const bool vectors, int64_t n, const tap *taps, int64_t pixels, int64_t group,
                      int64_t row, const float *bias, bool joins, float *y, int64_t to) {
    int64_t i = 0;
    for (; i + TILE <= pixels; i += TILE)
        tile(TILE, step, vectors, n, taps, i, group, row, bias, joins, y + i * to, to);
    for (; i + 6 <= pixels; i += 6) tile(6, step, vectors, n, taps, i, group, row, bias, joins, y + i * to, to);
    for (; i + 3 <= pixels; i += 3) tile(3, step, vectors, n, taps, i, group, row, bias, joins, y + i * to, to);
    for (; i < pixels; i++) tile(1, step, vectors, n, taps, i, group, row, bias, joins, y + i * to, to);
}

/* Divides by a stride; false if a remainder is left. */
static bool divides(int64_t by, int64_t *n) {
    if (by == 1) return true;
    const int64_t whole = *n / by;
    const bool all = whole * by == *n;
    *n = whole;
    return all;
}

/* Row `o` of the result, columns `column`, `column + apart`, ...: taps whose windows meet them. The filter's runs are
 * those of igemm.h; taps above and below the map count, and add nothing. */
static void row_of(const grouped *g, rows *r, int64_t o, int64_t column, int64_t apart, int64_t end, const float *w,
                   const float *bias, float *y) {
    const fri_conv2d_desc *d = &g->e->d;
    const bool dx = g->e->pass == FRI_PASS_BACKWARD_INPUT;
    const int64_t each = spread_of(g->group), row = r->columns * each, step = dx ? 1 : d->stride_w;
    const int64_t pixels = apart == 1 ? end - column : fri_ceil_div(end - column, apart), size = g->group * FRI_VECTOR;
    tap taps[MAX_TAPS];
    int64_t n = 0, met = 0, begun[MAX_TAPS / FRI_IGEMM_TAPS + 1] = {0}, runs = 0;
    for (int64_t i = 0; i < d->r; i++, w += d->s * size) {
        const int64_t h = i * d->dilation_h - d->pad_h;
        int64_t from_y = dx ? o - h : o * d->stride_h + h;
        if (dx && !divides(d->stride_h, &from_y)) continue;
        const float *x = from_y >= 0 && from_y < g->in_h ? row_at(r, from_y) : NULL;
        for (int64_t j = 0; j < d->s; j++) {
            const int64_t v = j * d->dilation_w - d->pad_w;
            int64_t from_x = dx ? column - v : column * d->stride_w + v;
            if (dx && !divides(d->stride_w, &from_x)) continue;
            if (met++ % FRI_IGEMM_TAPS == 0) begun[runs++] = n;
            if (x != NULL) taps[n++] = (tap){x + (from_x - r->first) * each, w + j * size};
        }
    }
    begun[runs] = n;
    for (int64_t i = 0; i < fri_max_i64(1, runs); i++) {
        const tap *from = taps + begun[i];
        const int64_t count = begun[fri_min_i64(i + 1, runs)] - begun[i];
        if (g->group >= FRI_VECTOR && step == 1)
            tiles(1, false, count, from, pixels, g->group, row, bias, i > 0, y, apart * d->k);
        else if (g->group >= FRI_VECTOR)
            tiles(2, false, count, from, pixels, g->group, row, bias, i > 0, y, apart * d->k);
        else if (step == 1)
            tiles(1, true, count, from, pixels, g->group, row, bias, i > 0, y, apart * d->k);
        else
            tiles(2, true, count, from, pixels, g->group, row, bias, i > 0, y, apart * d->k);
    }
}

static rows rows_of(const grouped *g, int64_t image, int64_t channel, int64_t first, int64_t columns, float *at) {
    const fri_conv2d_desc *d = &g->e->d;
    const int64_t from = g->group < FRI_VECTOR ? channel : channel - channel % g->group;
    rows r = {.image = g->in + image * g->in_h * g->in_w * d->c + from,
              .height = g->in_h,
              .width = g->in_w,
              .pitch = d->c,
              .group = g->group,
              .first = first,
              .columns = columns,
              .slots = (d->r - 1) * d->dilation_h + 1,
              .at = at};
    for (int i = 0; i < MAX_SLOTS; i++) r.held[i] = -1;
    return r;
}

/* A vector of channels in a block of columns of an image. */
static __attribute__((noinline)) void block_of(const grouped *g, int64_t image, int64_t v, int64_t block, float *at) {
    const fri_conv2d_desc *d = &g->e->d;
    const bool dx = g->e->pass == FRI_PASS_BACKWARD_INPUT;
    const int64_t channel = fri_vector_at(d->c, v), column = block * g->block;
    const int64_t end = fri_min_i64(g->out_w, column + g->block), reach = (d->s - 1) * d->dilation_w;
    /* The least column of the input: floor of the quotient, for dx. */
    const int64_t low = column + d->pad_w - reach;
    const int64_t first = !dx ? column * d->stride_w - d->pad_w : low >= 0 ? low / d->stride_w : -(-low / d->stride_w);
    const int64_t last = dx ? (end - 1 + d->pad_w) / d->stride_w : (end - 1) * d->stride_w - d->pad_w + reach;
    rows r = rows_of(g, image, channel, first, last - first + 1, at);
    const float *w = g->weight + v * taps_of(d) * g->group * FRI_VECTOR;
    const float *bias = g->bias != NULL ? g->bias + channel : NULL;
    const int64_t apart = dx ? d->stride_w : 1;
    for (int64_t o = 0; o < g->out_h; o++)
        for (int64_t phase = column; phase < fri_min_i64(end, column + apart); phase++)
            row_of(g, &r, o, phase, apart, end, w, bias,
                   g->out + ((image * g->out_h + o) * g->out_w + phase) * d->k + channel);
}

static void run_piece(const void *context, int64_t i, int thread) {
    const grouped *g = context;
    __attribute__((aligned(64))) float at[SPREAD + FRI_VECTOR];
    const int64_t v = i / g->blocks % g->strands;
    (void)thread;
    block_of(g, i / (g->strands * g->blocks), v, i % g->blocks, at);
    if (v == g->strands - 1 && g->strands < g->vectors)
        block_of(g, i / (g->strands * g->blocks), v + 1, i % g->blocks, at);
}

static grouped grouped_of(const fri_conv2d_engine *e, const float *in) {
    const fri_conv2d_desc *d = &e->d;
    const bool dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    grouped g = {.e = e, .in = in, .group = d->c / d->groups, .vectors = fri_vectors(d->c)};
    g.strands = g.vectors - (d->c % FRI_VECTOR != 0);
    g.in_h = dx ? d->p : d->h, g.in_w = dx ? d->q : d->w;
    g.out_h = dx ? d->h : d->p, g.out_w = dx ? d->w : d->q;
    /* Columns of the input fit; a block of dx reads fewer. */
    const int64_t reach = (d->s - 1) * d->dilation_w;
    g.block = dx ? columns_most(d) - reach - 2 : (columns_most(d) - reach - 1) / d->stride_w + 1;
    g.block = fri_max_i64(1, fri_min_i64(g.block - g.block % TILE, g.out_w));
    g.blocks = fri_ceil_div(g.out_w, g.block);
    return g;
}

static void run(const fri_conv2d_engine *e, const float *in, const float *bias, float *out, const char *workspace) {
    grouped g = grouped_of(e, in);
    g.weight = (const float *)(const void *)(workspace + e->weight_at);
    g.bias = bias, g.out = out;
    fri_parallel(e->d.n * g.strands * g.blocks, fr_threads_get(), run_piece, &g);
}

/* ---- backward weight --------------------------------------------------------------------------------------------- */

/* sum [tap][term] += dy x over a row's pixels, for `count` taps side by side in a row of the filter. */
FRI_INLINE void weight_tile(const int count, const int step, const bool vectors, const grouped *g, int64_t pixels,
                            const float *dy, const float *const *x, int64_t row, float *sum) {
    const int each = vectors ? FRI_VECTOR : 1;
    for (int64_t first = 0; first < g->group; first += TERMS) {
        fri_lanes total[3][TERMS] = {0};
        for (int64_t q = 0; q < pixels; q++) {
            const fri_lanes v = FRI_LANES_AT(dy + q * g->e->d.k);
#pragma GCC unroll 3
            for (int s = 0; s < count; s++)
#pragma GCC unroll 4
                for (int t = 0; t < TERMS; t++) {
                    const float *p = x[s] + (first + t) * row + q * step * each;
                    total[s][t] = add_term(vectors, total[s][t], p, v);
                }
        }
#pragma GCC unroll 3
        for (int s = 0; s < count; s++)
#pragma GCC unroll 4
            for (int t = 0; t < TERMS; t++)
                *(fri_lanes *)(sum + (s * g->group + first + t) * FRI_VECTOR) += total[s][t];
    }
}

FRI_INLINE void weight_taps(const int step, const bool vectors, const grouped *g, int64_t pixels, const float *dy,
                            const float *x, int64_t row, float *sum) {
    const fri_conv2d_desc *d = &g->e->d;
    int64_t s = 0;
    const int64_t apart = d->dilation_w * spread_of(g->group), size = g->group * FRI_VECTOR;
    for (; s + 3 <= d->s; s += 3) {
        const float *at[3] = {x + s * apart, x + (s + 1) * apart, x + (s + 2) * apart};
        weight_tile(3, step, vectors, g, pixels, dy, at, row, sum + s * size);
    }
    for (; s < d->s; s++) {
        const float *at[1] = {x + s * apart};
        weight_tile(1, step, vectors, g, pixels, dy, at, row, sum + s * size);
    }
}

/* The sums of a vector of channels over images `image` .. `end`. */
static __attribute__((noinline)) void weights_of(const grouped *g, int64_t image, int64_t end, int64_t v, float *sum,
                                                 float *at) {
    const fri_conv2d_desc *d = &g->e->d;
    const int64_t channel = fri_vector_at(d->c, v), size = taps_of(d) * g->group * FRI_VECTOR;
    memset(sum, 0, (size_t)size * sizeof *sum);
    for (; image < end; image++)
        for (int64_t column = 0; column < d->q; column += g->block) {
            const int64_t pixels = fri_min_i64(g->block, d->q - column);
            rows r = rows_of(g, image, channel, column * d->stride_w - d->pad_w, columns_under(d, pixels), at);
            const int64_t row = r.columns * spread_of(g->group);
            for (int64_t o = 0; o < d->p; o++) {
                const float *dy = g->dy + ((image * d->p + o) * d->q + column) * d->k + channel;
                for (int64_t q = 0; q < pixels; q++) __builtin_prefetch(dy + (d->q + q) * d->k);
                for (int64_t i = 0; i < d->r; i++) {
                    const int64_t y = o * d->stride_h + i * d->dilation_h - d->pad_h;
                    if (y < 0 || y >= d->h) continue;
                    const float *x = row_at(&r, y);
                    float *to = sum + i * d->s * g->group * FRI_VECTOR;
                    if (g->group >= FRI_VECTOR && d->stride_w == 1)
                        weight_taps(1, false, g, pixels, dy, x, row, to);
                    else if (g->group >= FRI_VECTOR)
                        weight_taps(2, false, g, pixels, dy, x, row, to);
                    else if (d->stride_w == 1)
                        weight_taps(1, true, g, pixels, dy, x, row, to);
                    else
                        weight_taps(2, true, g, pixels, dy, x, row, to);
                }
            }
        }
}

static void weight_piece(const void *context, int64_t i, int thread) {
    const grouped *g = context;
    const fri_conv2d_desc *d = &g->e->d;
    const int64_t parts = g->e->parts, part = i / g->vectors, v = i % g->vectors;
    __attribute__((aligned(64))) float at[SPREAD + FRI_VECTOR];
    (void)thread;
    weights_of(g, part * d->n / parts, (part + 1) * d->n / parts, v, g->sum + i * taps_of(d) * g->group * FRI_VECTOR,
               at);
}

static void run_weight(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw, char *workspace) {
    const int64_t taps = taps_of(&e->d);
    grouped g = grouped_of(e, x);
    g.dy = dy, g.sum = (float *)(void *)(workspace + e->sum_at);
    fri_parallel(e->parts * g.vectors, fr_threads_get(), weight_piece, &g);
    float *to = dw;
    const int64_t size = taps * g.group * FRI_VECTOR;
    for (int64_t k = 0; k < e->d.k; k++) {
        const int64_t v = fri_min_i64(k / FRI_VECTOR, g.vectors - 1);
        const float *from = g.sum + v * size + k - fri_vector_at(e->d.k, v);
        for (int64_t i = 0; i < taps * g.group; i++) {
            float sum = from[i * FRI_VECTOR];
            for (int64_t p = 1; p < e->parts; p++) sum += from[p * g.vectors * size + i * FRI_VECTOR];
            *to++ = sum;
        }
    }
}

const fri_conv2d_own FRI_FOR(fri_conv2d_grouped) = {pays, reads_norm, plan, prepare, run, run_weight};
