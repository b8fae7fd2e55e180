/* group_norm.cu - group norm, and layer norm as its case of one row and one group; e elements, size = bytes of one.
 *   group_norm_forward    3 * e * size bytes: x from memory, then twice from the cache, y written
 *   group_norm_backward   5 * e * size bytes for dx (x and dy twice, dx written), 2 * e * size for dgamma and dbeta
 *
 * A group belongs to one team: a warp where it is small (a row of a layer norm), else a block. */
#include "columns.cuh"

enum { WARP = 32, SMALL = 4096 /* largest group for a warp */ };

struct shape {
    int64_t hw, c, groups, width, size, count; /* channels and elements of a group; groups in all */
    float eps;
};

static shape shape_of(const fri_group_norm_desc *d) {
    const int64_t width = d->c / d->groups;
    return {d->hw, d->c, d->groups, width, d->hw * width, d->n * d->groups, (float)d->eps};
}

/* ---- teams --------------------------------------------------------------------------------------------------- */

template <int TEAM> static __device__ __forceinline__ float team_sum(float v) {
    return TEAM == WARP ? fri_warp_sum(v) : fri_block_sum(v);
}

template <int TEAM> static __device__ __forceinline__ int64_t team() {
    return (int64_t)blockIdx.x * (FRI_THREADS / TEAM) + threadIdx.x / TEAM;
}

/* A thread's packs in the team's group: row and first channel, without a division per step. */
struct walk {
    int64_t row;
    int j, rows_on, on;
};

template <int N, int TEAM> static __device__ __forceinline__ walk first_pack(const shape &s) {
    const unsigned width = (unsigned)s.width, e = threadIdx.x % TEAM * N;
    return {e / width, (int)(e % width), (int)(TEAM * N / width), (int)(TEAM * N % width)};
}

static __device__ __forceinline__ void next_pack(const shape &s, walk &w) {
    w.row += w.rows_on;
    w.j += w.on;
    if (w.j >= s.width) {
        w.j -= (int)s.width;
        w.row++;
    }
}

/* First element of group i in x. */
static __device__ __forceinline__ int64_t group_start(const shape &s, int64_t i) {
    return i / s.groups * s.hw * s.c + i % s.groups * s.width;
}

/* ---- kernels ------------------------------------------------------------------------------------------------- */

template <typename T, int N, int TEAM>
__global__ void __launch_bounds__(FRI_THREADS)
    normalize(shape s, const T *x, const float *gamma, const float *beta, T *y, float *mean, float *invstd) {
    const int64_t i = team<TEAM>();
    float sum = 0, squares = 0;
    if (i >= s.count) return; /* a whole team */
    const int64_t from = group_start(s, i);
    const walk begin = first_pack<N, TEAM>(s);
    const float *g = gamma + i % s.groups * s.width, *b = beta + i % s.groups * s.width;
    for (walk w = begin; w.row < s.hw; next_pack(s, w)) {
        const fri_pack<T, N> p = fri_load_pack<T, N>(x + from + w.row * s.c + w.j);
#pragma unroll
        for (int k = 0; k < N; k++) sum += fri_load(p.v[k]);
    }
    const float m = team_sum<TEAM>(sum) / (float)s.size;
    for (walk w = begin; w.row < s.hw; next_pack(s, w)) {
        const fri_pack<T, N> p = fri_load_pack<T, N>(x + from + w.row * s.c + w.j);
#pragma unroll
        for (int k = 0; k < N; k++) squares += (fri_load(p.v[k]) - m) * (fri_load(p.v[k]) - m);
    }
    const float inv = 1 / sqrtf(team_sum<TEAM>(squares) / (float)s.size + s.eps);
    if (threadIdx.x % TEAM == 0) {
        mean[i] = m;
        invstd[i] = inv;
    }
    for (walk w = begin; w.row < s.hw; next_pack(s, w)) {
        const int64_t at = from + w.row * s.c + w.j;
        fri_pack<T, N> p = fri_load_pack<T, N>(x + at);
#pragma unroll
        for (int k = 0; k < N; k++)
            fri_store(&p.v[k], fri_batchnorm_apply(fri_load(p.v[k]), m, inv * g[w.j + k], b[w.j + k]));
        fri_store_pack<T, N>(y + at, p);
    }
}

template <typename T, int N, int TEAM>
__global__ void __launch_bounds__(FRI_THREADS)
    propagate(shape s, const T *x, const float *gamma, const float *mean, const float *invstd, const T *dy, T *dx) {
    const int64_t i = team<TEAM>();
    float plain = 0, normalized = 0;
    if (i >= s.count) return;
    const int64_t from = group_start(s, i);
    const walk begin = first_pack<N, TEAM>(s);
    const float *weight = gamma + i % s.groups * s.width;
    const float m = mean[i], inv = invstd[i];
    for (walk w = begin; w.row < s.hw; next_pack(s, w)) {
        const int64_t at = from + w.row * s.c + w.j;
        const fri_pack<T, N> p = fri_load_pack<T, N>(x + at), q = fri_load_pack<T, N>(dy + at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float g = weight[w.j + k] * fri_load(q.v[k]);
            plain += g;
            normalized += g * ((fri_load(p.v[k]) - m) * inv);
        }
    }
    plain = team_sum<TEAM>(plain) / (float)s.size;
    normalized = team_sum<TEAM>(normalized) / (float)s.size;
    for (walk w = begin; w.row < s.hw; next_pack(s, w)) {
        const int64_t at = from + w.row * s.c + w.j;
        fri_pack<T, N> p = fri_load_pack<T, N>(x + at);
        const fri_pack<T, N> q = fri_load_pack<T, N>(dy + at);
#pragma unroll
        for (int k = 0; k < N; k++)
            fri_store(&p.v[k], fri_group_norm_gradient(fri_load(p.v[k]), fri_load(q.v[k]), m, inv, weight[w.j + k],
                                                       plain, normalized));
        fri_store_pack<T, N>(dx + at, p);
    }
}

/* Sums of dy * xhat and of dy. A pack is inside a group. */
template <typename T, int N> struct vector_terms : fri_plain_terms {
    enum { ROWS = FRI_COLUMN_FLIGHT / 2, RESIDENT = FRI_COLUMN_RESIDENT };
    struct state {
        int64_t group;
    };
    struct item {
        fri_pack<T, N> p, q;
    };
    shape s;
    const T *x, *dy;
    const float *mean, *invstd;
    __device__ void begin(int64_t c, state *at) const {
        at->group = c / s.width;
    }
    __device__ item load(const state &, int64_t, int64_t i) const {
        return {fri_load_pack<T, N>(x + i), fri_load_pack<T, N>(dy + i)};
    }
    __device__ void add(const state &at, const item &v, int64_t row, float (*sum)[N]) const {
        const int64_t of = row / s.hw * s.groups + at.group;
        const float m = mean[of], inv = invstd[of];
#pragma unroll
        for (int k = 0; k < N; k++) {
            sum[0][k] += fri_load(v.q.v[k]) * ((fri_load(v.p.v[k]) - m) * inv);
            sum[1][k] += fri_load(v.q.v[k]);
        }
    }
};

struct put_vectors : fri_plain_ends<2> {
    float *dgamma, *dbeta;
    __device__ void operator()(int64_t c, const double *sum) const {
        dgamma[c] = (float)sum[0];
        dbeta[c] = (float)sum[1];
    }
};

/* ---- launchers ----------------------------------------------------------------------------------------------- */

/* body sees TEAM and the number of blocks. */
#define TEAMS(s, ...)                                                                  \
    if ((s).size <= SMALL) {                                                           \
        constexpr int TEAM = WARP;                                                     \
        const unsigned blocks = (unsigned)fri_ceil_div((s).count, FRI_THREADS / WARP); \
        __VA_ARGS__                                                                    \
    } else {                                                                           \
        constexpr int TEAM = FRI_THREADS;                                              \
        const unsigned blocks = (unsigned)(s).count;                                   \
        __VA_ARGS__                                                                    \
    }

extern "C" size_t fri_cuda_group_norm_workspace(const fri_group_norm_desc *d) {
    return (size_t)(2 * fri_columns_chunks(d->n * d->hw, d->c) * d->c) * sizeof(float);
}

extern "C" fr_status fri_cuda_group_norm_forward(const fri_exec *e, const fri_group_norm_desc *d, const void *x,
                                                 const void *gamma, const void *beta, void *y, void *mean,
                                                 void *invstd) {
    const shape s = shape_of(d);
    if (s.count * s.size == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "group_norm_forward",
                    FRI_PACKS_OF(T, s.width, fri_aligned(x, 16) && fri_aligned(y, 16),
                                 TEAMS(s, normalize<T, N, TEAM>
                                       <<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(s, (const T *)x,
                                                                                   (const float *)gamma,
                                                                                   (const float *)beta, (T *)y,
                                                                                   (float *)mean, (float *)invstd);)))
    return fri_cuda_launched("group_norm_forward");
}

static fr_status reduce_vectors(const fri_exec *e, const fri_group_norm_desc *d, const void *x, const void *mean,
                                const void *invstd, const void *dy, void *dgamma, void *dbeta) {
    const shape s = shape_of(d);
    float *partial = (float *)e->workspace;
    fr_status status = fri_cuda_workspace(e, "group_norm_backward", fri_cuda_group_norm_workspace(d));
    if (status < 0) return status;
    FRI_FLOAT_TYPES(
        d->dtype, "group_norm_backward", FRI_PACKS_OF(T, s.width, fri_aligned(x, 16) && fri_aligned(dy, 16), {
            const fri_columns g = fri_columns_of(d->n * d->hw, d->c, N);
            fri_sum_columns<N, 2><<<fri_columns_walk(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                g, vector_terms<T, N>{{}, s, (const T *)x, (const T *)dy, (const float *)mean, (const float *)invstd},
                partial, put_vectors{{}, (float *)dgamma, (float *)dbeta});
        }))
    return fri_cuda_launched("group_norm_backward");
}

/* dgamma and dbeta first: dx may be dy. */
extern "C" fr_status fri_cuda_group_norm_backward(const fri_exec *e, const fri_group_norm_desc *d, const void *x,
                                                  const void *gamma, const void *mean, const void *invstd,
                                                  const void *dy, void *dx, void *dgamma, void *dbeta) {
    const shape s = shape_of(d);
    if (d->c == 0) return FR_OK;
    fr_status status = dgamma != NULL ? reduce_vectors(e, d, x, mean, invstd, dy, dgamma, dbeta) : FR_OK;
    if (status < 0 || dx == NULL || s.count * s.size == 0) return status;
    FRI_FLOAT_TYPES(d->dtype, "group_norm_backward",
                    FRI_PACKS_OF(T, s.width, fri_aligned(x, 16) && fri_aligned(dy, 16) && fri_aligned(dx, 16),
                                 TEAMS(s, propagate<T, N, TEAM><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(
                                              s, (const T *)x, (const float *)gamma, (const float *)mean,
                                              (const float *)invstd, (const T *)dy, (T *)dx);)))
    return fri_cuda_launched("group_norm_backward");
}
