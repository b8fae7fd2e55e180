/* rmsprop.cu - torch.optim.RMSprop in one pass over a list of parameters, the gradient unscaled on the way in; its
 * one to three states are f32.
 *   rmsprop   n * (2 * p + g + 8 * states) bytes     p, g = bytes of an element of the parameter, of the gradient
 *
 * All but the gradient is read and written: 20 n bytes in f32 with one state. Where the loss scaler found an overflow
 * nothing is read or written; the decision is made on the device. */
#include "step.cuh"

static_assert(sizeof(fri_step_list) + sizeof(fri_rmsprop_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES,
              "kernel parameters");

template <typename T, typename G, int N, bool MOMENTUM, bool CENTERED>
__global__ void __launch_bounds__(FRI_THREADS, FRI_STEP_BLOCKS - (MOMENTUM || CENTERED)) /* more states: 80 registers */
    step(const __grid_constant__ fri_step_list all, fri_rmsprop_desc d, const float *inv_scale, const float *found) {
    if (found != NULL && *found != 0) return;
    const fri_rmsprop_coef c = fri_rmsprop_coef_of(&d, fri_step_scale(inv_scale));
    fri_step_walk<T, G, float, N, 1 + MOMENTUM + CENTERED>(
        all, false, [](const fri_step_item &) {},
        [&](float g, float *x, float *s) {
            fri_rmsprop_update(c, g, x, s, MOMENTUM ? &s[1] : NULL, CENTERED ? &s[1 + MOMENTUM] : NULL);
        });
}

extern "C" fr_status fri_cuda_rmsprop(const fri_exec *e, const fri_rmsprop_desc *d, int count,
                                      const fri_step_item *items, const float *inv_scale, const float *found) {
    const bool momentum = d->momentum != 0, centered = d->centered;
    return fri_step_launch(
        e, "rmsprop", d, count, items,
        [=](auto t, auto g) {
            typedef decltype(t) T;
            typedef decltype(g) G;
            return fri_step_walker<4>(centered ? (momentum ? step<T, G, 4, true, true> : step<T, G, 4, false, true>)
                                               : (momentum ? step<T, G, 4, true, false> : step<T, G, 4, false, false>));
        },
        inv_scale, found);
}
