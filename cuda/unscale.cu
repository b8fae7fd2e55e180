/* unscale.cu - what the loss scaler and gradient clipping need; size = bytes of an element.
 *   unscale        2 * n * size bytes             n * size where the factor is 1 or absent
 *   norm_squared   n * size + 16 * blocks bytes   x; an f64 per block, written and read (reduce.cuh) */
#include "reduce.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

/* Only inf and NaN do not vanish when taken from themselves. Threads that find one all write the same number. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    check_and_multiply(int64_t n, const float *inv_scale, T *x, float *found) {
    const float factor = inv_scale != NULL ? *inv_scale : 1;
    int64_t i = ((int64_t)blockIdx.x * FRI_THREADS + threadIdx.x) * N;
    bool bad = false;
    if (i + N <= n) {
        fri_pack<T, N> p = fri_load_pack<T, N>(x + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float v = fri_load(p.v[k]);
            bad |= v - v != 0;
            fri_store(&p.v[k], v * factor);
        }
        if (factor != 1) fri_store_pack<T, N>(x + i, p);
    } else {
        for (; i < n; i++) {
            float v = fri_load(x[i]);
            bad |= v - v != 0;
            if (factor != 1) fri_store(&x[i], v * factor);
        }
    }
    if (bad) *found = 1;
}

struct square_of {
    __device__ double operator()(double a, double) const {
        return a * a;
    }
};

struct add_to {
    double *out;
    __device__ void operator()(double sum) const {
        *out += sum;
    }
};

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_unscale(const fri_exec *e, fr_dtype dtype, int64_t n, const float *inv_scale, void *x,
                                      float *found) {
    if (n == 0) return FR_OK;
    FRI_FLOAT_TYPES(dtype, "unscale", constexpr int N = 16 / sizeof(T); if (fri_aligned(x, 16)) check_and_multiply<T, N>
                    <<<fri_blocks(fri_ceil_div(n, N)), FRI_THREADS, 0, fri_stream(e)>>>(n, inv_scale, (T *)x, found);
                    else check_and_multiply<T, 1>
                    <<<fri_blocks(n), FRI_THREADS, 0, fri_stream(e)>>>(n, inv_scale, (T *)x, found);)
    return fri_cuda_launched("unscale");
}

extern "C" fr_status fri_cuda_norm_squared(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, double *out) {
    FRI_FLOAT_TYPES(dtype, "norm_squared",
                    return fri_launch_reduce<T>(e, "norm_squared", n, x, x, square_of{}, add_to{out});)
}
