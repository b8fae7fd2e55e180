/* columns.cuh - how a matrix [rows, c] with channels innermost is cut into blocks.
 *
 *     a block is  tx packs of channels wide  and  ty rows high, tx * ty <= FRI_THREADS;
 *     the grid is  (channel blocks, chunks of rows); a block walks down its chunk, ty rows at a time.
 *
 * A thread keeps to its channels, so data of a channel are loaded once. Sums are cut into chunks by the shape
 * alone, and partial results of chunks are combined in one order, by the last block of a channel block to finish. How
 * many blocks walk the chunks depends on the device. */
#ifndef FRI_CUDA_COLUMNS_CUH
#define FRI_CUDA_COLUMNS_CUH

#include "common.cuh"

enum {
    FRI_COLUMN_PACKS = 32,   /* widest block */
    FRI_COLUMN_WIDTH = 64,   /* channels of a block, at most: a cache line of halves, and few sums for the last block */
    FRI_COLUMN_BLOCKS = 384, /* of a sum, at most: what the processors of an H100 hold */
    FRI_COLUMN_RESIDENT = 3, /* blocks per processor, so 80 registers a thread */
    FRI_COLUMN_FLIGHT = 4,   /* packs of a thread on their way at once */
    FRI_ENDS_LOADS = 16      /* partial results likewise, of all K sums */
};

typedef struct fri_columns {
    int64_t rows, c;
    int tx, ty;            /* threads */
    int64_t across;        /* channel blocks */
    int64_t chunks, chunk; /* chunks of rows; rows per chunk */
} fri_columns;

/* Cut of a matrix into `blocks` at most, for packs of n channels; c is divisible by n. */
static inline fri_columns fri_columns_of(int64_t rows, int64_t c, int n, int64_t blocks = FRI_COLUMN_BLOCKS) {
    fri_columns g;
    int64_t packs = c / n;
    g.rows = rows;
    g.c = c;
    g.tx = fri_block_width(packs, n > 1 ? FRI_COLUMN_WIDTH / n : FRI_COLUMN_PACKS);
    g.ty = FRI_THREADS / g.tx;
    g.across = fri_ceil_div(packs, g.tx);
    int64_t most = blocks / g.across, useful = fri_ceil_div(rows, (int64_t)g.ty * 4);
    g.chunks = most < 1 ? 1 : most < useful ? most : useful;
    g.chunk = fri_ceil_div(rows, g.chunks > 0 ? g.chunks : 1);
    g.chunks = g.chunk > 0 ? fri_ceil_div(rows, g.chunk) : 0;
    return g;
}

/* Blocks that the device holds at once; resident: blocks of the kernel on a processor. */
static inline int64_t fri_columns_slots(int resident = FRI_COLUMN_RESIDENT) {
    return (int64_t)resident * fri_cuda_processors();
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

/* Grid of a sum: blocks that the device holds at once, with equal numbers of chunks. */
static inline dim3 fri_columns_walk(const fri_columns &g, int resident = FRI_COLUMN_RESIDENT) {
    const int64_t slots = fri_columns_slots(resident) / g.across, turns = fri_ceil_div(g.chunks, slots > 0 ? slots : 1);
    return dim3((unsigned)g.across, (unsigned)(turns > 0 ? fri_ceil_div(g.chunks, turns) : 1));
}

static inline dim3 fri_columns_block(const fri_columns &g) {
    return dim3((unsigned)g.tx, (unsigned)g.ty);
}

/* use(load(row, i), row, i), for rows from `row` to `last` and elements i of the rows. ROWS loads come before the first
 * use, which may write over loaded rows. */
template <int ROWS, typename L, typename U>
static __device__ __forceinline__ void fri_columns_rows(const fri_columns &g, int64_t row, int64_t last, int64_t c,
                                                        L load, U use) {
    const int64_t down = blockDim.y, step = down * g.c;
    int64_t i = row * g.c + c;
    for (; row + (ROWS - 1) * down < last; row += ROWS * down, i += ROWS * step) {
        decltype(load(row, i)) item[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++) item[j] = load(row + j * down, i + j * step);
#pragma unroll
        for (int j = 0; j < ROWS; j++) use(item[j], row + j * down, i + j * step);
    }
    for (; row < last; row += down, i += step) use(load(row, i), row, i);
}

/* The rows of a block of a grid as cut. */
template <int ROWS, typename L, typename U>
static __device__ __forceinline__ void fri_columns_chunk(const fri_columns &g, int64_t c, L load, U use) {
    const int64_t first = (int64_t)blockIdx.y * g.chunk, last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
    fri_columns_rows<ROWS>(g, first + threadIdx.y, last, c, load, use);
}

/* Numbers of N channels, from c on; `from` is aligned to 16 bytes where N is not 1. */
template <int N> static __device__ __forceinline__ void fri_load_channels(const float *from, int64_t c, float v[N]) {
    constexpr int M = N < 4 ? 1 : 4;
#pragma unroll
    for (int k = 0; k < N; k += M) {
        const fri_pack<float, M> p = fri_load_pack<float, M>(from + c + k);
#pragma unroll
        for (int j = 0; j < M; j++) v[k + j] = p.v[j];
    }
}

/* v[k], k < N, becomes the sum over `height` rows of `width` threads, valid in row 0. Neighbouring threads have
 * neighbouring elements of `shared`, so a warp's accesses meet no bank twice. */
template <int N, typename V>
static __device__ __forceinline__ void fri_rows_sum(V v[N], V *shared, int width, int height, int y, int own) {
    for (int k = 0; k < N; k++) shared[k * FRI_THREADS + own] = v[k];
    for (int rows = height, half; rows > 1; rows = half) {
        half = (rows + 1) / 2;
        __syncthreads();
        if (y + half < rows)
            for (int k = 0; k < N; k++) shared[k * FRI_THREADS + own] += shared[k * FRI_THREADS + own + half * width];
    }
    for (int k = 0; k < N; k++) v[k] = shared[k * FRI_THREADS + own];
    __syncthreads();
}

template <int N> static __device__ __forceinline__ void fri_column_sum(float v[N], float *shared) {
    const int tx = (int)blockDim.x, y = (int)threadIdx.y;
    fri_rows_sum<N>(v, shared, tx, (int)blockDim.y, y, y * tx + (int)threadIdx.x);
}

/* ---- ends: the last block of a channel block combines what all of its blocks wrote ----------------------------- */

/* True in the last block of a blockIdx.x to come here, with all partial results there to read. The counters are a
 * file's, so a device sums on a single stream, FRI_STREAM_COMPUTE: sums on a second stream would count among the blocks
 * of the first. Other streams copy, add, scale and cast. */
static __device__ __forceinline__ bool fri_last_block() {
    static unsigned arrived[FRI_COLUMN_BLOCKS]; /* 0 between kernels, which follow each other in a stream */
    __shared__ bool last;
    __syncthreads();
    if (gridDim.y == 1) return true;
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence();
        last = atomicInc(&arrived[blockIdx.x], gridDim.y - 1) == gridDim.y - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* end(channel, sums) of the block's channels, by a thread each. end.add(chunk, v, origin, sum) adds a chunk's K partial
 * results, of [K][chunks][c], to K sums; origin is the first chunk's first one. Lanes of a channel take chunks in turn.
 * Places in `shared`: one per thread. */
template <int N, int K, typename E>
static __device__ __forceinline__ void fri_end_columns(const fri_columns &g, const float *partial, double *shared,
                                                       const E &end) {
    constexpr int LOADS = FRI_ENDS_LOADS / K;
    const int width = (int)blockDim.x * N, own = (int)(threadIdx.y * blockDim.x + threadIdx.x), lane = own / width;
    const int lanes = (int)(blockDim.x * blockDim.y) / width, chunks = (int)g.chunks;
    const int64_t c = (int64_t)blockIdx.x * width + own % width;
    const bool there = lane < lanes && c < g.c;
    const float *from = partial + c, origin = there && chunks > 0 ? *from : 0;
    double sum[K] = {};
    for (int first = there ? lane : chunks; first < chunks; first += LOADS * lanes) {
        float v[LOADS][K];
#pragma unroll
        for (int j = 0; j < LOADS; j++)
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int chunk = first + j * lanes < chunks ? first + j * lanes : chunks - 1;
                v[j][k] = from[(k * g.chunks + chunk) * g.c];
            }
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (first + j * lanes < chunks) end.add(first + j * lanes, v[j], origin, sum);
    }
#pragma unroll
    for (int k = 0; k < K; k++) fri_rows_sum<1>(&sum[k], shared, width, lanes, lane, own);
    if (lane == 0 && there) end(c, sum);
}

/* ---- sums of columns ------------------------------------------------------------------------------------------ */

/* Sums begin and close with no work, and are added, unless a kernel has its own rule. */
struct fri_plain_terms {
    template <typename S> __device__ void start(int64_t, int64_t, S *) const {
    }
    template <typename S, int N> __device__ void close(const S &, int64_t, float (*)[N]) const {
    }
};

template <int K> struct fri_plain_ends {
    __device__ void add(int, const float *v, float, double *sum) const {
#pragma unroll
        for (int k = 0; k < K; k++) sum[k] += (double)v[k];
    }
};

/* partial[k][chunk][c], k < K: sums over the chunk's rows of what f.add(state, item, row, sum) adds for N channels,
 * where item is f.load(state, row, element); then `end` of the sums (fri_end_columns). f.begin(c, &state) loads data
 * of the channel; f.start(row, element, &state) sees a chunk's first row, and f.close(state, rows, sum) the sums. ROWS
 * loads are on their way at once, and RESIDENT blocks on a processor. */
template <int N, int K, typename F, typename E>
__global__ void __launch_bounds__(FRI_THREADS, F::RESIDENT) fri_sum_columns(fri_columns g, F f, float *partial, E end) {
    __shared__ double shared[FRI_THREADS * (N < 2 ? 2 : N) / 2];
    const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    typename F::state state;
    if (c < g.c) f.begin(c, &state);
    for (int64_t chunk = blockIdx.y; chunk < g.chunks; chunk += gridDim.y) {
        const int64_t first = chunk * g.chunk, last = first + g.chunk < g.rows ? first + g.chunk : g.rows;
        float sum[K][N] = {};
        if (c < g.c) {
            f.start(first, first * g.c + c, &state);
            fri_columns_rows<F::ROWS>(
                g, first + threadIdx.y, last, c, [&](int64_t row, int64_t i) { return f.load(state, row, i); },
                [&](const decltype(f.load(state, 0, 0)) &item, int64_t row, int64_t) { f.add(state, item, row, sum); });
        }
#pragma unroll
        for (int k = 0; k < K; k++) fri_column_sum<N>(sum[k], (float *)shared);
        if (threadIdx.y > 0 || c >= g.c) continue;
        f.close(state, last - first, sum);
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++) partial[(k * g.chunks + chunk) * g.c + c + n] = sum[k][n];
    }
    if (fri_last_block()) fri_end_columns<N, K>(g, partial, shared, end);
}

#endif
