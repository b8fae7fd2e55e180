/* activation - the activations of FRI_ACTIVATIONS, and clamp; formulas in backend/arith.h.
 *   forward    y = f(x)
 *   backward   dx = dy f'(x); sigmoid, tanh and elu from y
 *   kink       hardsigmoid, hardswish at x = -3 and 3, where dx is 0, or dy for hardswish at 3; clamp at its bounds,
 *              where dx is 0; as PyTorch
 *   order      deterministic */
#include "backend/arith.h"
#include "ops/frame.h"

#include "base/status.h"

#define X "x"
#define Y "y"
#define ACTIVATION(word, saves, ...)                                                            \
    FRI_UNARY_KERNEL(word##_forward)                                                            \
    FRI_BINARY_KERNEL(word##_backward)                                                          \
    fr_described fri_op_##word = {.op = {.name = #word},                                        \
                                  .operands = "x[*] > y[*]=x",                                  \
                                  .forward = {{"x > y", &word##_forward_kernel}},               \
                                  .backward = {{saves " dy > dx=dy", &word##_backward_kernel}}, \
                                  .rebuilds = true};                                            \
    fr_status fr_##word(fr_tensor *x, fr_tensor **y) {                                          \
        return fri_frame_call(&fri_op_##word, &x, NULL, 0, y);                                  \
    }
FRI_ACTIVATIONS(ACTIVATION)

FRI_OP_KERNEL(clamp_forward, double, (e, c->dtype, N(0), d[0], d[1], T(0), T(1)), .flops = 2)
FRI_OP_KERNEL(clamp_backward, double, (e, c->dtype, N(0), d[0], d[1], T(0), T(1), T(2)), .flops = 2)

fr_described fri_op_clamp = {.op = {.name = "clamp"},
                             .operands = "x[*] > y[*]=x",
                             .forward = {{"x > y", &clamp_forward_kernel}},
                             .backward = {{"x dy > dx=dy", &clamp_backward_kernel}},
                             .rebuilds = true};

fr_status fr_clamp(fr_tensor *x, double low, double high, fr_tensor **y) {
    const double bounds[2] = {low, high};
    if (!(low <= high)) return fr_fail(FR_EINVAL, "clamp: low is %g and high is %g; low must be <= high", low, high);
    return fri_frame_call(&fri_op_clamp, &x, bounds, sizeof bounds, y);
}
