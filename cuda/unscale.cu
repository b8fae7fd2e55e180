/* unscale.cu - what the loss scaler and gradient clipping need; size = bytes of an element.
 *   unscale        2 * n * size bytes             over a list of arrays; n * size where the factor is 1 or absent
 *   norm_squared   n * size + 16 * blocks bytes   x; an f64 per block, written and read (reduce.cuh) */
#include "multi.cuh"
#include "reduce.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_array, FRI_UNSCALE_ARRAYS> list;
static_assert(sizeof(list) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

/* Only inf and NaN do not vanish when taken from themselves. Threads that find one all write the same number. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    check_and_multiply(const __grid_constant__ list all, const float *inv_scale, float *found) {
    const float factor = inv_scale != NULL ? *inv_scale : 1;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    T *x = (T *)all.item[at.item].data;
    const bool packed = fri_aligned_here(x, N * sizeof(T));
    int64_t i = at.begin + threadIdx.x * N;
    bool bad = false;
    for (; packed && i + N <= at.end; i += FRI_THREADS * N) {
        fri_pack<T, N> p = fri_load_pack<T, N>(x + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float v = fri_load(p.v[k]);
            bad |= v - v != 0;
            fri_store(&p.v[k], v * factor);
        }
        if (factor != 1) fri_store_pack<T, N>(x + i, p);
    }
    const int64_t stride = packed ? 1 : (int64_t)FRI_THREADS;
    for (i = packed ? i : at.begin + threadIdx.x; i < at.end; i += stride) {
        float v = fri_load(x[i]);
        bad |= v - v != 0;
        if (factor != 1) fri_store(&x[i], v * factor);
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

extern "C" fr_status fri_cuda_unscale(const fri_exec *e, fr_dtype dtype, int count, const fri_array *arrays,
                                      const float *inv_scale, float *found) {
    list all;
    FRI_FLOAT_TYPES(dtype, "unscale", {
        constexpr int N = 16 / sizeof(T);
        for (int at = 0; at < count;) {
            const unsigned blocks = fri_list_fill(&all, count, arrays, FRI_STEP_PACKS * FRI_THREADS * N, &at);
            if (blocks > 0) check_and_multiply<T, N><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, inv_scale, found);
        }
    })
    return fri_cuda_launched("unscale");
}

extern "C" fr_status fri_cuda_norm_squared(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, double *out) {
    FRI_FLOAT_TYPES(dtype, "norm_squared",
                    return fri_launch_reduce<T>(e, "norm_squared", n, x, x, square_of{}, add_to{out});)
}
