/* mse, l1, smooth_l1 - mean squared error, mean absolute error, and what is one near 0 and the other elsewhere.
 *   forward    loss = mean(f(x - t)); mse: f(d) = d^2; l1: |d|; smooth_l1: d^2 / (2 beta) where |d| < beta, else
 *              |d| - beta / 2
 *   backward   dx = f'(x - t) / n * dloss, dt = -dx
 *   kink       l1 at x = t, where dx is 0, as PyTorch
 *   order      deterministic: chunks depend on the size only
 *   autocast   f32 */
#include "ops/frame.h"

#include "base/status.h"

#include <math.h>

/* Options: beta; negative: mse. */
FRI_OP_BYTES(sum_workspace, double, (c->dtype, N(0)))
FRI_OP_KERNEL(mse_forward, double, (e, c->dtype, N(0), *d, T(0), T(1), T(2)), .workspace = sum_workspace_bytes,
              .flops = 3, .moves = 2)
FRI_OP_KERNEL(mse_backward, double, (e, c->dtype, N(0), *d, 1, T(0), T(1), T(2), T(3)), .flops = 3, .moves = 3)
static fr_status target_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    return FRI_KERNEL_SLOT_CALL(c, mse_backward,
                                (&e, c->dtype, N(0), *(const double *)c->options, -1, T(0), T(1), T(2), T(3)));
}
static const fr_kernel target_kernel = {.name = "mse_backward", .run = target_run, .flops = 3, .moves = 3};

#define LOSS(word)                                                                    \
    fr_described fri_op_##word = {.op = {.name = #word, .autocast = FR_AUTOCAST_F32}, \
                                  .operands = "x[*] t[*] > loss[]",                   \
                                  .forward = {{"x t > loss", &mse_forward_kernel}},   \
                                  .backward = {{"x t dloss > dt", &target_kernel},    \
                                               {"x t dloss > dx", &mse_backward_kernel}}};
LOSS(mse)
LOSS(l1)
LOSS(smooth_l1)

static fr_status call_loss(fr_described *op, double beta, fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    return fri_frame_call(op, (fr_tensor *[]){x, t}, &beta, sizeof beta, loss);
}

fr_status fr_mse(fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    return call_loss(&fri_op_mse, -1, x, t, loss);
}

fr_status fr_l1(fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    return call_loss(&fri_op_l1, 0, x, t, loss);
}

fr_status fr_smooth_l1(fr_tensor *x, fr_tensor *t, double beta, fr_tensor **loss) {
    if (!(beta >= 0) || !isfinite(beta))
        return fr_fail(FR_EINVAL, "smooth_l1: beta is %g; it must be >= 0 and finite", beta);
    return call_loss(&fri_op_smooth_l1, beta, x, t, loss);
}
