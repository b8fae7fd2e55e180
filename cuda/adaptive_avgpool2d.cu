/* adaptive_avgpool2d.cu - means over the windows that PyTorch's rule gives an output; they may overlap.
 *   forward    (n * h * w * c + n * p * q * c) * size bytes     size = bytes of an element; x read, y written
 *   backward   the same: dy read, dx written. Windows that overlap read the same elements from the cache.
 * A mean over a whole image is a sum of columns: the rows of a block share the image's pixels. */
#include "columns.cuh"
#include "window.cuh"

/* Blocks: (image, channel block). */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) image_mean(fri_columns g, const T *x, T *y) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const T *image = x + blockIdx.x * g.rows * g.c;
    float sum[N] = {};
    if (c < g.c)
        fri_columns_rows<FRI_COLUMN_FLIGHT>(
            g, threadIdx.y, g.rows, c, [&](int64_t, int64_t i) { return fri_load_pack<T, N>(image + i); },
            [&](const fri_pack<T, N> &p, int64_t, int64_t) {
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += fri_load(p.v[k]);
            });
    fri_column_sum<N>(sum, shared);
    if (threadIdx.y > 0 || c >= g.c) return;
    fri_pack<T, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], sum[k] / (float)g.rows);
    fri_store_pack<T, N>(y + blockIdx.x * g.c + c, p);
}

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) image_spread(fri_columns g, const T *dy, T *dx) {
    const int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const float share = 1 / (float)g.rows;
    if (c >= g.c) return;
    fri_pack<T, N> p = fri_load_pack<T, N>(dy + blockIdx.x * g.c + c);
#pragma unroll
    for (int k = 0; k < N; k++) fri_store(&p.v[k], fri_load(p.v[k]) * share);
    for (int64_t row = threadIdx.y; row < g.rows; row += blockDim.y)
        fri_store_pack<T, N>(dx + (blockIdx.x * g.rows + row) * g.c + c, p);
}

/* a and b as for fri_launch_mean. */
static fr_status launch(const fri_exec *e, const char *kernel, const fri_pool2d_desc *d, bool backward, const void *a,
                        void *b) {
    if (d->p != 1 || d->q != 1 || d->n > INT32_MAX) return fri_launch_mean<true>(e, kernel, *d, backward, a, b);
    if (d->n * d->h * d->w * d->c == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, fri_aligned(a, 16) && fri_aligned(b, 16), {
                        const fri_columns g = fri_columns_of(d->h * d->w, d->c, N);
                        const dim3 grid((unsigned)d->n, (unsigned)g.across);
                        auto run = backward ? image_spread<T, N> : image_mean<T, N>;
                        run<<<grid, fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)a, (T *)b);
                    }))
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_adaptive_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x,
                                                         void *y) {
    return launch(e, "adaptive_avgpool2d_forward", d, false, x, y);
}

extern "C" fr_status fri_cuda_adaptive_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy,
                                                          void *dx) {
    return launch(e, "adaptive_avgpool2d_backward", d, true, dy, dx);
}
