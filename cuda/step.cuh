/* step.cuh - the walk of the optimizers over a list of parameters: a thread takes packs of parameter, gradient and
 * states, loads the next packs during the write, and computes the coefficients during the first loads. Unaligned arrays
 * go by element. */
#ifndef FRI_CUDA_STEP_CUH
#define FRI_CUDA_STEP_CUH

#include "backend/arith_optim.h"
#include "multi.cuh"

typedef fri_list<fri_step_item, FRI_STEP_ITEMS> fri_step_list;

static __device__ __forceinline__ float fri_step_scale(const float *inv_scale) {
    return inv_scale != NULL ? *inv_scale : 1.0f;
}

/* T, G, A: types of parameter, gradient and the S states. fresh: states begin at 0 and are not read. Each thread calls
 * coefficients(item) once; update(gradient, &parameter, states) moves an element. */
template <typename T, typename G, typename A, int N, int S, typename C, typename U>
static __device__ __forceinline__ void fri_step_walk(const fri_step_list &all, bool fresh, C coefficients, U update) {
    constexpr int ROOM = S > 0 ? S : 1;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    const fri_step_item &item = all.item[at.item];
    T *param = (T *)item.param;
    const G *grad = (const G *)item.grad;
    bool packed = fri_aligned_here(param, N * sizeof(T)) && fri_aligned_here(grad, N * sizeof(G));
#pragma unroll
    for (int k = 0; k < S; k++) packed = packed && fri_aligned_here(item.state[k], N * sizeof(A));
    int64_t i = at.begin + threadIdx.x * (packed ? N : 1);
    fri_pack<T, N> p;
    fri_pack<G, N> g;
    fri_pack<A, N> s[ROOM];
    auto load = [&] {
        p = fri_load_pack<T, N>(param + i);
        g = fri_load_pack<G, N>(grad + i);
#pragma unroll
        for (int k = 0; k < S; k++)
            if (!fresh) s[k] = fri_load_pack<A, N>((A *)item.state[k] + i);
    };
    auto move = [&](T *x, const G *dx, A *const state[ROOM]) {
        float value = fri_load(*x), v[ROOM];
#pragma unroll
        for (int k = 0; k < S; k++) v[k] = fresh ? 0 : fri_load(*state[k]);
        update(fri_load(*dx), &value, v);
        fri_store(x, value);
#pragma unroll
        for (int k = 0; k < S; k++) fri_store(state[k], v[k]);
    };
    bool there = packed && i + N <= at.end;
    if (there) load();
    coefficients(item);
    while (there) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            A *state[ROOM];
#pragma unroll
            for (int k = 0; k < S; k++) state[k] = &s[k].v[n];
            move(&p.v[n], &g.v[n], state);
        }
        fri_store_pack<T, N>(param + i, p);
#pragma unroll
        for (int k = 0; k < S; k++) fri_store_pack<A, N>((A *)item.state[k] + i, s[k]);
        i += FRI_THREADS * N;
        there = i + N <= at.end;
        if (there) load();
    }
    /* Remainder of a pack, by a single thread; elements of an unaligned array, by all threads. */
    for (; i < at.end; i += packed ? 1 : (int64_t)FRI_THREADS) {
        A *state[ROOM];
#pragma unroll
        for (int k = 0; k < S; k++) state[k] = (A *)item.state[k] + i;
        move(&param[i], &grad[i], state);
    }
}

/* A kernel of an optimizer, and how many elements a block of the kernel moves. */
template <typename F> struct fri_step_kernel {
    F run;
    int64_t chunk;
};

/* The kernel of_types(T(), G()), for as many lists as the items need; T, G: types of parameter and gradient. */
template <typename D, typename K, typename... A>
static fr_status fri_step_launch(const fri_exec *e, const char *name, const D *d, int count, const fri_step_item *items,
                                 K of_types, A... rest) {
    FRI_FLOAT_TYPES(d->dtype, name, FRI_FLOAT_TYPES_AS(G, d->grad_dtype, name, {
                        const auto [run, chunk] = of_types(T(), G());
                        fri_step_list all;
                        for (int at = 0; at < count;) {
                            const unsigned blocks = fri_list_fill(&all, count, items, chunk, &at);
                            if (blocks > 0) run<<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, *d, rest...);
                        }
                    }))
    return fri_cuda_launched(name);
}

/* The kernel of a walk in packs of N. */
template <int N, typename F> static fri_step_kernel<F> fri_step_walker(F run) {
    return {run, FRI_STEP_PACKS * FRI_THREADS * N};
}

#endif
