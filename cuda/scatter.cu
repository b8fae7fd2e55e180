/* scatter.cu - elements to where an index says along a dimension; size = bytes of an element.
 *   n * (2 * size + 8) bytes, n * (3 * size + 8) with add   an element read and written, its index
 *
 * A thread owns a line along the dimension (fri_gather_desc): no atomics, and one order. Few long lines keep few
 * threads busy. */
#include "common.cuh"

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    put(fri_gather_desc d, const int64_t *index, const T *src, bool add, T *x, int64_t *bad) {
    int64_t line = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x, i, first;
    if (line >= d.lines) return;
    fri_gather_line(&d, line, &i, &first);
    for (int64_t k = 0; k < d.n; k++, i += d.index_step) {
        int64_t to = index[i];
        if (to < 0 || to >= d.extent) {
            atomicMin((unsigned long long *)bad, (unsigned long long)i);
            continue;
        }
        T *at = &x[first + to * d.x_step];
        float value = src != nullptr ? fri_load(src[i]) : 0.0f;
        fri_store(at, add ? value + fri_load(*at) : value);
    }
}

extern "C" fr_status fri_cuda_scatter(const fri_exec *e, const fri_gather_desc *d, const int64_t *index,
                                      const void *src, bool add, void *x, int64_t *bad) {
    fr_status s = fri_cuda_set_bytes(e, "scatter", bad, 0xff, sizeof *bad);
    if (s < 0 || d->lines * d->n == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "scatter",
                    put<T>
                    <<<(unsigned)fri_ceil_div(d->lines, FRI_THREADS), FRI_THREADS, 0, fri_stream(e)>>>(*d, index,
                                                                                                       (const T *)src,
                                                                                                       add, (T *)x,
                                                                                                       bad);)
    return fri_cuda_launched("scatter");
}
