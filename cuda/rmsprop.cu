/* rmsprop.cu - torch.optim.RMSprop in one pass over a list of parameters, the gradient unscaled on the way in; its
 * one to three states are f32.
 *   rmsprop   n * (2 * p + g + 8 * states) bytes     p, g = bytes of an element of the parameter, of the gradient
 *
 * All but the gradient is read and written: 20 n bytes in f32 with one state. Where the loss scaler found an overflow
 * nothing is read or written; the decision is made on the device. */
#include "backend/arith_optim.h"
#include "multi.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_step_item, FRI_STEP_ITEMS> list;
static_assert(sizeof(list) + sizeof(fri_rmsprop_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

template <typename T, typename G, bool MOMENTUM, bool CENTERED>
__global__ void __launch_bounds__(FRI_THREADS, FRI_STEP_BLOCKS - (MOMENTUM || CENTERED)) /* more states: 80 registers */
    step(const __grid_constant__ list all, fri_rmsprop_desc d, const float *inv_scale, const float *found) {
    constexpr int N = 4; /* 16 bytes of f32 */
    if (found != NULL && *found != 0) return;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    const fri_step_item &item = all.item[at.item];
    T *param = (T *)item.param;
    const G *grad = (const G *)item.grad;
    float *square = (float *)item.state[0], *buf = MOMENTUM ? (float *)item.state[1] : NULL,
          *average = CENTERED ? (float *)item.state[1 + MOMENTUM] : NULL;
    const fri_rmsprop_coef c = fri_rmsprop_coef_of(&d, inv_scale != NULL ? *inv_scale : 1.0f);
    const bool packed = fri_aligned_here(param, N * sizeof(T)) && fri_aligned_here(grad, N * sizeof(G)) &&
                        fri_aligned_here(square, N * sizeof(float)) && fri_aligned_here(buf, N * sizeof(float)) &&
                        fri_aligned_here(average, N * sizeof(float));
    int64_t i = at.begin + threadIdx.x * (packed ? N : 1);
    for (; packed && i + N <= at.end; i += FRI_THREADS * N) {
        fri_pack<T, N> p = fri_load_pack<T, N>(param + i);
        const fri_pack<G, N> g = fri_load_pack<G, N>(grad + i);
        fri_pack<float, N> v = fri_load_pack<float, N>(square + i), b, a;
        if (MOMENTUM) b = fri_load_pack<float, N>(buf + i);
        if (CENTERED) a = fri_load_pack<float, N>(average + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float x = fri_load(p.v[k]);
            fri_rmsprop_update(c, fri_load(g.v[k]), &x, &v.v[k], MOMENTUM ? &b.v[k] : NULL, CENTERED ? &a.v[k] : NULL);
            fri_store(&p.v[k], x);
        }
        fri_store_pack<T, N>(param + i, p);
        fri_store_pack<float, N>(square + i, v);
        if (MOMENTUM) fri_store_pack<float, N>(buf + i, b);
        if (CENTERED) fri_store_pack<float, N>(average + i, a);
    }
    /* What is left of a pack, by one thread; of an array that is not aligned everything, by all. */
    for (; i < at.end; i += packed ? 1 : (int64_t)FRI_THREADS) {
        float x = fri_load(param[i]);
        fri_rmsprop_update(c, fri_load(grad[i]), &x, &square[i], MOMENTUM ? &buf[i] : NULL,
                           CENTERED ? &average[i] : NULL);
        fri_store(&param[i], x);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

#define STEP(momentum, centered) \
    step<T, G, momentum, centered><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, *d, inv_scale, found)

extern "C" fr_status fri_cuda_rmsprop(const fri_exec *e, const fri_rmsprop_desc *d, int count,
                                      const fri_step_item *items, const float *inv_scale, const float *found) {
    const bool momentum = d->momentum != 0;
    list all;
    FRI_FLOAT_TYPES(d->dtype, "rmsprop", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "rmsprop", {
                        for (int at = 0; at < count;) {
                            const unsigned blocks =
                                fri_list_fill(&all, count, items, FRI_STEP_PACKS * FRI_THREADS * 4, &at);
                            if (blocks > 0 && d->centered) {
                                if (momentum)
                                    STEP(true, true);
                                else
                                    STEP(false, true);
                            } else if (blocks > 0) {
                                if (momentum)
                                    STEP(true, false);
                                else
                                    STEP(false, false);
                            }
                        }
                    }))
    return fri_cuda_launched("rmsprop");
}
