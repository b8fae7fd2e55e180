/* adam8.cu - Adam on 8-bit moments, over a list of parameters: a block of threads is a block of FRI_SCALE_BLOCK
 * elements.
 *   adam8   n * (2 * p + g + 4) + 16 * ceil(n / 256) bytes     p, g = bytes of an element of the parameter, gradient
 *
 * All but the gradient is read and written: 4 are two codes, 16 two scales. The maps (2 KiB per thread block) come from
 * the cache. Widen, step, find the new scales, narrow: between the two codes of an element nothing leaves the
 * registers. */
#include "codes.cuh"
#include "step.cuh"

static_assert(sizeof(fri_step_list) + sizeof(fri_adam_desc) + 3 * sizeof(void *) <= FRI_PARAMETER_BYTES,
              "kernel parameters");

/* ---- kernels ----------------------------------------------------------------------------------------------- */

template <typename T, typename G>
__global__ void __launch_bounds__(FRI_THREADS) step(const __grid_constant__ fri_step_list all, fri_adam_desc d,
                                                    const float *maps, const float *inv_scale, const float *found) {
    __shared__ fri_device_code_map map[2];
    __shared__ float part[FRI_THREADS / 32];
    __shared__ fri_adam_coef shared;
    const int t = (int)threadIdx.x;
    if (found != NULL && *found != 0) return;
    for (int k = 0; k < 2; k++) fri_device_code_map_read(maps + k * 256, &map[k]);
    const fri_chunk at = fri_chunk_of(all, FRI_CODES_BLOCKS * FRI_SCALE_BLOCK);
    const fri_step_item &item = all.item[at.item];
    if (t == 0) shared = fri_adam_coef_of(&d, *item.step, fri_step_scale(inv_scale));
    __syncthreads();
    const fri_adam_coef c = shared;
    T *param = (T *)item.param;
    const G *grad = (const G *)item.grad;
    uint8_t *m_code = (uint8_t *)item.state[0], *v_code = (uint8_t *)item.state[2];
    float *m_absmax = (float *)item.state[1], *v_absmax = (float *)item.state[3];
    for (int64_t first = at.begin; first < at.end; first += FRI_SCALE_BLOCK) {
        const int64_t i = first + t, block = first / FRI_SCALE_BLOCK;
        const bool inside = i < at.end;
        float m = 0, v = 0;
        if (inside) {
            float p = fri_load(param[i]);
            m = map[0].value[m_code[i]] * m_absmax[block];
            v = map[1].value[v_code[i]] * v_absmax[block];
            fri_adam_update(c, fri_load(grad[i]), &p, &m, &v);
            fri_store(&param[i], p);
        }
        /* Both sums wait for all threads, so all threads have read the old scale before thread 0 writes the new. */
        const float m_most = fri_block_largest(m, part), v_most = fri_block_largest(v, part);
        if (inside) {
            m_code[i] = fri_code_of(&map[0], m, m_most);
            v_code[i] = fri_code_of(&map[1], v, v_most);
        }
        if (t == 0) {
            m_absmax[block] = m_most;
            v_absmax[block] = v_most;
        }
    }
}

/* ---- launchers --------------------------------------------------------------------------------------------- */

extern "C" fr_status fri_cuda_adam8(const fri_exec *e, const fri_adam_desc *d, const float *maps, int count,
                                    const fri_step_item *items, const float *inv_scale, const float *found) {
    return fri_step_launch(
        e, "adam8", d, count, items,
        [](auto t, auto g) {
            auto run = step<decltype(t), decltype(g)>;
            return fri_step_kernel<decltype(run)>{run, FRI_CODES_BLOCKS * FRI_SCALE_BLOCK};
        },
        maps, inv_scale, found);
}
