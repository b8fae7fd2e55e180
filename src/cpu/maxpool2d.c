/* maxpool2d.c - maximum over windows, channels innermost.
 *
 * Backward gathers: each element of dx sums, in order of (p, q), the dy of all windows whose index selects the
 * element. dx is therefore written once, from sums in f32 or wider, and rows of dx are independent tasks. An index is
 * compared with the element's code in the window: r * kernel_w + s for u8, h * W + w for i32 and i64. */
#include "cpu/cpu.h"

#include <string.h>

enum { C_BLOCK = 256 }; /* channels at a time: maximum and index stay in L1 */

static fr_status check(const fri_pool2d_desc *d, fr_dtype index_dtype) {
    FRI_TRY(fri_cpu_accepts("maxpool2d", d->dtype));
    if (index_dtype == FR_U8 && d->kernel_h * d->kernel_w > 255)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: a window of %lld x %lld does not fit u8 indices (255 positions)",
                       (long long)d->kernel_h, (long long)d->kernel_w);
    if (index_dtype != FR_U8 && index_dtype != FR_I32 && index_dtype != FR_I64)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: indices are u8, i32 or i64, not %s", fr_dtype_name(index_dtype));
    if (d->h * d->w > INT32_MAX)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: an image of %lld x %lld has positions beyond 31 bits",
                       (long long)d->h, (long long)d->w);
    return FR_OK;
}

/* Positions first .. last of a window whose position 0 is at `origin` lie inside 0 .. in. */
static inline void clip(int64_t origin, int64_t dilation, int64_t kernel, int64_t in, int64_t *first, int64_t *last) {
    *first = origin < 0 ? fri_ceil_div(-origin, dilation) : 0;
    *last = origin + (kernel - 1) * dilation < in ? kernel : origin < in ? (in - 1 - origin) / dilation + 1 : 0;
}

/* Positions of a window compared at once. An incomplete last group repeats its last member, which has no effect. */
enum { GROUP = 4 };

typedef struct group {
    const real *x[GROUP];
    int32_t code[GROUP];
    int size;
} group;

/* The first group sets best and at, later groups update them. NaN wins over all numbers, as in PyTorch. */
static inline void take_larger(const group *g, bool first, int64_t n, real *best, int32_t *at) {
    const real *x0 = g->x[0], *x1 = g->x[1], *x2 = g->x[2], *x3 = g->x[3];
    const int32_t c0 = g->code[0], c1 = g->code[1], c2 = g->code[2], c3 = g->code[3];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        real v0 = x0[i], v1 = x1[i], v2 = x2[i], v3 = x3[i];
        real old = first ? v0 : best[i];
        int32_t c = first ? c0 : at[i];
        c = v0 > old || v0 != v0 ? c0 : c;
        old = v0 > old || v0 != v0 ? v0 : old;
        c = v1 > old || v1 != v1 ? c1 : c;
        old = v1 > old || v1 != v1 ? v1 : old;
        c = v2 > old || v2 != v2 ? c2 : c;
        old = v2 > old || v2 != v2 ? v2 : old;
        c = v3 > old || v3 != v3 ? c3 : c;
        old = v3 > old || v3 != v3 ? v3 : old;
        best[i] = old;
        at[i] = c;
    }
}

static inline void take_group(group *g, bool first, int64_t n, real *best, int32_t *at) {
    for (int i = g->size; i < GROUP; i++) {
        g->x[i] = g->x[g->size - 1];
        g->code[i] = g->code[g->size - 1];
    }
    g->size = 0;
    if (first)
        take_larger(g, true, n, best, at);
    else
        take_larger(g, false, n, best, at);
}

/* Runs a loop of statements over n elements; element i of the indices, from element `first` on, is at[i]. */
#define EACH_INDEX(type, statement)                                     \
    do {                                                                \
        type *at = (type *)index + first;                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) statement; \
    } while (0)
#define BY_TYPE(t, statement)               \
    do {                                    \
        if ((t) == FR_U8)                   \
            EACH_INDEX(uint8_t, statement); \
        else if ((t) == FR_I32)             \
            EACH_INDEX(int32_t, statement); \
        else                                \
            EACH_INDEX(int64_t, statement); \
    } while (0)

static inline void store_index(fr_dtype t, int64_t n, const int32_t *code, void *index, int64_t first) {
    BY_TYPE(t, at[i] = (__typeof__(*at))code[i]); /* -1 becomes 255 in u8 */
}

typedef struct maxpool_loop {
    const fri_pool2d_desc *d;
    fr_dtype index_dtype;
    const void *from;
    void *index, *to;
} maxpool_loop;

/* One row of outputs: image n, row p. */
FRI_CLONES static void forward_row(const void *context, int64_t row, int thread) {
    const maxpool_loop *l = context;
    const fri_pool2d_desc *d = l->d;
    const int64_t n = row / d->p, p = row % d->p;
    real xbuf[GROUP][C_BLOCK], ybuf[C_BLOCK];
    int32_t at[C_BLOCK];
    int64_t r0, r1, s0, s1, h0 = p * d->stride_h - d->pad_h;
    clip(h0, d->dilation_h, d->kernel_h, d->h, &r0, &r1);
    for (int64_t q = 0; q < d->q; q++) {
        int64_t w0 = q * d->stride_w - d->pad_w;
        clip(w0, d->dilation_w, d->kernel_w, d->w, &s0, &s1);
        for (int64_t c = 0; c < d->c; c += C_BLOCK) {
            int64_t count = fri_min_i64(C_BLOCK, d->c - c);
            int64_t out = ((n * d->p + p) * d->q + q) * d->c + c;
            real *best = fri_cpu_target(d->dtype, l->to, out, ybuf);
            bool first = true;
            group g = {.size = 0};
            for (int64_t r = r0; r < r1; r++)
                for (int64_t s = s0; s < s1; s++) {
                    int64_t h = h0 + r * d->dilation_h, w = w0 + s * d->dilation_w;
                    int64_t from = ((n * d->h + h) * d->w + w) * d->c + c;
                    g.code[g.size] = (int32_t)(l->index_dtype == FR_U8 ? r * d->kernel_w + s : h * d->w + w);
                    fri_cpu_prefetch(d->dtype, l->from, from, count);
                    g.x[g.size] = fri_cpu_load(d->dtype, l->from, from, count, xbuf[g.size]);
                    if (++g.size < GROUP) continue;
                    take_group(&g, first, count, best, at);
                    first = false;
                }
            if (g.size > 0) {
                take_group(&g, first, count, best, at);
                first = false;
            }
            if (first) { /* the window lies in the padding */
                for (int64_t i = 0; i < count; i++) best[i] = -(real)INFINITY;
                for (int64_t i = 0; i < count; i++) at[i] = -1;
            }
            fri_cpu_store(d->dtype, l->to, out, count, best);
            if (l->index != NULL) store_index(l->index_dtype, count, at, l->index, out);
        }
    }
}

fr_status fri_cpu_maxpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y,
                                    fr_dtype index_dtype, void *index) {
    const maxpool_loop l = {d, index != NULL ? index_dtype : FR_I32, x, index, y};
    FRI_TRY(check(d, l.index_dtype));
    fri_cpu_pieces(d->n * d->h * d->w * d->c, d->n * d->p, forward_row, &l);
    return FR_OK;
}

/* dx = or += dy where the index is code. */
static inline void pass(int64_t n, bool add, fr_dtype t, void *index, int64_t first, int32_t code, const real *dy,
                        real *dx) {
    if (add)
        BY_TYPE(t, dx[i] += at[i] == code ? dy[i] : 0);
    else
        BY_TYPE(t, dx[i] = at[i] == code ? dy[i] : 0);
}

/* Windows first .. last may cover a position. Both bounds grow with the position, so a sweep needs no division. */
typedef struct cover {
    int64_t first, last;
} cover;

static inline void advance(cover *v, int64_t at, int64_t pad, int64_t stride, int64_t reach, int64_t out) {
    while (v->last < out && v->last * stride <= at + pad) v->last++;
    while (v->first < v->last && v->first * stride + reach < at + pad) v->first++;
}

/* Position in the window at `offset` from its start, or -1 if the dilation skips the offset. */
static inline int64_t position(int64_t offset, int64_t dilation) {
    if (dilation == 1) return offset;
    return offset % dilation == 0 ? offset / dilation : -1;
}

/* One row of dx: image n, row h. */
FRI_CLONES static void backward_row(const void *context, int64_t row, int thread) {
    const maxpool_loop *l = context;
    const fri_pool2d_desc *d = l->d;
    const fr_dtype index_dtype = l->index_dtype;
    const int64_t n = row / d->h, h = row % d->h;
    real dybuf[C_BLOCK], dxbuf[C_BLOCK];
    cover ps = {0, 0}, qs = {0, 0};
    advance(&ps, h, d->pad_h, d->stride_h, (d->kernel_h - 1) * d->dilation_h, d->p);
    for (int64_t w = 0; w < d->w; w++) {
        advance(&qs, w, d->pad_w, d->stride_w, (d->kernel_w - 1) * d->dilation_w, d->q);
        for (int64_t c = 0; c < d->c; c += C_BLOCK) {
            int64_t count = fri_min_i64(C_BLOCK, d->c - c);
            int64_t to = ((n * d->h + h) * d->w + w) * d->c + c;
            real *sum = fri_cpu_target(d->dtype, l->to, to, dxbuf);
            bool add = false;
            for (int64_t p = ps.first; p < ps.last; p++) {
                int64_t r = position(h + d->pad_h - p * d->stride_h, d->dilation_h);
                if (r < 0) continue;
                for (int64_t q = qs.first; q < qs.last; q++) {
                    int64_t s = position(w + d->pad_w - q * d->stride_w, d->dilation_w);
                    if (s < 0) continue;
                    int64_t from = ((n * d->p + p) * d->q + q) * d->c + c;
                    int64_t code = index_dtype == FR_U8 ? r * d->kernel_w + s : h * d->w + w;
                    fri_cpu_prefetch(d->dtype, l->from, from, count);
                    fri_cpu_prefetch(index_dtype, l->index, from, count);
                    pass(count, add, index_dtype, l->index, from, (int32_t)code,
                         fri_cpu_load(d->dtype, l->from, from, count, dybuf), sum);
                    add = true;
                }
            }
            if (!add) memset(sum, 0, (size_t)count * sizeof *sum);
            fri_cpu_store(d->dtype, l->to, to, count, sum);
        }
    }
}

fr_status fri_cpu_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                     const void *index, const void *dy, void *dx) {
    FRI_TRY(check(d, index_dtype));
    const maxpool_loop l = {d, index_dtype, dy, (void *)(uintptr_t)index, dx}; /* the index is only read */
    fri_cpu_pieces(d->n * d->h * d->w * d->c, d->n * d->h, backward_row, &l);
    return FR_OK;
}

FRI_CLONES static void mask_row(int64_t n, const real *y, fr_dtype t, void *index, int64_t first) {
    BY_TYPE(t, at[i] = fri_relu_passes(y[i]) ? at[i] : (__typeof__(*at))-1);
}

static void mask_range(const void *context, int64_t first, int64_t last) {
    const maxpool_loop *l = context;
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        real buf[FRI_BLOCK];
        const int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        mask_row(n, fri_cpu_load(l->d->dtype, l->from, i, n, buf), l->index_dtype, l->index, i);
    }
}

fr_status fri_cpu_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y, fr_dtype index_dtype,
                                 void *index) {
    FRI_TRY(check(d, index_dtype));
    fri_cpu_ranges(d->n * d->p * d->q * d->c, mask_range, &(maxpool_loop){d, index_dtype, y, index, NULL});
    return FR_OK;
}
