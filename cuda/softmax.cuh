/* softmax.cuh - rows of classes: lanes, targets, and the mean of losses. A row of few classes has one lane, other rows
 * one per pack of classes, rounded up to a power of two, at most a warp. All lanes of a warp call shuffles, also lanes
 * after the last row, with 0 classes. */
#ifndef FRI_CUDA_SOFTMAX_CUH
#define FRI_CUDA_SOFTMAX_CUH

#include "common.cuh"

enum { FRI_FEW_CLASSES = 21 /* most masks have no more */, FRI_ROW_KEPT = 4 /* packs of a lane in registers */ };

static inline int fri_row_lanes(int64_t classes, int pack = 1) {
    int lanes = 1;
    while (classes > FRI_FEW_CLASSES && lanes * pack < classes && lanes < 32) lanes *= 2;
    return lanes;
}

static inline int64_t fri_row_blocks(const fri_loss_desc *d, int64_t most, int pack = 1) {
    const int64_t blocks = fri_ceil_div(d->rows, FRI_THREADS / fri_row_lanes(d->classes, pack));
    return blocks < most ? blocks : most;
}

static __device__ __forceinline__ bool fri_row_counts(const fri_loss_desc &d, int64_t target) {
    return target != d.ignore_index && target >= 0 && target < d.classes;
}

/* The sum over the lanes of a row, in each lane. */
static __device__ __forceinline__ double fri_row_sum(int lanes, double v) {
    for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* log(sum(exp(x))), with the maximum subtracted before exp; sums of packs are added in f64. A NaN in the row gives NaN.
 * Packs beyond what is kept are read twice. */
template <typename T, int N> static __device__ double fri_row_log_sum_exp(int lanes, int64_t classes, const T *x) {
    const int64_t lane = ((int)threadIdx.x & (lanes - 1)) * N, step = lanes * N, rest = lane + FRI_ROW_KEPT * step;
    fri_pack<T, N> kept[FRI_ROW_KEPT] = {};
    float max = -INFINITY;
    double exps = 0;
    auto most = [&](const fri_pack<T, N> &p) {
#pragma unroll
        for (int k = 0; k < N; k++) max = fri_load(p.v[k]) > max ? fri_load(p.v[k]) : max;
    };
    auto add = [&](const fri_pack<T, N> &p) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < N; k++) sum += fri_exp(fri_load(p.v[k]) - max);
        exps += (double)sum;
    };
#pragma unroll
    for (int i = 0; i < FRI_ROW_KEPT; i++)
        if (lane + i * step < classes) kept[i] = fri_load_pack<T, N>(x + lane + i * step);
#pragma unroll
    for (int i = 0; i < FRI_ROW_KEPT; i++)
        if (lane + i * step < classes) most(kept[i]);
    for (int64_t j = rest; j < classes; j += step) most(fri_load_pack<T, N>(x + j));
    for (int on = lanes / 2; on > 0; on /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, on));
#pragma unroll
    for (int i = 0; i < FRI_ROW_KEPT; i++)
        if (lane + i * step < classes) add(kept[i]);
    for (int64_t j = rest; j < classes; j += step) add(fri_load_pack<T, N>(x + j));
    return (double)max + fri_ln64(fri_row_sum(lanes, exps));
}

/* ---- targets ------------------------------------------------------------------------------------------------ */

typedef struct fri_targets {
    const int64_t *classes; /* NULL: shares */
    const float *shares;
    const float *weight; /* of a class; NULL: all 1 */
    float kept, even;    /* fri_class_share */
} fri_targets;

static inline fri_targets fri_targets_of(const fri_loss_desc *d, const void *target, const void *weight) {
    return {d->shares ? NULL : (const int64_t *)target, d->shares ? (const float *)target : NULL, (const float *)weight,
            (float)(1 - d->label_smoothing), (float)(d->label_smoothing / (double)d->classes)};
}

/* Share of class j in a row's target, and the weight of the class. */
static __device__ __forceinline__ float fri_target_at(const fri_targets &t, int64_t classes, int64_t row, int64_t j) {
    return t.classes != NULL ? (float)(t.classes[row] == j) : t.shares[row * classes + j];
}

static __device__ __forceinline__ float fri_target_weight(const fri_targets &t, int64_t j) {
    return t.weight != NULL ? t.weight[j] : 1;
}

/* ---- the mean of losses, from partial sums per block, in order --------------------------------------------- */

typedef struct fri_loss_sum {
    double loss, counted;
} fri_loss_sum;

/* The block's sums over threads; every thread calls. */
static __device__ void fri_loss_add(double loss, double counted, fri_loss_sum *partial) {
    loss = fri_block_sum(loss);
    counted = fri_block_sum(counted);
    if (threadIdx.x == 0) partial[blockIdx.x] = {loss, counted};
}

template <typename L>
__global__ void __launch_bounds__(FRI_THREADS)
    fri_loss_end(int64_t blocks, const fri_loss_sum *partial, L *loss, L *count) {
    double sum = 0, counted = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += FRI_THREADS) {
        sum += partial[i].loss;
        counted += partial[i].counted;
    }
    sum = fri_block_sum(sum);
    counted = fri_block_sum(counted);
    if (threadIdx.x > 0) return;
    *loss = (L)(sum / counted); /* NaN if all rows are ignored, as in PyTorch */
    *count = (L)counted;
}

/* Scratch of a loss's forward; no row has a bad target yet. */
static inline fr_status fri_loss_begin(const fri_exec *e, const char *kernel, size_t need, int64_t *bad) {
    fr_status s = fri_cuda_workspace(e, kernel, need);
    return s == FR_OK ? fri_cuda_set_bytes(e, kernel, bad, 0xff, sizeof *bad) : s;
}

/* The mean from sums of `most` blocks at most: launch(most, partial, &blocks) writes a sum per block. */
template <typename L>
static fr_status fri_loss_mean(const fri_exec *e, const char *kernel, int64_t most, void *loss, void *count,
                               int64_t *bad, L launch) {
    fri_loss_sum *partial = (fri_loss_sum *)e->workspace;
    int64_t blocks = most;
    fr_status s = fri_loss_begin(e, kernel, (size_t)most * sizeof *partial, bad);
    if (s >= 0 && most > 0) s = launch(most, partial, &blocks);
    if (s < 0) return s;
    fri_loss_end<<<1, FRI_THREADS, 0, fri_stream(e)>>>(blocks, partial, (float *)loss, (float *)count);
    return fri_cuda_launched(kernel);
}

#endif
