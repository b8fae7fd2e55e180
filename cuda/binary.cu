/* binary.cu - y = a + b, a - b, a * b, a / b where b has a value for each channel of an image.
 *   binary_image         (2 * n * hw * c + n * c) * size bytes   size = bytes of an element: a and b read, y written
 *   binary_image_sum     (2 * n * hw * c + n * c) * size bytes   a and dy read, db written; without a one map less */
#include "columns.cuh"

/* A pack is inside a pixel: c is divisible by M. */
template <typename T> struct image {
    fri_binary op;
    int64_t hw, c;
    const T *a, *b;
    T *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p = fri_load_pack<T, M>(a + i), q = fri_load_pack<T, M>(b + i / (hw * c) * c + i % c);
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], fri_binary_of(op, fri_load(p.v[k]), fri_load(q.v[k])));
        fri_store_pack<T, M>(y + i, p);
    }
};

/* sum[image][c] = the sum over an image of dy, or of a * dy, divided by `by`. A block sums an image's part of the
 * channels, and then images gridDim.y further. */
template <typename T, int N, bool PRODUCT>
__global__ void __launch_bounds__(FRI_THREADS, FRI_COLUMN_RESIDENT)
    image_sum(fri_columns g, int64_t n, const T *a, const T *dy, float by, T *sums) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    struct packs {
        fri_pack<T, N> p, q;
    };
    for (int64_t image = blockIdx.y; image < n; image += gridDim.y) {
        const int64_t from = image * g.rows * g.c;
        float sum[N] = {};
        if (c < g.c)
            fri_columns_rows<FRI_COLUMN_FLIGHT>(
                g, threadIdx.y, g.rows, c,
                [&](int64_t, int64_t i) {
                    packs v;
                    v.q = fri_load_pack<T, N>(dy + from + i);
                    if (PRODUCT) v.p = fri_load_pack<T, N>(a + from + i);
                    return v;
                },
                [&](const packs &v, int64_t, int64_t) {
#pragma unroll
                    for (int k = 0; k < N; k++)
                        sum[k] += PRODUCT ? fri_load(v.p.v[k]) * fri_load(v.q.v[k]) : fri_load(v.q.v[k]);
                });
        fri_column_sum<N>(sum, shared);
        if (threadIdx.y != 0 || c >= g.c) continue;
        fri_pack<T, N> p;
#pragma unroll
        for (int k = 0; k < N; k++) fri_store(&p.v[k], sum[k] / by);
        fri_store_pack<T, N>(sums + image * g.c + c, p);
    }
}

extern "C" fr_status fri_cuda_binary_image(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *b,
                                           void *y) {
    const bool aligned = fri_aligned(a, 16) && fri_aligned(b, 16) && fri_aligned(y, 16);
    FRI_FLOAT_TYPES(d->dtype, "binary_image", FRI_PACKS_OF(T, d->c, aligned, {
                        const image<T> f = {d->op, d->hw, d->c, (const T *)a, (const T *)b, (T *)y};
                        return fri_launch_each<T, N>(e, "binary_image", d->n * d->hw * d->c, true, f);
                    }))
}

extern "C" fr_status fri_cuda_image_sum(const fri_exec *e, const char *kernel, fr_dtype dtype, int64_t n, int64_t hw,
                                        int64_t c, const void *a, const void *dy, float by, void *sums) {
    const unsigned images = (unsigned)(n < FRI_GRID_Y ? n : (int64_t)FRI_GRID_Y);
    if (n * c == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, kernel,
                    FRI_PACKS_OF(T, c, fri_aligned(a, 16) && fri_aligned(dy, 16) && fri_aligned(sums, 16), {
                        const fri_columns g = fri_columns_of(hw, c, N);
                        auto run = a != NULL ? image_sum<T, N, true> : image_sum<T, N, false>;
                        run<<<dim3((unsigned)g.across, images), fri_columns_block(g), 0, fri_stream(e)>>>(g, n,
                                                                                                          (const T *)a,
                                                                                                          (const T *)dy,
                                                                                                          by,
                                                                                                          (T *)sums);
                    }))
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_binary_image_sum(const fri_exec *e, const fri_binary_desc *d, const void *a,
                                               const void *dy, void *db) {
    return fri_cuda_image_sum(e, "binary_image_sum", d->dtype, d->n, d->hw, d->c, a, dy, 1, db);
}
