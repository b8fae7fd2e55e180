/* dropout.cu - dropout without a stored mask: the counter-based generator makes it again in backward.
 *   dropout              2 * n * size bytes       size = bytes of an element: x read, y written
 *   dropout_mask         n bytes                  written
 *   dropout_apply_mask   n * (2 * size + 1) bytes
 *
 * Number i decides element i, or with per_channel number image * C + channel all positions of a channel; it is lane i %
 * 4 of Philox counter i / 4, as on the CPU: the same elements are kept. */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef struct rule {
    int64_t n, image, c; /* elements in all; of an image; channels */
    uint64_t seed, stream;
    uint32_t threshold;
    float scale;
    bool per_channel;
} rule;

/* keep[k] for elements i .. i + N, i divisible by N. */
template <int N> static __device__ __forceinline__ void keeps(const rule &r, int64_t i, bool keep[N]) {
    const int64_t first = r.per_channel ? i / r.image * r.c + i % r.c : i;
    /* N numbers in a row that begin a counter: always without per_channel, else if the channels allow. */
    if (N % 4 == 0 && (!r.per_channel || r.c % N == 0)) {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            fri_philox4 u = fri_philox(r.seed, r.stream, (uint64_t)(first + k) / 4);
#pragma unroll
            for (int j = 0; j < 4; j++) keep[k + j] = fri_dropout_keeps(u.v[j], r.threshold);
        }
        return;
    }
    fri_philox4 u = fri_philox(r.seed, r.stream, (uint64_t)first / 4);
    int64_t counter = first / 4;
    for (int k = 0; k < N; k++) {
        int64_t at = r.per_channel ? (i + k) / r.image * r.c + (i + k) % r.c : i + k;
        if (at / 4 != counter) {
            counter = at / 4;
            u = fri_philox(r.seed, r.stream, (uint64_t)counter);
        }
        int lane = (int)(at & 3);
        keep[k] = fri_dropout_keeps(lane == 0 ? u.v[0] : lane == 1 ? u.v[1] : lane == 2 ? u.v[2] : u.v[3], r.threshold);
    }
}

template <typename T, int N, bool PACKED>
__global__ void __launch_bounds__(FRI_THREADS) drop(rule r, const T *x, T *y) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    bool keep[N];
    if (i >= r.n) return;
    keeps<N>(r, i, keep);
    if (PACKED && i + N <= r.n) {
        fri_pack<T, N> p = fri_load_pack<T, N>(x + i);
#pragma unroll
        for (int k = 0; k < N; k++) fri_store(&p.v[k], keep[k] ? fri_load(p.v[k]) * r.scale : 0.0f);
        fri_store_pack<T, N>(y + i, p);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            if (i + k < r.n) fri_store(&y[i + k], keep[k] ? fri_load(x[i + k]) * r.scale : 0.0f);
    }
}

__global__ void __launch_bounds__(FRI_THREADS) write_mask(rule r, uint8_t *mask) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * 4;
    bool keep[4];
    if (i >= r.n) return;
    keeps<4>(r, i, keep);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + k < r.n) mask[i + k] = keep[k];
}

template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) apply(int64_t n, float scale, const uint8_t *mask, const T *x, T *y) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (i + N <= n) {
        fri_pack<T, N> p = fri_load_pack<T, N>(x + i);
        fri_pack<uint8_t, N> m = fri_load_pack<uint8_t, N>(mask + i);
#pragma unroll
        for (int k = 0; k < N; k++) fri_store(&p.v[k], m.v[k] ? fri_load(p.v[k]) * scale : 0.0f);
        fri_store_pack<T, N>(y + i, p);
    } else {
        for (; i < n; i++) fri_store(&y[i], mask[i] ? fri_load(x[i]) * scale : 0.0f);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

static rule rule_of(const fri_dropout_desc *d) {
    rule r;
    r.n = d->n * d->hw * d->c;
    r.image = d->hw * d->c;
    r.c = d->c;
    r.seed = d->seed;
    r.stream = d->stream;
    r.threshold = fri_dropout_threshold(d->p);
    r.scale = (float)(1 / (1 - d->p)); /* infinite for p = 1, without kept elements */
    r.per_channel = d->per_channel;
    return r;
}

extern "C" fr_status fri_cuda_dropout(const fri_exec *e, const fri_dropout_desc *d, const void *x, void *y) {
    const rule r = rule_of(d);
    if (r.n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "dropout", constexpr int N = 16 / sizeof(T);
                    unsigned blocks = fri_blocks(fri_ceil_div(r.n, N)); if (fri_aligned(x, 16) && fri_aligned(y, 16))
                        drop<T, N, true><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(r, (const T *)x, (T *)y);
                    else drop<T, N, false><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(r, (const T *)x, (T *)y);)
    return fri_cuda_launched("dropout");
}

extern "C" fr_status fri_cuda_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    const rule r = rule_of(d);
    if (r.n == 0) return FR_OK;
    write_mask<<<fri_blocks(fri_ceil_div(r.n, 4)), FRI_THREADS, 0, fri_stream(e)>>>(r, mask);
    return fri_cuda_launched("dropout_mask");
}

extern "C" fr_status fri_cuda_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask,
                                                 const void *x, void *y) {
    const rule r = rule_of(d);
    if (r.n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "dropout_apply_mask", constexpr int N = 16 / sizeof(T);
                    if (fri_aligned(x, 16) && fri_aligned(y, 16) && fri_aligned(mask, N)) apply<T, N>
                    <<<fri_blocks(fri_ceil_div(r.n, N)), FRI_THREADS, 0, fri_stream(e)>>>(r.n, r.scale, mask,
                                                                                          (const T *)x, (T *)y);
                    else apply<T, 1>
                    <<<fri_blocks(r.n), FRI_THREADS, 0, fri_stream(e)>>>(r.n, r.scale, mask, (const T *)x, (T *)y);)
    return fri_cuda_launched("dropout_apply_mask");
}
