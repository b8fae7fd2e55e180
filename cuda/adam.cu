/* adam.cu - torch.optim.Adam and AdamW in one pass, the gradient unscaled on the way in; m and v are f32.
 *   adam   n * (2 * p + g + 16) bytes     p, g = bytes of an element of the parameter, of the gradient; 16: m, v
 *
 * All but the gradient is read and written: 28 n bytes in f32. Where the loss scaler found an overflow nothing is read
 * or written; the decision is made on the device. */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T, typename G, int N>
__global__ void __launch_bounds__(FRI_THREADS) step(fri_adam_desc d, T *param, const G *grad, float *m, float *v,
                                                    const float *count, const float *inv_scale, const float *found) {
    __shared__ fri_adam_coef shared; /* two powers in f64: made once per block */
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (found != NULL && *found != 0) return;
    if (threadIdx.x == 0) shared = fri_adam_coef_of(&d, *count, inv_scale != NULL ? *inv_scale : 1.0f);
    __syncthreads();
    const fri_adam_coef c = shared;
    if (i + N <= d.n) {
        fri_pack<T, N> p = fri_load_pack<T, N>(param + i);
        fri_pack<G, N> g = fri_load_pack<G, N>(grad + i);
        fri_pack<float, N> a = fri_load_pack<float, N>(m + i), b = fri_load_pack<float, N>(v + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float x = fri_load(p.v[k]);
            fri_adam_update(c, fri_load(g.v[k]), &x, &a.v[k], &b.v[k]);
            fri_store(&p.v[k], x);
        }
        fri_store_pack<T, N>(param + i, p);
        fri_store_pack<float, N>(m + i, a);
        fri_store_pack<float, N>(v + i, b);
    } else {
        for (; i < d.n; i++) {
            float x = fri_load(param[i]);
            fri_adam_update(c, fri_load(grad[i]), &x, &m[i], &v[i]);
            fri_store(&param[i], x);
        }
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_adam(const fri_exec *e, const fri_adam_desc *d, void *param, const void *grad, void *m,
                                   void *v, const float *count, const float *inv_scale, const float *found) {
    constexpr int N = 4; /* 16 bytes of f32 */
    if (d->n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "adam", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "adam", {
                        if (fri_aligned(param, N * sizeof(T)) && fri_aligned(grad, N * sizeof(G)) &&
                            fri_aligned(m, 16) && fri_aligned(v, 16))
                            step<T, G, N><<<fri_blocks(fri_ceil_div(d->n, N)), FRI_THREADS, 0, fri_stream(e)>>>(
                                *d, (T *)param, (const G *)grad, (float *)m, (float *)v, count, inv_scale, found);
                        else
                            step<T, G, 1><<<fri_blocks(d->n), FRI_THREADS, 0, fri_stream(e)>>>(*d, (T *)param,
                                                                                               (const G *)grad,
                                                                                               (float *)m, (float *)v,
                                                                                               count, inv_scale, found);
                    }))
    return fri_cuda_launched("adam");
}
