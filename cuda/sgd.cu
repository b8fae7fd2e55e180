/* sgd.cu - torch.optim.SGD in one pass over a list of parameters, the gradient unscaled on the way in.
 *   sgd   n * (4 * p + g) bytes     p, g = bytes of an element of the parameter and its momentum, of the gradient
 *
 * Parameter and momentum are read and written, 20 n bytes in f32; without momentum n * (2 * p + g), at the first step
 * n * (3 * p + g). Where the loss scaler found an overflow nothing is read or written; the decision is made on the
 * device. */
#include "step.cuh"

static_assert(sizeof(fri_step_list) + sizeof(fri_sgd_desc) + 2 * sizeof(void *) <= FRI_PARAMETER_BYTES,
              "kernel parameters");

template <typename T, typename G, int N, bool MOMENTUM>
__global__ void __launch_bounds__(FRI_THREADS, FRI_STEP_BLOCKS)
    step(const __grid_constant__ fri_step_list all, fri_sgd_desc d, const float *inv_scale, const float *found) {
    if (found != NULL && *found != 0) return;
    const fri_sgd_coef c = fri_sgd_coef_of(&d, fri_step_scale(inv_scale));
    fri_step_walk<T, G, T, N, MOMENTUM>(
        all, c.first, [](const fri_step_item &) {},
        [&](float g, float *p, float *b) {
            g = fri_sgd_gradient(c, *p, g);
            if (MOMENTUM) {
                *b = fri_sgd_momentum(c, g, *b);
                *p = fri_sgd_step(c, *p, g, *b);
            } else {
                *p = *p - c.lr * g;
            }
        });
}

extern "C" fr_status fri_cuda_sgd(const fri_exec *e, const fri_sgd_desc *d, int count, const fri_step_item *items,
                                  const float *inv_scale, const float *found) {
    const bool momentum = d->momentum != 0;
    return fri_step_launch(
        e, "sgd", d, count, items,
        [=](auto t, auto g) {
            constexpr int N = 16 / (sizeof t > sizeof g ? sizeof t : sizeof g);
            typedef decltype(t) T;
            typedef decltype(g) G;
            return fri_step_walker<N>(momentum ? step<T, G, N, true> : step<T, G, N, false>);
        },
        inv_scale, found);
}
