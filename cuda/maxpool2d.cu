/* maxpool2d.cu - maximum over windows; x = n * h * w * c and y = n * p * q * c elements of size bytes, index bytes per
 * index.
 *   forward    (x + y) * size + y * index bytes     windows overlap in the cache
 *   backward   (x + y) * size + y * index bytes     dx, dy
 *   mask       y * size + y * index bytes           at most: an index is written where y <= 0 */
#include "window.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* index or NULL. NaN wins over numbers; the first maximum wins; a window in the padding gives -inf and -1. */
template <typename I> struct maxima {
    static constexpr bool fast = sizeof(I) == 1;
    I *index;
    template <int N> struct state {
        float v[N];
        int32_t at[N];
        bool first;
        __device__ state() : first(true) {
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = -INFINITY, at[k] = -1;
        }
    };
    template <typename T, int N>
    __device__ void take(state<N> *s, const fri_pack<T, N> &x, int32_t tap, int32_t place) const {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float v = fri_load(x.v[k]);
            const bool more = s->first || v > s->v[k] || v != v;
            s->v[k] = more ? v : s->v[k];
            s->at[k] = more ? sizeof(I) == 1 ? tap : place : s->at[k];
        }
        s->first = false;
    }
    template <int N> __device__ void end(state<N> *s, const fri_window &, const fri_window &, int64_t at) const {
        constexpr int M = sizeof(I) * N <= 16 ? N : 16 / sizeof(I);
        if (index == NULL) return;
#pragma unroll
        for (int k = 0; k < N; k += M) {
            fri_pack<I, M> i;
#pragma unroll
            for (int j = 0; j < M; j++) i.v[j] = (I)s->at[k + j]; /* u8: -1 becomes 255 */
            fri_store_pack<I, M>(index + at + k, i);
        }
    }
    /* Backward: the codes of a window, by a load of N bytes or loads of 16. */
    template <int N> struct codes { I v[N]; };
    template <int N> __device__ codes<N> window(const fri_window &, const fri_window &, int64_t from) const {
        constexpr int M = sizeof(I) * N <= 16 ? N : 16 / sizeof(I);
        codes<N> all;
#pragma unroll
        for (int k = 0; k < N; k += M) {
            const fri_pack<I, M> part = fri_load_pack<I, M>(index + from + k);
#pragma unroll
            for (int j = 0; j < M; j++) all.v[k + j] = part.v[j];
        }
        return all;
    }
    template <int N> static __device__ float passed(const codes<N> &own, int k, int32_t tap, int32_t place, float dy) {
        return own.v[k] == (I)(sizeof(I) == 1 ? tap : place) ? dy : 0;
    }
};

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
    const fr_dtype it = index != NULL ? index_dtype : d->kernel_h * d->kernel_w > 255 ? FR_I32 : FR_U8;
    fri_axis ah = {}, aw = {};
    fr_status s = check_sizes(d, it, &ah, &aw);
    if (s < 0 || d->n * d->p * d->q * d->c == 0) return s;
    INDEX_TYPES(it, return fri_launch_pool<false>(e, "maxpool2d_forward", d, ah, aw, fri_aligned(index, 16), x, y,
                                                  maxima<I>{(I *)index});)
}

extern "C" fr_status fri_cuda_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                                 const void *index, const void *dy, void *dx) {
    fri_axis ah = {}, aw = {};
    fr_status s = check_sizes(d, index_dtype, &ah, &aw);
    if (s < 0 || d->n * d->h * d->w * d->c == 0) return s;
    INDEX_TYPES(index_dtype,
                return fri_launch_pool_gradient<false>(e, "maxpool2d_backward", d, ah, aw, fri_aligned(index, 16), dy,
                                                       dx, maxima<I>{(I *)index});)
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
