/* sgd8.cu - SGD on an 8-bit momentum, over a list of parameters: a block of threads is a block of FRI_SCALE_BLOCK
 * elements.
 *   sgd8   n * (2 * p + g + 2) + 8 * ceil(n / 256) bytes     p, g = bytes of an element of the parameter, gradient
 *
 * All but the gradient is read and written: 2 are a code, 8 a scale. Widen, step, find the new scale, narrow: between
 * the two codes of an element nothing leaves the registers. */
#include "codes.cuh"

/* ---- kernels ----------------------------------------------------------------------------------------------- */

typedef fri_list<fri_step_item, FRI_STEP_ITEMS> list;
static_assert(sizeof(list) + sizeof(fri_sgd_desc) + 3 * sizeof(void *) <= FRI_PARAMETER_BYTES, "kernel parameters");

template <typename T, typename G>
__global__ void __launch_bounds__(FRI_THREADS) step(const __grid_constant__ list all, fri_sgd_desc d,
                                                    const float *values, const float *inv_scale, const float *found) {
    __shared__ fri_code_map map;
    __shared__ float part[FRI_THREADS / 32];
    const int t = (int)threadIdx.x;
    if (found != NULL && *found != 0) return;
    fri_code_map_read(values, &map);
    const fri_chunk at = fri_chunk_of(all, FRI_CODES_BLOCKS * FRI_SCALE_BLOCK);
    const fri_step_item &item = all.item[at.item];
    const fri_sgd_coef c = fri_sgd_coef_of(&d, inv_scale != NULL ? *inv_scale : 1.0f);
    __syncthreads();
    T *param = (T *)item.param;
    const G *grad = (const G *)item.grad;
    uint8_t *code = (uint8_t *)item.state[0];
    float *absmax = (float *)item.state[1];
    for (int64_t first = at.begin; first < at.end; first += FRI_SCALE_BLOCK) {
        const int64_t i = first + t, block = first / FRI_SCALE_BLOCK;
        const bool inside = i < at.end;
        float b = 0;
        if (inside) {
            const float p = fri_load(param[i]), g = fri_sgd_gradient(c, p, fri_load(grad[i]));
            b = fri_sgd_momentum(c, g, map.value[code[i]] * absmax[block]);
            fri_store(&param[i], fri_sgd_step(c, p, g, b));
        }
        /* Waits for all threads, so every old scale has been read before thread 0 writes the new one. */
        const float most = fri_block_largest(b, part);
        if (inside) code[i] = fri_code_of(&map, b, most);
        if (t == 0) absmax[block] = most;
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_sgd8(const fri_exec *e, const fri_sgd_desc *d, const float *map, int count,
                                   const fri_step_item *items, const float *inv_scale, const float *found) {
    list all;
    FRI_FLOAT_TYPES(d->dtype, "sgd8", FRI_FLOAT_TYPES_AS(G, d->grad_dtype, "sgd8", {
                        for (int at = 0; at < count;) {
                            const unsigned blocks =
                                fri_list_fill(&all, count, items, FRI_CODES_BLOCKS * FRI_SCALE_BLOCK, &at);
                            if (blocks > 0)
                                step<T, G><<<blocks, FRI_THREADS, 0, fri_stream(e)>>>(all, *d, map, inv_scale, found);
                        }
                    }))
    return fri_cuda_launched("sgd8");
}
