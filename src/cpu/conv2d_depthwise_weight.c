/* conv2d_depthwise_weight.c - the weights' gradient of a convolution in which each channel has a filter of its own
 * (groups = C = K).
 *
 *   dw[c, r, s] = sum over images, p, q of dy[p, q, c] x[p stride - pad + r dilation, q stride - pad + s, c]
 *
 * Channels are the vectors. Half data is widened when read, sums are made in f32, over output rows in parts that
 * follow the shape; parts are added in order: same bits on any number of threads. A filter of 3 x 3 is
 * summed whole in registers, larger ones row by row. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "cpu/lanes.h"

enum {
    LANES = FRI_VECTOR,
    TOGETHER = 4, /* gradients that share columns of x in registers */
    MAX_SIZE = FRI_DEPTHWISE_TAPS,
    GROUP = 64 / LANES,         /* vectors of channels that a part reads together: 256 bytes of a pixel in f32 */
    SQUARE_GROUP = 256 / LANES, /* as GROUP, for filters summed whole */
    PARTS = 16,                 /* minimum, if there are enough rows: work for as many threads */
    MADE_BYTES = 1 << 18,       /* of normalized rows of x */
    STRIP_BYTES = 1 << 14,      /* bytes of a vector's channels in x and dy, which are read once per filter row */
};

typedef fri_lanes lanes;
typedef uint32_t words __attribute__((vector_size(LANES * 4)));
typedef uint16_t halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

/* True for filters summed whole, for which the rows of x must be adjacent. */
static bool is_square(const fri_conv2d_desc *d) {
    return d->r == 3 && d->s == 3 && d->dilation_h == 1;
}

static int64_t group_of(const fri_conv2d_desc *d) {
    return is_square(d) ? SQUARE_GROUP : GROUP;
}

/* ---- one row of the filters of LANES channels ------------------------------------------------------------ */

/* Rows `from` to `to` of dy. */
typedef struct strip {
    const fri_conv2d_desc *d;
    const char *x, *dy;
    int64_t from, to;
    int64_t next;        /* distance to the rows that are read next */
    int64_t left, right; /* columns of dy whose taps are all in x */
    fri_conv2d_reader reader;
    float *made; /* normalized rows of x, if the reader normalizes */
} strip;

FRI_INLINE void load(bool half, const char *p, lanes *v) {
    if (half)
        *v = (lanes)(__builtin_convertvector(*(const halves *)p, words) << 16);
    else
        *v = *(const lanes *)p;
}

/* sum[s] += dy x for channels from c on. Inner gradients are processed TOGETHER, alternating between two sums so that
 * additions wait less for each other. */
FRI_INLINE void filter_row(bool half, const int taps, const int stride, const strip *t, int64_t r, int64_t c,
                           float *sum) {
    const fri_conv2d_desc *d = t->d;
    const int64_t bytes = half ? 2 : 4, pixel = d->c * bytes;
    lanes total[2][MAX_SIZE] = {0}, g[TOGETHER], v;
    for (int64_t i = t->from; i < t->to; i++) {
        const int64_t h = i % d->p * d->stride_h - d->pad_h + r * d->dilation_h;
        if (h < 0 || h >= d->h) continue;
        const char *dy = t->dy + i * d->q * pixel + c * bytes;
        const char *x = t->x + (i / d->p * d->h + h) * d->w * pixel + c * bytes;
        for (int64_t q = 0; q < d->q;) {
            const int64_t first = q * stride - d->pad_w;
            if (q < t->left || q + TOGETHER > t->right) {
                load(half, dy + q++ * pixel, &g[0]);
#pragma GCC unroll 16
                for (int s = 0; s < taps; s++) {
                    if (first + s < 0 || first + s >= d->w) continue;
                    load(half, x + (first + s) * pixel, &v);
                    total[0][s] += g[0] * v;
                }
                continue;
            }
            for (int k = 0; k < TOGETHER && r == 0; k++) {
                __builtin_prefetch(dy + (t->next * d->q + q + k) * pixel, 0, 2);
                __builtin_prefetch(x + (t->next * d->stride_h * d->w + first + k * stride) * pixel, 0, 2);
            }
#pragma GCC unroll 16
            for (int k = 0; k < TOGETHER; k++) load(half, dy + (q + k) * pixel, &g[k]);
#pragma GCC unroll 16
            for (int column = 0; column < (TOGETHER - 1) * stride + taps; column++) {
                load(half, x + (first + column) * pixel, &v);
#pragma GCC unroll 16
                for (int k = 0; k < TOGETHER; k++)
                    if (column >= k * stride && column < k * stride + taps)
                        total[k % 2][column - k * stride] += g[k] * v;
            }
            q += TOGETHER;
        }
    }
#pragma GCC unroll 16
    for (int s = 0; s < taps; s++) *(lanes *)(sum + s * LANES) += total[0][s] + total[1][s];
}

FRI_INLINE void filter_any_row(bool half, const strip *t, int64_t r, int64_t c, float *sum) {
    switch (10 * t->d->s + t->d->stride_w) {
    case 31: filter_row(half, 3, 1, t, r, c, sum); break;
    case 32: filter_row(half, 3, 2, t, r, c, sum); break;
    case 51: filter_row(half, 5, 1, t, r, c, sum); break;
    case 52: filter_row(half, 5, 2, t, r, c, sum); break;
    case 71: filter_row(half, 7, 1, t, r, c, sum); break;
    default: filter_row(half, 7, 2, t, r, c, sum);
    }
}

static void filter_row_f32(const strip *t, int64_t r, int64_t c, float *sum) {
    filter_any_row(false, t, r, c, sum);
}

static void filter_row_bf16(const strip *t, int64_t r, int64_t c, float *sum) {
    filter_any_row(true, t, r, c, sum);
}

/* ---- a whole filter of 3 x 3 ----------------------------------------------------------------------------- */

/* Adds one row of dy to all nine taps: sum [9] += dy x. */
FRI_INLINE void filter_square(bool half, const int stride, const strip *t, int64_t c, float *sum) {
    const fri_conv2d_desc *d = t->d;
    const int64_t pixel = d->c * (half ? 2 : 4), line = d->w * pixel;
    const int64_t h = t->from % d->p * d->stride_h - d->pad_h;
    const char *dy = t->dy + t->from * d->q * pixel + c * (half ? 2 : 4);
    const char *x = t->x + (t->from / d->p * d->h + h) * line + c * (half ? 2 : 4);
    const bool whole = h >= 0 && h + 3 <= d->h;
    lanes total[3][3] = {0}, g[TOGETHER], v;
    for (int64_t q = 0; q < d->q;) {
        const int64_t first = q * stride - d->pad_w;
        if (!whole || q < t->left || q + TOGETHER > t->right) {
            load(half, dy + q++ * pixel, &g[0]);
#pragma GCC unroll 3
            for (int r = 0; r < 3; r++)
#pragma GCC unroll 3
                for (int s = 0; s < 3; s++) {
                    if (h + r < 0 || h + r >= d->h || first + s < 0 || first + s >= d->w) continue;
                    load(half, x + r * line + (first + s) * pixel, &v);
                    total[r][s] += g[0] * v;
                }
            continue;
        }
#pragma GCC unroll 4
        for (int k = 0; k < TOGETHER; k++) {
            __builtin_prefetch(dy + (d->q + q + k) * pixel, 0, 2);
            for (int i = 0; i < stride * stride; i++)
                __builtin_prefetch(x + (3 + i / stride) * line + (first + 1 + k * stride + i % stride) * pixel, 0, 2);
            load(half, dy + (q + k) * pixel, &g[k]);
        }
#pragma GCC unroll 16
        for (int column = 0; column < (TOGETHER - 1) * stride + 3; column++)
#pragma GCC unroll 3
            for (int r = 0; r < 3; r++) {
                load(half, x + r * line + (first + column) * pixel, &v);
#pragma GCC unroll 4
                for (int k = 0; k < TOGETHER; k++)
                    if (column >= k * stride && column < k * stride + 3) total[r][column - k * stride] += g[k] * v;
            }
        q += TOGETHER;
    }
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) *(lanes *)(sum + i * LANES) += total[i / 3][i % 3];
}

static void filter_square_f32(const strip *t, int64_t c, float *sum) {
    t->d->stride_w == 1 ? filter_square(false, 1, t, c, sum) : filter_square(false, 2, t, c, sum);
}

static void filter_square_bf16(const strip *t, int64_t c, float *sum) {
    t->d->stride_w == 1 ? filter_square(true, 1, t, c, sum) : filter_square(true, 2, t, c, sum);
}

/* ---- all shapes ----------------------------------------------------------------------------------------- */

/* Rows of dy of one image whose rows of x are normalized together and stay in the L2 cache. */
static int64_t made_rows(const fri_conv2d_desc *d) {
    return fri_max_i64(0, (MADE_BYTES / (d->w * d->c * (int64_t)sizeof(float)) - 3) / d->stride_h) + 1;
}

static size_t made_bytes(const fri_conv2d_desc *d) {
    return (size_t)(((made_rows(d) - 1) * d->stride_h + 3) * d->w * d->c) * sizeof(float);
}

/* Sums a 3 x 3 filter over rows from .. to; the rows of x are plain or already normalized. */
static void filter_squares(strip t, int64_t first, int64_t end, float *sum) {
    const fri_conv2d_desc *d = t.d;
    const int64_t taps = d->r * d->s * LANES;
    for (; t.from < t.to; t.from++)
        for (int64_t v = first; v < end; v++)
            (d->dtype == FR_F32 ? filter_square_f32 : filter_square_bf16)(&t, fri_vector_at(d->c, v), sum + v * taps);
}

/* Sums 3 x 3 filters over rows of x that are normalized some rows at a time. */
static void make_squares(strip t, int64_t first, int64_t end, float *sum) {
    const fri_conv2d_desc *d = t.d;
    const int64_t to = t.to, c = fri_vector_at(d->c, first), width = fri_vector_at(d->c, end - 1) + LANES - c;
    const float *x = (const float *)(const void *)t.x;
    for (; t.from < to; t.from = t.to) {
        const int64_t image = t.from / d->p, p = t.from % d->p;
        t.to = fri_min_i64(fri_min_i64(to, t.from + made_rows(d)), (image + 1) * d->p);
        const int64_t top = fri_max_i64(0, p * d->stride_h - d->pad_h);
        const int64_t bottom = fri_min_i64(d->h, (p + t.to - t.from - 1) * d->stride_h - d->pad_h + 3);
        const int64_t at = (image * d->h + top) * d->w * d->c;
        fri_conv2d_read(&t.reader, c, (bottom - top) * d->w, width, d->c, x + at + c, t.made + c);
        t.x = (const char *)((uintptr_t)t.made - (uintptr_t)at * sizeof(float)); /* virtual address of row `top` of
                                                                                    x */
        filter_squares(t, first, end, sum);
    }
}

/* Rows from .. to for the vectors of channels first .. end. sum: [vectors, R S, LANES]. */
static void filter_part(strip t, int64_t first, int64_t end, float *sum) {
    const fri_conv2d_desc *d = t.d;
    const int64_t to = t.to, taps = d->r * d->s * LANES;
    const int64_t row = (d->q + d->w * d->stride_h) * LANES * (int64_t)fr_dtype_size(d->dtype);
    t.next = fri_max_i64(1, STRIP_BYTES / row);
    memset(sum + first * taps, 0, (size_t)((end - first) * taps) * sizeof *sum);
    if (is_square(d)) {
        (t.made != NULL ? make_squares : filter_squares)(t, first, end, sum);
        return;
    }
    for (; t.from < to; t.from = t.to) {
        t.to = fri_min_i64(to, t.from + t.next);
        for (int64_t v = first; v < end; v++)
            for (int64_t r = 0; r < d->r; r++) {
                float *place = sum + v * taps + r * d->s * LANES;
                if (d->dtype == FR_F32)
                    filter_row_f32(&t, r, fri_vector_at(d->c, v), place);
                else
                    filter_row_bf16(&t, r, fri_vector_at(d->c, v), place);
            }
    }
}

/* part: [parts][vectors, R S, LANES]. */
static void add_parts(const fri_conv2d_engine *e, const float *part, void *dw) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t taps = d->r * d->s, vectors = fri_vectors(d->c);
    for (int64_t v = 0; v < vectors; v++)
        for (int64_t lane = 0; lane < LANES; lane++) {
            float buf[MAX_SIZE * MAX_SIZE];
            const int64_t at = (fri_vector_at(d->c, v) + lane) * taps;
            float *sum = fri_cpu_target(d->dtype, dw, at, buf);
            memset(sum, 0, (size_t)taps * sizeof *sum);
            for (int64_t i = 0; i < e->parts; i++)
                for (int64_t t = 0; t < taps; t++) sum[t] += part[((i * vectors + v) * taps + t) * LANES + lane];
            fri_cpu_store(d->dtype, dw, at, taps, sum);
        }
}

void FRI_FOR(fri_conv2d_depthwise_weight_plan)(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    e->parts = fri_min_i64(d->n * d->p, fri_ceil_div(PARTS, fri_ceil_div(fri_vectors(d->c), group_of(d))));
    e->sum_at = fri_part(&e->bytes, (size_t)(e->parts * fri_vectors(d->c) * LANES * d->r * d->s) * sizeof(float));
    e->workers = fr_threads_get();
    if (d->norm != NULL) e->strip_at = fri_part(&e->bytes, (size_t)e->workers * made_bytes(d));
}

bool FRI_FOR(fri_conv2d_depthwise_weight_reads_norm)(const fri_conv2d_desc *d) {
    return d->dtype == FR_F32 && is_square(d);
}

typedef struct weight_loop {
    const fri_conv2d_engine *e;
    strip all; /* rows of all images; made: for the first thread */
    float *part;
} weight_loop;

static void part_piece(const void *context, int64_t task, int thread) {
    const weight_loop *l = context;
    const fri_conv2d_desc *d = &l->e->d;
    const int64_t rows = d->n * d->p, vectors = fri_vectors(d->c), group = group_of(d);
    const int64_t i = task / fri_ceil_div(vectors, group), first = task % fri_ceil_div(vectors, group) * group;
    strip t = l->all;
    t.from = i * rows / l->e->parts;
    t.to = (i + 1) * rows / l->e->parts;
    if (t.made != NULL) t.made += thread * (int64_t)(made_bytes(d) / sizeof(float));
    filter_part(t, first, fri_min_i64(vectors, first + group), l->part + i * vectors * LANES * d->r * d->s);
}

void FRI_FOR(fri_conv2d_depthwise_weight_run)(const fri_conv2d_engine *e, const void *x, const void *dy, void *dw,
                                              char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    const int64_t groups = fri_ceil_div(fri_vectors(d->c), group_of(d));
    const int64_t room = d->w + d->pad_w - d->s; /* first column of the last window inside */
    const int64_t right = room < 0 ? 0 : fri_min_i64(d->q, room / d->stride_w + 1);
    float *part = (float *)(void *)(workspace + e->sum_at);
    const fri_conv2d_reader reader = fri_conv2d_reader_of(e, workspace);
    float *made = reader.mean != NULL ? (float *)(void *)(workspace + e->strip_at) : NULL;
    const strip all = {d, x, dy, 0, 0, 0, fri_ceil_div(d->pad_w, d->stride_w), right, reader, made};
    fri_parallel(e->parts * groups, (int)e->workers, part_piece, &(weight_loop){e, all, part});
    add_parts(e, part, dw);
}
