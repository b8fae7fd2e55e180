/* conv2d_depthwise.cu - convolutions with a filter of its own for each channel (groups = C = K), 3 x 3, 5 x 5, 7 x 7.
 * Memory bound; size = bytes of an element:
 *   conv2d_depthwise_forward    (n * h * w + n * p * q) * c * size bytes                x read, y written
 *   conv2d_depthwise_input      the same                                                dy read, dx written
 *   conv2d_depthwise_weight     the same + 8 * chunks * taps * c                       x, dy read; 8: a chunk's f32
 * Windows of 3 x 3 with strides of 1 or 2 are walked: a thread goes down a band of rows, and loads an element once.
 * Other shapes have general kernels, whose windows read equal elements from the cache. */
#include "columns.cuh"
#include "conv2d_depthwise.h"

enum {
    STRIP = 4,      /* neighbouring results of a thread, with concurrent loads */
    WIDE = 2,       /* neighbouring results of a thread that walks */
    BAND_MOST = 14, /* rows of a walk */
    WALK_LEAST = 16 /* results of a thread of the weight gradient, at least: each chunk's sums are written once */
};

/* The geometry of a pass: the input map, the output map, and the windows. */
typedef struct fri_depthwise {
    int64_t n;
    int32_t in_h, in_w, out_h, out_w; /* of input and output map */
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t strips; /* of a row of out */
} fri_depthwise;

/* Input index of result `o` and tap `t`; -1 outside. For the gradient of x, result o belongs to the window from (o +
 * pad - t * dilation) / stride. */
template <bool GRADIENT>
static __device__ __forceinline__ int32_t fri_depthwise_at(int32_t o, int32_t t, int32_t in, int32_t stride,
                                                           int32_t pad, int32_t dilation) {
    int32_t at;
    if (GRADIENT) {
        const int32_t spread = o + pad - t * dilation;
        if (spread % stride != 0) return -1;
        at = spread / stride;
    } else {
        at = o * stride - pad + t * dilation;
    }
    return at < in ? at : -1;
}

/* A block keeps the channels' weights, w [c, taps], in shared memory and walks down strips; a thread makes a strip of a
 * row of out for a pack of channels. The bias has the type of the map or f32. */
template <typename T, int N, int SIZE, bool GRADIENT>
__global__ void __launch_bounds__(FRI_THREADS)
    fri_depthwise_map(fri_columns g, fri_depthwise m, const T *in, const T *w, const T *bias, const float *wide_bias,
                      T *out) {
    constexpr int TAPS = SIZE * SIZE;
    __shared__ fri_pack<T, N> weights[TAPS * FRI_COLUMN_PACKS];
    const int64_t left = (int64_t)blockIdx.x * blockDim.x * N, c = left + threadIdx.x * N;
    const int64_t begin = (int64_t)blockIdx.y * g.chunk, end = begin + g.chunk < g.rows ? begin + g.chunk : g.rows;
    const int threads = (int)(blockDim.x * blockDim.y), channels = (int)blockDim.x * N;
    for (int i = (int)(threadIdx.y * blockDim.x + threadIdx.x); i < channels * TAPS; i += threads)
        if (left + i % channels < g.c) weights[i / N].v[i % N] = w[(left + i % channels) * TAPS + i / channels];
    __syncthreads();
    if (c >= g.c) return;
    for (int64_t i = begin + threadIdx.y; i < end; i += blockDim.y) {
        const int32_t first = (int32_t)(i % m.strips) * STRIP, row = (int32_t)(i / m.strips % m.out_h);
        const int64_t image = i / m.strips / m.out_h;
        float sum[STRIP][N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float b = bias != NULL ? fri_load(bias[c + k]) : wide_bias != NULL ? wide_bias[c + k] : 0;
#pragma unroll
            for (int j = 0; j < STRIP; j++) sum[j][k] = b;
        }
        for (int r = 0; r < SIZE; r++) {
            const int32_t h = fri_depthwise_at<GRADIENT>(row, r, m.in_h, m.stride_h, m.pad_h, m.dilation_h);
            const T *line = in + (image * m.in_h + h) * m.in_w * g.c + c;
#pragma unroll
            for (int s = 0; s < SIZE; s++) {
                const fri_pack<T, N> weight = weights[(r * SIZE + s) * blockDim.x + threadIdx.x];
#pragma unroll
                for (int j = 0; j < STRIP; j++) {
                    const int32_t v =
                        fri_depthwise_at<GRADIENT>(first + j, s, m.in_w, m.stride_w, m.pad_w, m.dilation_w);
                    if (h < 0 || v < 0) continue;
                    const fri_pack<T, N> x = fri_load_pack<T, N>(line + v * g.c);
#pragma unroll
                    for (int k = 0; k < N; k++) sum[j][k] = fmaf(fri_load(x.v[k]), fri_load(weight.v[k]), sum[j][k]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < STRIP; j++) {
            fri_pack<T, N> y;
            if (first + j >= m.out_w) break;
#pragma unroll
            for (int k = 0; k < N; k++) fri_store(&y.v[k], sum[j][k]);
            fri_store_pack<T, N>(out + ((image * m.out_h + row) * m.out_w + first + j) * g.c + c, y);
        }
    }
}

/* ---- walks down bands of rows: 3 x 3, no dilation ------------------------------------------------------------ */

/* Bands of results, of `rows` rows at most. */
typedef struct fri_bands {
    int32_t columns, bands, rows; /* columns: of results that go together */
    int64_t count;
} fri_bands;

static inline fri_bands fri_bands_of(const fri_depthwise &m, int wide) {
    fri_bands b;
    b.columns = (int32_t)fri_ceil_div(m.out_w, wide);
    b.bands = (int32_t)fri_ceil_div(m.out_h, BAND_MOST);
    b.rows = (int32_t)fri_ceil_div(m.out_h, b.bands > 0 ? b.bands : 1);
    b.count = m.n * b.columns * b.bands;
    return b;
}

/* COLUMNS elements of row h of an image, from column v on; zeros outside. */
template <typename T, int N, int COLUMNS>
static __device__ __forceinline__ void load_row(const fri_depthwise &m, int64_t c, const T *image, int32_t h, int32_t v,
                                                fri_pack<T, N> to[COLUMNS]) {
    const T *row = image + ((int64_t)h * m.in_w + v) * c;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        to[j] = {};
        if ((uint32_t)h < (uint32_t)m.in_h && (uint32_t)(v + j) < (uint32_t)m.in_w)
            to[j] = fri_load_pack<T, N>(row + j * c);
    }
}

/* Adds a row of the input, under a row of taps, to results. */
template <typename T, int N, int S>
static __device__ __forceinline__ void add_row(const fri_pack<T, N> *x, const fri_pack<float, 4> *weights,
                                               float (*sum)[N]) {
#pragma unroll
    for (int s = 0; s < 3; s++)
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const fri_pack<float, 4> w = weights[(s * N + k) / 4 * (int)blockDim.x + (int)threadIdx.x];
#pragma unroll
            for (int i = 0; i < WIDE * 4; i++)
                sum[i / 4][k + i % 4] =
                    fmaf(fri_load(x[i / 4 * S + s].v[k + i % 4]), w.v[i % 4], sum[i / 4][k + i % 4]);
        }
}

/* The map of fri_depthwise_map, whose gradient of x is a map of dy with turned weights. An input row goes into all
 * rows of results with windows over the row. Weights are f32, [tap][4 channels of a pack][packs]. */
template <typename T, int N, int S, bool GRADIENT>
__global__ void __launch_bounds__(FRI_THREADS, 2)
    fri_depthwise_walk(int64_t c, fri_bands b, fri_depthwise m, const T *in, const T *w, const T *bias,
                       const float *wide_bias, T *out) {
    constexpr int TAPS = 9, COLUMNS = (WIDE - 1) * S + 3, FOURS = N / 4, BEGUN = 3 - S;
    __shared__ fri_pack<float, 4> weights[TAPS * FOURS * FRI_COLUMN_PACKS];
    const int tx = (int)blockDim.x, threads = tx * (int)blockDim.y, channels = tx * N;
    const int64_t left = (int64_t)blockIdx.x * channels, at = left + threadIdx.x * N;
    for (int i = (int)threadIdx.y * tx + (int)threadIdx.x; i < channels * TAPS; i += threads) {
        const int tap = i / channels, four = i % channels / (4 * tx), pack = i / 4 % tx;
        const int64_t channel = left + pack * N + four * 4 + i % 4;
        if (channel < c) weights[i / 4].v[i % 4] = fri_load(w[channel * TAPS + (GRADIENT ? TAPS - 1 - tap : tap)]);
    }
    __syncthreads();
    if (at >= c) return;
    float first[N], sum[BEGUN + 1][WIDE][N] = {};
#pragma unroll
    for (int k = 0; k < N; k++)
        first[k] = bias != NULL ? fri_load(bias[at + k]) : wide_bias != NULL ? wide_bias[at + k] : 0;
    for (int64_t u = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; u < b.count;
         u += (int64_t)gridDim.y * blockDim.y) {
        const int32_t q = (int32_t)(u % b.columns) * WIDE, band = (int32_t)(u / b.columns % b.bands);
        const int64_t image = u / b.columns / b.bands;
        const int32_t begin = band * b.rows, end = begin + b.rows < m.out_h ? begin + b.rows : m.out_h;
        const T *from = in + image * m.in_h * m.in_w * c + at;
        for (int32_t p = begin - BEGUN; p < end; p++) {
            fri_pack<T, N> x[COLUMNS];
            load_row<T, N, COLUMNS>(m, c, from, p * S - m.pad_h + 2, q * S - m.pad_w, x);
#pragma unroll
            for (int i = 0; i < WIDE * N; i++) sum[BEGUN][i / N][i % N] = first[i % N];
            add_row<T, N, S>(x, weights + 6 * FOURS * tx, sum[0]);
            if (S == 1) add_row<T, N, S>(x, weights + 3 * FOURS * tx, sum[1]);
            add_row<T, N, S>(x, weights, sum[BEGUN]);
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                fri_pack<T, N> y;
#pragma unroll
                for (int k = 0; k < N; k++) fri_store(&y.v[k], sum[0][j][k]);
                if (p >= begin && q + j < m.out_w)
                    fri_store_pack<T, N>(out + ((image * m.out_h + p) * m.out_w + q + j) * c + at, y);
            }
#pragma unroll
            for (int i = 0; i < BEGUN * WIDE * N; i++)
                sum[i / (WIDE * N)][i / N % WIDE][i % N] = sum[i / (WIDE * N) + 1][i / N % WIDE][i % N];
            if (S == 1 || p + 1 == end) continue;
            load_row<T, N, COLUMNS>(m, c, from, p * S - m.pad_h + 3, q * S - m.pad_w, x);
            add_row<T, N, S>(x, weights + 3 * FOURS * tx, sum[0]);
        }
    }
}

/* Sums of fri_depthwise_chunks: a thread walks down a column of dy, and keeps rows of x for the next window. */
template <typename T, int N, int S>
__global__ void __launch_bounds__(FRI_THREADS, 2)
    fri_depthwise_walk_chunks(fri_columns g, fri_bands b, fri_depthwise m, const T *x, const T *dy, float *partial) {
    constexpr int TAPS = 9, KEPT = 3 - S;
    __shared__ float shared[FRI_THREADS * N * TAPS];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    const int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float sum[TAPS * N] = {};
    for (int64_t u = first + threadIdx.y; c < g.c && u < last; u += blockDim.y) {
        const int32_t q = (int32_t)(u % b.columns), band = (int32_t)(u / b.columns % b.bands);
        const int64_t image = u / b.columns / b.bands;
        const int32_t begin = band * b.rows, end = begin + b.rows < m.out_h ? begin + b.rows : m.out_h;
        const T *from = x + image * m.in_h * m.in_w * g.c + c;
        float row[3][3][N];
        for (int32_t p = begin - KEPT; p < end; p++) { /* the first ones are for rows alone */
#pragma unroll
            for (int r = 0; r < 3; r++) {
                fri_pack<T, N> v[3];
                if (r >= KEPT) load_row<T, N, 3>(m, g.c, from, p * S - m.pad_h + r, q * S - m.pad_w, v);
#pragma unroll
                for (int i = 0; i < 3 * N; i++)
                    row[r][i / N][i % N] = r < KEPT ? row[r + S][i / N][i % N] : fri_load(v[i / N].v[i % N]);
            }
            if (p < begin) continue;
            const fri_pack<T, N> d = fri_load_pack<T, N>(dy + ((image * m.out_h + p) * m.out_w + q) * g.c + c);
#pragma unroll
            for (int i = 0; i < TAPS * N; i++)
                sum[i] = fmaf(row[i / N / 3][i / N % 3][i % N], fri_load(d.v[i % N]), sum[i]);
        }
    }
    fri_column_sum<TAPS * N>(sum, shared);
    if (threadIdx.y > 0 || c >= g.c) return;
    for (int i = 0; i < TAPS * N; i++) partial[((int64_t)blockIdx.y * TAPS + i / N) * g.c + c + i % N] = sum[i];
}

/* partial[chunk][tap][c] = the sum over a chunk of results of dy * x. A block walks down a chunk (columns.cuh). */
template <typename T, int N, int SIZE>
__global__ void __launch_bounds__(FRI_THREADS, 1)
    fri_depthwise_chunks(fri_columns g, fri_depthwise m, const T *x, const T *dy, float *partial) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, begin = (int64_t)blockIdx.y * g.chunk;
    const int64_t end = begin + g.chunk < g.rows ? begin + g.chunk : g.rows;
    float sum[SIZE * SIZE][N] = {{0}};
    if (c < g.c)
        for (int64_t i = begin + threadIdx.y; i < end; i += blockDim.y) {
            const int32_t q = (int32_t)(i % m.out_w), row = (int32_t)(i / m.out_w % m.out_h);
            const T *image = x + i / m.out_w / m.out_h * m.in_h * m.in_w * g.c + c;
            const fri_pack<T, N> d = fri_load_pack<T, N>(dy + i * g.c + c);
#pragma unroll
            for (int r = 0; r < SIZE; r++) {
                const int32_t h = fri_depthwise_at<false>(row, r, m.in_h, m.stride_h, m.pad_h, m.dilation_h);
#pragma unroll
                for (int s = 0; s < SIZE; s++) {
                    const int32_t v = fri_depthwise_at<false>(q, s, m.in_w, m.stride_w, m.pad_w, m.dilation_w);
                    if (h < 0 || v < 0) continue;
                    const fri_pack<T, N> a = fri_load_pack<T, N>(image + ((int64_t)h * m.in_w + v) * g.c);
#pragma unroll
                    for (int k = 0; k < N; k++)
                        sum[r * SIZE + s][k] = fmaf(fri_load(a.v[k]), fri_load(d.v[k]), sum[r * SIZE + s][k]);
                }
            }
        }
#pragma unroll
    for (int t = 0; t < SIZE * SIZE; t++) {
        fri_column_sum<N>(sum[t], shared);
        if (threadIdx.y == 0 && c < g.c)
#pragma unroll
            for (int k = 0; k < N; k++) partial[((int64_t)blockIdx.y * SIZE * SIZE + t) * g.c + c + k] = sum[t][k];
    }
}

/* dw[c][tap] = the sum over chunks: column tap * c + c. */
template <typename T> struct put_taps : fri_plain_ends<1> {
    int64_t taps, c;
    T *dw;
    __device__ void operator()(int64_t i, const double *sum) const {
        fri_store(&dw[i % c * taps + i / c], (float)sum[0]);
    }
};

template <typename T>
__global__ void __launch_bounds__(FRI_THREADS)
    fri_depthwise_ends(fri_columns g, const float *partial, put_taps<T> put) {
    __shared__ double shared[FRI_THREADS];
    fri_end_columns<1, 1>(g, partial, shared, put);
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" bool fri_cuda_conv2d_is_depthwise(const fri_conv2d_desc *d) {
    const int64_t most = INT32_MAX / 16;
    return d->groups == d->c && d->k == d->c && d->r == d->s && (d->r == 3 || d->r == 5 || d->r == 7) &&
           d->dtype != FR_F64 && d->h < most && d->w < most && d->stride_h < most && d->stride_w < most &&
           d->pad_h < most && d->pad_w < most && d->dilation_h < most && d->dilation_w < most;
}

static fri_depthwise geometry(const fri_conv2d_desc *d, bool gradient) {
    fri_depthwise g;
    g.n = d->n;
    g.in_h = (int32_t)(gradient ? d->p : d->h), g.in_w = (int32_t)(gradient ? d->q : d->w);
    g.out_h = (int32_t)(gradient ? d->h : d->p), g.out_w = (int32_t)(gradient ? d->w : d->q);
    g.stride_h = (int32_t)d->stride_h, g.stride_w = (int32_t)d->stride_w;
    g.pad_h = (int32_t)d->pad_h, g.pad_w = (int32_t)d->pad_w;
    g.dilation_h = (int32_t)d->dilation_h, g.dilation_w = (int32_t)d->dilation_w;
    g.strips = fri_ceil_div(g.out_w, STRIP);
    return g;
}

/* Walks: the gradient of x is a map of dy, with the padding that is left of the filter. */
static bool walks(const fri_conv2d_desc *d, bool gradient) {
    return d->r == 3 && d->stride_h == d->stride_w && d->stride_h <= (gradient ? 1 : 2) && d->dilation_h == 1 &&
           d->dilation_w == 1 && d->pad_h <= 2 && d->pad_w <= 2;
}

template <typename T, int N, int S, bool GRADIENT>
static void launch_walk(const fri_exec *e, fri_depthwise m, int64_t c, const void *in, const void *w, const void *bias,
                        bool wide, void *out) {
    const fri_bands b = fri_bands_of(m, WIDE);
    const fri_columns g = fri_columns_of(b.count, c, N);
    const int64_t rows = fri_ceil_div(b.count, g.ty), most = fri_ceil_div(4 * fri_columns_slots(), g.across);
    const dim3 grid((unsigned)g.across, (unsigned)(rows < most ? rows : most));
    if (GRADIENT) m.pad_h = 2 - m.pad_h, m.pad_w = 2 - m.pad_w;
    if (b.count > 0)
        fri_depthwise_walk<T, N, S, GRADIENT>
            <<<grid, fri_columns_block(g), 0, fri_stream(e)>>>(c, b, m, (const T *)in, (const T *)w,
                                                               wide ? NULL : (const T *)bias,
                                                               wide ? (const float *)bias : NULL, (T *)out);
}

template <typename T, int N, bool GRADIENT>
static void launch_map(const fri_exec *e, const fri_conv2d_desc *d, const void *in_, const void *w_, const void *bias_,
                       void *out_) {
    const fri_depthwise m = geometry(d, GRADIENT);
    const fri_columns g = fri_columns_of(m.n * m.out_h * m.strips, d->c, N);
    const bool wide = bias_ != NULL && d->bias_dtype != d->dtype;
    const T *in = (const T *)in_, *w = (const T *)w_, *bias = wide ? NULL : (const T *)bias_;
    const float *wide_bias = wide ? (const float *)bias_ : NULL;
    const dim3 grid = fri_columns_grid(g), block = fri_columns_block(g);
    T *out = (T *)out_;
    if (N > 1 && walks(d, GRADIENT)) {
        constexpr int WALKED = 16 / sizeof(T);
        if (d->stride_h == 1) launch_walk<T, WALKED, 1, GRADIENT>(e, m, d->c, in_, w_, bias_, wide, out_);
        if (d->stride_h == 2) launch_walk<T, WALKED, 2, false>(e, m, d->c, in_, w_, bias_, wide, out_);
        return;
    }
    if (g.chunks == 0) return;
    if (d->r == 3)
        fri_depthwise_map<T, N, 3, GRADIENT><<<grid, block, 0, fri_stream(e)>>>(g, m, in, w, bias, wide_bias, out);
    if (d->r == 5)
        fri_depthwise_map<T, N, 5, GRADIENT><<<grid, block, 0, fri_stream(e)>>>(g, m, in, w, bias, wide_bias, out);
    if (d->r == 7)
        fri_depthwise_map<T, N, 7, GRADIENT><<<grid, block, 0, fri_stream(e)>>>(g, m, in, w, bias, wide_bias, out);
}

template <bool GRADIENT>
static fr_status map_of(const fri_exec *e, const char *kernel, const fri_conv2d_desc *d, const void *in, const void *w,
                        const void *bias, void *out) {
    if (d->c == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, kernel, {
        constexpr int N = 16 / sizeof(T);
        if (d->c % N == 0 && fri_aligned(in, 16) && fri_aligned(out, 16))
            launch_map<T, N, GRADIENT>(e, d, in, w, bias, out);
        else
            launch_map<T, 1, GRADIENT>(e, d, in, w, bias, out);
    })
    return fri_cuda_launched(kernel);
}

extern "C" fr_status fri_cuda_conv2d_depthwise_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x,
                                                       const void *w, const void *b, void *y) {
    return map_of<false>(e, "conv2d_depthwise_forward", d, x, w, b, y);
}

extern "C" fr_status fri_cuda_conv2d_depthwise_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w,
                                                     const void *dy, void *dx) {
    return map_of<true>(e, "conv2d_depthwise_input", d, dy, w, NULL, dx);
}

/* Channels of a pack, so the sums of all taps fit the registers: 4 of 3 x 3, 2 of 5 x 5, 1 of 7 x 7. */
static int pack_of(const fri_conv2d_desc *d, bool aligned) {
    const int widest = d->r == 3 ? 4 : d->r == 5 ? 2 : 1;
    return aligned && d->c % widest == 0 ? widest : 1;
}

static fri_columns chunks_of(const fri_conv2d_desc *d, int pack) {
    const bool walked = pack == 4 && walks(d, false);
    fri_columns g = fri_columns_of(walked ? fri_bands_of(geometry(d, false), 1).count : d->n * d->p * d->q, d->c, pack);
    if (walked) return g;
    const int64_t least = (int64_t)g.ty * WALK_LEAST;
    if (g.chunk < least && g.rows > 0) {
        g.chunk = least;
        g.chunks = fri_ceil_div(g.rows, least);
    }
    return g;
}

extern "C" size_t fri_cuda_conv2d_depthwise_weight_workspace(const fri_conv2d_desc *d) {
    const int64_t wide = chunks_of(d, pack_of(d, true)).chunks, narrow = chunks_of(d, 1).chunks;
    return (size_t)((wide > narrow ? wide : narrow) * d->r * d->s * d->c) * sizeof(float);
}

template <typename T, int N, int SIZE>
static void run_chunks(const fri_exec *e, const fri_columns &g, const fri_depthwise &m, const void *x, const void *dy) {
    float *partial = (float *)e->workspace;
    if (g.chunks > 0)
        fri_depthwise_chunks<T, N, SIZE>
            <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, m, (const T *)x, (const T *)dy,
                                                                              partial);
}

template <typename T, int S>
static void run_walks(const fri_exec *e, const fri_columns &g, const fri_depthwise &m, const void *x, const void *dy) {
    float *partial = (float *)e->workspace;
    if (g.chunks > 0)
        fri_depthwise_walk_chunks<T, 4, S>
            <<<fri_columns_grid(g), fri_columns_block(g), 0, fri_stream(e)>>>(g, fri_bands_of(m, 1), m, (const T *)x,
                                                                              (const T *)dy, partial);
}

extern "C" fr_status fri_cuda_conv2d_depthwise_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x,
                                                      const void *dy, void *dw) {
    static const char kernel[] = "conv2d_depthwise_weight";
    const fri_depthwise m = geometry(d, false);
    const int pack = pack_of(d, fri_aligned(x, 16) && fri_aligned(dy, 16)), taps = (int)(d->r * d->s);
    const fri_columns g = chunks_of(d, pack);
    const float *partial = (const float *)e->workspace;
    const int64_t channels = d->c;
    if (d->c == 0) return FR_OK;
    fr_status s = fri_cuda_workspace(e, kernel, fri_cuda_conv2d_depthwise_weight_workspace(d));
    if (s < 0) return s;
    FRI_FLOAT_TYPES(d->dtype, kernel, {
        const bool walked = pack == 4 && walks(d, false);
        if (walked && m.stride_h == 1) run_walks<T, 1>(e, g, m, x, dy);
        if (walked && m.stride_h == 2) run_walks<T, 2>(e, g, m, x, dy);
        if (d->r == 3 && pack == 4 && !walked) run_chunks<T, 4, 3>(e, g, m, x, dy);
        if (d->r == 3 && pack == 1) run_chunks<T, 1, 3>(e, g, m, x, dy);
        if (d->r == 5 && pack > 1) run_chunks<T, 2, 5>(e, g, m, x, dy);
        if (d->r == 5 && pack == 1) run_chunks<T, 1, 5>(e, g, m, x, dy);
        if (d->r == 7) run_chunks<T, 1, 7>(e, g, m, x, dy);
    })
    s = fri_cuda_launched(kernel);
    if (s < 0) return s;
    const fri_columns ends = {g.chunks, taps * d->c, FRI_COLUMN_PACKS, 8, 0, g.chunks, 1};
    FRI_FLOAT_TYPES(
        d->dtype, kernel,
        fri_depthwise_ends<<<(unsigned)fri_ceil_div(ends.c, ends.tx), fri_columns_block(ends), 0, fri_stream(e)>>>(
            ends, partial, put_taps<T>{{}, taps, channels, (T *)dw});)
    return fri_cuda_launched(kernel);
}
