/* upsample.c - nearest and bilinear interpolation to a given size.
 *
 * Along an axis, output o reads sources low and high with weights 1 - t and t (nearest: low alone; arith.h). Backward
 * gathers: the outputs that read source i form a range, and an element of dx sums them in order of (p, q). */
#include "cpu/cpu.h"

#include <string.h>

enum { C_BLOCK = 512 };

typedef fri_upsample_axis axis;
typedef fri_upsample_source source;

static axis axis_h(const fri_upsample_desc *d) {
    return (axis){d->h, d->p, d->bilinear, d->align_corners};
}

static axis axis_w(const fri_upsample_desc *d) {
    return (axis){d->w, d->q, d->bilinear, d->align_corners};
}

FRI_CLONES static void blend(int64_t n, const real *a, const real *b, const real *c, const real *d, real th, real tw,
                             real *y) {
    const real h0 = 1 - th, w0 = 1 - tw;
    for (int64_t i = 0; i < n; i++) y[i] = h0 * (w0 * a[i] + tw * b[i]) + th * (w0 * c[i] + tw * d[i]);
}

/* Neighbours of weight 0 are replaced by zeros. */
static inline const real *neighbour(const fri_upsample_desc *d, const void *x, int64_t at, int64_t n, bool reads,
                                    real *buf) {
    static const real zeros[C_BLOCK];
    return reads ? fri_cpu_load(d->dtype, x, at, n, buf) : zeros;
}

typedef struct upsample_loop {
    const fri_upsample_desc *d;
    const void *from;
    void *to;
} upsample_loop;

/* One row of outputs: image n, row p. */
static void forward_row(const void *context, int64_t row, int thread) {
    const upsample_loop *l = context;
    const fri_upsample_desc *d = l->d;
    const int64_t n = row / d->p, p = row % d->p;
    const void *x = l->from;
    void *y = l->to;
    real buf[4][C_BLOCK], ybuf[C_BLOCK];
    const axis ah = axis_h(d), aw = axis_w(d);
    const source sh = fri_upsample_source_of(&ah, p);
    const size_t size = fr_dtype_size(d->dtype);
    for (int64_t q = 0; q < d->q; q++) {
        const source sw = fri_upsample_source_of(&aw, q);
        int64_t to = ((n * d->p + p) * d->q + q) * d->c;
        int64_t top = (n * d->h + sh.low) * d->w, bottom = (n * d->h + sh.high) * d->w;
        if (!d->bilinear) {
            memcpy((char *)y + (size_t)to * size, (const char *)x + (size_t)((top + sw.low) * d->c) * size,
                   (size_t)d->c * size);
            continue;
        }
        for (int64_t c = 0; c < d->c; c += C_BLOCK) {
            int64_t count = fri_min_i64(C_BLOCK, d->c - c);
            real *out = fri_cpu_target(d->dtype, y, to + c, ybuf);
            const bool right = sw.t > 0, below = sh.t > 0;
            blend(count, neighbour(d, x, (top + sw.low) * d->c + c, count, true, buf[0]),
                  neighbour(d, x, (top + sw.high) * d->c + c, count, right, buf[1]),
                  neighbour(d, x, (bottom + sw.low) * d->c + c, count, below, buf[2]),
                  neighbour(d, x, (bottom + sw.high) * d->c + c, count, right && below, buf[3]), sh.t, sw.t, out);
            fri_cpu_store(d->dtype, y, to + c, count, out);
        }
    }
}

fr_status fri_cpu_upsample_forward(const fri_exec *e, const fri_upsample_desc *d, const void *x, void *y) {
    FRI_TRY(fri_cpu_accepts("upsample", d->dtype));
    const int64_t rows = d->c > 0 ? d->n * d->p : 0;
    fri_cpu_pieces(rows * d->q * d->c, rows, forward_row, &(upsample_loop){d, x, y});
    return FR_OK;
}

/* Outputs added at once; an incomplete last group is filled with weight 0. */
enum { GROUP = 4 };

typedef struct group {
    const real *x[GROUP];
    real weight[GROUP];
    int size;
} group;

/* Adds in order: ((sum + w0 x0) + w1 x1) + ...; the first group begins with w0 x0. */
static inline __attribute__((always_inline)) void add_some(const int size, const group *g, const bool first, int64_t n,
                                                           real *sum) {
    const group own = *g;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        real total = first ? 0 : sum[i];
#pragma GCC unroll 4
        for (int k = 0; k < size; k++) total += own.weight[k] * own.x[k][i];
        sum[i] = total;
    }
}

FRI_CLONES static void add_group(const group *g, const bool first, int64_t n, real *sum) {
    switch (g->size) {
    case 1: add_some(1, g, first, n, sum); break;
    case 2: add_some(2, g, first, n, sum); break;
    case 3: add_some(3, g, first, n, sum); break;
    default: add_some(GROUP, g, first, n, sum);
    }
}

static inline void take_group(group *g, bool *first, int64_t n, real *sum) {
    if (*first)
        add_group(g, true, n, sum);
    else
        add_group(g, false, n, sum);
    *first = false;
    g->size = 0;
}

/* Outputs begin .. end - 1 read source i; outputs before `from` are known not to. */
typedef struct readers {
    int64_t begin, end;
} readers;

static readers readers_of(const axis *a, int64_t i, int64_t from) {
    readers r = {from, from};
    if (!a->bilinear) return (readers){fri_ceil_div(i * a->out, a->in), fri_ceil_div((i + 1) * a->out, a->in)};
    while (r.begin < a->out && fri_upsample_source_of(a, r.begin).high < i) r.begin++;
    for (r.end = r.begin; r.end < a->out && fri_upsample_source_of(a, r.end).low <= i;) r.end++;
    return r;
}

/* One row of dx: image n, row h. */
static void backward_row(const void *context, int64_t row, int thread) {
    const upsample_loop *l = context;
    const fri_upsample_desc *d = l->d;
    const int64_t n = row / d->h, h = row % d->h;
    real dybuf[GROUP][C_BLOCK], dxbuf[C_BLOCK];
    const axis ah = axis_h(d), aw = axis_w(d);
    const readers rows = readers_of(&ah, h, 0);
    readers columns = {0, 0};
    for (int64_t w = 0; w < d->w; w++) {
        columns = readers_of(&aw, w, columns.begin);
        for (int64_t c = 0; c < d->c; c += C_BLOCK) {
            int64_t count = fri_min_i64(C_BLOCK, d->c - c), to = ((n * d->h + h) * d->w + w) * d->c + c;
            real *sum = fri_cpu_target(d->dtype, l->to, to, dxbuf);
            bool first = true;
            group g = {.size = 0};
            for (int64_t p = rows.begin; p < rows.end; p++) {
                const real down = fri_upsample_share(fri_upsample_source_of(&ah, p), h);
                for (int64_t q = columns.begin; q < columns.end; q++) {
                    int64_t from = ((n * d->p + p) * d->q + q) * d->c + c;
                    fri_cpu_prefetch(d->dtype, l->from, from, count);
                    g.x[g.size] = fri_cpu_load(d->dtype, l->from, from, count, dybuf[g.size]);
                    g.weight[g.size] = down * fri_upsample_share(fri_upsample_source_of(&aw, q), w);
                    if (++g.size == GROUP) take_group(&g, &first, count, sum);
                }
            }
            if (g.size > 0) take_group(&g, &first, count, sum);
            if (first) memset(sum, 0, (size_t)count * sizeof *sum); /* not read by any output */
            fri_cpu_store(d->dtype, l->to, to, count, sum);
        }
    }
}

fr_status fri_cpu_upsample_backward(const fri_exec *e, const fri_upsample_desc *d, const void *dy, void *dx) {
    FRI_TRY(fri_cpu_accepts("upsample", d->dtype));
    fri_cpu_pieces(d->n * d->p * d->q * d->c, d->n * d->h, backward_row, &(upsample_loop){d, dy, dx});
    return FR_OK;
}
