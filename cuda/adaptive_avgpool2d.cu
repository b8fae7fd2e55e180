/* adaptive_avgpool2d.cu - means over the windows that PyTorch's rule gives an output; they may overlap.
 *   forward    (n * h * w * c + n * p * q * c) * size bytes     size = bytes of an element; x read, y written
 *   backward   the same: dy read, dx written. Windows that overlap read the same elements from the cache.
 * A mean over a whole image is a sum of columns: the rows of a block share the image's pixels. */
#include "columns.cuh"
#include "window.cuh"

/* Blocks: (image, channel block). */
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

static bool is_global(const fri_pool2d_desc *d) {
    return d->p == 1 && d->q == 1 && d->h * d->w > 0 && d->n <= INT32_MAX;
}

extern "C" fr_status fri_cuda_adaptive_avgpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x,
                                                         void *y) {
    const char *kernel = "adaptive_avgpool2d_forward";
    if (!is_global(d)) return fri_launch_mean<true>(e, kernel, *d, false, x, y);
    return fri_cuda_image_sum(e, kernel, d->dtype, d->n, d->h * d->w, d->c, NULL, x, (float)(d->h * d->w), y);
}

extern "C" fr_status fri_cuda_adaptive_avgpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, const void *dy,
                                                          void *dx) {
    const char *kernel = "adaptive_avgpool2d_backward";
    if (!is_global(d)) return fri_launch_mean<true>(e, kernel, *d, true, dy, dx);
    if (d->n * d->c == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, fri_aligned(dy, 16) && fri_aligned(dx, 16), {
                        const fri_columns g = fri_columns_of(d->h * d->w, d->c, N);
                        const dim3 grid((unsigned)d->n, (unsigned)g.across);
                        image_spread<T, N><<<grid, fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)dy, (T *)dx);
                    }))
    return fri_cuda_launched(kernel);
}
