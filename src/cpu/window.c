/* window.c - means over rectangular windows: average pooling and adaptive average pooling differ only in the windows
 * and the divisor. Backward gathers: an element of dx sums, in order of (p, q), all windows over the element. */
#include "cpu/cpu.h"

#include <string.h>

enum { WINDOW_BLOCK = 512 };

/* One image axis. */
typedef struct axis {
    int64_t in, out, kernel, stride, pad;
    bool adaptive;
} axis;

/* Window o: elements first .. last of the image; `padded` also counts padding inside the window, as PyTorch does. */
typedef struct window {
    int64_t first, last, padded;
} window;

static inline window window_of(const axis *a, int64_t o) {
    window v;
    if (a->adaptive) {
        v.first = o * a->in / a->out;
        v.last = fri_ceil_div((o + 1) * a->in, a->out);
        v.padded = v.last - v.first;
    } else {
        int64_t start = o * a->stride - a->pad, end = fri_min_i64(start + a->kernel, a->in + a->pad);
        v.first = fri_max_i64(start, 0);
        v.last = fri_max_i64(v.first, fri_min_i64(end, a->in));
        v.padded = end - start;
    }
    return v;
}

/* Windows first .. last cover an element. Both bounds grow with the element, so a sweep divides only where a window
 * begins or ends. */
typedef struct cover {
    int64_t first, last;
    int64_t first_end, last_start; /* where window `first` ends and window `last` begins */
} cover;

static cover cover_begin(const axis *a) {
    const window v = window_of(a, 0);
    return (cover){0, 0, v.last, v.first};
}

static inline void advance(const axis *a, cover *v, int64_t i) {
    while (v->last < a->out && v->last_start <= i) v->last_start = window_of(a, ++v->last).first;
    while (v->first < v->last && v->first_end <= i) v->first_end = window_of(a, ++v->first).last;
}

static inline real divisor(bool include_pad, const window *h, const window *w) {
    return include_pad ? (real)(h->padded * w->padded) : (real)((h->last - h->first) * (w->last - w->first));
}

static axis axis_h(const fri_pool2d_desc *d, bool adaptive) {
    return (axis){d->h, d->p, d->kernel_h, d->stride_h, d->pad_h, adaptive};
}

static axis axis_w(const fri_pool2d_desc *d, bool adaptive) {
    return (axis){d->w, d->q, d->kernel_w, d->stride_w, d->pad_w, adaptive};
}

typedef struct window_loop {
    const fri_pool2d_desc *d;
    bool adaptive;
    const void *from;
    void *to;
} window_loop;

/* One row of outputs: image n, row p. */
FRI_CLONES static void forward_row(const void *context, int64_t row, int thread) {
    const window_loop *l = context;
    const fri_pool2d_desc *d = l->d;
    const int64_t n = row / d->p, p = row % d->p;
    real xbuf[WINDOW_BLOCK], ybuf[WINDOW_BLOCK];
    const axis ah = axis_h(d, l->adaptive), aw = axis_w(d, l->adaptive);
    const window vh = window_of(&ah, p);
    for (int64_t q = 0; q < d->q; q++) {
        const window vw = window_of(&aw, q);
        const real div = divisor(d->count_include_pad, &vh, &vw);
        for (int64_t c = 0; c < d->c; c += WINDOW_BLOCK) {
            int64_t count = fri_min_i64(WINDOW_BLOCK, d->c - c), to = ((n * d->p + p) * d->q + q) * d->c + c;
            real *sum = fri_cpu_target(d->dtype, l->to, to, ybuf);
            memset(sum, 0, (size_t)count * sizeof *sum);
            for (int64_t h = vh.first; h < vh.last; h++)
                for (int64_t w = vw.first; w < vw.last; w++) {
                    int64_t from = ((n * d->h + h) * d->w + w) * d->c + c;
                    fri_cpu_prefetch(d->dtype, l->from, from, count);
                    const real *v = fri_cpu_load(d->dtype, l->from, from, count, xbuf);
#pragma GCC ivdep
                    for (int64_t i = 0; i < count; i++) sum[i] += v[i];
                }
            for (int64_t i = 0; i < count; i++) sum[i] /= div;
            fri_cpu_store(d->dtype, l->to, to, count, sum);
        }
    }
}

static inline void add_share(int64_t n, bool add, real share, const real *dy, real *dx) {
    if (add) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) dx[i] += dy[i] * share;
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * share;
    }
}

/* One row of dx: image n, row h. */
FRI_CLONES static void backward_row(const void *context, int64_t row, int thread) {
    const window_loop *l = context;
    const fri_pool2d_desc *d = l->d;
    const int64_t n = row / d->h, h = row % d->h;
    real dybuf[WINDOW_BLOCK], dxbuf[WINDOW_BLOCK];
    const axis ah = axis_h(d, l->adaptive), aw = axis_w(d, l->adaptive);
    cover ps = cover_begin(&ah), qs = cover_begin(&aw);
    window vh = {0}, vw = {0};
    int64_t p_of_vh = -1, q_of_vw = -1; /* indices of windows vh and vw */
    advance(&ah, &ps, h);
    for (int64_t w = 0; w < d->w; w++) {
        advance(&aw, &qs, w);
        for (int64_t c = 0; c < d->c; c += WINDOW_BLOCK) {
            int64_t count = fri_min_i64(WINDOW_BLOCK, d->c - c), to = ((n * d->h + h) * d->w + w) * d->c + c;
            real *sum = fri_cpu_target(d->dtype, l->to, to, dxbuf);
            bool add = false;
            for (int64_t p = ps.first; p < ps.last; p++)
                for (int64_t q = qs.first; q < qs.last; q++) {
                    if (p != p_of_vh) vh = window_of(&ah, p_of_vh = p);
                    if (q != q_of_vw) vw = window_of(&aw, q_of_vw = q);
                    const real share = 1 / divisor(d->count_include_pad, &vh, &vw);
                    const real *v =
                        fri_cpu_load(d->dtype, l->from, ((n * d->p + p) * d->q + q) * d->c + c, count, dybuf);
                    add_share(count, add, share, v, sum);
                    add = true;
                }
            if (!add) memset(sum, 0, (size_t)count * sizeof *sum);
            fri_cpu_store(d->dtype, l->to, to, count, sum);
        }
    }
}

fr_status fri_cpu_window_mean_forward(const char *op, const fri_pool2d_desc *d, bool adaptive, const void *x, void *y) {
    FRI_TRY(fri_cpu_accepts(op, d->dtype));
    fri_cpu_pieces(d->n * d->h * d->w * d->c, d->n * d->p, forward_row, &(window_loop){d, adaptive, x, y});
    return FR_OK;
}

fr_status fri_cpu_window_mean_backward(const char *op, const fri_pool2d_desc *d, bool adaptive, const void *dy,
                                       void *dx) {
    FRI_TRY(fri_cpu_accepts(op, d->dtype));
    fri_cpu_pieces(d->n * d->h * d->w * d->c, d->n * d->h, backward_row, &(window_loop){d, adaptive, dy, dx});
    return FR_OK;
}
