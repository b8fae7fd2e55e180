/* cross_entropy.cu - softmax and negative log-likelihood, fused; size = bytes of an element. Lanes: softmax.cuh.
 *   forward         rows * (classes * size + 12) bytes       x, target, lse; up to 1,024 classes stay in registers
 *   backward        rows * (2 * classes * size + 12) bytes   x, dx, target, lse
 *   count_correct   rows * (classes * size + 8) bytes        x, target
 *
 * A row's maximum is subtracted before exp; sums over rows are in f64. The number of blocks depends on the shape only,
 * and their sums are added in order. */
#include "softmax.cuh"

enum { BLOCKS = 1024 /* partial sums at most */ };

static __device__ __forceinline__ float share(const fri_loss_desc &d, const fri_targets &t, int64_t row, int64_t j) {
    return fri_class_share(fri_target_at(t, d.classes, row, j), fri_target_weight(t, j), t.kept, t.even);
}

/* ---- kernels: forward -------------------------------------------------------------------------------------- */

/* The row's loss, in every lane, from log(sum(exp(x))), which is NaN for a row with NaN, as is the loss. All lanes of a
 * warp come here, also lanes after the last row, with 0 classes. */
template <typename T>
static __device__ __forceinline__ double row_loss(const fri_loss_desc &d, int lanes, int64_t classes, const T *x,
                                                  int64_t target, double log_sum) {
    double at_target = target >= 0 && target < classes ? (double)fri_load(x[target]) : 0, sum = 0;
    double loss = (1 - d.label_smoothing) * (log_sum - at_target);
    if (!(d.label_smoothing > 0)) return loss;
    for (int64_t j = (int)threadIdx.x & (lanes - 1); j < classes; j += lanes) sum += (double)fri_load(x[j]);
    return loss + d.label_smoothing * (log_sum - fri_row_sum(lanes, sum) / (double)d.classes);
}

/* Loss of a row with weights, or of shares. A class without a share adds nothing for any x. */
template <typename T>
static __device__ __forceinline__ double row_loss_of_shares(const fri_loss_desc &d, int lanes, int64_t classes,
                                                            const T *x, const fri_targets &t, int64_t row,
                                                            double log_sum) {
    double loss = 0;
    for (int64_t j = (int)threadIdx.x & (lanes - 1); j < classes; j += lanes) {
        const float q = share(d, t, row, j);
        if (q != 0) loss += (double)q * (log_sum - (double)fri_load(x[j]));
    }
    loss = fri_row_sum(lanes, loss);
    return log_sum == log_sum ? loss : log_sum;
}

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    forward(fri_loss_desc d, int lanes, const T *x, fri_targets t, float *lse, fri_loss_sum *partial, int64_t *bad) {
    const int rows = FRI_THREADS / lanes;
    double loss = 0, counted = 0;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        const bool there = row < d.rows;
        const int64_t classes = there ? d.classes : 0, target = there && t.classes != NULL ? t.classes[row] : -1;
        const T *own = x + row * d.classes;
        const double log_sum = fri_row_log_sum_exp<T, N>(lanes, classes, own);
        const double l = t.classes != NULL && t.weight == NULL
                             ? row_loss(d, lanes, classes, own, target, log_sum)
                             : row_loss_of_shares(d, lanes, classes, own, t, row, log_sum);
        if (!there || ((int)threadIdx.x & (lanes - 1)) > 0) continue;
        lse[row] = (float)log_sum;
        if (t.classes == NULL || fri_row_counts(d, target)) {
            loss += l;
            counted += t.classes != NULL && t.weight != NULL ? (double)t.weight[target] : 1;
        } else if (target != d.ignore_index) {
            atomicMin((unsigned long long *)bad, (unsigned long long)row);
        }
    }
    fri_loss_add(loss, counted, partial);
}

/* ---- kernels: backward and accuracy ------------------------------------------------------------------------ */

/* SHARES: targets are shares, or classes have weights; else q_target is the smoothed target of the right class, and
 * q_other of wrong ones. */
template <typename T, int N, bool SHARES>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_loss_desc d, int lanes, float q_target, float q_other, const T *x, fri_targets t, const float *lse,
             const float *count, const float *dloss, T *dx) {
    const float g = *dloss / *count;
    const int rows = FRI_THREADS / lanes, lane = (int)threadIdx.x & (lanes - 1);
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes, classes = row < d.rows ? d.classes : 0;
        const int64_t target = classes > 0 && t.classes != NULL ? t.classes[row] : -1;
        const bool counted = classes > 0 && (t.classes == NULL || fri_row_counts(d, target));
        const float own = counted ? lse[row] : 0;
        double all = 0;
        if (SHARES) {
            for (int64_t j = lane; j < classes; j += lanes) all += (double)share(d, t, row, j);
            all = fri_row_sum(lanes, all);
        }
        for (int64_t j = lane * N; j < classes; j += lanes * N) {
            fri_pack<T, N> p = fri_load_pack<T, N>(x + row * d.classes + j);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float q = SHARES ? share(d, t, row, j + k) : j + k == target ? q_target : q_other;
                const float of = SHARES ? (float)all : 1;
                fri_store(&p.v[k], counted ? fri_share_gradient(fri_load(p.v[k]), own, of, q, g) : 0);
            }
            fri_store_pack<T, N>(dx + row * d.classes + j, p);
        }
    }
}

/* The first largest element; NaN is larger than every number, as in torch.argmax. */
static __device__ __forceinline__ bool is_larger(float a, int64_t at_a, float b, int64_t at_b) {
    if (at_b < 0) return at_a >= 0;
    if (at_a < 0) return false;
    const bool nan_a = a != a, nan_b = b != b;
    if (nan_a != nan_b) return nan_a;
    if (!nan_a && a != b) return a > b;
    return at_a < at_b;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    count_hits(fri_loss_desc d, int lanes, const T *x, const int64_t *target, unsigned long long *correct) {
    const int rows = FRI_THREADS / lanes;
    long long hits = 0;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        const bool there = row < d.rows;
        float max = 0;
        long long at = -1;
        for (int64_t j = (int)threadIdx.x & (lanes - 1); there && j < d.classes; j += lanes) {
            float v = fri_load(x[row * d.classes + j]);
            if (is_larger(v, j, max, at)) {
                max = v;
                at = j;
            }
        }
        for (int step = lanes / 2; step > 0; step /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, max, step);
            long long other_at = __shfl_xor_sync(0xffffffffu, at, step);
            if (is_larger(other, other_at, max, at)) {
                max = other;
                at = other_at;
            }
        }
        if (there && ((int)threadIdx.x & (lanes - 1)) == 0 && fri_row_counts(d, target[row]) && at == target[row])
            hits++;
    }
    hits = fri_block_sum(hits);
    if (threadIdx.x == 0 && hits > 0) atomicAdd(correct, (unsigned long long)hits); /* integers: any order */
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_cross_entropy_workspace(const fri_loss_desc *d) {
    return (size_t)fri_row_blocks(d, BLOCKS) * sizeof(fri_loss_sum);
}

extern "C" fr_status fri_cuda_cross_entropy_forward(const fri_exec *e, const fri_loss_desc *d, const void *x,
                                                    const void *target, const void *weight, void *loss, void *lse,
                                                    void *factors, int64_t *bad) {
    const fri_targets t = fri_targets_of(d, target, weight);
    return fri_loss_mean(e, "cross_entropy_forward", fri_row_blocks(d, BLOCKS), loss, factors, bad,
                         [&](int64_t most, fri_loss_sum *partial, int64_t *blocks) {
                             FRI_FLOAT_TYPES(d->dtype, "cross_entropy_forward",
                                             FRI_PACKS_OF(T, d->classes, fri_aligned(x, 16), {
                                                 *blocks = fri_row_blocks(d, most, N);
                                                 forward<T, N><<<(unsigned)*blocks, FRI_THREADS, 0, fri_stream(e)>>>(
                                                     *d, fri_row_lanes(d->classes, N), (const T *)x, t, (float *)lse,
                                                     partial, bad);
                                             }))
                             return FR_OK;
                         });
}

extern "C" fr_status fri_cuda_cross_entropy_backward(const fri_exec *e, const fri_loss_desc *d, const void *x,
                                                     const void *target, const void *weight, const void *lse,
                                                     const void *factors, const void *dloss, void *dx) {
    const float q_other = (float)(d->label_smoothing / (double)d->classes);
    const float q_target = (float)(1 - d->label_smoothing + d->label_smoothing / (double)d->classes);
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "cross_entropy_backward",
                    FRI_PACKS_OF(T, d->classes, fri_aligned(x, 16) && fri_aligned(dx, 16), {
                        auto run = d->shares || weight != NULL ? backward<T, N, true> : backward<T, N, false>;
                        run<<<(unsigned)fri_row_blocks(d, 65536, N), FRI_THREADS, 0, fri_stream(e)>>>(
                            *d, fri_row_lanes(d->classes, N), q_target, q_other, (const T *)x,
                            fri_targets_of(d, target, weight), (const float *)lse, (const float *)factors,
                            (const float *)dloss, (T *)dx);
                    }))
    return fri_cuda_launched("cross_entropy_backward");
}

extern "C" fr_status fri_cuda_count_correct(const fri_exec *e, const fri_loss_desc *d, const void *x,
                                            const int64_t *target, int64_t *correct) {
    fr_status s = fri_cuda_set_bytes(e, "count_correct", correct, 0, sizeof *correct);
    if (s < 0 || d->rows == 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "count_correct",
                    count_hits<T><<<(unsigned)fri_row_blocks(d, BLOCKS), FRI_THREADS, 0, fri_stream(e)>>>(
                        *d, fri_row_lanes(d->classes), (const T *)x, target, (unsigned long long *)correct);)
    return fri_cuda_launched("count_correct");
}
