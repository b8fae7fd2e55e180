/* bias.cu - the bias of convolution and linear, and its gradient; size, bias = bytes of an element of y, of b.
 *   bias_add     (2 * rows * size + bias) * c bytes               y is read and written
 *   column_sum   (rows * size + bias + 8 * chunks) * c bytes      8: an f32 per chunk of rows, written and read */
#include "columns.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T, typename B, int N>
__global__ void __launch_bounds__(FRI_THREADS) add_bias(fri_columns g, const B *b, T *y) {
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    float bias[N];
    if (c >= g.c) return;
#pragma unroll
    for (int k = 0; k < N; k++) bias[k] = fri_load(b[c + k]);
    fri_columns_chunk<FRI_COLUMN_FLIGHT>(
        g, c, [&](int64_t, int64_t i) { return fri_load_pack<T, N>(y + i); },
        [&](fri_pack<T, N> p, int64_t, int64_t i) {
#pragma unroll
            for (int k = 0; k < N; k++) fri_store(&p.v[k], fri_load(p.v[k]) + bias[k]);
            fri_store_pack<T, N>(y + i, p);
        });
}

/* Sums of columns, without data per channel. */
template <typename T, int N> struct elements : fri_plain_terms {
    enum { ROWS = FRI_COLUMN_FLIGHT, RESIDENT = FRI_COLUMN_RESIDENT };
    struct state {};
    const T *x;
    __device__ void begin(int64_t, state *) const {
    }
    __device__ fri_pack<T, N> load(const state &, int64_t, int64_t i) const {
        return fri_load_pack<T, N>(x + i);
    }
    __device__ void add(const state &, const fri_pack<T, N> &p, int64_t, float (*sum)[N]) const {
#pragma unroll
        for (int k = 0; k < N; k++) sum[0][k] += fri_load(p.v[k]);
    }
};

template <typename B> struct put : fri_plain_ends<1> {
    B *out;
    __device__ void operator()(int64_t c, const double *sum) const {
        fri_store(&out[c], (float)sum[0]);
    }
};

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_bias_add(const fri_exec *e, fr_dtype dtype, fr_dtype bias_dtype, int64_t rows, int64_t c,
                                       const void *b, void *y) {
    if (rows == 0 || c == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, "bias_add",
                    FRI_FLOAT_TYPES_AS(B, bias_dtype, "bias_add", FRI_PACKS_DOWN_TO(2, T, c, fri_aligned(y, 16), {
                                           const fri_columns g = fri_columns_of(rows, c, N, fri_columns_slots());
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
    float *partial = (float *)e->workspace;
    if (c == 0) return FR_OK;
    fr_status s = fri_cuda_workspace(e, kernel, fri_cuda_bias_workspace(dtype, rows, c));
    if (s < 0) return s;
    FRI_FLOAT_TYPES(dtype, kernel,
                    FRI_FLOAT_TYPES_AS(B, out_dtype, kernel, FRI_PACKS_DOWN_TO(2, T, c, fri_aligned(x, 16), {
                                           const fri_columns g = fri_columns_of(rows, c, N);
                                           fri_sum_columns<N, 1>
                                               <<<fri_columns_walk(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                                   g, elements<T, N>{{}, (const T *)x}, partial, put<B>{{}, (B *)out});
                                       })))
    return fri_cuda_launched(kernel);
}
