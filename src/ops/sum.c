/* sum, mean - reductions to a scalar.
 *   forward    y = alpha * sum of x, alpha = 1 or 1 / numel; summed in f32 or wider over fixed chunks
 *   backward   dx = alpha * dy everywhere
 *   order      deterministic: chunks depend on the size only
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_BYTES(sum_workspace, double, (c->dtype, N(0)))
FRI_OP_KERNEL(sum, double, (e, c->dtype, N(0), *d, T(0), T(1)), .workspace = sum_workspace_bytes, .flops = 1,
              .moves = 1)
FRI_OP_KERNEL(broadcast, double, (e, c->dtype, N(1), *d, T(0), T(1)), .flops = 1, .moves = 1, .unit = 1)

#define REDUCTION(word)                                                               \
    fr_described fri_op_##word = {.op = {.name = #word, .autocast = FR_AUTOCAST_F32}, \
                                  .operands = "x[*] > y[]",                           \
                                  .forward = {{"x > y", &sum_kernel}},                \
                                  .backward = {{"dy > dx", &broadcast_kernel}}};
REDUCTION(sum)
REDUCTION(mean)

fr_status fr_sum(fr_tensor *x, fr_tensor **y) {
    return fri_frame_call(&fri_op_sum, &x, &(double){1}, sizeof(double), y);
}

fr_status fr_mean(fr_tensor *x, fr_tensor **y) {
    const double alpha = x != NULL ? 1.0 / (double)fri_numel(x) : 1;
    return fri_frame_call(&fri_op_mean, &x, &alpha, sizeof alpha, y);
}
