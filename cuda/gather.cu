/* gather.cu - elements by index along a dimension; size = bytes of an element.
 *   n * (2 * size + 8) bytes   an element read and written, an index */
#include "common.cuh"

/* bad starts as -1, the largest unsigned number, so the smallest position wins. */
template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    take(fri_gather_desc d, const int64_t *index, const T *x, T *y, int64_t *bad) {
    int64_t at = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x, i, from;
    if (at >= d.lines * d.n) return;
    fri_gather_line(&d, at % d.lines, &i, &from);
    i += at / d.lines * d.index_step;
    int64_t k = index[i];
    if (k >= 0 && k < d.extent) {
        y[i] = x[from + k * d.x_step];
    } else {
        fri_store(&y[i], 0.0f);
        atomicMin((unsigned long long *)bad, (unsigned long long)i);
    }
}

extern "C" fr_status fri_cuda_gather(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *x,
                                     void *y, int64_t *bad) {
    fr_status s = fri_cuda_set_bytes(e, "gather", bad, 0xff, sizeof *bad);
    int64_t n = d->lines * d->n;
    if (s < 0 || n == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "gather",
                    take<T>
                    <<<(unsigned)fri_ceil_div(n, FRI_THREADS), FRI_THREADS, 0, fri_stream(e)>>>(*d, index, (const T *)x,
                                                                                                (T *)y, bad);)
    return fri_cuda_launched("gather");
}
