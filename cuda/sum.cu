/* sum.cu - sum over all elements, and its backward, broadcast; size = bytes of an element.
 *   sum         n * size + 16 * blocks bytes     x; an f64 per block, written and read (reduce.cuh)
 *   broadcast   n * size bytes                   written */
#include "reduce.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

struct first_of {
    __device__ double operator()(double a, double) const {
        return a;
    }
};

template <typename T> struct put_scaled {
    double alpha;
    T *y;
    __device__ void operator()(double sum) const {
        fri_store(y, (float)(alpha * sum));
    }
};

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) spread(int64_t n, double alpha, const T *s, T *y) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    fri_pack<T, N> p;
    T value;
    fri_store(&value, (float)(alpha * (double)fri_load(s[0])));
    if (i + N <= n) {
#pragma unroll
        for (int k = 0; k < N; k++) p.v[k] = value;
        fri_store_pack<T, N>(y + i, p);
    } else {
        for (; i < n; i++) y[i] = value;
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_sum_workspace(fr_dtype dtype, int64_t n) {
    (void)dtype;
    return (size_t)fri_reduce_blocks(n) * sizeof(double);
}

extern "C" fr_status fri_cuda_sum(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    FRI_FLOAT_TYPES(dtype, "sum",
                    return fri_launch_reduce<T>(e, "sum", n, x, x, first_of{}, put_scaled<T>{alpha, (T *)y});)
}

extern "C" fr_status fri_cuda_broadcast(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *s,
                                        void *y) {
    if (n == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, "broadcast", constexpr int N = 16 / sizeof(T); if (fri_aligned(y, 16)) spread<T, N>
                    <<<fri_blocks(fri_ceil_div(n, N)), FRI_THREADS, 0, fri_stream(e)>>>(n, alpha, (const T *)s, (T *)y);
                    else spread<T, 1>
                    <<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, alpha, (const T *)s, (T *)y);)
    return fri_cuda_launched("broadcast");
}
