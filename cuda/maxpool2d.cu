/* maxpool2d.cu - maximum over windows.
 *   forward    x once (windows overlap in the cache) + y + index
 *   backward   index and dy once + dx
 *   mask       y + 2 * index
 *
 * Backward gathers: an element of dx adds up, in order of (p, q), the dy whose window covers it and whose index names
 * it. */
#include "pixels.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* Positions first .. last of a window whose position 0 is at `origin` lie inside 0 .. in. */
static __device__ __forceinline__ void clip(int64_t origin, int64_t dilation, int64_t kernel, int64_t in,
                                            int64_t *first, int64_t *last) {
    *first = origin < 0 ? (-origin + dilation - 1) / dilation : 0;
    *last = origin + (kernel - 1) * dilation < in ? kernel : origin < in ? (in - 1 - origin) / dilation + 1 : 0;
}

/* index or NULL. NaN wins over everything; the first maximum wins; a window in the padding gives -inf and -1. */
template <typename T, typename I, int N>
__global__ void __launch_bounds__(FRI_THREADS) forward(fri_pool2d_desc d, fri_pixels out, const T *x, T *y, I *index) {
    const fri_pixel o = fri_pixel_of(out, N);
    const int64_t h0 = o.h * d.stride_h - d.pad_h, w0 = o.w * d.stride_w - d.pad_w;
    int64_t r0, r1, s0, s1;
    float best[N];
    int32_t at[N];
    bool first = true;
    if (!o.inside) return;
    clip(h0, d.dilation_h, d.kernel_h, d.h, &r0, &r1);
    clip(w0, d.dilation_w, d.kernel_w, d.w, &s0, &s1);
#pragma unroll
    for (int k = 0; k < N; k++) {
        best[k] = -INFINITY;
        at[k] = -1;
    }
    for (int64_t r = r0; r < r1; r++)
        for (int64_t s = s0; s < s1; s++) {
            const int64_t h = h0 + r * d.dilation_h, w = w0 + s * d.dilation_w;
            const int32_t code = (int32_t)(sizeof(I) == 1 ? r * d.kernel_w + s : h * d.w + w);
            fri_pack<T, N> p = fri_load_pack<T, N>(x + fri_pixel_at(o, d.c, d.h, d.w, h, w));
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
static __device__ __forceinline__ void cover(int64_t at, int64_t pad, int64_t stride, int64_t reach, int64_t out,
                                             int64_t *first, int64_t *last) {
    const int64_t from = at + pad - reach;
    *first = from > 0 ? (from + stride - 1) / stride : 0;
    *last = (at + pad) / stride + 1;
    if (*last > out) *last = out;
}

/* Position in the window of what lies `offset` from its start, or -1 if the dilation leaves it out. */
static __device__ __forceinline__ int64_t position(int64_t offset, int64_t dilation) {
    if (dilation == 1) return offset;
    return offset % dilation == 0 ? offset / dilation : -1;
}

template <typename T, typename I, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_pool2d_desc d, fri_pixels in, const I *index, const T *dy, T *dx) {
    const fri_pixel i = fri_pixel_of(in, N);
    int64_t p0, p1, q0, q1;
    float sum[N] = {0};
    if (!i.inside) return;
    cover(i.h, d.pad_h, d.stride_h, (d.kernel_h - 1) * d.dilation_h, d.p, &p0, &p1);
    cover(i.w, d.pad_w, d.stride_w, (d.kernel_w - 1) * d.dilation_w, d.q, &q0, &q1);
    for (int64_t p = p0; p < p1; p++) {
        const int64_t r = position(i.h + d.pad_h - p * d.stride_h, d.dilation_h);
        if (r < 0) continue;
        for (int64_t q = q0; q < q1; q++) {
            const int64_t s = position(i.w + d.pad_w - q * d.stride_w, d.dilation_w);
            if (s < 0) continue;
            const int64_t from = fri_pixel_at(i, d.c, d.p, d.q, p, q);
            const I code = (I)(sizeof(I) == 1 ? r * d.kernel_w + s : i.h * d.w + i.w);
            fri_pack<T, N> g = fri_load_pack<T, N>(dy + from);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += index[from + k] == code ? fri_load(g.v[k]) : 0;
        }
    }
    fri_pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&out.v[k], sum[k]);
    fri_store_pack<T, N>(dx + i.at, out);
}

template <typename T, typename I> __global__ void __launch_bounds__(FRI_THREADS) mask(int64_t n, const T *y, I *index) {
    int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    if (i < n && !fri_relu_passes(fri_load(y[i]))) index[i] = (I)-1;
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

static fr_status check(const fri_pool2d_desc *d, fr_dtype index_dtype) {
    if (index_dtype == FR_U8 && d->kernel_h * d->kernel_w > 255)
        return fri_fail(FR_EUNSUPPORTED, "maxpool2d: a window of %lld x %lld does not fit u8 indices (255 positions)",
                        (long long)d->kernel_h, (long long)d->kernel_w);
    if (index_dtype != FR_U8 && index_dtype != FR_I32 && index_dtype != FR_I64)
        return fri_fail(FR_EUNSUPPORTED, "maxpool2d: indices are u8, i32 or i64, not %s", fr_dtype_name(index_dtype));
    if (d->h * d->w > INT32_MAX)
        return fri_fail(FR_EUNSUPPORTED, "maxpool2d: an image of %lld x %lld has positions beyond 31 bits",
                        (long long)d->h, (long long)d->w);
    return FR_OK;
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
    const fri_pixels out = {d->n * d->p * d->q, d->p, d->q, d->c};
    fr_status s = check(d, it);
    if (s < 0 || out.count * out.c == 0) return s;
    bool aligned = fri_aligned(x, 16) && fri_aligned(y, 16) && fri_aligned(index, 16);
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_forward",
                    INDEX_TYPES(it, FRI_PIXEL_PACKS_OF(T, d->c, aligned, {
                                    const fri_pixel_launch l = fri_pixel_launch_of(out, N);
                                    forward<T, I, N><<<l.grid, l.block, 0, fri_stream(e)>>>(*d, out, (const T *)x,
                                                                                            (T *)y, (I *)index);
                                })))
    return fri_cuda_launched("maxpool2d_forward");
}

extern "C" fr_status fri_cuda_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                                 const void *index, const void *dy, void *dx) {
    const fri_pixels in = {d->n * d->h * d->w, d->h, d->w, d->c};
    fr_status s = check(d, index_dtype);
    if (s < 0 || in.count * in.c == 0) return s;
    bool aligned = fri_aligned(dy, 16) && fri_aligned(dx, 16);
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_backward",
                    INDEX_TYPES(index_dtype, FRI_PIXEL_PACKS_OF(T, d->c, aligned, {
                                    const fri_pixel_launch l = fri_pixel_launch_of(in, N);
                                    backward<T, I, N><<<l.grid, l.block, 0, fri_stream(e)>>>(*d, in, (const I *)index,
                                                                                             (const T *)dy, (T *)dx);
                                })))
    return fri_cuda_launched("maxpool2d_backward");
}

extern "C" fr_status fri_cuda_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y,
                                             fr_dtype index_dtype, void *index) {
    const int64_t n = d->n * d->p * d->q * d->c;
    fr_status s = check(d, index_dtype);
    if (s < 0 || n == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "maxpool2d_mask", INDEX_TYPES(index_dtype, {
                        mask<T, I><<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, (const T *)y, (I *)index);
                    }))
    return fri_cuda_launched("maxpool2d_mask");
}
