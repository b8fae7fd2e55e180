/* window.cuh - pooling: one walk over the windows of an image for maxima and means (F), and one for their gradients.
 * Adaptive windows differ only in where they lie. Backward gathers: an element of dx adds up, in order of (p, q), what
 * the windows over the element pass to it.
 *
 * Windows of K x K, 2 or 3, with strides of 2 have instances with constant loops and divisions; K = 0 is any window. */
#ifndef FRI_CUDA_WINDOW_CUH
#define FRI_CUDA_WINDOW_CUH

#include "pixels.cuh"

enum { FRI_PRODUCT_MOST = 1 << 30 }; /* adaptive windows multiply a position by the other side */

/* Window o: positions first .. last from `origin` on lie inside the image; `padded` also counts the padding that the
 * window reaches, as PyTorch does. */
typedef struct fri_window {
    int32_t origin, first, last, padded;
} fri_window;

template <bool ADAPTIVE> static __device__ __forceinline__ fri_window fri_window_of(const fri_axis &a, int32_t o) {
    fri_window v;
    if (ADAPTIVE) {
        v.origin = o * a.in / a.out;
        v.first = 0;
        v.last = v.padded = ((o + 1) * a.in + a.out - 1) / a.out - v.origin;
    } else {
        v.origin = o * a.stride - a.pad;
        v.first = v.origin < 0 ? (-v.origin + a.dilation - 1) / a.dilation : 0;
        v.last = v.origin + a.reach < a.in ? a.kernel : v.origin < a.in ? (a.in - 1 - v.origin) / a.dilation + 1 : 0;
        if (v.last < v.first) v.last = v.first;
        v.padded = (v.origin + a.kernel < a.in + a.pad ? v.origin + a.kernel : a.in + a.pad) - v.origin;
    }
    return v;
}

/* Windows first .. last may cover element i. Adaptive: windows whose interval has i, solved for the window. */
template <bool ADAPTIVE>
static __device__ __forceinline__ void fri_windows_over(const fri_axis &a, int32_t i, int32_t *first, int32_t *last) {
    const int32_t from = i + a.pad - a.reach;
    *first = ADAPTIVE ? i * a.out / a.in : from > 0 ? (from + a.stride - 1) / a.stride : 0;
    *last = ADAPTIVE ? ((i + 1) * a.out + a.in - 1) / a.in : (i + a.pad) / a.stride + 1;
    if (*last > a.out) *last = a.out;
}

/* Position of element i in window o, or -1 if the dilation skips the element. Adaptive windows need none. */
template <bool ADAPTIVE> static __device__ __forceinline__ int32_t fri_tap_of(const fri_axis &a, int32_t i, int32_t o) {
    const int32_t offset = i + a.pad - o * a.stride;
    if (ADAPTIVE || a.dilation == 1) return ADAPTIVE ? 0 : offset;
    return offset % a.dilation == 0 ? offset / a.dilation : -1;
}

/* The axis with the constants of K. */
template <int K> static __device__ __forceinline__ fri_axis fri_axis_fixed(fri_axis a) {
    if (K == 0) return a;
    return {a.in, a.out, K, 2, a.pad, 1, K - 1};
}

/* Means. */
struct fri_mean {
    static constexpr bool fast = true; /* has instances for K */
    bool include_pad;
    __device__ float divisor(const fri_window &h, const fri_window &w) const {
        return include_pad ? (float)((int64_t)h.padded * w.padded)
                           : (float)((int64_t)(h.last - h.first) * (w.last - w.first));
    }
    template <int N> struct state {
        float v[N] = {};
    };
    template <typename T, int N> __device__ void take(state<N> *s, const fri_pack<T, N> &x, int32_t, int32_t) const {
#pragma unroll
        for (int k = 0; k < N; k++) s->v[k] += fri_load(x.v[k]);
    }
    template <int N> __device__ void end(state<N> *s, const fri_window &h, const fri_window &w, int64_t) const {
        const float by = divisor(h, w);
#pragma unroll
        for (int k = 0; k < N; k++) s->v[k] /= by;
    }
    /* Backward: the share of an element in the window's gradient. */
    template <int N> __device__ float window(const fri_window &h, const fri_window &w, int64_t) const {
        return 1 / divisor(h, w);
    }
    static __device__ float passed(float share, int, int32_t, int32_t, float dy) {
        return dy * share;
    }
};

/* y = what f takes of each window. */
template <typename T, int N, int K, bool ADAPTIVE, typename F>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS - (K == 3)) /* 3 loads on their way: 80 registers */
    fri_pool(fri_axis ah_, fri_axis aw_, fri_pixel_grid out, const T *x, T *y, F f) {
    const fri_axis ah = fri_axis_fixed<K>(ah_), aw = fri_axis_fixed<K>(aw_);
    const fri_pixel o = fri_pixel_of(out, N);
    typename F::template state<N> s;
    if (!o.inside) return;
    const fri_window vh = fri_window_of<ADAPTIVE>(ah, o.h), vw = fri_window_of<ADAPTIVE>(aw, o.w);
    const int32_t down = ADAPTIVE ? 1 : ah.dilation, on = ADAPTIVE ? 1 : aw.dilation;
#pragma unroll(K > 0 ? K : 1)
    for (int32_t r = K > 0 ? 0 : vh.first; r < (K > 0 ? K : vh.last); r++) {
        const int32_t h = vh.origin + r * down;
        fri_pack<T, N> row[K > 0 ? K : 1];
#pragma unroll
        for (int i = 0; i < K; i++)
            if (r >= vh.first && r < vh.last && i >= vw.first && i < vw.last)
                row[i] = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, h, vw.origin + i));
#pragma unroll(K > 0 ? K : 1)
        for (int32_t i = K > 0 ? 0 : vw.first; i < (K > 0 ? K : vw.last); i++) {
            const int32_t w = vw.origin + i * on;
            if (K == 0) row[0] = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, h, w));
            if (K == 0 || (r >= vh.first && r < vh.last && i >= vw.first && i < vw.last))
                f.take(&s, row[K > 0 ? i : 0], r * aw.kernel + i, h * aw.in + w);
        }
    }
    f.end(&s, vh, vw, o.at);
    fri_pack<T, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], s.v[k]);
    fri_store_pack<T, N>(y + o.at, p);
}

template <typename T, int N, bool ADAPTIVE, typename F>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    fri_pool_gradient(fri_axis ah, fri_axis aw, fri_pixel_grid in, const T *dy, T *dx, F f) {
    const fri_pixel i = fri_pixel_of(in, N);
    int32_t p0, p1, q0, q1;
    float sum[N] = {0};
    if (!i.inside) return;
    fri_windows_over<ADAPTIVE>(ah, i.h, &p0, &p1);
    fri_windows_over<ADAPTIVE>(aw, i.w, &q0, &q1);
    for (int32_t p = p0; p < p1; p++) {
        const fri_window vh = fri_window_of<ADAPTIVE>(ah, p);
        const int32_t r = fri_tap_of<ADAPTIVE>(ah, i.h, p);
        for (int32_t q = q0; q < q1 && r >= 0; q++) {
            const int32_t s = fri_tap_of<ADAPTIVE>(aw, i.w, q);
            if (s < 0) continue;
            const int64_t from = fri_pixel_at(i, in.c, ah.out, aw.out, p, q);
            const auto own = f.template window<N>(vh, fri_window_of<ADAPTIVE>(aw, q), from);
            const fri_pack<T, N> g = fri_load_pack<T, N>(dy + from);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += f.passed(own, k, r * aw.kernel + s, i.h * aw.in + i.w, fri_load(g.v[k]));
        }
    }
    fri_pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[k]);
    fri_store_pack<T, N>(dx + i.at, out);
}

/* The gradient for K: a thread makes the 2 x 2 elements under a window's first corner. A window of 3 x 3 has a third
 * row and column, under the next corners. */
template <typename T, int N, int K, typename F>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    fri_pool_gradient_by_corners(fri_axis ah_, fri_axis aw_, fri_pixel_grid corners, const T *dy, T *dx, F f) {
    const fri_axis ah = fri_axis_fixed<K>(ah_), aw = fri_axis_fixed<K>(aw_);
    const fri_pixel o = fri_pixel_of(corners, N);
    float sum[4][N] = {};
    if (!o.inside) return;
#pragma unroll
    for (int i = (K - 1) * (K - 1) - 1; i >= 0; i--) { /* p and q in ascending order */
        const int above = i / (K - 1), before = i % (K - 1), p = o.h - above, q = o.w - before;
        if (p < 0 || q < 0 || p >= ah.out || q >= aw.out) continue;
        const int64_t from = fri_pixel_at(o, corners.c, ah.out, aw.out, p, q);
        const auto own = f.template window<N>(fri_window_of<false>(ah, p), fri_window_of<false>(aw, q), from);
        const fri_pack<T, N> g = fri_load_pack<T, N>(dy + from);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = e / 2 + 2 * above, s = e % 2 + 2 * before;
            if (r >= K || s >= K) continue;
#pragma unroll
            for (int k = 0; k < N; k++) sum[e][k] += f.passed(own, k, r * K + s, 0, fri_load(g.v[k]));
        }
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int32_t h = 2 * o.h - ah.pad + e / 2, w = 2 * o.w - aw.pad + e % 2;
        fri_pack<T, N> out;
        if (h < 0 || w < 0 || h >= ah.in || w >= aw.in) continue;
#pragma unroll
        for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[e][k]);
        fri_store_pack<T, N>(dx + fri_pixel_at(o, corners.c, ah.in, aw.in, h, w), out);
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------- */

/* K of a shape. */
static inline int fri_window_fixed(const fri_axis &h, const fri_axis &w) {
    const bool fixed = h.kernel == w.kernel && h.stride == 2 && w.stride == 2 && h.dilation == 1 && w.dilation == 1;
    return fixed && (h.kernel == 2 || h.kernel == 3) ? h.kernel : 0;
}

/* The image [n, h, w, c] of x, or of y. */
static inline fri_pixel_grid fri_pooled_grid(const fri_pool2d_desc *d, bool x) {
    return x ? fri_pixel_grid{d->n * d->h * d->w, d->h, d->w, d->c}
             : fri_pixel_grid{d->n * d->p * d->q, d->p, d->q, d->c};
}

template <bool ADAPTIVE, typename F>
static fr_status fri_launch_pool(const fri_exec *e, const char *kernel, const fri_pool2d_desc *d, const fri_axis &ah,
                                 const fri_axis &aw, bool aligned, const void *x, void *y, F f) {
    const fri_pixel_grid out = fri_pooled_grid(d, false);
    const int fixed = ADAPTIVE ? 0 : fri_window_fixed(ah, aw);
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, aligned && fri_aligned(x, 16) && fri_aligned(y, 16), {
                        constexpr bool FAST = F::fast && !ADAPTIVE && N * sizeof(T) == 16;
                        const fri_pixel_launch l = fri_pixel_launch_of(out, N);
                        auto run = fri_pool<T, N, 0, ADAPTIVE, F>;
                        if (fixed == 2) run = fri_pool < T, N, FAST ? 2 : 0, ADAPTIVE, F > ;
                        if (fixed == 3) run = fri_pool < T, N, FAST ? 3 : 0, ADAPTIVE, F > ;
                        run<<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, out, (const T *)x, (T *)y, f);
                    }))
    return fri_cuda_launched(kernel);
}

template <bool ADAPTIVE, typename F>
static fr_status fri_launch_pool_gradient(const fri_exec *e, const char *kernel, const fri_pool2d_desc *d,
                                          const fri_axis &ah, const fri_axis &aw, bool aligned, const void *dy,
                                          void *dx, F f) {
    const fri_pixel_grid in = fri_pooled_grid(d, true);
    const int64_t h = (d->h + d->pad_h + 1) / 2, w = (d->w + d->pad_w + 1) / 2;
    const fri_pixel_grid corners = {d->n * h * w, h, w, d->c};
    const int fixed = ADAPTIVE ? 0 : fri_window_fixed(ah, aw);
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, aligned && fri_aligned(dy, 16) && fri_aligned(dx, 16), {
                        constexpr bool FAST = F::fast && !ADAPTIVE && N * sizeof(T) == 16;
                        const fri_pixel_grid own = FAST && fixed > 0 ? corners : in;
                        const fri_pixel_launch l = fri_pixel_launch_of(own, N);
                        auto run = fri_pool_gradient<T, N, ADAPTIVE, F>;
                        if constexpr (FAST) {
                            if (fixed == 2) run = fri_pool_gradient_by_corners<T, N, 2, F>;
                            if (fixed == 3) run = fri_pool_gradient_by_corners<T, N, 3, F>;
                        }
                        run<<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, own, (const T *)dy, (T *)dx, f);
                    }))
    return fri_cuda_launched(kernel);
}

/* backward: a is dy and b is dx, else x and y. */
template <bool ADAPTIVE>
static fr_status fri_launch_mean(const fri_exec *e, const char *kernel, fri_pool2d_desc d, bool backward, const void *a,
                                 void *b) {
    fri_axis ah = {}, aw = {};
    d.dilation_h = d.dilation_w = 1;
    if (d.n * d.c * (backward ? d.h * d.w : d.p * d.q) == 0) return FR_OK;
    fr_status s = fri_axes_of(kernel, &d, &ah, &aw);
    if (s < 0) return s;
    if (ADAPTIVE && (d.h * d.p > FRI_PRODUCT_MOST || d.w * d.q > FRI_PRODUCT_MOST))
        return fr_fail(FR_EUNSUPPORTED, "%s: from %lld x %lld to %lld x %lld: a side times its result is beyond 2^30",
                       kernel, (long long)d.h, (long long)d.w, (long long)d.p, (long long)d.q);
    const fri_mean f = {d.count_include_pad};
    return backward ? fri_launch_pool_gradient<ADAPTIVE>(e, kernel, &d, ah, aw, true, a, b, f)
                    : fri_launch_pool<ADAPTIVE>(e, kernel, &d, ah, aw, true, a, b, f);
}

#endif
