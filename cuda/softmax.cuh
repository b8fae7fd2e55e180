/* softmax.cuh - rows of classes: a row has as many lanes as it has classes, rounded up to a power of two, at most a
 * warp. All lanes of a warp call what shuffles, also those behind the last row, with 0 classes. */
#ifndef FRI_CUDA_SOFTMAX_CUH
#define FRI_CUDA_SOFTMAX_CUH

#include "common.cuh"

static inline int fri_row_lanes(int64_t classes) {
    int lanes = 1;
    while (lanes < classes && lanes < 32) lanes *= 2;
    return lanes;
}

static inline int64_t fri_row_blocks(const fri_loss_desc *d, int64_t most) {
    const int64_t blocks = fri_ceil_div(d->rows, FRI_THREADS / fri_row_lanes(d->classes));
    return blocks < most ? blocks : most;
}

static __device__ __forceinline__ bool fri_row_counts(const fri_loss_desc &d, int64_t target) {
    return target != d.ignore_index && target >= 0 && target < d.classes;
}

/* The sum over the lanes of a row, in each of them. */
static __device__ __forceinline__ double fri_row_sum(int lanes, double v) {
    for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* log(sum(exp(x))), its maximum subtracted before exp; the sum is in f64. NaN anywhere in the row makes it NaN. */
template <typename T> static __device__ double fri_row_log_sum_exp(int lanes, int64_t classes, const T *x) {
    const int lane = (int)threadIdx.x & (lanes - 1);
    float max = -INFINITY;
    double exps = 0;
    for (int64_t j = lane; j < classes; j += lanes) {
        float v = fri_load(x[j]);
        max = v > max ? v : max;
    }
    for (int step = lanes / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    for (int64_t j = lane; j < classes; j += lanes) exps += (double)expf(fri_load(x[j]) - max);
    return (double)max + log(fri_row_sum(lanes, exps));
}

#endif
