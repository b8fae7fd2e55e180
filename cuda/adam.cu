/* adam.cu - torch.optim.Adam and AdamW in one pass over a list of parameters, the gradient unscaled on the way in; m
 * and v are f32.
 *   adam   n * (2 * p + g + 16) bytes     p, g = bytes of an element of the parameter, of the gradient; 16: m, v
 *
 * All but the gradient is read and written: 28 n bytes in f32. Where the loss scaler found an overflow nothing is read
 * or written; the decision is made on the device. */
#include "backend/arith_optim.h"
#include "multi.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_step_item, FRI_STEP_ITEMS> list;
static_assert(sizeof(list) + sizeof(fri_adam_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

template <typename T, typename G, int N>
static __device__ __forceinline__ void load_packs(const T *param, const G *grad, const float *m, const float *v,
                                                  fri_pack<T, N> *p, fri_pack<G, N> *g, fri_pack<float, N> *a,
                                                  fri_pack<float, N> *b) {
    *p = fri_load_pack<T, N>(param);
    *g = fri_load_pack<G, N>(grad);
    *a = fri_load_pack<float, N>(m);
    *b = fri_load_pack<float, N>(v);
}

template <typename T, typename G, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    step(const __grid_constant__ list all, fri_adam_desc d, const float *inv_scale, const float *found) {
    __shared__ fri_adam_coef shared; /* two powers in f64: made once, while the first packs are on their way */
    if (found != NULL && *found != 0) return;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    const fri_step_item &item = all.item[at.item];
    T *param = (T *)item.param;
    const G *grad = (const G *)item.grad;
    float *m = (float *)item.state[0], *v = (float *)item.state[1];
    const bool packed = fri_aligned_here(param, N * sizeof(T)) && fri_aligned_here(grad, N * sizeof(G)) &&
                        fri_aligned_here(m, N * sizeof(float)) && fri_aligned_here(v, N * sizeof(float));
    int64_t i = at.begin + threadIdx.x * N;
    fri_pack<T, N> p;
    fri_pack<G, N> g;
    fri_pack<float, N> a, b;
    bool there = packed && i + N <= at.end;
    if (there) load_packs<T, G, N>(param + i, grad + i, m + i, v + i, &p, &g, &a, &b);
    if (threadIdx.x == 0) shared = fri_adam_coef_of(&d, *item.step, inv_scale != NULL ? *inv_scale : 1.0f);
    __syncthreads();
    const fri_adam_coef c = shared;
    while (there) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            float x = fri_load(p.v[k]);
            fri_adam_update(c, fri_load(g.v[k]), &x, &a.v[k], &b.v[k]);
            fri_store(&p.v[k], x);
        }
        fri_store_pack<T, N>(param + i, p);
        fri_store_pack<float, N>(m + i, a);
        fri_store_pack<float, N>(v + i, b);
        i += FRI_THREADS * N;
        there = i + N <= at.end;
        if (there) load_packs<T, G, N>(param + i, grad + i, m + i, v + i, &p, &g, &a, &b);
    }
    /* What is left of a pack, one by one; of an array that is not aligned everything. */
    const int64_t stride = packed ? 1 : (int64_t)FRI_THREADS;
    for (i = packed ? i : at.begin + threadIdx.x; i < at.end; i += stride) {
        float x = fri_load(param[i]);
        fri_adam_update(c, fri_load(grad[i]), &x, &m[i], &v[i]);
        fri_store(&param[i], x);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_adam(const fri_exec *e, const fri_adam_desc *d, int count, const fri_step_item *items,
                                   const float *inv_scale, const float *found) {
    constexpr int N = 4; /* 16 bytes of f32 */
    list all;
    FRI_FLOAT_TYPES(d->dtype, "adam", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "adam", {
                        for (int at = 0; at < count;) {
                            const unsigned blocks =
                                fri_list_fill(&all, count, items, FRI_STEP_PACKS * FRI_THREADS * N, &at);
                            if (blocks > 0)
                                step<T, G, N><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, *d, inv_scale, found);
                        }
                    }))
    return fri_cuda_launched("adam");
}
