/* dice.cu - the Dice loss of softmax probabilities; size = bytes of an element.
 *   forward    rows * (2 * classes * size + 20) bytes   x twice, target, lse written and read; sums per block
 *   backward   rows * (2 * classes * size + 12) bytes   x, dx, target, lse; the second pass over a row hits the cache
 *
 * The number of blocks depends on the number of rows only, and sums per class, in f64, are added in order. */
#include "softmax.cuh"

enum { BLOCKS = 256, STRETCH = 1024 /* fewest rows per block where more blocks help */ };

/* Sums of p t, p and t of a class over rows. */
typedef struct class_sums {
    double both, p, t;
} class_sums;

static int64_t blocks_of(const fri_loss_desc *d) {
    const int64_t blocks = fri_ceil_div(d->rows, STRETCH);
    return blocks < BLOCKS ? blocks : (int64_t)BLOCKS;
}

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    log_sums(fri_loss_desc d, int lanes, const T *x, const int64_t *target, float *lse, int64_t *bad) {
    const int rows = FRI_THREADS / lanes;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        const double log_sum = fri_row_log_sum_exp<T, 1>(lanes, row < d.rows ? d.classes : 0, x + row * d.classes);
        if (row >= d.rows || ((int)threadIdx.x & (lanes - 1)) > 0) continue;
        lse[row] = (float)log_sum;
        if (target[row] != d.ignore_index && !fri_row_counts(d, target[row]))
            atomicMin((unsigned long long *)bad, (unsigned long long)row);
    }
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    sums(fri_loss_desc d, const T *x, const int64_t *target, const float *lse, class_sums *partial) {
    for (int64_t c = 0; c < d.classes; c++) {
        double both = 0, p = 0, t = 0;
        for (int64_t row = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x; row < d.rows;
             row += (int64_t)gridDim.x * FRI_THREADS) {
            if (!fri_row_counts(d, target[row])) continue;
            const double v = (double)fri_exp(fri_load(x[row * d.classes + c]) - lse[row]);
            p += v;
            if (target[row] != c) continue;
            both += v;
            t++;
        }
        both = fri_block_sum(both);
        p = fri_block_sum(p);
        t = fri_block_sum(t);
        if (threadIdx.x == 0) partial[(int64_t)blockIdx.x * d.classes + c] = {both, p, t};
    }
}

__global__ void __launch_bounds__(FRI_THREADS)
    forward_end(fri_loss_desc d, int64_t blocks, const class_sums *partial, float *factors, float *loss) {
    double sum = 0;
    for (int64_t c = threadIdx.x; c < d.classes; c += FRI_THREADS) {
        class_sums all = {0, 0, 0};
        for (int64_t i = 0; i < blocks; i++) {
            const class_sums g = partial[i * d.classes + c];
            all.both += g.both;
            all.p += g.p;
            all.t += g.t;
        }
        sum += fri_dice(all.both, all.p, all.t, &d, &factors[c], &factors[d.classes + c]);
    }
    sum = fri_block_sum(sum);
    if (threadIdx.x == 0) *loss = (float)sum;
}

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    backward(fri_loss_desc d, int lanes, const T *x, const int64_t *target, const float *lse, const float *factors,
             const float *dloss, T *dx) {
    const int rows = FRI_THREADS / lanes, lane = (int)threadIdx.x & (lanes - 1);
    for (int64_t first = (int64_t)blockIdx.x * rows; first < d.rows; first += (int64_t)gridDim.x * rows) {
        const int64_t row = first + (int)threadIdx.x / lanes, classes = row < d.rows ? d.classes : 0;
        const int64_t t = classes > 0 ? target[row] : -1;
        const float own = classes > 0 ? lse[row] : 0;
        const bool counted = fri_row_counts(d, t);
        double mean = 0; /* of dloss/dp, by the probabilities */
        for (int64_t j = lane; j < classes && counted; j += lanes)
            mean +=
                (double)(fri_exp(fri_load(x[row * d.classes + j]) - own) * fri_dice_slope(factors, d.classes, j, t));
        mean = fri_row_sum(lanes, mean);
        for (int64_t j = lane; j < classes; j += lanes) {
            const int64_t at = row * d.classes + j;
            const float slope = fri_dice_slope(factors, d.classes, j, t) - (float)mean;
            fri_store(&dx[at], counted ? fri_exp(fri_load(x[at]) - own) * slope * *dloss : 0);
        }
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" size_t fri_cuda_dice_workspace(const fri_loss_desc *d) {
    return (size_t)(blocks_of(d) * d->classes) * sizeof(class_sums);
}

extern "C" fr_status fri_cuda_dice_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                           const void *, void *loss, void *lse, void *factors, int64_t *bad) {
    const char *kernel = "dice_forward";
    const int64_t blocks = blocks_of(d);
    class_sums *partial = (class_sums *)e->workspace;
    fr_status s = fri_loss_begin(e, kernel, fri_cuda_dice_workspace(d), bad);
    if (s < 0) return s;
    if (blocks > 0) {
        FRI_FLOAT_TYPES(d->dtype, kernel,
                        log_sums<T><<<(unsigned)fri_row_blocks(d, 65536), FRI_THREADS, 0, fri_stream(e)>>>(
                            *d, fri_row_lanes(d->classes), (const T *)x, (const int64_t *)target, (float *)lse, bad);
                        sums<T>
                        <<<(unsigned)blocks, FRI_THREADS, 0, fri_stream(e)>>>(*d, (const T *)x, (const int64_t *)target,
                                                                              (const float *)lse, partial);)
    }
    forward_end<<<1, FRI_THREADS, 0, fri_stream(e)>>>(*d, blocks, partial, (float *)factors, (float *)loss);
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_dice_backward(const fri_exec *e, const fri_loss_desc *d, const void *x,
                                            const void *target, const void *, const void *lse, const void *factors,
                                            const void *dloss, void *dx) {
    if (d->rows * d->classes == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "dice_backward",
                    backward<T><<<(unsigned)fri_row_blocks(d, 65536), FRI_THREADS, 0, fri_stream(e)>>>(
                        *d, fri_row_lanes(d->classes), (const T *)x, (const int64_t *)target, (const float *)lse,
                        (const float *)factors, (const float *)dloss, (T *)dx);)
    return fri_cuda_launched("dice_backward");
}
