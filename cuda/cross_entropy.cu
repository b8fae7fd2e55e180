/* cross_entropy.cu - softmax and negative log-likelihood, fused; a warp per row; size = bytes of an element.
 *   forward         rows * (classes * size + 12) bytes       x, target, lse; later passes over a row hit the cache
 *   backward        rows * (2 * classes * size + 12) bytes   x, dx, target, lse
 *   count_correct   rows * (classes * size + 8) bytes        x, target
 *
 * A row's maximum is subtracted before exp; sums over a row and over rows are in f64. The number of blocks depends on
 * the number of rows only, and their sums are added in order. */
#include "common.cuh"

enum {
    WARPS = FRI_THREADS / 32,
    BLOCKS = 1024 /* partial sums at most */
};

typedef struct group {
    double loss;
    int64_t counted;
} group;

static int64_t blocks_of(int64_t rows) {
    int64_t blocks = fri_ceil_div(rows, WARPS);
    return blocks < BLOCKS ? blocks : (int64_t)BLOCKS;
}

static __device__ __forceinline__ bool counts(const fri_cross_entropy_desc &d, int64_t target) {
    return target != d.ignore_index && target >= 0 && target < d.classes;
}

/* ---- kernels: forward -------------------------------------------------------------------------------------- */

/* The row's loss, in every lane; *lse = log(sum(exp(x))). NaN anywhere in the row makes both NaN. */
template <typename T>
static __device__ double row_loss(const fri_cross_entropy_desc &d, const T *x, int64_t target, float *lse) {
    const int lane = (int)threadIdx.x & 31;
    float max = -INFINITY;
    double exps = 0, sum = 0;
    for (int64_t j = lane; j < d.classes; j += 32) {
        float v = fri_load(x[j]);
        max = v > max ? v : max;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    for (int64_t j = lane; j < d.classes; j += 32) {
        float v = fri_load(x[j]);
        exps += (double)expf(v - max);
        sum += (double)v;
    }
    exps = fri_warp_sum(exps);
    sum = fri_warp_sum(sum);
    double at_target = target >= 0 && target < d.classes ? (double)fri_load(x[target]) : 0;
    double log_sum = (double)max + log(exps);
    *lse = (float)log_sum;
    double loss = (1 - d.label_smoothing) * (log_sum - at_target);
    if (d.label_smoothing > 0) loss += d.label_smoothing * (log_sum - sum / (double)d.classes);
    return loss;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    forward(fri_cross_entropy_desc d, const T *x, const int64_t *target, float *lse, group *partial, int64_t *bad) {
    const int lane = (int)threadIdx.x & 31;
    double loss = 0;
    int64_t counted = 0;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5); row < d.rows;
         row += (int64_t)gridDim.x * WARPS) {
        const int64_t t = target[row];
        float own;
        double l = row_loss(d, x + row * d.classes, t, &own);
        if (lane > 0) continue;
        lse[row] = own;
        if (counts(d, t)) {
            loss += l;
            counted++;
        } else if (t != d.ignore_index) {
            atomicMin((unsigned long long *)bad, (unsigned long long)row);
        }
    }
    __syncwarp();
    loss = fri_block_sum(loss);
    long long all = fri_block_sum((long long)counted);
    if (threadIdx.x > 0) return;
    partial[blockIdx.x].loss = loss;
    partial[blockIdx.x].counted = all;
}

__global__ void __launch_bounds__(FRI_THREADS)
    forward_end(int64_t blocks, const group *partial, float *loss, float *count) {
    double sum = 0;
    long long counted = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += FRI_THREADS) {
        sum += partial[i].loss;
        counted += partial[i].counted;
    }
    sum = fri_block_sum(sum);
    counted = fri_block_sum(counted);
    if (threadIdx.x > 0) return;
    *loss = (float)(sum / (double)counted); /* NaN where no row counts, as in PyTorch */
    *count = (float)counted;
}

/* ---- kernels: backward and accuracy ------------------------------------------------------------------------ */

/* q_other is the smoothed target of the wrong classes, q_target of the right one. */
template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_cross_entropy_desc d, float q_target, float q_other, const T *x, const int64_t *target,
             const float *lse, const float *count, const float *dloss, T *dx) {
    const float g = *dloss / *count;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5); row < d.rows;
         row += (int64_t)gridDim.x * WARPS) {
        const int64_t t = target[row];
        const bool counted = counts(d, t);
        const float own = lse[row];
        for (int64_t j = threadIdx.x & 31; j < d.classes; j += 32) {
            const int64_t at = row * d.classes + j;
            float v = counted ? fri_cross_entropy_gradient(fri_load(x[at]), own, j == t ? q_target : q_other, g) : 0;
            fri_store(&dx[at], v);
        }
    }
}

/* The first largest element; NaN is larger than every number, as in torch.argmax. */
static __device__ __forceinline__ bool better(float a, int64_t at_a, float b, int64_t at_b) {
    if (at_b < 0) return at_a >= 0;
    if (at_a < 0) return false;
    const bool nan_a = a != a, nan_b = b != b;
    if (nan_a != nan_b) return nan_a;
    if (!nan_a && a != b) return a > b;
    return at_a < at_b;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    count_hits(fri_cross_entropy_desc d, const T *x, const int64_t *target, unsigned long long *correct) {
    long long hits = 0;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5); row < d.rows;
         row += (int64_t)gridDim.x * WARPS) {
        float max = 0;
        long long at = -1;
        for (int64_t j = threadIdx.x & 31; j < d.classes; j += 32) {
            float v = fri_load(x[row * d.classes + j]);
            if (better(v, j, max, at)) {
                max = v;
                at = j;
            }
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, max, step);
            long long other_at = __shfl_xor_sync(0xffffffffu, at, step);
            if (better(other, other_at, max, at)) {
                max = other;
                at = other_at;
            }
        }
        if ((threadIdx.x & 31) == 0 && counts(d, target[row]) && at == target[row]) hits++;
    }
    hits = fri_block_sum(hits);
    if (threadIdx.x == 0 && hits > 0) atomicAdd(correct, (unsigned long long)hits); /* integers: any order */
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_cross_entropy_workspace(const fri_cross_entropy_desc *d) {
    return (size_t)blocks_of(d->rows) * sizeof(group);
}

extern "C" fr_status fri_cuda_cross_entropy_forward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                                    const int64_t *target, void *loss, void *lse, void *count,
                                                    int64_t *bad) {
    const char *kernel = "cross_entropy_forward";
    const int64_t blocks = blocks_of(d->rows);
    const size_t need = fri_cuda_cross_entropy_workspace(d);
    group *partial = (group *)e->workspace;
    if (need > 0 && (partial == NULL || e->workspace_bytes < need))
        return fri_cuda_workspace_short(kernel, need, partial != NULL ? e->workspace_bytes : 0);
    fr_status s = fri_cuda_set_bytes(e, kernel, bad, 0xff, sizeof *bad);
    if (s < 0) return s;
    if (blocks > 0)
        FRI_FLOAT_TYPES(d->dtype, kernel,
                        forward<T><<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(*d, (const T *)x, target,
                                                                                        (float *)lse, partial, bad);)
    forward_end<<<1, FRI_THREADS, 0, fri_stream(e)>>>(blocks, partial, (float *)loss, (float *)count);
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_cross_entropy_backward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                                     const int64_t *target, const void *lse, const void *count,
                                                     const void *dloss, void *dx) {
    const float q_other = (float)(d->label_smoothing / (double)d->classes);
    const float q_target = (float)(1 - d->label_smoothing + d->label_smoothing / (double)d->classes);
    const int64_t blocks = fri_ceil_div(d->rows, WARPS);
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "cross_entropy_backward",
                    backward<T><<<(unsigned)(blocks < 65536 ? blocks : 65536), FRI_THREADS, 0, fri_stream(e)>>>(
                        *d, q_target, q_other, (const T *)x, target, (const float *)lse, (const float *)count,
                        (const float *)dloss, (T *)dx);)
    return fri_cuda_launched("cross_entropy_backward");
}

extern "C" fr_status fri_cuda_count_correct(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                            const int64_t *target, int64_t *correct) {
    fr_status s = fri_cuda_set_bytes(e, "count_correct", correct, 0, sizeof *correct);
    if (s < 0 || d->rows == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "count_correct",
                    count_hits<T>
                    <<<(unsigned)blocks_of(d->rows), FRI_THREADS, 0, fri_stream(e)>>>(*d, (const T *)x, target,
                                                                                      (unsigned long long *)correct);)
    return fri_cuda_launched("count_correct");
}
