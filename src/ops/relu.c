/* relu - rectifier.
 *   forward    y = max(x, 0), NaN passes
 *   backward   dx = dy where !(y <= 0), else 0          (needs the sign of y only)
 *   saves      the sign of y: shared with y, then 1 bit, or nothing if a max pool takes the mask over
 *   kink       at x = 0 the gradient is 0; gradcheck keeps |x| > 1e-2
 *   order      deterministic on all backends */
#include "ops/frame.h"

#include "base/status.h"

FRI_UNARY_KERNEL(relu_forward)

fr_described fri_op_relu = {.op = {.name = "relu"},
                            .operands = "x[*] > y[*]=x",
                            .forward = {{"x > y", &relu_forward_kernel}},
                            .backward = {{"y dy > dx", .mask = FR_SAVE_MASK}},
                            .rebuilds = true};

fr_status fr_relu(fr_tensor *x, fr_tensor **y) {
    return fri_frame_call(&fri_op_relu, &x, NULL, 0, y);
}

fr_status fr_relu_inplace(fr_tensor *x) {
    return fri_frame_inplace(&fri_op_relu, x, NULL, 0);
}
