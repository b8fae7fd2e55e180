/* columns.cuh - how a matrix [rows, c] with channels innermost is cut into blocks.
 *
 *     a block is  tx packs of channels wide  and  ty rows high, tx * ty <= FRI_THREADS;
 *     the grid is  (channel blocks, chunks of rows); a block walks down its chunk, ty rows at a time.
 *
 * A thread keeps to its channels: what depends on the channel is loaded once. The number of chunks depends on the shape
 * only, and partial results of chunks are combined in one order: 8 channels per block, 32 lanes each, every one with
 * 8 loads of an array in flight. Few blocks run then, so nothing else hides how long a load takes. */
#ifndef FRI_CUDA_COLUMNS_CUH
#define FRI_CUDA_COLUMNS_CUH

#include "common.cuh"

enum {
    FRI_COLUMN_PACKS = 32,    /* widest block: 512 bytes of each row */
    FRI_COLUMN_BLOCKS = 1024, /* blocks in all, at most: several per processor */
    FRI_ENDS_CHANNELS = 8,
    FRI_ENDS_LANES = FRI_THREADS / FRI_ENDS_CHANNELS,
    FRI_ENDS_LOADS = 8
};

typedef struct fri_columns {
    int64_t rows, c;
    int tx, ty;            /* threads */
    int64_t across;        /* channel blocks */
    int64_t chunks, chunk; /* chunks of rows; rows per chunk */
} fri_columns;

/* Cut of a matrix into blocks for packs of n channels; c is divisible by n. */
static inline fri_columns fri_columns_of(int64_t rows, int64_t c, int n) {
    fri_columns g;
    int64_t packs = c / n;
    g.rows = rows;
    g.c = c;
    g.tx = fri_block_width(packs, FRI_COLUMN_PACKS);
    g.ty = FRI_THREADS / g.tx;
    g.across = fri_ceil_div(packs, g.tx);
    int64_t most = FRI_COLUMN_BLOCKS / g.across, useful = fri_ceil_div(rows, (int64_t)g.ty * 4);
    g.chunks = most < 1 ? 1 : most < useful ? most : useful;
    g.chunk = fri_ceil_div(rows, g.chunks > 0 ? g.chunks : 1);
    g.chunks = g.chunk > 0 ? fri_ceil_div(rows, g.chunk) : 0;
    return g;
}

/* The most chunks over all pack sizes: the workspace covers any alignment. */
static inline int64_t fri_columns_chunks(int64_t rows, int64_t c) {
    int64_t most = 0;
    for (int n = 1; n <= 8; n *= 2) {
        if (c % n != 0) continue;
        int64_t chunks = fri_columns_of(rows, c, n).chunks;
        most = chunks > most ? chunks : most;
    }
    return most;
}

static inline dim3 fri_columns_grid(const fri_columns &g) {
    return dim3((unsigned)g.across, (unsigned)g.chunks);
}

static inline dim3 fri_columns_block(const fri_columns &g) {
    return dim3((unsigned)g.tx, (unsigned)g.ty);
}

/* v[k], k < N, becomes the sum over the block's rows of threads, valid in threads with threadIdx.y = 0. Neighbouring
 * threads have neighbouring elements of `shared`, so a warp's accesses meet no bank twice. */
template <int N> static __device__ __forceinline__ void fri_column_sum(float v[N], float *shared) {
    const int tx = (int)blockDim.x, y = (int)threadIdx.y, own = y * tx + (int)threadIdx.x;
    for (int k = 0; k < N; k++) shared[k * FRI_THREADS + own] = v[k];
    for (int rows = (int)blockDim.y, half; rows > 1; rows = half) {
        half = (rows + 1) / 2;
        __syncthreads();
        if (y + half < rows)
            for (int k = 0; k < N; k++) shared[k * FRI_THREADS + own] += shared[k * FRI_THREADS + own + half * tx];
    }
    for (int k = 0; k < N; k++) v[k] = shared[k * FRI_THREADS + own];
    __syncthreads();
}

/* A channel's partial results, of [chunks][channels], in FRI_ENDS_LOADS chunks, the first one `chunk`; past the end the
 * last chunk's. Several chunks have 2^18 results at most. Callers have FRI_ENDS_BOUNDS, because by default the compiler
 * takes few registers for many blocks per processor, and loads wait for each other. */
static __device__ __forceinline__ void fri_ends_load(const float *partial, int chunk, int chunks, int64_t channels,
                                                     float v[FRI_ENDS_LOADS]) {
#pragma unroll
    for (int k = 0; k < FRI_ENDS_LOADS; k++) {
        const int at = chunk + k * FRI_ENDS_LANES;
        v[k] = partial[(unsigned)(at < chunks ? at : chunks - 1) * (unsigned)channels];
    }
}
#define FRI_ENDS_BOUNDS __launch_bounds__(FRI_THREADS, 1)

/* Sum over the lanes of a channel; valid in all lanes. A warp holds 4 lanes. */
static __device__ __forceinline__ double fri_ends_sum(double v) {
    __shared__ double part[FRI_THREADS / 32][FRI_ENDS_CHANNELS];
    v += __shfl_xor_sync(0xffffffffu, v, FRI_ENDS_CHANNELS);
    v += __shfl_xor_sync(0xffffffffu, v, 2 * FRI_ENDS_CHANNELS);
    if (threadIdx.y % 4 == 0) part[threadIdx.y / 4][threadIdx.x] = v;
    __syncthreads();
    double sum = part[0][threadIdx.x];
#pragma unroll
    for (int i = 1; i < FRI_THREADS / 32; i++) sum += part[i][threadIdx.x];
    __syncthreads();
    return sum;
}

/* K sums of partial results [K][chunks][channels] over the chunks of channel `at`, in all lanes. */
template <int K>
static __device__ __forceinline__ void fri_end_columns(const float *partial, int64_t all, int64_t channels, int64_t at,
                                                       double sum[K]) {
    const int chunks = (int)all;
#pragma unroll
    for (int k = 0; k < K; k++) sum[k] = 0;
    for (int first = 0; first < chunks; first += FRI_ENDS_LOADS * FRI_ENDS_LANES) {
        const int i = first + (int)threadIdx.y;
        float v[K][FRI_ENDS_LOADS];
#pragma unroll
        for (int k = 0; k < K; k++) fri_ends_load(partial + k * all * channels + at, i, chunks, channels, v[k]);
#pragma unroll
        for (int j = 0; j < FRI_ENDS_LOADS; j++)
#pragma unroll
            for (int k = 0; k < K; k++) sum[k] += i + j * FRI_ENDS_LANES < chunks ? (double)v[k][j] : 0;
    }
    for (int k = 0; k < K; k++) sum[k] = fri_ends_sum(sum[k]);
}

/* end(channel, sums of fri_sum_columns): by a thread per channel. */
template <int K, typename E>
__global__ void FRI_ENDS_BOUNDS fri_sum_ends(int64_t chunks, int64_t channels, const float *partial, E end) {
    const int64_t c = (int64_t)blockIdx.x * FRI_ENDS_CHANNELS + threadIdx.x;
    double sum[K];
    fri_end_columns<K>(partial, chunks, channels, c < channels ? c : channels - 1, sum);
    if (threadIdx.y == 0 && c < channels) end(c, sum);
}

/* partial[k][chunk][c], k < K: sums over the chunk's rows of what f.add(state, row, element, sum) adds for N channels;
 * f.begin(c, &state) loads data of the channel. */
template <int N, int K, typename F>
__global__ void __launch_bounds__(FRI_THREADS) fri_sum_columns(fri_columns g, F f, float *partial) {
    __shared__ float shared[FRI_THREADS * N];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = (int64_t)blockIdx.y * g.chunk;
    const int64_t last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    float sum[K][N] = {};
    if (c < g.c) {
        typename F::state state;
        f.begin(c, &state);
        for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) f.add(state, row, row * g.c + c, sum);
    }
#pragma unroll
    for (int k = 0; k < K; k++) fri_column_sum<N>(sum[k], shared);
    if (threadIdx.y > 0 || c >= g.c) return;
    for (int k = 0; k < K; k++)
        for (int n = 0; n < N; n++) partial[(k * g.chunks + blockIdx.y) * g.c + c + n] = sum[k][n];
}

static inline unsigned fri_ends_grid(int64_t channels) {
    return (unsigned)fri_ceil_div(channels, FRI_ENDS_CHANNELS);
}

static inline dim3 fri_ends_block() {
    return dim3(FRI_ENDS_CHANNELS, FRI_ENDS_LANES);
}

#endif
