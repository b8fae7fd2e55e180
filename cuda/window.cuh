/* window.cuh - means over rectangular windows: average pooling and adaptive average pooling differ only in where a
 * window lies and what it is divided by. Backward gathers: an element of dx adds up, in order of (p, q), the windows
 * over it. */
#ifndef FRI_CUDA_WINDOW_CUH
#define FRI_CUDA_WINDOW_CUH

#include "pixels.cuh"

enum { FRI_PRODUCT_MOST = 1 << 30 }; /* adaptive windows multiply a position by the other side */

/* Window o: elements first .. last of the image; `padded` also counts the padding it reaches, as PyTorch does. */
typedef struct fri_window {
    int32_t first, last, padded;
} fri_window;

template <bool ADAPTIVE> static __device__ __forceinline__ fri_window fri_window_of(const fri_axis &a, int32_t o) {
    fri_window v;
    if (ADAPTIVE) {
        v.first = o * a.in / a.out;
        v.last = ((o + 1) * a.in + a.out - 1) / a.out;
        v.padded = v.last - v.first;
    } else {
        int32_t start = o * a.stride - a.pad, end = start + a.kernel < a.in + a.pad ? start + a.kernel : a.in + a.pad;
        v.first = start > 0 ? start : 0;
        v.last = end < a.in ? end : a.in;
        if (v.last < v.first) v.last = v.first;
        v.padded = end - start;
    }
    return v;
}

/* Windows first .. last are the ones over element i. Adaptive: first(o) <= i < last(o) solved for o. */
template <bool ADAPTIVE>
static __device__ __forceinline__ void fri_windows_over(const fri_axis &a, int32_t i, int32_t *first, int32_t *last) {
    if (ADAPTIVE) {
        *first = i * a.out / a.in;
        *last = ((i + 1) * a.out + a.in - 1) / a.in;
    } else {
        int32_t from = i + a.pad - a.kernel + 1;
        *first = from > 0 ? (from + a.stride - 1) / a.stride : 0;
        *last = (i + a.pad) / a.stride + 1;
    }
    if (*last > a.out) *last = a.out;
}

static __device__ __forceinline__ float fri_window_divisor(bool include_pad, const fri_window &h, const fri_window &w) {
    return include_pad ? (float)((int64_t)h.padded * w.padded)
                       : (float)((int64_t)(h.last - h.first) * (w.last - w.first));
}

template <typename T, int N, bool ADAPTIVE>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    fri_window_mean(fri_axis ah, fri_axis aw, bool include_pad, fri_pixel_grid out, const T *x, T *y) {
    const fri_pixel o = fri_pixel_of(out, N);
    float sum[N] = {0};
    if (!o.inside) return;
    const fri_window vh = fri_window_of<ADAPTIVE>(ah, o.h), vw = fri_window_of<ADAPTIVE>(aw, o.w);
    for (int32_t h = vh.first; h < vh.last; h++)
        for (int32_t w = vw.first; w < vw.last; w++) {
            fri_pack<T, N> p = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, h, w));
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += fri_load(p.v[k]);
        }
    const float divisor = fri_window_divisor(include_pad, vh, vw);
    fri_pack<T, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], sum[k] / divisor);
    fri_store_pack<T, N>(y + o.at, p);
}

template <typename T, int N, bool ADAPTIVE>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    fri_window_spread(fri_axis ah, fri_axis aw, bool include_pad, fri_pixel_grid in, const T *dy, T *dx) {
    const fri_pixel i = fri_pixel_of(in, N);
    int32_t p0, p1, q0, q1;
    float sum[N] = {0};
    if (!i.inside) return;
    fri_windows_over<ADAPTIVE>(ah, i.h, &p0, &p1);
    fri_windows_over<ADAPTIVE>(aw, i.w, &q0, &q1);
    for (int32_t p = p0; p < p1; p++) {
        const fri_window vh = fri_window_of<ADAPTIVE>(ah, p);
        for (int32_t q = q0; q < q1; q++) {
            const fri_window vw = fri_window_of<ADAPTIVE>(aw, q);
            const float share = 1 / fri_window_divisor(include_pad, vh, vw);
            fri_pack<T, N> g = fri_load_pack<T, N>(dy + fri_pixel_at(i, in.c, ah.out, aw.out, p, q));
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += fri_load(g.v[k]) * share;
        }
    }
    fri_pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[k]);
    fri_store_pack<T, N>(dx + i.at, out);
}

/* backward: a is dy and b is dx, else x and y. */
template <bool ADAPTIVE>
static fr_status fri_launch_window(const fri_exec *e, const char *kernel, const fri_pool2d_desc *d, bool backward,
                                   const void *a, void *b) {
    fri_axis ah = {}, aw = {};
    const fri_pixel_grid in = {d->n * d->h * d->w, d->h, d->w, d->c}, out = {d->n * d->p * d->q, d->p, d->q, d->c};
    const fri_pixel_grid own = backward ? in : out;
    const bool pad = d->count_include_pad;
    if (own.count * own.c == 0) return FR_OK;
    fr_status s = fri_axes_of(kernel, d, &ah, &aw);
    if (s < 0) return s;
    if (ADAPTIVE && (d->h * d->p > FRI_PRODUCT_MOST || d->w * d->q > FRI_PRODUCT_MOST))
        return fr_fail(FR_EUNSUPPORTED, "%s: from %lld x %lld to %lld x %lld: a side times its result is beyond 2^30",
                       kernel, (long long)d->h, (long long)d->w, (long long)d->p, (long long)d->q);
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, fri_aligned(a, 16) && fri_aligned(b, 16), {
                        const fri_pixel_launch l = fri_pixel_launch_of(own, N);
                        if (backward)
                            fri_window_spread<T, N, ADAPTIVE>
                                <<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, pad, own, (const T *)a, (T *)b);
                        else
                            fri_window_mean<T, N, ADAPTIVE>
                                <<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, pad, own, (const T *)a, (T *)b);
                    }))
    return fri_cuda_launched(kernel);
}

#endif
