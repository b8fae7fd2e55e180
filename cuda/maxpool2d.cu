/* maxpool2d.cu - maximum over windows; x = n * h * w * c and y = n * p * q * c elements of size bytes, index bytes per
 * index.
 *   forward    (x + y) * size + y * index bytes     windows overlap in the cache
 *   backward   (x + y) * size + y * index bytes     dx, dy
 *   mask       y * size + y * index bytes           at most: an index is written where y <= 0
 *
 * Backward gathers: an element of dx adds up, in order of (p, q), the dy of windows that cover and name the
 * element. */
#include "pixels.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* Positions first .. last of a window whose position 0 is at `origin` lie inside the image. */
static __device__ __forceinline__ void clip_window(const fri_axis &a, int32_t origin, int32_t *first, int32_t *last) {
    *first = origin < 0 ? (-origin + a.dilation - 1) / a.dilation : 0;
    *last = origin + a.reach < a.in ? a.kernel : origin < a.in ? (a.in - 1 - origin) / a.dilation + 1 : 0;
}

/* index or NULL. NaN wins over numbers; the first maximum wins; a window in the padding gives -inf and -1. */
template <typename T, typename I, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    forward(fri_axis ah, fri_axis aw, fri_pixel_grid out, const T *x, T *y, I *index) {
    const fri_pixel o = fri_pixel_of(out, N);
    const int32_t h0 = o.h * ah.stride - ah.pad, w0 = o.w * aw.stride - aw.pad;
    int32_t r0, r1, s0, s1;
    float best[N];
    int32_t at[N];
    bool first = true;
    if (!o.inside) return;
    clip_window(ah, h0, &r0, &r1);
    clip_window(aw, w0, &s0, &s1);
#pragma unroll
    for (int k = 0; k < N; k++) {
        best[k] = -INFINITY;
        at[k] = -1;
    }
    for (int32_t r = r0; r < r1; r++)
        for (int32_t s = s0; s < s1; s++) {
            const int32_t h = h0 + r * ah.dilation, w = w0 + s * aw.dilation;
            const int32_t code = sizeof(I) == 1 ? r * aw.kernel + s : h * aw.in + w;
            fri_pack<T, N> p = fri_load_pack<T, N>(x + fri_pixel_at(o, out.c, ah.in, aw.in, h, w));
#pragma unroll
            for (int k = 0; k < N; k++) {
                float v = fri_load(p.v[k]);
                bool take = first || v > best[k] || v != v;
                best[k] = take ? v : best[k];
                at[k] = take ? code : at[k];
            }
            first = false;
        }
    fri_pack<T, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], best[k]);
    fri_store_pack<T, N>(y + o.at, p);
    if (index == NULL) return;
    fri_pack<I, N> i;
#pragma unroll
    for (int k = 0; k < N; k++) i.v[k] = (I)at[k]; /* u8: -1 becomes 255 */
    if (sizeof(I) * N <= 16) {
        fri_store_pack<I, N>(index + o.at, i);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) index[o.at + k] = i.v[k];
    }
}

/* Windows first .. last may cover position `at` of an axis. */
static __device__ __forceinline__ void windows_over(const fri_axis &a, int32_t at, int32_t *first, int32_t *last) {
    const int32_t from = at + a.pad - a.reach;
    *first = from > 0 ? (from + a.stride - 1) / a.stride : 0;
    *last = (at + a.pad) / a.stride + 1;
    if (*last > a.out) *last = a.out;
}

/* Position in the window at `offset` from the start, or -1 if skipped by the dilation. */
static __device__ __forceinline__ int32_t tap_position(int32_t offset, int32_t dilation) {
    if (dilation == 1) return offset;
    return offset % dilation == 0 ? offset / dilation : -1;
}

template <typename I, int N> struct indices { I v[N]; };

/* A load of N bytes, or loads of 16 bytes. */
template <typename I, int N> static __device__ __forceinline__ indices<I, N> load_indices(const I *p) {
    constexpr int M = sizeof(I) * N <= 16 ? N : 16 / sizeof(I);
    indices<I, N> all;
#pragma unroll
    for (int k = 0; k < N; k += M) {
        const fri_pack<I, M> part = fri_load_pack<I, M>(p + k);
#pragma unroll
        for (int j = 0; j < M; j++) all.v[k + j] = part.v[j];
    }
    return all;
}

template <typename T, typename I, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    backward(fri_axis ah, fri_axis aw, fri_pixel_grid in, const I *index, const T *dy, T *dx) {
    const fri_pixel i = fri_pixel_of(in, N);
    int32_t p0, p1, q0, q1;
    float sum[N] = {0};
    if (!i.inside) return;
    windows_over(ah, i.h, &p0, &p1);
    windows_over(aw, i.w, &q0, &q1);
    for (int32_t p = p0; p < p1; p++) {
        const int32_t r = tap_position(i.h + ah.pad - p * ah.stride, ah.dilation);
        if (r < 0) continue;
        for (int32_t q = q0; q < q1; q++) {
            const int32_t s = tap_position(i.w + aw.pad - q * aw.stride, aw.dilation);
            if (s < 0) continue;
            const int64_t from = fri_pixel_at(i, in.c, ah.out, aw.out, p, q);
            const I code = (I)(sizeof(I) == 1 ? r * aw.kernel + s : i.h * aw.in + i.w);
            fri_pack<T, N> g = fri_load_pack<T, N>(dy + from);
            const indices<I, N> own = load_indices<I, N>(index + from);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += own.v[k] == code ? fri_load(g.v[k]) : 0;
        }
    }
    fri_pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[k]);
    fri_store_pack<T, N>(dx + i.at, out);
}

/* Windows of K x K, 2 or 3, with strides of 2 and codes of a byte: a thread makes the 2 x 2 elements under a window's
 * first corner. A window of 3 x 3 has a third row and column, under the next corners. */
template <typename T, int N, int K>
__global__ void __launch_bounds__(FRI_THREADS, FRI_PIXEL_BLOCKS)
    backward_by_corners(fri_axis ah, fri_axis aw, fri_pixel_grid corners, const uint8_t *index, const T *dy, T *dx) {
    const fri_pixel o = fri_pixel_of(corners, N);
    float sum[4][N] = {};
    if (!o.inside) return;
#pragma unroll
    for (int i = (K - 1) * (K - 1) - 1; i >= 0; i--) { /* p and q in ascending order */
        const int above = i / (K - 1), before = i % (K - 1), p = o.h - above, q = o.w - before;
        if (p < 0 || q < 0 || p >= ah.out || q >= aw.out) continue;
        const int64_t from = fri_pixel_at(o, corners.c, ah.out, aw.out, p, q);
        const fri_pack<T, N> g = fri_load_pack<T, N>(dy + from);
        const fri_pack<uint8_t, N> own = fri_load_pack<uint8_t, N>(index + from);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = e / 2 + 2 * above, s = e % 2 + 2 * before;
            if (r >= K || s >= K) continue;
#pragma unroll
            for (int k = 0; k < N; k++) sum[e][k] += own.v[k] == r * K + s ? fri_load(g.v[k]) : 0;
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

template <typename T, typename I> __global__ void __launch_bounds__(FRI_THREADS) mask(int64_t n, const T *y, I *index) {
    int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    if (i < n && !fri_relu_passes(fri_load(y[i]))) index[i] = (I)-1;
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

static fr_status check_sizes(const fri_pool2d_desc *d, fr_dtype index_dtype, fri_axis *h, fri_axis *w) {
    if (index_dtype == FR_U8 && d->kernel_h * d->kernel_w > 255)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: a window of %lld x %lld does not fit u8 indices (255 positions)",
                       (long long)d->kernel_h, (long long)d->kernel_w);
    if (index_dtype != FR_U8 && index_dtype != FR_I32 && index_dtype != FR_I64)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: indices are u8, i32 or i64, not %s", fr_dtype_name(index_dtype));
    if (d->h * d->w > INT32_MAX)
        return fr_fail(FR_EUNSUPPORTED, "maxpool2d: an image of %lld x %lld has positions beyond 31 bits",
                       (long long)d->h, (long long)d->w);
    return fri_axes_of("maxpool2d", d, h, w);
}

/* Body sees the index type I. */
#define INDEX_TYPES(dtype_, ...)     \
    if ((dtype_) == FR_U8) {         \
        typedef uint8_t I;           \
        __VA_ARGS__                  \
    } else if ((dtype_) == FR_I32) { \
        typedef int32_t I;           \
        __VA_ARGS__                  \
    } else {                         \
        typedef int64_t I;           \
        __VA_ARGS__                  \
    }

extern "C" fr_status fri_cuda_maxpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y,
                                                fr_dtype index_dtype, void *index) {
    const fr_dtype it = index != NULL ? index_dtype : FR_I32;
    const fri_pixel_grid out = {d->n * d->p * d->q, d->p, d->q, d->c};
    fri_axis ah = {}, aw = {};
    fr_status s = check_sizes(d, it, &ah, &aw);
    if (s < 0 || out.count * out.c == 0) return s;
    bool aligned = fri_aligned(x, 16) && fri_aligned(y, 16) && fri_aligned(index, 16);
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_forward",
                    INDEX_TYPES(it, FRI_PACKS_OF(T, d->c, aligned, {
                                    const fri_pixel_launch l = fri_pixel_launch_of(out, N);
                                    forward<T, I, N><<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, out, (const T *)x,
                                                                                            (T *)y, (I *)index);
                                })))
    return fri_cuda_launched("maxpool2d_forward");
}

/* The launch of backward_by_corners, for its windows; else false. */
template <typename T>
static bool launch_corners(const fri_exec *e, const fri_pool2d_desc *d, const fri_axis &ah, const fri_axis &aw,
                           const void *index, const void *dy, void *dx) {
    constexpr int N = 16 / sizeof(T);
    const int64_t h = (d->h + d->pad_h + 1) / 2, w = (d->w + d->pad_w + 1) / 2;
    const fri_pixel_grid corners = {d->n * h * w, h, w, d->c};
    const fri_pixel_launch l = fri_pixel_launch_of(corners, N);
    if (ah.kernel != aw.kernel || ah.kernel < 2 || ah.kernel > 3 || ah.stride != 2 || aw.stride != 2 ||
        ah.dilation != 1 || aw.dilation != 1 || d->c % N != 0)
        return false;
    if (ah.kernel == 2)
        backward_by_corners<T, N, 2>
            <<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, corners, (const uint8_t *)index, (const T *)dy, (T *)dx);
    else
        backward_by_corners<T, N, 3>
            <<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, corners, (const uint8_t *)index, (const T *)dy, (T *)dx);
    return true;
}

extern "C" fr_status fri_cuda_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                                 const void *index, const void *dy, void *dx) {
    const fri_pixel_grid in = {d->n * d->h * d->w, d->h, d->w, d->c};
    fri_axis ah = {}, aw = {};
    fr_status s = check_sizes(d, index_dtype, &ah, &aw);
    if (s < 0 || in.count * in.c == 0) return s;
    bool aligned = fri_aligned(index, 16) && fri_aligned(dy, 16) && fri_aligned(dx, 16), done = false;
    if (aligned && index_dtype == FR_U8)
        FRI_FLOAT_TYPES(d->dtype, "maxpool2d_backward", done = launch_corners<T>(e, d, ah, aw, index, dy, dx);)
    if (done) return fri_cuda_launched("maxpool2d_backward");
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_backward",
                    INDEX_TYPES(index_dtype, FRI_PACKS_OF(T, d->c, aligned, {
                                    const fri_pixel_launch l = fri_pixel_launch_of(in, N);
                                    backward<T, I, N><<<l.grid, l.block, 0, fri_stream(e)>>>(ah, aw, in,
                                                                                             (const I *)index,
                                                                                             (const T *)dy, (T *)dx);
                                })))
    return fri_cuda_launched("maxpool2d_backward");
}

extern "C" fr_status fri_cuda_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y,
                                             fr_dtype index_dtype, void *index) {
    const int64_t n = d->n * d->p * d->q * d->c;
    fri_axis ah = {}, aw = {};
    fr_status s = check_sizes(d, index_dtype, &ah, &aw);
    if (s < 0 || n == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_mask", INDEX_TYPES(index_dtype, {
                        mask<T, I><<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, (const T *)y, (I *)index);
                    }))
    return fri_cuda_launched("maxpool2d_mask");
}
