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

template <typename T> struct dropped {
    rule r;
    const T *x;
    T *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p = fri_load_pack<T, M>(x + i);
        bool keep[M];
        keeps<M>(r, i, keep);
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], keep[k] ? fri_load(p.v[k]) * r.scale : 0.0f);
        fri_store_pack<T, M>(y + i, p);
    }
};

struct kept {
    rule r;
    uint8_t *mask;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<uint8_t, M> p;
        bool keep[M];
        keeps<M>(r, i, keep);
#pragma unroll
        for (int k = 0; k < M; k++) p.v[k] = keep[k];
        fri_store_pack<uint8_t, M>(mask + i, p);
    }
};

template <typename T> struct masked {
    float scale;
    const uint8_t *mask;
    const T *x;
    T *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        fri_pack<T, M> p = fri_load_pack<T, M>(x + i);
        const fri_pack<uint8_t, M> m = fri_load_pack<uint8_t, M>(mask + i);
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&p.v[k], m.v[k] ? fri_load(p.v[k]) * scale : 0.0f);
        fri_store_pack<T, M>(y + i, p);
    }
};

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
    FRI_FLOAT_TYPES(d->dtype, "dropout",
                    return fri_launch_each<T>(e, "dropout", r.n, fri_aligned(x, 16) && fri_aligned(y, 16),
                                              dropped<T>{r, (const T *)x, (T *)y});)
}

extern "C" fr_status fri_cuda_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    const rule r = rule_of(d);
    return fri_launch_each<uint8_t, 4>(e, "dropout_mask", r.n, fri_aligned(mask, 4), kept{r, mask});
}

extern "C" fr_status fri_cuda_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask,
                                                 const void *x, void *y) {
    const rule r = rule_of(d);
    const bool aligned = fri_aligned(x, 16) && fri_aligned(y, 16) && fri_aligned(mask, 16);
    FRI_FLOAT_TYPES(d->dtype, "dropout_apply_mask",
                    return fri_launch_each<T>(e, "dropout_apply_mask", r.n, aligned,
                                              masked<T>{r.scale, mask, (const T *)x, (T *)y});)
}
