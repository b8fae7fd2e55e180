/* mul.cu - y = a * b.
 *   mul             3 * n * size bytes                      size = bytes of an element: a and b read, y written
 *   mul_image       (2 * n * hw * c + n * c) * size bytes   a and b read, y written
 *   mul_image_sum   (2 * n * hw * c + n * c) * size bytes   a and dy read, db written */
#include "columns.cuh"

struct product_of {
    __device__ float operator()(float a, float b) const {
        return a * b;
    }
};

extern "C" fr_status fri_cuda_mul(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    FRI_FLOAT_TYPES(dtype, "mul", return fri_launch_map2<T>(e, "mul", n, a, b, y, product_of{});)
}

/* ---- a factor per image and channel ------------------------------------------------------------------------- */

/* A pack lies in one pixel: c is divisible by N. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    mul_image(int64_t n, int64_t hw, int64_t c, const T *a, const T *b, T *y) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (i >= n) return;
    fri_pack<T, N> p = fri_load_pack<T, N>(a + i), q = fri_load_pack<T, N>(b + i / (hw * c) * c + i % c);
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], fri_load(p.v[k]) * fri_load(q.v[k]));
    fri_store_pack<T, N>(y + i, p);
}

/* A block sums one image's part of the channels: blockIdx.y is the image. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) mul_image_sum(int64_t hw, int64_t c, const T *a, const T *dy, T *db) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, image = (int64_t)blockIdx.y * hw * c;
    float sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
    if (at < c)
        for (int64_t r = threadIdx.y; r < hw; r += blockDim.y) {
            fri_pack<T, N> p = fri_load_pack<T, N>(a + image + r * c + at),
                           q = fri_load_pack<T, N>(dy + image + r * c + at);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += fri_load(p.v[k]) * fri_load(q.v[k]);
        }
    fri_column_sum<N>(sum, shared);
    if (threadIdx.y != 0 || at >= c) return;
    for (int k = 0; k < N; k++) fri_store(&db[(int64_t)blockIdx.y * c + at + k], sum[k]);
}

extern "C" fr_status fri_cuda_mul_image(const fri_exec *e, const fri_mul_image_desc *d, const void *a, const void *b,
                                        void *y) {
    const int64_t n = d->n * d->hw * d->c;
    if (n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "mul_image",
                    FRI_PACKS_OF(T, d->c, fri_aligned(a, 16) && fri_aligned(b, 16) && fri_aligned(y, 16),
                                 mul_image<T, N><<<fri_blocks(fri_ceil_div(n, N)), FRI_THREADS, 0, fri_stream(e)>>>(
                                     n, d->hw, d->c, (const T *)a, (const T *)b, (T *)y);))
    return fri_cuda_launched("mul_image");
}

extern "C" fr_status fri_cuda_mul_image_sum(const fri_exec *e, const fri_mul_image_desc *d, const void *a,
                                            const void *dy, void *db) {
    if (d->n * d->c == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "mul_image_sum",
                    FRI_PACKS_OF(T, d->c, fri_aligned(a, 16) && fri_aligned(dy, 16) && fri_aligned(db, 16),
                                 const fri_columns g = fri_columns_of(d->hw, d->c, N);
                                 const dim3 grid((unsigned)g.across, (unsigned)d->n); mul_image_sum<T, N>
                                 <<<grid, fri_columns_block(g), 0, fri_stream(e)>>>(d->hw, d->c, (const T *)a,
                                                                                    (const T *)dy, (T *)db);))
    return fri_cuda_launched("mul_image_sum");
}
