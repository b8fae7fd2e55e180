/* embedding.cu - rows of a table by index; size = bytes of an element.
 *   forward    n * (2 * dim * size + 8) bytes                a row read and written, its index
 *   backward   (n + vocabulary) * dim * size + 8 * n bytes   dy, dw, indices (again for every row, from the cache)
 *
 * Backward: a block owns one row of the table and up to FRI_THREADS columns, reads all indices in order and adds up the
 * rows of dy that name it: no two blocks write the same element, and each sum has the order of positions. */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* bad starts as -1, the largest unsigned number, so the smallest position wins. */
template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    gather(fri_embedding_desc d, const int64_t *index, const T *w, T *y, int64_t *bad) {
    int64_t row = blockIdx.x, at = index[row];
    bool inside = at >= 0 && at < d.vocabulary;
    T zero;
    fri_store(&zero, 0.0f);
    if (!inside && threadIdx.x == 0 && blockIdx.y == 0) atomicMin((unsigned long long *)bad, (unsigned long long)row);
    for (int64_t j = (int64_t)blockIdx.y * FRI_THREADS + threadIdx.x; j < d.dim; j += (int64_t)gridDim.y * FRI_THREADS)
        y[row * d.dim + j] = inside ? w[at * d.dim + j] : zero;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS) scatter(fri_embedding_desc d, const int64_t *index, const T *dy, T *dw) {
    __shared__ unsigned hits[FRI_THREADS / 32]; /* positions of FRI_THREADS with the row */
    const int64_t row = blockIdx.x, j = (int64_t)blockIdx.y * FRI_THREADS + threadIdx.x;
    float sum = 0;
    for (int64_t first = 0; first < d.n; first += FRI_THREADS) {
        int64_t i = first + threadIdx.x;
        unsigned found = __ballot_sync(0xffffffffu, i < d.n && index[i] == row);
        if ((threadIdx.x & 31) == 0) hits[threadIdx.x >> 5] = found;
        __syncthreads();
        if (j < d.dim)
            for (int warp = 0; warp < FRI_THREADS / 32; warp++)
                for (unsigned left = hits[warp]; left != 0; left &= left - 1)
                    sum += fri_load(dy[(first + 32 * warp + __ffs((int)left) - 1) * d.dim + j]);
        __syncthreads();
    }
    if (j < d.dim) fri_store(&dw[row * d.dim + j], sum);
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

static dim3 grid_of(int64_t rows, int64_t dim) {
    return dim3((unsigned)rows, (unsigned)fri_ceil_div(dim, FRI_THREADS));
}

extern "C" fr_status fri_cuda_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                                const void *w, void *y, int64_t *bad) {
    fr_status s = fri_cuda_set_bytes(e, "embedding_forward", bad, 0xff, sizeof *bad);
    if (s < 0 || d->n * d->dim == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "embedding_forward",
                    gather<T>
                    <<<grid_of(d->n, d->dim), FRI_THREADS, 0, fri_stream(e)>>>(*d, index, (const T *)w, (T *)y, bad);)
    return fri_cuda_launched("embedding_forward");
}

extern "C" fr_status fri_cuda_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                                 const void *dy, void *dw) {
    if (d->vocabulary * d->dim == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "embedding_backward",
                    scatter<T>
                    <<<grid_of(d->vocabulary, d->dim), FRI_THREADS, 0, fri_stream(e)>>>(*d, index, (const T *)dy,
                                                                                        (T *)dw);)
    return fri_cuda_launched("embedding_backward");
}
