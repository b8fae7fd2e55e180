/* conv2d_depthwise.c - convolutions in which each channel has a filter of its own (groups = C = K): forward and the
 * gradient of x. The weights' gradient is in conv2d_depthwise_weight.c.
 *
 *   forward          y[p, q, c] = b[c] + sum over r, s of x[p st - pad + r, q st - pad + s, c] w[c, r, s]
 *   backward input   stride 1: the same on dy, with w turned by 180 degrees and padding R - 1 - pad
 *                    stride 2: a row and a column of dx meet every second row and column of w; pairs of columns
 *
 * Channels are the vectors; a task is a row of the result. TOGETHER neighbours share the columns that they read, and
 * what the next row reads beside this one's is asked for in advance: a map is read from memory once. An element is
 * summed in an order of its own, whatever the batch and the threads are. */
#include "cpu/conv2d_engine.h"
#include "cpu/lanes.h"

enum { TOGETHER = 4 }; /* elements of a row with sums in registers (pairs of elements in stride 2's gradient) */

/* One pass of the loops: computes `out` [n, p, q, c] from `in` [n, h, w, c] and weights [vectors, R S, lanes]. */
typedef struct loops {
    int64_t n, h, w, p, q, c, r, s, pad_h, pad_w;
    int stride;
    bool spread; /* out is the larger map: the gradient for stride 2 */
    bool stream;
    const float *in, *weight, *bias;
    float *out;
} loops;

static bool turned(const fri_conv2d_engine *e) {
    return e->pass == FRI_PASS_BACKWARD_INPUT && e->d.stride_w == 1;
}

static bool pays(const fri_conv2d_desc *d, fri_pass pass) {
    if (d->groups != d->c || d->k != d->c || d->c < FRI_LANES_MIN || d->r > FRI_DEPTHWISE_TAPS ||
        (d->s != 3 && d->s != 5 && d->s != FRI_DEPTHWISE_TAPS) || d->stride_w > 2 || d->dilation_w != 1)
        return false;
    return pass == FRI_PASS_BACKWARD_WEIGHT || (d->dtype == FR_F32 && d->dilation_h == 1 &&
                                                d->stride_h == d->stride_w && d->pad_h < d->r && d->pad_w < d->s);
}

static void plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    if (e->pass == FRI_PASS_BACKWARD_WEIGHT) {
        FRI_FOR(fri_conv2d_depthwise_weight_plan)(e);
        return;
    }
    const int64_t lanes = fri_vectors(d->c) * FRI_VECTOR;
    e->weight_at = fri_part(&e->bytes, (size_t)(lanes * d->r * d->s) * sizeof(float));
    e->bias_at = fri_part(&e->bytes, (size_t)d->c * sizeof(float));
}

/* Converts w [C, R, S] to [vectors, R S, lanes]; a missing bias becomes zeros. */
static void prepare(const fri_conv2d_engine *e, const float *w, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t taps = d->r * d->s;
    float *weight = (float *)(void *)(workspace + e->weight_at), *bias = (float *)(void *)(workspace + e->bias_at);
    for (int64_t v = 0; v < fri_vectors(d->c); v++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t lane = 0; lane < FRI_VECTOR; lane++)
                weight[(v * taps + (turned(e) ? taps - 1 - t : t)) * FRI_VECTOR + lane] =
                    w[(fri_vector_at(d->c, v) + lane) * taps + t];
    for (int64_t c = 0; c < d->c; c++) bias[c] = 0;
}

/* ---- a row of the result ----------------------------------------------------------------------------------- */

/* Window of an output row: rows from + first .. from + end of `in`, beginning at `from`. */
typedef struct window {
    int64_t from, first, end;
} window;

static window window_of(const loops *l, int64_t row) {
    const int64_t from = row * l->stride - l->pad_h;
    return (window){from, fri_max_i64(0, -from), fri_min_i64(l->r, l->h - from)};
}

static bool outside(int64_t column, int64_t width) {
    return (uint64_t)column >= (uint64_t)width;
}

/* Computes `count` elements that read columns from `first` on; at_edge: some columns are outside, or count is less
 * than TOGETHER. x, y, w, bias: of the vector's channels; y: of the row. */
FRI_INLINE void inner(const int taps, const int stride, const bool at_edge, const loops *l, const window *t,
                      const float *x, int64_t first, int64_t count, const float *w, const fri_lanes *bias, float *y) {
    const int64_t c = l->c;
    fri_lanes sum[TOGETHER], weight[FRI_DEPTHWISE_TAPS];
#pragma GCC unroll 4
    for (int k = 0; k < TOGETHER; k++) sum[k] = *bias;
    for (int64_t r = t->first; r < t->end; r++) {
        const float *row = x + ((t->from + r) * l->w + first) * c;
#pragma GCC unroll 7
        for (int s = 0; s < taps; s++) weight[s] = FRI_LANES_AT(w + (r * taps + s) * FRI_VECTOR);
#pragma GCC unroll 16
        for (int column = 0; column < (TOGETHER - 1) * stride + taps; column++) {
            if (at_edge && outside(first + column, l->w)) continue;
            const fri_lanes v = FRI_LANES_AT(row + column * c);
#pragma GCC unroll 4
            for (int k = 0; k < TOGETHER; k++)
                if (column >= k * stride && column < k * stride + taps) sum[k] += weight[column - k * stride] * v;
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < TOGETHER; k++)
        if (!at_edge || k < count) fri_lanes_put(y + k * c, &sum[k], l->stream);
}

/* Prefetches the rows that the next row's window adds, at the current columns. */
FRI_INLINE void ask_ahead(const int taps, const int stride, const loops *l, const window *t, const float *x,
                          int64_t first) {
    for (int i = 0; i < stride; i++) {
        const int64_t h = t->from + l->r + i;
        if (h >= l->h) return;
        const float *next = x + (h * l->w + first + taps / 2) * l->c;
#pragma GCC unroll 8
        for (int k = 0; k < TOGETHER * stride; k++) __builtin_prefetch(next + k * l->c, 0, 2);
    }
}

FRI_INLINE void row_of(const int taps, const int stride, const loops *l, int64_t n, int64_t p) {
    const window t = window_of(l, p);
    const int64_t vectors = fri_vectors(l->c);
    const float *image = l->in + n * l->h * l->w * l->c;
    float *line = l->out + (n * l->p + p) * l->q * l->c;
    for (int64_t q = 0; q < l->q; q += TOGETHER) {
        const int64_t first = q * stride - l->pad_w, count = l->q - q;
        const bool inside = first >= 0 && count >= TOGETHER && first + (TOGETHER - 1) * stride + taps <= l->w;
        for (int64_t v = 0; v < vectors; v++) {
            const int64_t c = fri_vector_at(l->c, v);
            const float *x = image + c, *w = l->weight + v * l->r * taps * FRI_VECTOR;
            const fri_lanes bias = FRI_LANES_AT(l->bias + c);
            float *y = line + q * l->c + c;
            if (!inside) {
                inner(taps, stride, true, l, &t, x, first, count, w, &bias, y);
                continue;
            }
            ask_ahead(taps, stride, l, &t, x, first);
            inner(taps, stride, false, l, &t, x, first, TOGETHER, w, &bias, y);
        }
    }
}

/* ---- a row of the gradient of x for stride 2 ----------------------------------------------------------------- */

/* Pair j consists of columns 2j - pad and 2j + 1 - pad of dx. place: the row of dx plus the padding; dx: the first
 * column of pair j; at_edge: some columns of dy or dx are outside. */
FRI_INLINE void inner_pairs(const int taps, const bool at_edge, const loops *l, int64_t place, const float *dy,
                            int64_t j, const float *w, float *dx) {
    const int back = (taps - 1) / 2;
    fri_lanes sum[2 * TOGETHER], weight[FRI_DEPTHWISE_TAPS];
#pragma GCC unroll 8
    for (int k = 0; k < 2 * TOGETHER; k++) sum[k] = (fri_lanes){0};
    for (int64_t r = place % 2; r < l->r; r += 2) {
        const int64_t p = (place - r) / 2;
        if (place < r || p >= l->h) continue;
        const float *row = dy + (p * l->w + j - back) * l->c;
#pragma GCC unroll 7
        for (int s = 0; s < taps; s++) weight[s] = FRI_LANES_AT(w + (r * taps + s) * FRI_VECTOR);
#pragma GCC unroll 8
        for (int column = 0; column < TOGETHER + back; column++) {
            if (at_edge && outside(j - back + column, l->w)) continue;
            const fri_lanes v = FRI_LANES_AT(row + column * l->c);
#pragma GCC unroll 4
            for (int k = 0; k < TOGETHER; k++)
#pragma GCC unroll 7
                for (int s = 0; s < taps; s++)
                    if (k - s / 2 == column - back) sum[2 * k + s % 2] += weight[s] * v;
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < 2 * TOGETHER; k++)
        if (!at_edge || !outside(2 * j - l->pad_w + k, l->q)) fri_lanes_put(dx + k * l->c, &sum[k], l->stream);
}

FRI_INLINE void row_of_pairs(const int taps, const loops *l, int64_t n, int64_t h) {
    const int64_t place = h + l->pad_h, pairs = (l->q + l->pad_w + 1) / 2, vectors = fri_vectors(l->c);
    const float *image = l->in + n * l->h * l->w * l->c;
    float *line = l->out + (n * l->p + h) * l->q * l->c;
    for (int64_t j = 0; j < pairs; j += TOGETHER) {
        const int64_t first = 2 * j - l->pad_w;
        const bool inside = first >= 0 && first + 2 * TOGETHER <= l->q && j >= (taps - 1) / 2 && j + TOGETHER <= l->w;
        for (int64_t v = 0; v < vectors; v++) {
            const int64_t c = fri_vector_at(l->c, v);
            const float *dy = image + c, *w = l->weight + v * l->r * taps * FRI_VECTOR;
            float *dx = line + first * l->c + c;
            if (inside)
                inner_pairs(taps, false, l, place, dy, j, w, dx);
            else
                inner_pairs(taps, true, l, place, dy, j, w, dx);
        }
    }
}

/* ---- all rows ---------------------------------------------------------------------------------------------- */

static void any_row(const loops *l, int64_t n, int64_t row) {
    switch (l->s * 10 + (l->spread ? 0 : l->stride)) {
    case 31: row_of(3, 1, l, n, row); break;
    case 32: row_of(3, 2, l, n, row); break;
    case 30: row_of_pairs(3, l, n, row); break;
    case 51: row_of(5, 1, l, n, row); break;
    case 52: row_of(5, 2, l, n, row); break;
    case 50: row_of_pairs(5, l, n, row); break;
    case 71: row_of(7, 1, l, n, row); break;
    case 72: row_of(7, 2, l, n, row); break;
    default: row_of_pairs(7, l, n, row);
    }
}

static void row_piece(const void *context, int64_t row, int thread) {
    const loops *l = context;
    any_row(l, row / l->p, row % l->p);
    fri_stream_end(l->stream);
}

static void run(const fri_conv2d_engine *e, const float *in, const float *bias, float *out, const char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const bool forward = e->pass == FRI_PASS_FORWARD;
    const float *none = (const float *)(const void *)(workspace + e->bias_at);
    loops l = {.n = d->n,
               .h = forward ? d->h : d->p,
               .w = forward ? d->w : d->q,
               .p = forward ? d->p : d->h,
               .q = forward ? d->q : d->w,
               .c = d->c,
               .r = d->r,
               .s = d->s,
               .pad_h = turned(e) ? d->r - 1 - d->pad_h : d->pad_h,
               .pad_w = turned(e) ? d->s - 1 - d->pad_w : d->pad_w,
               .stride = (int)d->stride_w,
               .spread = !forward && d->stride_w == 2,
               .in = in,
               .weight = (const float *)(const void *)(workspace + e->weight_at),
               .bias = bias != NULL ? bias : none,
               .out = out};
    l.stream = fri_lanes_may_stream(out, l.c, l.n * l.p * l.q);
    fri_parallel(l.n * l.p, fr_threads_get(), row_piece, &l);
}

const fri_conv2d_own FRI_FOR(fri_conv2d_depthwise) = {pays, FRI_FOR(fri_conv2d_depthwise_weight_reads_norm),
                                                      plan, prepare,
                                                      run,  FRI_FOR(fri_conv2d_depthwise_weight_run)};
