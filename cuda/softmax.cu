/* softmax.cu - softmax of rows and its logarithm; size = bytes of an element. Rows and lanes as in softmax.cuh.
 *   forward    2 * rows * classes * size bytes   x, y; later passes over a row hit the cache
 *   backward   3 * rows * classes * size bytes   y, dy, dx */
#include "softmax.cuh"

enum { BLOCKS = 65536 };

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS) forward(fri_loss_desc d, int lanes, bool logarithm, const T *x, T *y) {
    const int rows = FRI_THREADS / lanes;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes, classes = row < d.rows ? d.classes : 0;
        const double lse = fri_row_log_sum_exp<T, 1>(lanes, classes, x + row * d.classes);
        for (int64_t j = (int)threadIdx.x & (lanes - 1); j < classes; j += lanes)
            fri_store(&y[row * d.classes + j], fri_softmax(fri_load(x[row * d.classes + j]), lse, logarithm));
    }
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_loss_desc d, int lanes, bool logarithm, const T *y, const T *dy, T *dx) {
    const int rows = FRI_THREADS / lanes, lane = (int)threadIdx.x & (lanes - 1);
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes, classes = row < d.rows ? d.classes : 0;
        const int64_t at = row * d.classes;
        double sum = 0;
        for (int64_t j = lane; j < classes; j += lanes)
            sum += fri_softmax_term(fri_load(y[at + j]), fri_load(dy[at + j]), logarithm);
        sum = fri_row_sum(lanes, sum);
        for (int64_t j = lane; j < classes; j += lanes)
            fri_store(&dx[at + j], fri_softmax_gradient(fri_load(y[at + j]), fri_load(dy[at + j]), sum, logarithm));
    }
}

extern "C" fr_status fri_cuda_softmax_forward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *x,
                                              void *y) {
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "softmax_forward",
                    forward<T>
                    <<<(unsigned)fri_row_blocks(d, BLOCKS), FRI_THREADS, 0, fri_stream(e)>>>(*d,
                                                                                             fri_row_lanes(d->classes),
                                                                                             logarithm, (const T *)x,
                                                                                             (T *)y);)
    return fri_cuda_launched("softmax_forward");
}

extern "C" fr_status fri_cuda_softmax_backward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *y,
                                               const void *dy, void *dx) {
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "softmax_backward",
                    backward<T>
                    <<<(unsigned)fri_row_blocks(d, BLOCKS), FRI_THREADS, 0, fri_stream(e)>>>(*d,
                                                                                             fri_row_lanes(d->classes),
                                                                                             logarithm, (const T *)y,
                                                                                             (const T *)dy, (T *)dx);)
    return fri_cuda_launched("softmax_backward");
}
