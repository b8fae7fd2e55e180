/* cross_entropy.cu - softmax and negative log-likelihood, fused; size = bytes of an element. A row has as many lanes as
 * it has classes, rounded up to a power of two, at most a warp.
 *   forward         rows * (classes * size + 12) bytes       x, target, lse; later passes over a row hit the cache
 *   backward        rows * (2 * classes * size + 12) bytes   x, dx, target, lse
 *   count_correct   rows * (classes * size + 8) bytes        x, target
 *
 * A row's maximum is subtracted before exp; sums over a row and over rows are in f64. The number of blocks depends on
 * the number of rows only, and their sums are added in order. */
#include "common.cuh"

enum {
    WARP = 32,
    BLOCKS = 1024 /* partial sums at most */
};

typedef struct group {
    double loss;
    int64_t counted;
} group;

static int lanes_of(int64_t classes) {
    int lanes = 1;
    while (lanes < classes && lanes < WARP) lanes *= 2;
    return lanes;
}

static int64_t blocks_of(const fri_cross_entropy_desc *d, int64_t most) {
    const int64_t blocks = fri_ceil_div(d->rows, FRI_THREADS / lanes_of(d->classes));
    return blocks < most ? blocks : most;
}

static __device__ __forceinline__ bool counts(const fri_cross_entropy_desc &d, int64_t target) {
    return target != d.ignore_index && target >= 0 && target < d.classes;
}

/* ---- kernels: forward -------------------------------------------------------------------------------------- */

/* The row's loss, in every lane; *lse = log(sum(exp(x))). NaN anywhere in the row makes both NaN. All lanes of a warp
 * come here, also those behind the last row, with 0 classes. */
template <typename T>
static __device__ double row_loss(const fri_cross_entropy_desc &d, int lanes, int64_t classes, const T *x,
                                  int64_t target, float *lse) {
    const int lane = (int)threadIdx.x & (lanes - 1);
    float max = -INFINITY;
    double exps = 0, sum = 0;
    for (int64_t j = lane; j < classes; j += lanes) {
        float v = fri_load(x[j]);
        max = v > max ? v : max;
    }
    for (int step = lanes / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    for (int64_t j = lane; j < classes; j += lanes) {
        float v = fri_load(x[j]);
        exps += (double)expf(v - max);
        sum += (double)v;
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
        exps += __shfl_xor_sync(0xffffffffu, exps, step);
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    double at_target = target >= 0 && target < classes ? (double)fri_load(x[target]) : 0;
    double log_sum = (double)max + log(exps);
    *lse = (float)log_sum;
    double loss = (1 - d.label_smoothing) * (log_sum - at_target);
    if (d.label_smoothing > 0) loss += d.label_smoothing * (log_sum - sum / (double)d.classes);
    return loss;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    forward(fri_cross_entropy_desc d, int lanes, const T *x, const int64_t *target, float *lse, group *partial,
            int64_t *bad) {
    const int rows = FRI_THREADS / lanes;
    double loss = 0;
    int64_t counted = 0;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        const bool there = row < d.rows;
        const int64_t t = there ? target[row] : d.ignore_index;
        float own;
        double l = row_loss(d, lanes, there ? d.classes : 0, x + row * d.classes, t, &own);
        if (!there || ((int)threadIdx.x & (lanes - 1)) > 0) continue;
        lse[row] = own;
        if (counts(d, t)) {
            loss += l;
            counted++;
        } else if (t != d.ignore_index) {
            atomicMin((unsigned long long *)bad, (unsigned long long)row);
        }
    }
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
    backward(fri_cross_entropy_desc d, int lanes, float q_target, float q_other, const T *x, const int64_t *target,
             const float *lse, const float *count, const float *dloss, T *dx) {
    const float g = *dloss / *count;
    const int rows = FRI_THREADS / lanes;
    for (int64_t row = (int64_t)blockIdx.x * rows + (int)threadIdx.x / lanes; row < d.rows;
         row += (int64_t)gridDim.x * rows) {
        const int64_t t = target[row];
        const bool counted = counts(d, t);
        const float own = lse[row];
        for (int64_t j = (int)threadIdx.x & (lanes - 1); j < d.classes; j += lanes) {
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
    count_hits(fri_cross_entropy_desc d, int lanes, const T *x, const int64_t *target, unsigned long long *correct) {
    const int rows = FRI_THREADS / lanes;
    long long hits = 0;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        const bool there = row < d.rows;
        float max = 0;
        long long at = -1;
        for (int64_t j = (int)threadIdx.x & (lanes - 1); there && j < d.classes; j += lanes) {
            float v = fri_load(x[row * d.classes + j]);
            if (better(v, j, max, at)) {
                max = v;
                at = j;
            }
        }
        for (int step = lanes / 2; step > 0; step /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, max, step);
            long long other_at = __shfl_xor_sync(0xffffffffu, at, step);
            if (better(other, other_at, max, at)) {
                max = other;
                at = other_at;
            }
        }
        if (there && ((int)threadIdx.x & (lanes - 1)) == 0 && counts(d, target[row]) && at == target[row]) hits++;
    }
    hits = fri_block_sum(hits);
    if (threadIdx.x == 0 && hits > 0) atomicAdd(correct, (unsigned long long)hits); /* integers: any order */
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_cross_entropy_workspace(const fri_cross_entropy_desc *d) {
    return (size_t)blocks_of(d, BLOCKS) * sizeof(group);
}

extern "C" fr_status fri_cuda_cross_entropy_forward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                                    const int64_t *target, void *loss, void *lse, void *count,
                                                    int64_t *bad) {
    const char *kernel = "cross_entropy_forward";
    const int64_t blocks = blocks_of(d, BLOCKS);
    const size_t need = fri_cuda_cross_entropy_workspace(d);
    group *partial = (group *)e->workspace;
    if (need > 0 && (partial == NULL || e->workspace_bytes < need))
        return fri_cuda_workspace_short(kernel, need, partial != NULL ? e->workspace_bytes : 0);
    fr_status s = fri_cuda_set_bytes(e, kernel, bad, 0xff, sizeof *bad);
    if (s < 0) return s;
    if (blocks > 0)
        FRI_FLOAT_TYPES(d->dtype, kernel,
                        forward<T>
                        <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(*d, lanes_of(d->classes), (const T *)x,
                                                                              target, (float *)lse, partial, bad);)
    forward_end<<<1, FRI_THREADS, 0, fri_stream(e)>>>(blocks, partial, (float *)loss, (float *)count);
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_cross_entropy_backward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                                     const int64_t *target, const void *lse, const void *count,
                                                     const void *dloss, void *dx) {
    const float q_other = (float)(d->label_smoothing / (double)d->classes);
    const float q_target = (float)(1 - d->label_smoothing + d->label_smoothing / (double)d->classes);
    const int64_t blocks = blocks_of(d, 65536);
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "cross_entropy_backward",
                    backward<T>
                    <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(*d, lanes_of(d->classes), q_target, q_other,
                                                                          (const T *)x, target, (const float *)lse,
                                                                          (const float *)count, (const float *)dloss,
                                                                          (T *)dx);)
    return fri_cuda_launched("cross_entropy_backward");
}

extern "C" fr_status fri_cuda_count_correct(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                            const int64_t *target, int64_t *correct) {
    fr_status s = fri_cuda_set_bytes(e, "count_correct", correct, 0, sizeof *correct);
    if (s < 0 || d->rows == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "count_correct",
                    count_hits<T>
                    <<<(unsigned)blocks_of(d, BLOCKS), FRI_THREADS, 0, fri_stream(e)>>>(*d, lanes_of(d->classes),
                                                                                        (const T *)x, target,
                                                                                        (unsigned long long *)correct);)
    return fri_cuda_launched("count_correct");
}
