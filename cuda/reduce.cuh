/* reduce.cuh - a number from all elements: partial sums per block in f64, then the sum in a single block.
 *
 * The number of blocks depends on n only; a block takes every blocks-th stretch of FRI_THREADS packs. */
#ifndef FRI_CUDA_REDUCE_CUH
#define FRI_CUDA_REDUCE_CUH

#include "common.cuh"

enum {
    FRI_REDUCE_BLOCKS = 1024, /* enough for every GPU's processors several times over */
    FRI_REDUCE_STRETCH = 4096 /* fewest elements per block where more blocks help */
};

static inline int64_t fri_reduce_blocks(int64_t n) {
    int64_t blocks = fri_ceil_div(n, FRI_REDUCE_STRETCH);
    return blocks < FRI_REDUCE_BLOCKS ? blocks : (int64_t)FRI_REDUCE_BLOCKS;
}

/* partial[block] = sum of f(a[i], b[i]); b may be a. */
template <typename T, int N, typename F>
__global__ void __launch_bounds__(FRI_THREADS, 3) fri_reduce(int64_t n, const T *a, const T *b, double *partial, F f) {
    double sum = 0;
    for (int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N; i < n;
         i += (int64_t)gridDim.x * FRI_THREADS * N) {
        if (i + N <= n) {
            fri_pack<T, N> p = fri_load_pack<T, N>(a + i), q = fri_load_pack<T, N>(b + i);
#pragma unroll
            for (int k = 0; k < N; k++) sum += f((double)fri_load(p.v[k]), (double)fri_load(q.v[k]));
        } else {
            for (int64_t j = i; j < n; j++) sum += f((double)fri_load(a[j]), (double)fri_load(b[j]));
        }
    }
    sum = fri_block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* put(sum of the partial sums), by a single thread. */
template <typename P>
__global__ void __launch_bounds__(FRI_THREADS) fri_reduce_end(int64_t n, const double *partial, P put) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += FRI_THREADS) sum += partial[i];
    sum = fri_block_sum(sum);
    if (threadIdx.x == 0) put(sum);
}

template <typename T, typename F, typename P>
static fr_status fri_launch_reduce(const fri_exec *e, const char *kernel, int64_t n, const void *a, const void *b, F f,
                                   P put) {
    constexpr int N = 16 / sizeof(T);
    const int64_t blocks = fri_reduce_blocks(n);
    double *partial = (double *)e->workspace;
    fr_status s = fri_cuda_workspace(e, kernel, (size_t)blocks * sizeof(double));
    if (s < 0) return s;
    if (blocks > 0 && fri_aligned(a, 16) && fri_aligned(b, 16))
        fri_reduce<T, N>
            <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, (const T *)a, (const T *)b, partial, f);
    else if (blocks > 0)
        fri_reduce<T, 1>
            <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(n, (const T *)a, (const T *)b, partial, f);
    fri_reduce_end<<<1, FRI_THREADS, 0, fri_stream(e)>>>(blocks, partial, put);
    return fri_cuda_launched(kernel);
}

#endif
