/* random.cu - tensors of uniform and normal numbers.
 *   uniform, normal   n * size bytes     size = bytes of an element: written
 *
 * Element i is lane i % 4 of Philox counter i / 4, as on the CPU: uniform numbers have equal bits, normal numbers
 * differ in the last bits of logarithm and sine. */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

struct between {
    float low, high;
    __device__ void operator()(const fri_philox4 &r, float v[4]) const {
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = fri_uniform_between(r.v[k], low, high);
    }
};

struct normal_of {
    float mean, std;
    __device__ void operator()(const fri_philox4 &r, float v[4]) const {
        fri_normal_pair(r.v[0], r.v[1], &v[0], &v[1]);
        fri_normal_pair(r.v[2], r.v[3], &v[2], &v[3]);
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = v[k] * std + mean;
    }
};

/* Four elements per thread, of a counter. */
template <typename T, bool PACKED, typename F>
__global__ void __launch_bounds__(FRI_THREADS) draw(int64_t n, uint64_t seed, uint64_t stream, T *y, F f) {
    int64_t group = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x, i = group * 4;
    float v[4];
    if (i >= n) return;
    f(fri_philox(seed, stream, (uint64_t)group), v);
    if (PACKED && i + 4 <= n) {
        fri_pack<T, 4> p;
#pragma unroll
        for (int k = 0; k < 4; k++) fri_store(&p.v[k], v[k]);
        fri_store_pack<T, 4>(y + i, p);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) fri_store(&y[i + k], v[k]);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

template <typename T, typename F>
static fr_status launch(const fri_exec *e, const char *kernel, int64_t n, uint64_t seed, uint64_t stream, void *y,
                        F f) {
    unsigned blocks = fri_blocks(fri_ceil_div(n, 4));
    if (n == 0) return FR_OK;
    if (fri_aligned(y, 4 * sizeof(T)))
        draw<T, true><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, seed, stream, (T *)y, f);
    else
        draw<T, false><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, seed, stream, (T *)y, f);
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_uniform(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream,
                                      double low, double high, void *y) {
    FRI_FLOAT_TYPES(dtype, "uniform",
                    return launch<T>(e, "uniform", n, seed, stream, y, between{(float)low, (float)high});)
}

extern "C" fr_status fri_cuda_normal(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream,
                                     double mean, double std, void *y) {
    FRI_FLOAT_TYPES(dtype, "normal",
                    return launch<T>(e, "normal", n, seed, stream, y, normal_of{(float)mean, (float)std});)
}
