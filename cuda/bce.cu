/* bce.cu - binary cross-entropy of a sigmoid per class, and the focal loss; size = bytes of an element.
 *   forward    rows * (classes * size + 8) bytes        x, target (of shares: classes * 4)
 *   backward   rows * (2 * classes * size + 8) bytes    x, dx, target
 *
 * The number of blocks depends on the number of elements only, and sums of blocks, in f64, are added in order. */
#include "reduce.cuh"
#include "softmax.cuh"

/* Target and weight of an element. False: the row is ignored. */
static __device__ __forceinline__ bool read_target(const fri_loss_desc &d, const fri_targets &t, int64_t row, int64_t j,
                                                   float *of, float *weight) {
    *weight = fri_target_weight(t, j);
    *of = fri_target_at(t, d.classes, row, j);
    return t.classes == NULL || fri_row_counts(d, t.classes[row]);
}

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    forward(fri_loss_desc d, const T *x, fri_targets t, fri_loss_sum *partial, int64_t *bad) {
    const int64_t n = d.rows * d.classes;
    double loss = 0, counted = 0;
    for (int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * FRI_THREADS) {
        const int64_t row = i / d.classes;
        float of, weight;
        if (read_target(d, t, row, i - row * d.classes, &of, &weight)) {
            loss += (double)fri_focal(fri_load(x[i]), of, weight, &d);
            counted++;
        } else if (t.classes[row] != d.ignore_index) {
            atomicMin((unsigned long long *)bad, (unsigned long long)row);
        }
    }
    fri_loss_add(loss, counted, partial);
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_loss_desc d, const T *x, fri_targets t, const float *count, const float *dloss, T *dx) {
    const int64_t n = d.rows * d.classes;
    const float g = *dloss / *count;
    for (int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * FRI_THREADS) {
        const int64_t row = i / d.classes;
        float of, weight;
        const bool counted = read_target(d, t, row, i - row * d.classes, &of, &weight);
        fri_store(&dx[i], counted ? g * fri_focal_gradient(fri_load(x[i]), of, weight, &d) : 0);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_bce_workspace(const fri_loss_desc *d) {
    return (size_t)fri_reduce_blocks(d->rows * d->classes) * sizeof(fri_loss_sum);
}

extern "C" fr_status fri_cuda_bce_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                          const void *weight, void *loss, void *, void *factors, int64_t *bad) {
    const fri_targets t = fri_targets_of(d, target, weight);
    return fri_loss_mean(e, "bce_forward", fri_reduce_blocks(d->rows * d->classes), loss, factors, bad,
                         [&](int64_t blocks, fri_loss_sum *partial, int64_t *) {
                             FRI_FLOAT_TYPES(d->dtype, "bce_forward",
                                             forward<T>
                                             <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(*d, (const T *)x, t,
                                                                                                   partial, bad);)
                             return FR_OK;
                         });
}

extern "C" fr_status fri_cuda_bce_backward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                           const void *weight, const void *, const void *factors, const void *dloss,
                                           void *dx) {
    const int64_t blocks = fri_ceil_div(d->rows * d->classes, FRI_THREADS);
    if (blocks == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "bce_backward",
                    backward<T><<<(unsigned)(blocks < 65536 ? blocks : 65536), FRI_THREADS, 0, fri_stream(e)>>>(
                        *d, (const T *)x, fri_targets_of(d, target, weight), (const float *)factors,
                        (const float *)dloss, (T *)dx);)
    return fri_cuda_launched("bce_backward");
}
