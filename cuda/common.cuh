/* common.cuh - shared by all kernel files: storage types, packs of 16 bytes, elementwise launches.
 *
 * Templates range over storage types, pack sizes and functors; arithmetic is float. A pack is the data of a load
 * instruction of a thread. The order of a sum follows from shapes only, so sums are equal on every device. */
#ifndef FRI_CUDA_COMMON_CUH
#define FRI_CUDA_COMMON_CUH

#include "backend/arith.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "check.h"
#include "kernels.h"

enum { FRI_THREADS = 256, FRI_GRID_Y = 65535 /* blocks of a grid in y, at most */ };

/* Blocks of a processor in __launch_bounds__. Code for Blackwell (10.0, 12.0) takes more registers than older code, and
 * spills at the older numbers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define FRI_RESIDENT(blocks) ((blocks) > 1 ? (blocks)-1 : 1)
#else
#define FRI_RESIDENT(blocks) (blocks)
#endif

/* ---- storage types ----------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float fri_load(float v) {
    return v;
}
static __device__ __forceinline__ float fri_load(__half v) {
    return __half2float(v);
}
static __device__ __forceinline__ float fri_load(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
static __device__ __forceinline__ void fri_store(float *p, float v) {
    *p = v;
}
static __device__ __forceinline__ void fri_store(__half *p, float v) {
    *p = __float2half_rn(v);
}
static __device__ __forceinline__ void fri_store(__nv_bfloat16 *p, float v) {
    *p = __float2bfloat16_rn(v);
}

/* FRI_FLOAT_TYPES(dtype, "relu_forward", body): body sees the storage type T. f64 and integers are refused. */
#define FRI_FLOAT_TYPES_AS(T_, dtype_, kernel_, ...)   \
    switch (dtype_) {                                  \
    case FR_F32: {                                     \
        typedef float T_;                              \
        __VA_ARGS__                                    \
    } break;                                           \
    case FR_F16: {                                     \
        typedef __half T_;                             \
        __VA_ARGS__                                    \
    } break;                                           \
    case FR_BF16: {                                    \
        typedef __nv_bfloat16 T_;                      \
        __VA_ARGS__                                    \
    } break;                                           \
    default: return fri_cuda_no_type(kernel_, dtype_); \
    }
#define FRI_FLOAT_TYPES(dtype_, kernel_, ...) FRI_FLOAT_TYPES_AS(T, dtype_, kernel_, __VA_ARGS__)

/* ---- packs ------------------------------------------------------------------------------------------------- */

template <typename T, int N> struct alignas(sizeof(T) * N) fri_pack { T v[N]; };

template <typename T, int N> static __device__ __forceinline__ fri_pack<T, N> fri_load_pack(const T *p) {
    return *(const fri_pack<T, N> *)p;
}

template <typename T, int N> static __device__ __forceinline__ void fri_store_pack(T *p, fri_pack<T, N> v) {
    *(fri_pack<T, N> *)p = v;
}

static inline bool fri_aligned(const void *p, size_t to) {
    return ((uintptr_t)p & (to - 1)) == 0;
}

static inline int64_t fri_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Lanes of a block over `packs` neighbours: as many blocks as for the widest, and as few idle lanes. */
static inline int fri_block_width(int64_t packs, int most) {
    return packs > 0 ? (int)fri_ceil_div(packs, fri_ceil_div(packs, most)) : 1;
}

static inline unsigned fri_blocks(int64_t items) {
    return (unsigned)(items > 0 ? fri_ceil_div(items, FRI_THREADS) : 1);
}

static inline cudaStream_t fri_stream(const fri_exec *e) {
    return (cudaStream_t)(e != NULL && e->stream != NULL ? e->stream : fri_cuda_stream());
}

/* A launch with the widest packs that the channels and the pointers allow, 16 bytes, 4 elements or `narrow` ones: body
 * sees N. Each width is a separate compiled kernel. */
#define FRI_PACKS_DOWN_TO(narrow, T, c_, aligned_, ...)    \
    if ((c_) % (16 / (int)sizeof(T)) == 0 && (aligned_)) { \
        constexpr int N = 16 / sizeof(T);                  \
        __VA_ARGS__                                        \
    } else if ((c_) % 4 == 0 && (aligned_)) {              \
        constexpr int N = 4;                               \
        __VA_ARGS__                                        \
    } else if ((c_) % (narrow) == 0 && (aligned_)) {       \
        constexpr int N = narrow;                          \
        __VA_ARGS__                                        \
    } else {                                               \
        constexpr int N = 1;                               \
        __VA_ARGS__                                        \
    }
#define FRI_PACKS_OF(T, c_, aligned_, ...) FRI_PACKS_DOWN_TO(1, T, c_, aligned_, __VA_ARGS__)

/* ---- elementwise: a pack per thread, the tail by element ------------------------------------------------------- */

/* f.at<M>(i) of elements i .. i + M, for all n elements. T, the type of what f stores, names the kernel. */
template <typename T, int N, typename F> __global__ void __launch_bounds__(FRI_THREADS) fri_each(int64_t n, F f) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (i + N <= n)
        f.template at<N>(i);
    else
        for (; i < n; i++) f.template at<1>(i);
}

/* A view may start anywhere: packs of N, 16 bytes, require aligned pointers. */
template <typename T, int N = 16 / sizeof(T), typename F>
static fr_status fri_launch_each(const fri_exec *e, const char *kernel, int64_t n, bool aligned, F f) {
    if (n == 0) return FR_OK;
    if (aligned)
        fri_each<T, N><<<fri_blocks(fri_ceil_div(n, N)), FRI_THREADS, 0, fri_stream(e)>>>(n, f);
    else
        fri_each<T, 1><<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, f);
    return fri_cuda_launched(kernel);
}

/* y[i] = f(x[i]) */
template <typename T, typename F> struct fri_map1 {
    const T *x;
    T *y;
    F f;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p = fri_load_pack<T, M>(x + i);
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], f(fri_load(p.v[k])));
        fri_store_pack<T, M>(y + i, p);
    }
};

/* y[i] = f(a[i], b[i]) */
template <typename T, typename F> struct fri_map2 {
    const T *a, *b;
    T *y;
    F f;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p = fri_load_pack<T, M>(a + i), q = fri_load_pack<T, M>(b + i);
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], f(fri_load(p.v[k]), fri_load(q.v[k])));
        fri_store_pack<T, M>(y + i, p);
    }
};

template <typename T, typename F>
static fr_status fri_launch_map1(const fri_exec *e, const char *kernel, int64_t n, const void *x, void *y, F f) {
    return fri_launch_each<T>(e, kernel, n, fri_aligned(x, 16) && fri_aligned(y, 16),
                              fri_map1<T, F>{(const T *)x, (T *)y, f});
}

template <typename T, typename F>
static fr_status fri_launch_map2(const fri_exec *e, const char *kernel, int64_t n, const void *a, const void *b,
                                 void *y, F f) {
    return fri_launch_each<T>(e, kernel, n, fri_aligned(a, 16) && fri_aligned(b, 16) && fri_aligned(y, 16),
                              fri_map2<T, F>{(const T *)a, (const T *)b, (T *)y, f});
}

/* ---- sums over a block or a warp, in a fixed order ----------------------------------------------------- */

template <typename V> static __device__ __forceinline__ V fri_warp_sum(V v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Every thread of a block of FRI_THREADS gets the sum. */
template <typename V> static __device__ V fri_block_sum(V v) {
    __shared__ V part[FRI_THREADS / 32];
    v = fri_warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    V total = part[0];
#pragma unroll
    for (int i = 1; i < FRI_THREADS / 32; i++) total += part[i];
    __syncthreads();
    return total;
}

#endif
