/* cast.cu - between all pairs of element types.
 *   cast        n * (from + to) bytes     from, to = bytes of an element of each type: x read, y written
 *   cast_list   the same over a list of arrays
 *
 * The pairs of a training step (f32 and the half types, bytes to f32) move packs; further pairs take an element per
 * thread, through f64 or i64. */
#include "convert.cuh"
#include "multi.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float fri_load(uint8_t v) {
    return (float)v;
}

template <typename A, typename B> struct converted {
    const A *x;
    B *y;
    template <int M> __device__ __forceinline__ void at(int64_t i) const {
        const fri_pack<A, M> p = fri_load_pack<A, M>(x + i);
        fri_pack<B, M> q;
#pragma unroll
        for (int k = 0; k < M; k++) fri_store(&q.v[k], fri_load(p.v[k]));
        fri_store_pack<B, M>(y + i, q);
    }
};

__global__ void __launch_bounds__(FRI_THREADS)
    convert_any(int64_t n, fr_dtype from, fr_dtype to, bool real, const void *x, void *y) {
    int64_t i = (int64_t)blockIdx.x * FRI_THREADS + threadIdx.x;
    if (i >= n) return;
    if (real)
        fri_put_real(to, y, i, fri_real_at(from, x, i));
    else
        fri_put_integer(to, y, i, fri_integer_at(from, x, i));
}

typedef fri_list<fri_cast_item, FRI_CAST_ITEMS> list;
static_assert(sizeof(list) <= FRI_PARAMETER_BYTES, "kernel parameters");

template <typename A, typename B, int N>
__global__ void __launch_bounds__(FRI_THREADS) convert_list(const __grid_constant__ list all) {
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    const converted<A, B> f = {(const A *)all.item[at.item].x, (B *)all.item[at.item].y};
    const bool packed = fri_aligned_here(f.x, N * sizeof(A)) && fri_aligned_here(f.y, N * sizeof(B));
    fri_chunk_each<N>(at, packed, [&](int64_t i, auto width) { f.template at<decltype(width)::value>(i); });
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

template <typename A, typename B> static fr_status launch(const fri_exec *e, int64_t n, const void *x, void *y) {
    constexpr int N = 4; /* 16 bytes of the wider type at most */
    return fri_launch_each<B, N>(e, "cast", n, fri_aligned(x, N * sizeof(A)) && fri_aligned(y, N * sizeof(B)),
                                 converted<A, B>{(const A *)x, (B *)y});
}

template <typename B> static fr_status launch_to(const fri_exec *e, fr_dtype from, int64_t n, const void *x, void *y) {
    switch (from) {
    case FR_F32: return launch<float, B>(e, n, x, y);
    case FR_F16: return launch<__half, B>(e, n, x, y);
    case FR_BF16: return launch<__nv_bfloat16, B>(e, n, x, y);
    default: return launch<uint8_t, B>(e, n, x, y);
    }
}

extern "C" fr_status fri_cuda_cast(const fri_exec *e, fr_dtype from, fr_dtype to, int64_t n, const void *x, void *y) {
    bool packed = from == FR_F32 || from == FR_F16 || from == FR_BF16 || from == FR_U8;
    if (fr_dtype_size(from) == 0) return fri_cuda_no_type("cast", from);
    if (fr_dtype_size(to) == 0) return fri_cuda_no_type("cast", to);
    if (n == 0) return FR_OK;
    if (packed && to == FR_F32) return launch_to<float>(e, from, n, x, y);
    if (packed && to == FR_F16) return launch_to<__half>(e, from, n, x, y);
    if (packed && to == FR_BF16) return launch_to<__nv_bfloat16>(e, from, n, x, y);
    convert_any<<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, from, to, fr_dtype_is_float(from), x, y);
    return fri_cuda_launched("cast");
}

template <typename B> static fr_status launch_list(const fri_exec *e, int count, const fri_cast_item *items) {
    constexpr int N = 4;
    list all;
    for (int at = 0; at < count;) {
        const unsigned blocks = fri_list_fill(&all, count, items, FRI_STEP_PACKS * FRI_THREADS * N, &at);
        if (blocks > 0) convert_list<float, B, N><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all);
    }
    return fri_cuda_launched("cast_list");
}

extern "C" fr_status fri_cuda_cast_list(const fri_exec *e, fr_dtype from, fr_dtype to, int count,
                                        const fri_cast_item *items) {
    if (from == FR_F32 && to == FR_F16) return launch_list<__half>(e, count, items);
    if (from == FR_F32 && to == FR_BF16) return launch_list<__nv_bfloat16>(e, count, items);
    fr_status s = FR_OK;
    for (int i = 0; i < count && s >= 0; i++) s = fri_cuda_cast(e, from, to, items[i].n, items[i].x, items[i].y);
    return s;
}
