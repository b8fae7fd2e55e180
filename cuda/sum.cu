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

template <typename T> struct spread {
    double alpha;
    const T *s;
    T *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p;
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], (float)(alpha * (double)fri_load(s[0])));
        fri_store_pack<T, M>(y + i, p);
    }
};

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
    FRI_FLOAT_TYPES(dtype, "broadcast",
                    return fri_launch_each<T>(e, "broadcast", n, fri_aligned(y, 16),
                                              spread<T>{alpha, (const T *)s, (T *)y});)
}
