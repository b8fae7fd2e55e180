/* leaky_relu - rectifier with a slope on the negative side (Maas et al., 2013).
 *   forward    y = x where x > 0, else slope * x           (0 <= slope)
 *   backward   dx = dy where y > 0, else slope * dy       (y and x have the same sign)
 *   saves      the sign of y: shared with y, later 1 bit per element
 *   kink       at x = 0 the gradient is slope * dy, as PyTorch
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

#include <math.h>

FRI_OP_KERNEL(leaky_relu_forward, double, (e, c->dtype, N(0), *d, T(0), T(1)), .flops = 1)

fr_described fri_op_leaky_relu = {.op = {.name = "leaky_relu"},
                                  .operands = "x[*] > y[*]=x",
                                  .forward = {{"x > y", &leaky_relu_forward_kernel}},
                                  .backward = {{"y dy > dx", .mask = FR_SAVE_SIGN}},
                                  .rebuilds = true};

static fr_status check_slope(double slope) {
    if (slope >= 0 && isfinite(slope)) return FR_OK;
    return fr_fail(FR_EINVAL, "leaky_relu: slope is %g; it must be >= 0, so that the sign of y is the sign of x",
                   slope);
}

fr_status fr_leaky_relu(fr_tensor *x, double slope, fr_tensor **y) {
    FRI_TRY(check_slope(slope));
    return fri_frame_call(&fri_op_leaky_relu, &x, &slope, sizeof slope, y);
}

fr_status fr_leaky_relu_inplace(fr_tensor *x, double slope) {
    FRI_TRY(check_slope(slope));
    return fri_frame_inplace(&fri_op_leaky_relu, x, &slope, sizeof slope);
}
