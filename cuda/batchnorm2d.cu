/* batchnorm2d.cu - batch normalization over rows of channels; n = rows * c, size = bytes of an element.
 *   stats      n * size + 16 * chunks * c bytes           x; two f32 per chunk and channel, written and read
 *   apply      2 * n * size bytes                         x, y; with an addend 3 * n * size: that, too
 *   backward   5 * n * size + 16 * chunks * c bytes       x, dy for the sums, then x, dy, dx; the sums as in stats
 *              2 * n * size bytes                         dy, dx: in eval mode without parameter gradients
 *              the same where an activation follows (in eval mode 3 * n * size): what it read is made again from x, in
 *              registers
 *
 * Statistics read x once: a thread keeps a running mean and a sum of squared distances from it (Welford), threads are
 * merged by Chan's formula; so are chunks, all at once in f64, as distances from the first one's mean. E[x*x] - E[x]^2
 * would cancel where |mean| >> std. */
#include "columns.cuh"

/* ---- kernels: statistics ----------------------------------------------------------------------------------- */

/* partial [2][chunks][c]: a chunk's mean, and the sum of squared distances from the mean. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) stats_chunks(fri_columns g, const T *x, float *partial) {
    __shared__ float mean_of[FRI_THREADS * N], square_of[FRI_THREADS * N];
    __shared__ float count_of[FRI_THREADS];
    const int tx = (int)blockDim.x, ty = (int)blockDim.y, at_x = (int)threadIdx.x, at_y = (int)threadIdx.y;
    int64_t c = ((int64_t)blockIdx.x * tx + at_x) * N, first = (int64_t)blockIdx.y * g.chunk;
    int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float mean[N] = {0}, square[N] = {0}, count = 0;
    if (c < g.c)
        for (int64_t row = first + at_y; row < last; row += ty) {
            fri_pack<T, N> p = fri_load_pack<T, N>(x + row * g.c + c);
            count += 1;
            const float share = 1 / count;
#pragma unroll
            for (int k = 0; k < N; k++) {
                float v = fri_load(p.v[k]), distance = v - mean[k];
                mean[k] += distance * share;
                square[k] += distance * (v - mean[k]);
            }
        }
    const int own = at_y * tx + at_x;
    for (int k = 0; k < N; k++) {
        mean_of[k * FRI_THREADS + own] = mean[k];
        square_of[k * FRI_THREADS + own] = square[k];
    }
    count_of[own] = count;
    for (int rows = ty, half; rows > 1; rows = half) {
        half = (rows + 1) / 2;
        __syncthreads();
        if (at_y + half >= rows) continue;
        const int other = (at_y + half) * tx + at_x;
        const float a = count_of[own], b = count_of[other], all = a + b, share = all > 0 ? b / all : 0;
        for (int k = 0; k < N && b > 0; k++) { /* an infinite square times a share of 0 is NaN */
            float distance = mean_of[k * FRI_THREADS + other] - mean_of[k * FRI_THREADS + own];
            mean_of[k * FRI_THREADS + own] += distance * share;
            square_of[k * FRI_THREADS + own] += square_of[k * FRI_THREADS + other] + distance * distance * a * share;
        }
        count_of[own] = all;
    }
    if (at_y > 0 || c >= g.c) return;
    for (int k = 0; k < N; k++) {
        partial[(int64_t)blockIdx.y * g.c + c + k] = mean_of[k * FRI_THREADS + own];
        partial[(g.chunks + blockIdx.y) * g.c + c + k] = square_of[k * FRI_THREADS + own];
    }
}

__global__ void FRI_ENDS_BOUNDS stats_ends(fri_columns g, double eps, double momentum, const float *partial,
                                           float *mean, float *invstd, float *running_mean, float *running_var,
                                           int64_t *batches) {
    const float *partial_mean = partial, *partial_square = partial + g.chunks * g.c;
    const int64_t c = (int64_t)blockIdx.x * FRI_ENDS_CHANNELS + threadIdx.x, at = c < g.c ? c : g.c - 1;
    const int chunks = (int)g.chunks;
    const double full = (double)g.chunk, rest = (double)(g.rows - (g.chunks - 1) * g.chunk); /* rows of a chunk */
    const double origin = chunks > 0 ? (double)partial_mean[at] : 0;
    double sum = 0, square = 0;
    for (int first = 0; first < chunks; first += FRI_ENDS_LOADS * FRI_ENDS_LANES) {
        const int i = first + (int)threadIdx.y;
        float means[FRI_ENDS_LOADS], squares[FRI_ENDS_LOADS];
        fri_ends_load(partial_mean + at, i, chunks, g.c, means);
        fri_ends_load(partial_square + at, i, chunks, g.c, squares);
#pragma unroll
        for (int k = 0; k < FRI_ENDS_LOADS; k++) {
            const int chunk = i + k * FRI_ENDS_LANES;
            const double rows = chunk < chunks - 1 ? full : chunk < chunks ? rest : 0;
            const double distance = (double)means[k] - origin;
            sum += rows * distance;
            square += (chunk < chunks ? (double)squares[k] : 0) + rows * distance * distance;
        }
    }
    sum = fri_ends_sum(sum);
    square = fri_ends_sum(square) - sum * sum / (double)g.rows;
    square = square < 0 ? 0 : square;
    const double m = origin + sum / (double)g.rows;
    if (threadIdx.y > 0 || c >= g.c) return;
    if (c == 0 && batches != NULL) ++*batches;
    mean[c] = invstd[c] = 0;
    if (g.rows == 0) return;
    mean[c] = (float)m;
    invstd[c] = (float)(1 / sqrt(square / (double)g.rows + eps));
    fri_running_update(running_mean, c, momentum, (double)(float)m, 1);
    fri_running_update(running_var, c, momentum, square, (double)(g.rows - 1));
}

__global__ void __launch_bounds__(FRI_THREADS) invert(int64_t c, double eps, const float *var, float *invstd) {
    int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    if (i < c) invstd[i] = (float)(1 / sqrt((double)var[i] + eps));
}

/* ---- kernels: forward -------------------------------------------------------------------------------------- */

/* The normalized value is rounded to T, as if stored, before further arithmetic. */
template <typename T, int N, bool ADD>
__global__ void __launch_bounds__(FRI_THREADS)
    apply(fri_columns g, const T *x, const float *mean, const float *invstd, const float *gamma, const float *beta,
          const T *addend, fri_activation act, T *y) {
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float m[N], scale[N], shift[N];
    if (c >= g.c) return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        m[k] = mean[c + k];
        scale[k] = fri_norm_scale(invstd, gamma, c + k);
        shift[k] = beta != NULL ? beta[c + k] : 0;
    }
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
        fri_pack<T, N> p = fri_load_pack<T, N>(x + row * g.c + c), q = p;
        if (ADD) q = fri_load_pack<T, N>(addend + row * g.c + c);
#pragma unroll
        for (int k = 0; k < N; k++) {
            fri_store(&p.v[k], fri_batchnorm_apply(fri_load(p.v[k]), m[k], scale[k], shift[k]));
            float v = fri_load(p.v[k]);
            if (ADD) v += fri_load(q.v[k]);
            if (ADD || act) fri_store(&p.v[k], fri_activate(act, v));
        }
        fri_store_pack<T, N>(y + row * g.c + c, p);
    }
}

/* ---- kernels: backward ------------------------------------------------------------------------------------- */

/* Gate of a following activation: computes the gradient of the norm's output from dy. */
typedef struct gate {
    const float *invstd, *gamma, *beta;
    fri_activation act;
} gate;

template <int N>
static __device__ __forceinline__ void gate_channels(const gate &p, int64_t c, float scale[N], float shift[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        scale[k] = fri_norm_scale(p.invstd, p.gamma, c + k);
        shift[k] = p.beta != NULL ? p.beta[c + k] : 0;
    }
}

/* Input and gradient of the activation are rounded to T, as if stored. */
template <typename T>
static __device__ __forceinline__ float gate_gradient(const gate &p, float x, float dy, float m, float scale,
                                                      float shift) {
    T stored;
    fri_store(&stored, fri_batchnorm_apply(x, m, scale, shift));
    fri_store(&stored, fri_activate_gradient(p.act, fri_load(stored), dy));
    return fri_load(stored);
}

/* Sums of dy and of dy * (x - mean); ACT: of the activation's gradient of dy. */
template <typename T, int N, bool ACT> struct backward_terms {
    struct state {
        float m[N], scale[N], shift[N];
    };
    const T *x;
    const float *mean;
    gate p;
    const T *dy;
    __device__ void begin(int64_t c, state *s) const {
        if (ACT) gate_channels<N>(p, c, s->scale, s->shift);
#pragma unroll
        for (int k = 0; k < N; k++) s->m[k] = mean[c + k];
    }
    __device__ void add(const state &s, int64_t, int64_t i, float (*sum)[N]) const {
        const fri_pack<T, N> v = fri_load_pack<T, N>(x + i), q = fri_load_pack<T, N>(dy + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float at = fri_load(v.v[k]);
            float gradient = fri_load(q.v[k]);
            if (ACT) gradient = gate_gradient<T>(p, at, gradient, s.m[k], s.scale[k], s.shift[k]);
            sum[0][k] += gradient;
            sum[1][k] += gradient * (at - s.m[k]);
        }
    }
};

/* dgamma, dbeta and the subtrahends of the gradient of x. */
struct backward_end {
    double rows;
    const float *invstd;
    float *dgamma, *dbeta, *mean_dy, *slope;
    __device__ void operator()(int64_t c, const double *sum) const {
        const double is = (double)invstd[c];
        if (dbeta != NULL) dbeta[c] = (float)sum[0];
        if (dgamma != NULL) dgamma[c] = (float)(sum[1] * is);
        mean_dy[c] = (float)(sum[0] / rows);
        slope[c] = (float)(sum[1] / rows * is * is);
    }
};

/* mean_dy NULL: eval mode, the statistics are constants. ACT: beta is read. */
template <typename T, int N, bool ACT>
__global__ void __launch_bounds__(FRI_THREADS) gradient(fri_columns g, const T *x, const float *mean, gate p,
                                                        const float *mean_dy, const float *slope, const T *dy, T *dx) {
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float m[N], scale[N], shift[N], a[N], b[N];
    if (c >= g.c) return;
    const bool train = mean_dy != NULL;
    gate_channels<N>(p, c, scale, shift);
#pragma unroll
    for (int k = 0; k < N; k++) {
        m[k] = mean[c + k];
        a[k] = train ? mean_dy[c + k] : 0;
        b[k] = train ? slope[c + k] : 0;
    }
    for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
        fri_pack<T, N> q = fri_load_pack<T, N>(dy + row * g.c + c), v = q;
        if (train || ACT) v = fri_load_pack<T, N>(x + row * g.c + c);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float at = fri_load(v.v[k]);
            float d = fri_load(q.v[k]);
            if (ACT) d = gate_gradient<T>(p, at, d, m[k], scale[k], shift[k]);
            fri_store(&q.v[k], train ? fri_batchnorm_gradient(at, d, m[k], scale[k], a[k], b[k]) : d * scale[k]);
        }
        fri_store_pack<T, N>(dx + row * g.c + c, q);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

/* [chunks][c] twice and [c] twice. */
extern "C" size_t fri_cuda_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    return (size_t)(2 * (fri_columns_chunks(d->rows, d->c) + 1) * d->c) * sizeof(float);
}

typedef struct scratch {
    float *a, *b, *partial;
} scratch;

static fr_status scratch_of(const fri_exec *e, const fri_batchnorm2d_desc *d, const char *kernel, scratch *w) {
    w->a = (float *)e->workspace;
    w->b = w->a + d->c;
    w->partial = w->b + d->c;
    return fri_cuda_workspace(e, kernel, fri_cuda_batchnorm2d_workspace(d));
}

extern "C" fr_status fri_cuda_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                                void *mean, void *invstd, void *running_mean, void *running_var) {
    scratch w;
    fri_columns g;
    if (d->c == 0) return FR_OK;
    fr_status s = scratch_of(e, d, "batchnorm2d_stats", &w);
    if (s < 0) return s;
    FRI_FLOAT_TYPES(d->dtype, "batchnorm2d_stats", FRI_PACKS_OF(T, d->c, fri_aligned(x, 16), {
                        g = fri_columns_of(d->rows, d->c, N);
                        if (g.chunks > 0)
                            stats_chunks<T, N>
                                <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)x,
                                                                                                  w.partial);
                    }))
    s = fri_cuda_launched("batchnorm2d_stats");
    if (s < 0) return s;
    stats_ends<<<fri_ends_grid(d->c), fri_ends_block(), 0, fri_stream(e)>>>(g, d->eps, d->momentum, w.partial,
                                                                            (float *)mean, (float *)invstd,
                                                                            (float *)running_mean, (float *)running_var,
                                                                            d->batches);
    return fri_cuda_launched("batchnorm2d_stats");
}

extern "C" fr_status fri_cuda_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var,
                                                 void *invstd) {
    if (d->c == 0) return FR_OK;
    invert<<<fri_blocks(d->c), FRI_THREADS, 0, fri_stream(e)>>>(d->c, d->eps, (const float *)var, (float *)invstd);
    return fri_cuda_launched("batchnorm2d_invstd");
}

template <bool ADD>
static fr_status launch_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const float *mean,
                              const float *invstd, const float *gamma, const float *beta, const void *addend,
                              fri_activation act, void *y) {
    FRI_FLOAT_TYPES(d->dtype, "batchnorm2d_apply",
                    FRI_PACKS_OF(T, d->c, fri_aligned(x, 16) && fri_aligned(addend, 16) && fri_aligned(y, 16), {
                        const fri_columns g = fri_columns_of(d->rows, d->c, N);
                        apply<T, N, ADD>
                            <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)x, mean,
                                                                                              invstd, gamma, beta,
                                                                                              (const T *)addend, act,
                                                                                              (T *)y);
                    }))
    return fri_cuda_launched("batchnorm2d_apply");
}

extern "C" fr_status fri_cuda_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                                const void *mean, const void *invstd, const void *gamma,
                                                const void *beta, const void *addend, fri_activation act, void *y) {
    if (d->rows * d->c == 0) return FR_OK;
    const float *m = (const float *)mean, *is = (const float *)invstd;
    const float *scale = (const float *)gamma, *shift = (const float *)beta;
    return addend != NULL ? launch_apply<true>(e, d, x, m, is, scale, shift, addend, act, y)
                          : launch_apply<false>(e, d, x, m, is, scale, shift, NULL, act, y);
}

template <bool ACT>
static fr_status launch_gradient(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const float *mean,
                                 const gate &p, const float *mean_dy, const float *slope, const void *dy, void *dx) {
    const char *kernel = "batchnorm2d_backward";
    FRI_FLOAT_TYPES(d->dtype, kernel,
                    FRI_PACKS_OF(T, d->c, fri_aligned(x, 16) && fri_aligned(dy, 16) && fri_aligned(dx, 16), {
                        const fri_columns g = fri_columns_of(d->rows, d->c, N);
                        gradient<T, N, ACT>
                            <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, (const T *)x, mean, p,
                                                                                              mean_dy, slope,
                                                                                              (const T *)dy, (T *)dx);
                    }))
    return fri_cuda_launched(kernel);
}

template <bool ACT>
static fr_status launch_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                 const float *mean, const gate &p, const void *dy, void *dx, float *dgamma,
                                 float *dbeta) {
    const char *kernel = "batchnorm2d_backward";
    scratch w = {NULL, NULL, NULL};
    fr_status s = FR_OK;
    if (train || dgamma != NULL || dbeta != NULL) {
        fri_columns g;
        s = scratch_of(e, d, kernel, &w);
        if (s < 0) return s;
        FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, fri_aligned(x, 16) && fri_aligned(dy, 16), {
                            g = fri_columns_of(d->rows, d->c, N);
                            if (g.chunks > 0)
                                fri_sum_columns<N, 2><<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                    g, backward_terms<T, N, ACT>{(const T *)x, mean, p, (const T *)dy}, w.partial);
                        }))
        s = fri_cuda_launched(kernel);
        if (s < 0) return s;
        fri_sum_ends<2>
            <<<fri_ends_grid(d->c), fri_ends_block(), 0, fri_stream(e)>>>(g.chunks, d->c, w.partial,
                                                                          backward_end{(double)d->rows, p.invstd,
                                                                                       dgamma, dbeta, w.a, w.b});
        s = fri_cuda_launched(kernel);
        if (s < 0) return s;
    }
    if (dx == NULL || d->rows == 0) return FR_OK;
    return launch_gradient<ACT>(e, d, x, mean, p, train ? w.a : NULL, train ? w.b : NULL, dy, dx);
}

extern "C" fr_status fri_cuda_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train,
                                                   const void *x, const void *mean, const void *invstd,
                                                   const void *gamma, const void *beta, fri_activation act,
                                                   const void *dy, void *dx, void *dgamma, void *dbeta) {
    if (d->c == 0) return FR_OK;
    const gate p = {(const float *)invstd, (const float *)gamma, act ? (const float *)beta : NULL, act};
    const float *m = (const float *)mean;
    float *dg = (float *)dgamma, *db = (float *)dbeta;
    return act ? launch_backward<true>(e, d, train, x, m, p, dy, dx, dg, db)
               : launch_backward<false>(e, d, train, x, m, p, dy, dx, dg, db);
}
