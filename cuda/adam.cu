/* adam.cu - torch.optim.Adam and AdamW in one pass over a list of parameters, the gradient unscaled on the way in; m
 * and v are f32.
 *   adam   n * (2 * p + g + 16) bytes     p, g = bytes of an element of the parameter, of the gradient; 16: m, v
 *
 * All but the gradient is read and written: 28 n bytes in f32. After an overflow no data is read or written; the device
 * decides. */
#include "step.cuh"

static_assert(sizeof(fri_step_list) + sizeof(fri_adam_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES,
              "kernel parameters");

template <typename T, typename G, int N>
__global__ void __launch_bounds__(FRI_THREADS, FRI_STEP_BLOCKS)
    step(const __grid_constant__ fri_step_list all, fri_adam_desc d, const float *inv_scale, const float *found) {
    __shared__ fri_adam_coef shared; /* two powers in f64, computed by a single thread */
    fri_adam_coef c;
    if (found != NULL && *found != 0) return;
    fri_step_walk<T, G, float, N, 2>(
        all, false,
        [&](const fri_step_item &item) {
            if (threadIdx.x == 0) shared = fri_adam_coef_of(&d, *item.step, fri_step_scale(inv_scale));
            __syncthreads();
            c = shared;
        },
        [&](float g, float *x, float *s) { fri_adam_update(c, g, x, &s[0], &s[1]); });
}

extern "C" fr_status fri_cuda_adam(const fri_exec *e, const fri_adam_desc *d, int count, const fri_step_item *items,
                                   const float *inv_scale, const float *found) {
    return fri_step_launch(
        e, "adam", d, count, items,
        [](auto t, auto g) { return fri_step_walker<4>(step<decltype(t), decltype(g), 4>); }, inv_scale, found);
}
