/* normalize.cu - bytes of images to a network's input.
 *   normalize   n * (1 + to) bytes     to = bytes of an element of y: x read, y written
 *
 * A block makes the table of 256 numbers per channel first, in f64 as the CPU, so it moves TURNS packs per thread. */
#include "common.cuh"

enum { TURNS = 16 };

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) normalize(fri_normalize_desc d, const uint8_t *x, T *y) {
    __shared__ float value[FRI_NORMALIZE_CHANNELS * 256];
    const int channels = (int)d.channels;
    for (int i = (int)threadIdx.x; i < channels * 256; i += FRI_THREADS)
        value[i] = fri_normalized(i & 255, d.mean[i >> 8], d.std[i >> 8]);
    __syncthreads();
    int64_t i = ((int64_t)blockIdx.x * TURNS * FRI_THREADS + threadIdx.x) * N;
    for (int turn = 0; turn < TURNS && i < d.n; turn++, i += (int64_t)FRI_THREADS * N) {
        int c = (int)(i % channels);
        if (i + N <= d.n) {
            fri_pack<uint8_t, N> p = fri_load_pack<uint8_t, N>(x + i);
            fri_pack<T, N> q;
#pragma unroll
            for (int k = 0; k < N; k++) {
                fri_store(&q.v[k], value[c << 8 | p.v[k]]);
                c = c + 1 < channels ? c + 1 : 0;
            }
            fri_store_pack<T, N>(y + i, q);
        } else {
            for (int64_t k = i; k < d.n; k++) fri_store(&y[k], value[k % channels << 8 | x[k]]);
        }
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_normalize(const fri_exec *e, const fri_normalize_desc *d, const uint8_t *x, void *y) {
    if (d->n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "normalize", {
        constexpr int N = 16 / sizeof(T);
        const int64_t each = (int64_t)FRI_THREADS * TURNS;
        if (fri_aligned(x, N) && fri_aligned(y, 16))
            normalize<T, N><<<(unsigned)fri_ceil_div(d->n, each * N), FRI_THREADS, 0, fri_stream(e)>>>(*d, x, (T *)y);
        else
            normalize<T, 1><<<(unsigned)fri_ceil_div(d->n, each), FRI_THREADS, 0, fri_stream(e)>>>(*d, x, (T *)y);
    })
    return fri_cuda_launched("normalize");
}
