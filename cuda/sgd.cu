/* sgd.cu - torch.optim.SGD in one pass, the gradient unscaled on the way in.
 *   sgd   n * (4 * p + g) bytes     p, g = bytes of an element of the parameter and its momentum, of the gradient
 *
 * Parameter and momentum are read and written, 20 n bytes in f32; without momentum n * (2 * p + g), at the first step
 * n * (3 * p + g). Where the loss scaler found an overflow nothing is read or written; the decision is made on the
 * device. */
#include "common.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

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
__global__ void __launch_bounds__(FRI_THREADS)
    step(fri_sgd_desc d, T *param, const G *grad, T *buf, const float *inv_scale, const float *found) {
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    if (found != NULL && *found != 0) return;
    const fri_sgd_coef c = fri_sgd_coef_of(&d, inv_scale != NULL ? *inv_scale : 1.0f);
    const bool momentum = buf != NULL;
    if (i + N <= d.n) {
        fri_pack<T, N> p = fri_load_pack<T, N>(param + i), b;
        fri_pack<G, N> g = fri_load_pack<G, N>(grad + i);
        if (momentum && !c.first) b = fri_load_pack<T, N>(buf + i);
#pragma unroll
        for (int k = 0; k < N; k++) update(c, momentum, fri_load(g.v[k]), &p.v[k], &b.v[k]);
        fri_store_pack<T, N>(param + i, p);
        if (momentum) fri_store_pack<T, N>(buf + i, b);
    } else {
        for (; i < d.n; i++) update(c, momentum, fri_load(grad[i]), &param[i], momentum ? &buf[i] : (T *)NULL);
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_sgd(const fri_exec *e, const fri_sgd_desc *d, void *param, const void *grad, void *buf,
                                  const float *inv_scale, const float *found) {
    if (d->n == 0) return FR_OK;
    FRI_FLOAT_TYPES(d->dtype, "sgd", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "sgd", {
                        constexpr int N = 16 / (sizeof(T) > sizeof(G) ? sizeof(T) : sizeof(G));
                        if (fri_aligned(param, N * sizeof(T)) && fri_aligned(grad, N * sizeof(G)) &&
                            fri_aligned(buf, N * sizeof(T)))
                            step<T, G, N>
                                <<<fri_blocks(fri_ceil_div(d->n, N)), FRI_THREADS, 0, fri_stream(e)>>>(*d, (T *)param,
                                                                                                       (const G *)grad,
                                                                                                       (T *)buf,
                                                                                                       inv_scale,
                                                                                                       found);
                        else
                            step<T, G, 1>
                                <<<fri_blocks(d->n), FRI_THREADS, 0, fri_stream(e)>>>(*d, (T *)param, (const G *)grad,
                                                                                      (T *)buf, inv_scale, found);
                    }))
    return fri_cuda_launched("sgd");
}
