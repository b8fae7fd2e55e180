/* binary.cu - y = a + b, a - b, a * b, a / b where b has a value for each channel of an image.
 *   binary_image         (2 * n * hw * c + n * c) * size bytes   size = bytes of an element: a and b read, y written
 *   binary_image_sum     (2 * n * hw * c + n * c) * size bytes   a and dy read, db written; without a one map less */
#include "columns.cuh"

/* A pack is inside a pixel: c is divisible by N. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    image(fri_binary op, int64_t n, int64_t hw, int64_t c, const T *a, const T *b, T *y) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (i >= n) return;
    fri_pack<T, N> p = fri_load_pack<T, N>(a + i), q = fri_load_pack<T, N>(b + i / (hw * c) * c + i % c);
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], fri_binary_of(op, fri_load(p.v[k]), fri_load(q.v[k])));
    fri_store_pack<T, N>(y + i, p);
}

/* A block sums an image's part of the channels, and then images gridDim.y further; a or NULL. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    image_sum(int64_t n, int64_t hw, int64_t c, const T *a, const T *dy, T *db) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (int64_t image = blockIdx.y; image < n; image += gridDim.y) {
        float sum[N];
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = 0;
        for (int64_t r = threadIdx.y; at < c && r < hw; r += blockDim.y) {
            const int64_t from = (image * hw + r) * c + at;
            fri_pack<T, N> q = fri_load_pack<T, N>(dy + from), p = q;
            if (a != NULL) p = fri_load_pack<T, N>(a + from);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += a != NULL ? fri_load(p.v[k]) * fri_load(q.v[k]) : fri_load(q.v[k]);
        }
        fri_column_sum<N>(sum, shared);
        if (threadIdx.y != 0 || at >= c) continue;
        for (int k = 0; k < N; k++) fri_store(&db[image * c + at + k], sum[k]);
    }
}

extern "C" fr_status fri_cuda_binary_image(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *b,
                                           void *y) {
    const int64_t n = d->n * d->hw * d->c;
    if (n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "binary_image",
                    FRI_PACKS_OF(T, d->c, fri_aligned(a, 16) && fri_aligned(b, 16) && fri_aligned(y, 16),
                                 image<T, N><<<fri_blocks(fri_ceil_div(n, N)), FRI_THREADS, 0, fri_stream(e)>>>(
                                     d->op, n, d->hw, d->c, (const T *)a, (const T *)b, (T *)y);))
    return fri_cuda_launched("binary_image");
}

extern "C" fr_status fri_cuda_binary_image_sum(const fri_exec *e, const fri_binary_desc *d, const void *a,
                                               const void *dy, void *db) {
    const unsigned images = (unsigned)(d->n < FRI_COLUMN_BLOCKS ? d->n : (int64_t)FRI_COLUMN_BLOCKS);
    if (d->n * d->c == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "binary_image_sum",
                    FRI_PACKS_OF(T, d->c,
                                 (a == NULL || fri_aligned(a, 16)) && fri_aligned(dy, 16) && fri_aligned(db, 16),
                                 const fri_columns g = fri_columns_of(d->hw, d->c, N);
                                 const dim3 grid((unsigned)g.across, images); image_sum<T, N>
                                 <<<grid, fri_columns_block(g), 0, fri_stream(e)>>>(d->n, d->hw, d->c, (const T *)a,
                                                                                    (const T *)dy, (T *)db);))
    return fri_cuda_launched("binary_image_sum");
}
