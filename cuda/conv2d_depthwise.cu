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
    WALK_TAPS = 9,
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
__global__ void __launch_bounds__(FRI_THREADS, 1)
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

/* Bands of a map [height, columns], of `rows` rows at most. */
typedef struct fri_bands {
    int32_t columns, height, bands, rows;
    int64_t count;
} fri_bands;

static inline fri_bands fri_bands_of(int64_t n, int64_t height, int64_t columns) {
    fri_bands b;
    b.columns = (int32_t)columns;
    b.height = (int32_t)height;
    b.bands = (int32_t)fri_ceil_div(height, BAND_MOST);
    b.rows = (int32_t)fri_ceil_div(height, b.bands > 0 ? b.bands : 1);
    b.count = n * b.columns * b.bands;
    return b;
}

/* A band: its image, its column, rows begin .. end. */
typedef struct fri_band {
    int64_t image;
    int32_t column, begin, end;
} fri_band;

static __device__ __forceinline__ fri_band fri_band_of(const fri_bands &b, int64_t u) {
    const int32_t begin = (int32_t)(u / b.columns % b.bands) * b.rows;
    const int32_t end = begin + b.rows < b.height ? begin + b.rows : b.height;
    return {u / b.columns / b.bands, (int32_t)(u % b.columns), begin, end};
}

/* f32 weights of the block's channels in shared memory, [tap][4 channels of a pack][packs]. Returns the thread's first
 * channel. */
template <typename T, int N, bool TURNED>
static __device__ __forceinline__ int64_t load_weights(int64_t c, const T *w, fri_pack<float, 4> *weights) {
    const int tx = (int)blockDim.x, threads = tx * (int)blockDim.y, channels = tx * N;
    const int64_t left = (int64_t)blockIdx.x * channels;
    for (int i = (int)threadIdx.y * tx + (int)threadIdx.x; i < channels * WALK_TAPS; i += threads) {
        const int tap = i / channels, four = i % channels / (4 * tx), pack = i / 4 % tx;
        const int64_t channel = left + pack * N + four * 4 + i % 4, from = TURNED ? WALK_TAPS - 1 - tap : tap;
        if (channel < c) weights[i / 4].v[i % 4] = fri_load(w[channel * WALK_TAPS + from]);
    }
    __syncthreads();
    return left + threadIdx.x * N;
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

/* Adds an element of the input, under a tap, to a result. */
template <typename T, int N>
static __device__ __forceinline__ void add_tap(const fri_pack<T, N> &x, const fri_pack<float, 4> *weights,
                                               float sum[N]) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
        const fri_pack<float, 4> w = weights[k / 4 * (int)blockDim.x + (int)threadIdx.x];
#pragma unroll
        for (int i = 0; i < 4; i++) sum[k + i] = fmaf(fri_load(x.v[k + i]), w.v[i], sum[k + i]);
    }
}

/* Adds a row of the input, under a row of taps, to results. */
template <typename T, int N, int S>
static __device__ __forceinline__ void add_row(const fri_pack<T, N> *x, const fri_pack<float, 4> *weights,
                                               float (*sum)[N]) {
#pragma unroll
    for (int s = 0; s < 3; s++)
#pragma unroll
        for (int j = 0; j < WIDE; j++) add_tap<T, N>(x[j * S + s], weights + s * (N / 4) * (int)blockDim.x, sum[j]);
}

/* The map of fri_depthwise_map, whose gradient of x is a map of dy with turned weights. An input row goes into all
 * rows of results with windows over the row. */
template <typename T, int N, int S, bool GRADIENT>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(2))
    fri_depthwise_walk(int64_t c, fri_bands b, fri_depthwise m, const T *in, const T *w, const T *bias,
                       const float *wide_bias, T *out) {
    constexpr int COLUMNS = (WIDE - 1) * S + 3, FOURS = N / 4, BEGUN = 3 - S;
    __shared__ fri_pack<float, 4> weights[WALK_TAPS * FOURS * FRI_COLUMN_PACKS];
    const int tx = (int)blockDim.x;
    const int64_t at = load_weights<T, N, GRADIENT>(c, w, weights);
    if (at >= c) return;
    float first[N], sum[BEGUN + 1][WIDE][N] = {};
#pragma unroll
    for (int k = 0; k < N; k++)
        first[k] = bias != NULL ? fri_load(bias[at + k]) : wide_bias != NULL ? wide_bias[at + k] : 0;
    for (int64_t u = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; u < b.count;
         u += (int64_t)gridDim.y * blockDim.y) {
        const fri_band o = fri_band_of(b, u);
        const int32_t q = o.column * WIDE;
        const T *from = in + o.image * m.in_h * m.in_w * c + at;
        for (int32_t p = o.begin - BEGUN; p < o.end; p++) {
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
                if (p >= o.begin && q + j < m.out_w)
                    fri_store_pack<T, N>(out + ((o.image * m.out_h + p) * m.out_w + q + j) * c + at, y);
            }
#pragma unroll
            for (int i = 0; i < BEGUN * WIDE * N; i++)
                sum[i / (WIDE * N)][i / N % WIDE][i % N] = sum[i / (WIDE * N) + 1][i / N % WIDE][i % N];
            if (S == 1 || p + 1 == o.end) continue;
            load_row<T, N, COLUMNS>(m, c, from, p * S - m.pad_h + 3, q * S - m.pad_w, x);
            add_row<T, N, S>(x, weights + 3 * FOURS * tx, sum[0]);
        }
    }
}

/* The gradient of x for strides of 2: bands are of corners of windows, with the 2 x 2 results under each. Tap (r, s)
 * adds to the result of its parity, from the window of the corner, or of the one before where r or s is 2. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(2))
    fri_depthwise_spread(int64_t c, fri_bands b, fri_depthwise m, const T *dy, const T *w, T *dx) {
    constexpr int FOURS = N / 4;
    __shared__ fri_pack<float, 4> weights[WALK_TAPS * FOURS * FRI_COLUMN_PACKS];
    const int64_t at = load_weights<T, N, false>(c, w, weights);
    if (at >= c) return;
    for (int64_t u = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; u < b.count;
         u += (int64_t)gridDim.y * blockDim.y) {
        const fri_band o = fri_band_of(b, u);
        const T *from = dy + o.image * m.in_h * m.in_w * c + at;
        fri_pack<T, N> row[2][2]; /* above and at the corner; before and at it */
        load_row<T, N, 2>(m, c, from, o.begin - 1, o.column - 1, row[0]);
        for (int32_t p = o.begin; p < o.end; p++) {
            float sum[4][N] = {};
            load_row<T, N, 2>(m, c, from, p, o.column - 1, row[1]);
#pragma unroll
            for (int t = 0; t < WALK_TAPS; t++)
                add_tap<T, N>(row[1 - t / 6][1 - t % 3 / 2], weights + t * FOURS * (int)blockDim.x,
                              sum[t / 3 % 2 * 2 + t % 3 % 2]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int32_t h = 2 * p - m.pad_h + e / 2, v = 2 * o.column - m.pad_w + e % 2;
                fri_pack<T, N> y;
                if (h < 0 || v < 0 || h >= m.out_h || v >= m.out_w) continue;
#pragma unroll
                for (int k = 0; k < N; k++) fri_store(&y.v[k], sum[e][k]);
                fri_store_pack<T, N>(dx + ((o.image * m.out_h + h) * m.out_w + v) * c + at, y);
            }
            row[0][0] = row[1][0], row[0][1] = row[1][1];
        }
    }
}

/* Sums of fri_depthwise_chunks: a thread walks down a column of dy, and keeps rows of x for the next window. */
template <typename T, int N, int S>
__global__ void __launch_bounds__(FRI_THREADS, FRI_RESIDENT(2))
    fri_depthwise_walk_chunks(fri_columns g, fri_bands b, fri_depthwise m, const T *x, const T *dy, float *partial) {
    constexpr int TAPS = WALK_TAPS, KEPT = 3 - S;
    __shared__ float shared[FRI_THREADS * N * TAPS];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    const int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float sum[TAPS * N] = {};
    for (int64_t u = first + threadIdx.y; c < g.c && u < last; u += blockDim.y) {
        const fri_band o = fri_band_of(b, u);
        const T *from = x + o.image * m.in_h * m.in_w * g.c + c;
        float row[3][3][N];
        for (int32_t p = o.begin - KEPT; p < o.end; p++) { /* the first ones are for rows alone */
#pragma unroll
            for (int r = 0; r < 3; r++) {
                fri_pack<T, N> v[3];
                if (r >= KEPT) load_row<T, N, 3>(m, g.c, from, p * S - m.pad_h + r, o.column * S - m.pad_w, v);
#pragma unroll
                for (int i = 0; i < 3 * N; i++)
                    row[r][i / N][i % N] = r < KEPT ? row[r + S][i / N][i % N] : fri_load(v[i / N].v[i % N]);
            }
            if (p < o.begin) continue;
            const fri_pack<T, N> d = fri_load_pack<T, N>(dy + ((o.image * m.out_h + p) * m.out_w + o.column) * g.c + c);
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

/* The gradient of x with a stride of 1 is a map of dy, with the padding that is left of the filter. */
static bool walks(const fri_conv2d_desc *d) {
    return d->r == 3 && d->stride_h == d->stride_w && d->stride_h <= 2 && d->dilation_h == 1 && d->dilation_w == 1 &&
           d->pad_h <= 2 && d->pad_w <= 2;
}

template <typename T, int N, bool GRADIENT>
static void launch_walk(const fri_exec *e, fri_depthwise m, int64_t c, const T *in, const T *w, const T *bias,
                        const float *wide_bias, T *out) {
    const bool spread = GRADIENT && m.stride_h == 2;
    const fri_bands b = spread ? fri_bands_of(m.n, (m.out_h + m.pad_h + 1) / 2, (m.out_w + m.pad_w + 1) / 2)
                               : fri_bands_of(m.n, m.out_h, fri_ceil_div(m.out_w, WIDE));
    const fri_columns g = fri_columns_of(b.count, c, N);
    const int64_t rows = fri_ceil_div(b.count, g.ty), most = fri_ceil_div(4 * fri_columns_slots(), g.across);
    const dim3 grid((unsigned)g.across, (unsigned)(rows < most ? rows : most)), block = fri_columns_block(g);
    if (b.count == 0) return;
    if (spread) {
        fri_depthwise_spread<T, N><<<grid, block, 0, fri_stream(e)>>>(c, b, m, in, w, out);
        return;
    }
    if (GRADIENT) m.pad_h = 2 - m.pad_h, m.pad_w = 2 - m.pad_w;
    auto run = m.stride_h == 1 ? fri_depthwise_walk<T, N, 1, GRADIENT> : fri_depthwise_walk<T, N, 2, false>;
    run<<<grid, block, 0, fri_stream(e)>>>(c, b, m, in, w, bias, wide_bias, out);
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
    if (N > 1 && walks(d)) return launch_walk<T, 16 / sizeof(T), GRADIENT>(e, m, d->c, in, w, bias, wide_bias, out);
    if (g.chunks == 0) return;
    auto run = d->r == 3   ? fri_depthwise_map<T, N, 3, GRADIENT>
               : d->r == 5 ? fri_depthwise_map<T, N, 5, GRADIENT>
                           : fri_depthwise_map<T, N, 7, GRADIENT>;
    run<<<grid, block, 0, fri_stream(e)>>>(g, m, in, w, bias, wide_bias, out);
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
    const bool walked = pack == 4 && walks(d);
    fri_columns g = fri_columns_of(walked ? fri_bands_of(d->n, d->p, d->q).count : d->n * d->p * d->q, d->c, pack);
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
        const dim3 grid = fri_columns_grid(g), block = fri_columns_block(g);
        float *to = (float *)e->workspace;
        auto walk = m.stride_h == 1 ? fri_depthwise_walk_chunks<T, 4, 1> : fri_depthwise_walk_chunks<T, 4, 2>;
        auto run = d->r == 3   ? (pack == 4 ? fri_depthwise_chunks<T, 4, 3> : fri_depthwise_chunks<T, 1, 3>)
                   : d->r == 5 ? (pack == 2 ? fri_depthwise_chunks<T, 2, 5> : fri_depthwise_chunks<T, 1, 5>)
                               : fri_depthwise_chunks<T, 1, 7>;
        if (g.chunks > 0 && pack == 4 && walks(d))
            walk<<<grid, block, 0, fri_stream(e)>>>(g, fri_bands_of(d->n, d->p, d->q), m, (const T *)x, (const T *)dy,
                                                    to);
        else if (g.chunks > 0)
            run<<<grid, block, 0, fri_stream(e)>>>(g, m, (const T *)x, (const T *)dy, to);
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
