/* bias.cu - the bias of convolution and linear, and its gradient; size, bias = bytes of an element of y, of b.
 *   bias_add     (2 * rows * size + bias) * c bytes               y is read and written
 *   column_sum   (rows * size + bias + 8 * chunks) * c bytes      8: an f32 per chunk of rows, written and read */
#include "columns.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T, typename B, int N>
__global__ void __launch_bounds__(FRI_THREADS) add_bias(fri_columns g, const B *b, T *y) {
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float bias[N];
    if (c >= g.c) return;
#pragma unroll
    for (int k = 0; k < N; k++) bias[k] = fri_load(b[c + k]);
    for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
        fri_pack<T, N> p = fri_load_pack<T, N>(y + row * g.c + c);
#pragma unroll
        for (int k = 0; k < N; k++) fri_store(&p.v[k], fri_load(p.v[k]) + bias[k]);
        fri_store_pack<T, N>(y + row * g.c + c, p);
    }
}

/* partial[chunk][c] = sum over the chunk's rows. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) sum_chunks(fri_columns g, const T *x, float *partial) {
    __shared__ float shared[FRI_THREADS * N];
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float sum[N] = {0};
    if (c < g.c)
        for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
            fri_pack<T, N> p = fri_load_pack<T, N>(x + row * g.c + c);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += fri_load(p.v[k]);
        }
    fri_column_sum<N>(sum, shared);
    if (threadIdx.y == 0 && c < g.c)
        for (int k = 0; k < N; k++) partial[(int64_t)blockIdx.y * g.c + c + k] = sum[k];
}

template <typename B>
__global__ void FRI_ENDS_BOUNDS sum_ends(int64_t chunks, int64_t channels, const float *partial, B *out) {
    const int64_t c = (int64_t)blockIdx.x * FRI_ENDS_CHANNELS + threadIdx.x, at = c < channels ? c : channels - 1;
    double sum = 0;
    for (int first = 0; first < chunks; first += FRI_ENDS_LOADS * FRI_ENDS_LANES) {
        const int i = first + (int)threadIdx.y;
        float sums[FRI_ENDS_LOADS];
        fri_ends_load(partial + at, i, (int)chunks, channels, sums);
#pragma unroll
        for (int k = 0; k < FRI_ENDS_LOADS; k++) sum += i + k * FRI_ENDS_LANES < chunks ? (double)sums[k] : 0;
    }
    sum = fri_ends_sum(sum);
    if (threadIdx.y > 0 || c >= channels) return;
    fri_store(&out[c], (float)sum);
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_bias_add(const fri_exec *e, fr_dtype dtype, fr_dtype bias_dtype, int64_t rows, int64_t c,
                                       const void *b, void *y) {
    if (rows == 0 || c == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, "bias_add",
                    FRI_FLOAT_TYPES_AS(B, bias_dtype, "bias_add", FRI_PACKS_DOWN_TO(2, T, c, fri_aligned(y, 16), {
                                           const fri_columns g = fri_columns_of(rows, c, N);
                                           add_bias<T, B, N>
                                               <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                                   g, (const B *)b, (T *)y);
                                       })))
    return fri_cuda_launched("bias_add");
}

extern "C" size_t fri_cuda_bias_workspace(fr_dtype dtype, int64_t rows, int64_t c) {
    (void)dtype;
    return (size_t)(fri_columns_chunks(rows, c) * c) * sizeof(float);
}

extern "C" fr_status fri_cuda_column_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t rows, int64_t c,
                                         const void *x, fr_dtype out_dtype, void *out) {
    const size_t need = fri_cuda_bias_workspace(dtype, rows, c);
    float *partial = (float *)e->workspace;
    int64_t chunks = 0;
    if (c == 0) return FR_OK;
    if (need > 0 && (partial == NULL || e->workspace_bytes < need))
        return fri_cuda_workspace_short(kernel, need, partial != NULL ? e->workspace_bytes : 0);
    FRI_FLOAT_TYPES(dtype, kernel, FRI_PACKS_DOWN_TO(2, T, c, fri_aligned(x, 16), {
                        const fri_columns g = fri_columns_of(rows, c, N);
                        chunks = g.chunks;
                        if (chunks > 0)
                            sum_chunks<T, N>
                                <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)x,
                                                                                                  partial);
                    }))
    fr_status s = fri_cuda_launched(kernel);
    if (s < 0) return s;
    FRI_FLOAT_TYPES_AS(B, out_dtype, kernel,
                       sum_ends<<<fri_ends_grid(c), fri_ends_block(), 0, fri_stream(e)>>>(chunks, c, partial,
                                                                                          (B *)out);)
    return fri_cuda_launched(kernel);
}
