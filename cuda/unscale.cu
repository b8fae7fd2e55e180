/* unscale.cu - what the loss scaler and gradient clipping need; size = bytes of an element.
 *   unscale        2 * n * size bytes             over a list of arrays; n * size where the factor is 1 or absent
 *   norm_squared   n * size + 16 * blocks bytes   over a list of arrays; an f64 per block, written and read
 * A block of norm_squared adds a unit; one block adds the units in order. */
#include "multi.cuh"
#include "reduce.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_array, FRI_UNSCALE_ARRAYS> list;
static_assert(sizeof(list) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

/* x - x is 0 unless x is inf or NaN. Threads that find such an x all write the same number. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS)
    check_and_multiply(const __grid_constant__ list all, const float *inv_scale, float *found) {
    const float factor = inv_scale != NULL ? *inv_scale : 1;
    const fri_chunk at = fri_chunk_of(all, FRI_STEP_PACKS * FRI_THREADS * N);
    T *x = (T *)all.item[at.item].data;
    bool bad = false;
    fri_chunk_each<N>(at, fri_aligned_here(x, N * sizeof(T)), [&](int64_t i, auto width) {
        constexpr int M = decltype(width)::value;
        fri_pack<T, M> p = fri_load_pack<T, M>(x + i);
#pragma unroll
        for (int k = 0; k < M; k++) {
            float v = fri_load(p.v[k]);
            bad |= v - v != 0;
            fri_store(&p.v[k], v * factor);
        }
        if (factor != 1) fri_store_pack<T, M>(x + i, p);
    });
    if (bad) *found = 1;
}

/* partial[block] = sum of the squares of its unit. */
template <typename T, int N>
__global__ void __launch_bounds__(FRI_THREADS) squares(const __grid_constant__ list all, double *partial) {
    const fri_chunk at = fri_chunk_of(all, FRI_NORM_UNIT);
    const T *x = (const T *)all.item[at.item].data;
    double sum = 0;
    fri_chunk_each<N>(at, fri_aligned_here(x, N * sizeof(T)), [&](int64_t i, auto width) {
        constexpr int M = decltype(width)::value;
        fri_pack<T, M> p = fri_load_pack<T, M>(x + i);
#pragma unroll
        for (int k = 0; k < M; k++) sum += (double)fri_load(p.v[k]) * (double)fri_load(p.v[k]);
    });
    sum = fri_block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* *out += the arrays' sums one by one, each array's units in order. One thread adds; the other threads load
 * the values ahead, so that the additions do not wait for memory. */
__global__ void __launch_bounds__(FRI_THREADS)
    add_units(const __grid_constant__ list all, unsigned blocks, const double *partial, double *out) {
    __shared__ double fetched[FRI_THREADS];
    double total = *out, sum = 0; /* of one thread */
    int item = 0;
    for (unsigned at = 0; at < blocks; at += FRI_THREADS) {
        if (at + threadIdx.x < blocks) fetched[threadIdx.x] = partial[at + threadIdx.x];
        __syncthreads();
        for (unsigned i = at; threadIdx.x == 0 && i < blocks && i < at + FRI_THREADS; i++) {
            if (item + 1 < all.count && i == all.first[item + 1]) {
                total += sum;
                sum = 0;
                item++;
            }
            sum += fetched[i - at];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = total + sum;
}

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

/* An f64 for each block of the largest launch. */
extern "C" size_t fri_cuda_norm_squared_workspace(fr_dtype dtype, int count, const fri_array *arrays) {
    list all;
    size_t most = 0;
    (void)dtype;
    for (int at = 0; at < count;) {
        const unsigned blocks = fri_list_fill(&all, count, arrays, FRI_NORM_UNIT, &at);
        most = blocks > most ? blocks : most;
    }
    return most * sizeof(double);
}

extern "C" fr_status fri_cuda_norm_squared(const fri_exec *e, fr_dtype dtype, int count, const fri_array *arrays,
                                           double *out) {
    double *partial = (double *)e->workspace;
    list all;
    fr_status s = fri_cuda_workspace(e, "norm_squared", fri_cuda_norm_squared_workspace(dtype, count, arrays));
    if (s < 0) return s;
    FRI_FLOAT_TYPES(dtype, "norm_squared", {
        constexpr int N = 16 / sizeof(T);
        for (int at = 0; at < count;) {
            const unsigned blocks = fri_list_fill(&all, count, arrays, FRI_NORM_UNIT, &at);
            if (blocks == 0) continue;
            squares<T, N><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, partial);
            add_units<<<1, FRI_THREADS, 0, fri_stream(e)>>>(all, blocks, partial, out);
        }
    })
    return fri_cuda_launched("norm_squared");
}
