/* batchnorm2d.cu - batch normalization over rows of channels; n = rows * c, size = bytes of an element.
 *   stats      n * size + 16 * chunks * c bytes           x; two f32 per chunk and channel, written and read
 *   apply      2 * n * size bytes                         x, y; with an addend 3 * n * size: that, too
 *   backward   5 * n * size + 16 * chunks * c bytes       x, dy for the sums, then x, dy, dx; the sums as in stats
 *              2 * n * size bytes                         dy, dx: in eval mode without parameter gradients
 *              the same where an activation follows (in eval mode 3 * n * size): what it read is made again from x, in
 *              registers
 *
 * Statistics read x once: sums of a chunk are of distances from the chunk's first row, so a large mean costs no digits.
 * Chunks are merged by Chan's formula, all at once in f64, as distances from the first chunk's mean. E[x*x] - E[x]^2
 * would cancel where |mean| >> std.
 *
 * The widest packs have an instance for each activation of most networks (A), other packs a general one. */
#include "columns.cuh"

enum { ANY = -1 /* the activation is an argument */ };

template <typename T, int N> constexpr int instance(int act) {
    return N * sizeof(T) == 16 ? act : ANY;
}

/* Blocks of a processor: the general instances take more registers. */
constexpr int resident(int activation) {
    return activation == ANY ? 2 : FRI_COLUMN_RESIDENT;
}

/* body sees A. */
#define ACTIVATIONS(act_, ...)                                  \
    if ((act_) == FRI_ACTIVATION_NONE) {                        \
        constexpr int A = instance<T, N>(FRI_ACTIVATION_NONE);  \
        __VA_ARGS__                                             \
    } else if ((act_) == FRI_ACTIVATION_RELU) {                 \
        constexpr int A = instance<T, N>(FRI_ACTIVATION_RELU);  \
        __VA_ARGS__                                             \
    } else if ((act_) == FRI_ACTIVATION_RELU6) {                \
        constexpr int A = instance<T, N>(FRI_ACTIVATION_RELU6); \
        __VA_ARGS__                                             \
    } else {                                                    \
        constexpr int A = ANY;                                  \
        __VA_ARGS__                                             \
    }

/* ---- x, whole or in parts ---------------------------------------------------------------------------------- */

/* Elements of a thread in x and dx, by row and by place in the joined tensor. dx NULL: no gradient. */
template <typename T> struct whole_place {
    const T *x;
    T *dx;
    static constexpr bool adds = false; /* dx += the gradient, which is rounded before */
    __device__ int64_t at(int64_t, int64_t i) const {
        return i;
    }
};

template <typename T> struct part_place {
    const T *x;
    T *dx;
    int64_t c;
    bool adds;
    __device__ int64_t at(int64_t row, int64_t) const {
        return row * c;
    }
};

template <typename T> struct whole {
    typedef whole_place<T> place;
    const T *x;
    T *dx;
    whole(const fri_batchnorm2d_desc *, const void *x_, void *dx_) : x((const T *)x_), dx((T *)dx_) {
    }
    __device__ place of(int64_t) const {
        return {x, dx};
    }
};

/* Parts of a concatenation that is never made; a pack lies in a single part. */
template <typename T> struct parts {
    typedef part_place<T> place;
    struct {
        const T *x;
        T *dx;
        int c;
        bool adds;
    } part[FRI_BATCHNORM2D_PARTS];
    parts(const fri_batchnorm2d_desc *d, const void *, void *) {
        int64_t c = 0;
        for (int i = 0; c < d->c; c += d->part[i++].c)
            part[i] = {(const T *)d->part[i].x, (T *)d->part[i].dx, (int)d->part[i].c, d->part[i].adds};
    }
    __device__ place of(int64_t c) const {
        int i = 0;
        for (; c >= part[i].c; i++) c -= part[i].c;
        return {part[i].x + c, part[i].dx != NULL ? part[i].dx + c : NULL, part[i].c, part[i].adds};
    }
};

/* body sees `from`, of type X: x and dx, whole or in parts. */
#define SOURCES(d_, x_, dx_, ...)        \
    if ((d_)->part == NULL) {            \
        typedef whole<T> X;              \
        const X from((d_), (x_), (dx_)); \
        __VA_ARGS__                      \
    } else {                             \
        typedef parts<T> X;              \
        const X from((d_), (x_), (dx_)); \
        __VA_ARGS__                      \
    }

/* ---- kernels: statistics ----------------------------------------------------------------------------------- */

/* A chunk's mean, and the sum of squared distances from it. */
template <typename T, int N, typename X> struct stats_terms {
    enum { ROWS = FRI_COLUMN_FLIGHT, RESIDENT = FRI_COLUMN_RESIDENT };
    struct state {
        typename X::place from;
        float shift[N];
    };
    X x;
    __device__ void begin(int64_t c, state *s) const {
        s->from = x.of(c);
    }
    __device__ void start(int64_t row, int64_t i, state *s) const {
        const fri_pack<T, N> p = load(*s, row, i);
#pragma unroll
        for (int k = 0; k < N; k++) s->shift[k] = fri_load(p.v[k]);
    }
    __device__ fri_pack<T, N> load(const state &s, int64_t row, int64_t i) const {
        return fri_load_pack<T, N>(s.from.x + s.from.at(row, i));
    }
    __device__ void add(const state &s, const fri_pack<T, N> &p, int64_t, float (*sum)[N]) const {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float distance = fri_load(p.v[k]) - s.shift[k];
            sum[0][k] += distance;
            sum[1][k] = fmaf(distance, distance, sum[1][k]);
        }
    }
    __device__ void close(const state &s, int64_t rows, float (*sum)[N]) const {
        for (int k = 0; k < N; k++) {
            const double distance = (double)sum[0][k] / (double)rows;
            const double square = (double)sum[1][k] - (double)sum[0][k] * distance;
            sum[0][k] = (float)((double)s.shift[k] + distance);
            sum[1][k] = (float)(square < 0 ? 0 : square);
        }
    }
};

/* Mean and inverse deviation, and the running statistics. */
struct stats_end {
    fri_columns g;
    double eps, momentum;
    float *mean, *invstd, *running_mean, *running_var;
    int64_t *batches;
    const float *first; /* the first chunk's means */
    __device__ void add(int chunk, const float *v, float origin, double *sum) const {
        const double rows = (double)(chunk < g.chunks - 1 ? g.chunk : g.rows - (g.chunks - 1) * g.chunk);
        const double distance = (double)v[0] - (double)origin;
        sum[0] += rows * distance;
        sum[1] += (double)v[1] + rows * distance * distance;
    }
    __device__ void operator()(int64_t c, const double *sum) const {
        if (c == 0 && batches != NULL) ++*batches;
        mean[c] = invstd[c] = 0;
        if (g.rows == 0) return;
        const double rows = (double)g.rows, m = (double)first[c] + sum[0] / rows;
        double square = sum[1] - sum[0] * sum[0] / rows;
        square = square < 0 ? 0 : square;
        mean[c] = (float)m;
        invstd[c] = (float)(1 / sqrt(square / rows + eps));
        fri_running_update(running_mean, c, momentum, (double)(float)m, 1);
        fri_running_update(running_var, c, momentum, square, (double)(g.rows - 1));
    }
};

__global__ void __launch_bounds__(FRI_THREADS) invert(int64_t c, double eps, const float *var, float *invstd) {
    int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    if (i < c) invstd[i] = (float)(1 / sqrt((double)var[i] + eps));
}

/* ---- kernels: forward -------------------------------------------------------------------------------------- */

/* Data of channels; beta or NULL (0). */
typedef struct norm2d {
    const float *mean, *invstd, *gamma, *beta;
    fri_activation act;
} norm2d;

template <int N> struct channels { float m[N], scale[N], shift[N]; };

template <int N> static __device__ __forceinline__ void load_norm(const norm2d &p, int64_t c, channels<N> *to) {
    float gamma[N];
    fri_load_channels<N>(p.mean, c, to->m);
    fri_load_channels<N>(p.invstd, c, to->scale);
    if (p.gamma != NULL) fri_load_channels<N>(p.gamma, c, gamma);
    if (p.beta != NULL) fri_load_channels<N>(p.beta, c, to->shift);
#pragma unroll
    for (int k = 0; k < N; k++) {
        to->scale[k] = fri_norm_scale(to->scale, p.gamma != NULL ? gamma : NULL, k);
        if (p.beta == NULL) to->shift[k] = 0;
    }
}

template <int A> static __device__ __forceinline__ fri_activation activation_of(const norm2d &p) {
    return A == ANY ? p.act : (fri_activation)A;
}

template <typename T, int N> struct two_packs { fri_pack<T, N> p, q; };

/* y = act(norm(x)), or act(norm(x) + addend), where norm(x) is rounded to T. */
template <typename T, int N, bool ADD, int A, typename X>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(resident(A)))
    apply(fri_columns g, X x, norm2d p, const T *addend, T *y) {
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const fri_activation act = activation_of<A>(p);
    channels<N> s;
    if (c >= g.c) return;
    load_norm<N>(p, c, &s);
    const typename X::place from = x.of(c);
    fri_columns_chunk<FRI_COLUMN_FLIGHT / (ADD ? 2 : 1)>(
        g, c,
        [&](int64_t row, int64_t i) {
            two_packs<T, N> v;
            v.p = fri_load_pack<T, N>(from.x + from.at(row, i));
            if (ADD) v.q = fri_load_pack<T, N>(addend + i);
            return v;
        },
        [&](two_packs<T, N> v, int64_t, int64_t i) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                fri_store(&v.p.v[k], fri_batchnorm_apply(fri_load(v.p.v[k]), s.m[k], s.scale[k], s.shift[k]));
                float a = fri_load(v.p.v[k]);
                if (ADD) a += fri_load(v.q.v[k]);
                if (ADD || act) fri_store(&v.p.v[k], fri_activate(act, a));
            }
            fri_store_pack<T, N>(y + i, v.p);
        });
}

/* ---- kernels: backward ------------------------------------------------------------------------------------- */

/* Gradient of the norm's output, where an activation follows. Input and gradient of the activation are rounded to T, as
 * if stored. */
template <typename T>
static __device__ __forceinline__ float gate_gradient(fri_activation act, float x, float dy, float m, float scale,
                                                      float shift) {
    T stored;
    fri_store(&stored, fri_batchnorm_apply(x, m, scale, shift));
    fri_store(&stored, fri_activate_gradient(act, fri_load(stored), dy));
    return fri_load(stored);
}

/* Sums of dy and of dy * (x - mean), where dy is the activation's gradient. */
template <typename T, int N, int A, typename X> struct backward_terms : fri_plain_terms {
    enum { ROWS = FRI_COLUMN_FLIGHT / 2, RESIDENT = resident(A) };
    struct state : channels<N> {
        typename X::place from;
    };
    X x;
    const T *dy;
    norm2d p;
    __device__ void begin(int64_t c, state *s) const {
        s->from = x.of(c);
        if (A == FRI_ACTIVATION_NONE)
            fri_load_channels<N>(p.mean, c, s->m);
        else
            load_norm<N>(p, c, s);
    }
    __device__ two_packs<T, N> load(const state &s, int64_t row, int64_t i) const {
        return {fri_load_pack<T, N>(s.from.x + s.from.at(row, i)), fri_load_pack<T, N>(dy + i)};
    }
    __device__ void add(const state &s, const two_packs<T, N> &v, int64_t, float (*sum)[N]) const {
        const fri_activation act = activation_of<A>(p);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float at = fri_load(v.p.v[k]);
            float gradient = fri_load(v.q.v[k]);
            if (act) gradient = gate_gradient<T>(act, at, gradient, s.m[k], s.scale[k], s.shift[k]);
            sum[0][k] += gradient;
            sum[1][k] += gradient * (at - s.m[k]);
        }
    }
};

/* dgamma, dbeta and the subtrahends of the gradient of x. */
struct backward_end : fri_plain_ends<2> {
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

/* Blocks of a processor for the gradient, which keeps more in registers if x lies in parts. */
template <typename X> constexpr int gradient_resident(const X *, int activation) {
    return resident(activation);
}
template <typename T> constexpr int gradient_resident(const parts<T> *, int) {
    return 2;
}

/* mean_dy NULL: eval mode, the statistics are constants, and x is read for an activation only. */
template <typename T, int N, int A, typename X>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(gradient_resident((const X *)nullptr, A)))
    gradient(fri_columns g, X x, norm2d p, const float *mean_dy, const float *slope, const T *dy) {
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const fri_activation act = activation_of<A>(p);
    const bool train = mean_dy != NULL;
    channels<N> s;
    float a[N], b[N];
    if (c >= g.c) return;
    const typename X::place from = x.of(c);
    if (from.dx == NULL) return;
    load_norm<N>(p, c, &s);
    if (train) {
        fri_load_channels<N>(mean_dy, c, a);
        fri_load_channels<N>(slope, c, b);
    }
    fri_columns_chunk<FRI_COLUMN_FLIGHT / 2>(
        g, c,
        [&](int64_t row, int64_t i) {
            two_packs<T, N> v;
            v.q = fri_load_pack<T, N>(dy + i);
            v.p = train || act ? fri_load_pack<T, N>(from.x + from.at(row, i)) : v.q;
            return v;
        },
        [&](two_packs<T, N> v, int64_t row, int64_t i) {
            T *to = from.dx + from.at(row, i);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float at = fri_load(v.p.v[k]);
                float d = fri_load(v.q.v[k]);
                if (act) d = gate_gradient<T>(act, at, d, s.m[k], s.scale[k], s.shift[k]);
                fri_store(&v.q.v[k],
                          train ? fri_batchnorm_gradient(at, d, s.m[k], s.scale[k], a[k], b[k]) : d * s.scale[k]);
            }
            if (from.adds) v.p = fri_load_pack<T, N>(to);
#pragma unroll
            for (int k = 0; k < N && from.adds; k++) fri_store(&v.q.v[k], fri_load(v.p.v[k]) + fri_load(v.q.v[k]));
            fri_store_pack<T, N>(to, v.q);
        });
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

/* True where packs of 16 bytes lie in one part. */
extern "C" bool fri_cuda_batchnorm2d_reads_parts(fr_dtype dtype, int64_t granule) {
    return granule > 0 && granule * (int64_t)fr_dtype_size(dtype) % 16 == 0;
}

/* x, and dx where given. */
static bool is_aligned(const fri_batchnorm2d_desc *d, const void *x, const void *dx) {
    bool yes = fri_aligned(x, 16) && fri_aligned(dx, 16);
    int64_t c = 0;
    for (int i = 0; d->part != NULL && c < d->c; c += d->part[i++].c)
        yes = yes && fri_aligned(d->part[i].x, 16) && fri_aligned(d->part[i].dx, 16);
    return yes;
}

extern "C" fr_status fri_cuda_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                                void *mean, void *invstd, void *running_mean, void *running_var) {
    const char *kernel = "batchnorm2d_stats";
    scratch w;
    if (d->c == 0) return FR_OK;
    fr_status s = scratch_of(e, d, kernel, &w);
    if (s < 0) return s;
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, is_aligned(d, x, NULL), {
                        const fri_columns g = fri_columns_of(d->rows, d->c, N);
                        SOURCES(d, x, NULL, {
                            fri_sum_columns<N, 2><<<fri_columns_walk(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                g, stats_terms<T, N, X>{from}, w.partial,
                                stats_end{g, d->eps, d->momentum, (float *)mean, (float *)invstd, (float *)running_mean,
                                          (float *)running_var, d->batches, w.partial});
                        })
                    }))
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var,
                                                 void *invstd) {
    if (d->c == 0) return FR_OK;
    invert<<<fri_blocks(d->c), FRI_THREADS, 0, fri_stream(e)>>>(d->c, d->eps, (const float *)var, (float *)invstd);
    return fri_cuda_launched("batchnorm2d_invstd");
}

/* Channels go in packs, too. */
static bool is_aligned(const norm2d &p) {
    return fri_aligned(p.mean, 16) && fri_aligned(p.invstd, 16) && fri_aligned(p.gamma, 16) && fri_aligned(p.beta, 16);
}

template <bool ADD>
static fr_status launch_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const norm2d &p,
                              const void *addend, void *y) {
    const bool aligned = is_aligned(p) && is_aligned(d, x, NULL) && fri_aligned(addend, 16) && fri_aligned(y, 16);
    FRI_FLOAT_TYPES(d->dtype, "batchnorm2d_apply",
                    FRI_PACKS_OF(T, d->c, aligned,
                                 {SOURCES(d, x, NULL, ACTIVATIONS(p.act, {
                                              const fri_columns g =
                                                  fri_columns_of(d->rows, d->c, N, fri_columns_slots(resident(A)));
                                              apply<T, N, ADD, A>
                                                  <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                                      g, from, p, (const T *)addend, (T *)y);
                                          }))}))
    return fri_cuda_launched("batchnorm2d_apply");
}

extern "C" fr_status fri_cuda_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                                const void *mean, const void *invstd, const void *gamma,
                                                const void *beta, const void *addend, fri_activation act, void *y) {
    const norm2d p = {(const float *)mean, (const float *)invstd, (const float *)gamma, (const float *)beta, act};
    if (d->rows * d->c == 0) return FR_OK;
    return addend != NULL ? launch_apply<true>(e, d, x, p, addend, y) : launch_apply<false>(e, d, x, p, NULL, y);
}

static fr_status launch_sums(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const norm2d &p,
                             const void *dy, const scratch &w, float *dgamma, float *dbeta) {
    const char *kernel = "batchnorm2d_backward";
    const backward_end end = {{}, (double)d->rows, p.invstd, dgamma, dbeta, w.a, w.b};
    const bool aligned = is_aligned(p) && is_aligned(d, x, NULL) && fri_aligned(dy, 16);
    FRI_FLOAT_TYPES(d->dtype, kernel, FRI_PACKS_OF(T, d->c, aligned, {
                        const fri_columns g = fri_columns_of(d->rows, d->c, N);
                        SOURCES(d, x, NULL, ACTIVATIONS(p.act, {
                                    fri_sum_columns<N, 2>
                                        <<<fri_columns_walk(g, resident(A)), fri_columns_block(g), 0, fri_stream(e)>>>(
                                            g, backward_terms<T, N, A, X>{{}, from, (const T *)dy, p}, w.partial, end);
                                }))
                    }))
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train,
                                                   const void *x, const void *mean, const void *invstd,
                                                   const void *gamma, const void *beta, fri_activation act,
                                                   const void *dy, void *dx, void *dgamma, void *dbeta) {
    const char *kernel = "batchnorm2d_backward";
    const norm2d p = {(const float *)mean, (const float *)invstd, (const float *)gamma,
                      act ? (const float *)beta : NULL, act};
    scratch w = {NULL, NULL, NULL};
    if (d->c == 0) return FR_OK;
    if (train || dgamma != NULL || dbeta != NULL) {
        fr_status s = scratch_of(e, d, kernel, &w);
        if (s >= 0) s = launch_sums(e, d, x, p, dy, w, (float *)dgamma, (float *)dbeta);
        if (s < 0) return s;
    }
    if ((dx == NULL && d->part == NULL) || d->rows == 0) return FR_OK;
    const bool aligned = is_aligned(p) && is_aligned(d, x, dx) && fri_aligned(dy, 16);
    FRI_FLOAT_TYPES(d->dtype, kernel,
                    FRI_PACKS_OF(T, d->c, aligned,
                                 {SOURCES(d, x, dx, ACTIVATIONS(p.act, {
                                              const fri_columns g =
                                                  fri_columns_of(d->rows, d->c, N,
                                                                 fri_columns_slots(
                                                                     gradient_resident((const X *)nullptr, A)));
                                              gradient<T, N, A>
                                                  <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(
                                                      g, from, p, train ? w.a : NULL, w.b, (const T *)dy);
                                          }))}))
    return fri_cuda_launched(kernel);
}
