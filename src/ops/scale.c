/* scale, add_scalar - multiplication by a constant, addition of one.
 *   forward    y = alpha * x; y = x + alpha
 *   backward   dx = alpha * dy; dx = dy (the same tensor)
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(scale, double, (e, c->dtype, N(0), *d, T(0), T(1)), .flops = 1)
FRI_OP_KERNEL(add_scalar, double, (e, c->dtype, N(0), *d, T(0), T(1)), .flops = 1)

#define SCALED(word, ...)                                                   \
    fr_described fri_op_##word = {.op = {.name = #word},                    \
                                  .operands = "x[*] > y[*]=x",              \
                                  .forward = {{"x > y", &word##_kernel}},   \
                                  .backward = {__VA_ARGS__},                \
                                  .rebuilds = true};                        \
    fr_status fr_##word(fr_tensor *x, double alpha, fr_tensor **y) {        \
        return fri_frame_call(&fri_op_##word, &x, &alpha, sizeof alpha, y); \
    }                                                                       \
    fr_status fr_##word##_inplace(fr_tensor *x, double alpha) {             \
        return fri_frame_inplace(&fri_op_##word, x, &alpha, sizeof alpha);  \
    }
SCALED(scale, {"dy > dx=dy", &scale_kernel})
SCALED(add_scalar, {"dy > dx"})
