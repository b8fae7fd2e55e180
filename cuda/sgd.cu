/* sgd.cu - torch.optim.SGD in one pass over a list of parameters, the gradient unscaled on the way in.
 *   sgd   n * (4 * p + g) bytes     p, g = bytes of an element of the parameter and its momentum, of the gradient
 *
 * Parameter and momentum are read and written, 20 n bytes in f32; without momentum n * (2 * p + g), at the first step
 * n * (3 * p + g). Where the loss scaler found an overflow nothing is read or written; the decision is made on the
 * device. */
#include "backend/arith_optim.h"
#include "multi.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_step_item, FRI_STEP_ITEMS> list;
static_assert(sizeof(list) + sizeof(fri_sgd_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

template <typename T>
static __device__ __forceinline__ void update(const fri_sgd_coef &c, bool momentum, float g, T *param, T *buf) {
    float p = fri_load(*param);
    g = fri_sgd_gradient(c, p, g);
    if (!momentum) {
        fri_store(param, p - c.lr * g);
        return;
    }
    float b = fri_sgd_momentum(c, g, c.first ? 0 : fri_load(*buf));
    fri_store(param, fri_sgd_step(c, p, g, b));
    fri_store(buf, b);
}

template <typename T, typename G, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_STEP_BLOCKS)
    step(const __grid_constant__ list all, fri_sgd_desc d, const float *inv_scale, const float *found) {
    if (found != NULL && *found != 0) return;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    const fri_step_item &item = all.item[at.item];
    T *param = (T *)item.param, *buf = (T *)item.state[0];
    const G *grad = (const G *)item.grad;
    const fri_sgd_coef c = fri_sgd_coef_of(&d, inv_scale != NULL ? *inv_scale : 1.0f);
    const bool momentum = buf != NULL;
    int64_t i = at.begin + threadIdx.x * N;
    if (!fri_aligned_here(param, N * sizeof(T)) || !fri_aligned_here(grad, N * sizeof(G)) ||
        !fri_aligned_here(buf, N * sizeof(T))) {
        for (i = at.begin + threadIdx.x; i < at.end; i += FRI_THREADS)
            update(c, momentum, fri_load(grad[i]), &param[i], momentum ? &buf[i] : (T *)NULL);
        return;
    }
    for (; i + N <= at.end; i += FRI_THREADS * N) {
        fri_pack<T, N> p = fri_load_pack<T, N>(param + i), b;
        fri_pack<G, N> g = fri_load_pack<G, N>(grad + i);
        if (momentum && !c.first) b = fri_load_pack<T, N>(buf + i);
#pragma unroll
        for (int k = 0; k < N; k++) update(c, momentum, fri_load(g.v[k]), &p.v[k], &b.v[k]);
        fri_store_pack<T, N>(param + i, p);
        if (momentum) fri_store_pack<T, N>(buf + i, b);
    }
    for (; i < at.end; i++) update(c, momentum, fri_load(grad[i]), &param[i], momentum ? &buf[i] : (T *)NULL);
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_sgd(const fri_exec *e, const fri_sgd_desc *d, int count, const fri_step_item *items,
                                  const float *inv_scale, const float *found) {
    list all;
    FRI_FLOAT_TYPES(d->dtype, "sgd", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "sgd", {
                        constexpr int N = 16 / (sizeof(T) > sizeof(G) ? sizeof(T) : sizeof(G));
                        for (int at = 0; at < count;) {
                            const unsigned blocks =
                                fri_list_fill(&all, count, items, FRI_STEP_PACKS * FRI_THREADS * N, &at);
                            if (blocks > 0)
                                step<T, G, N><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, *d, inv_scale, found);
                        }
                    }))
    return fri_cuda_launched("sgd");
}
