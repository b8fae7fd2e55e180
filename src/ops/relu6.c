/* relu6 - rectifier with a ceiling (Krizhevsky, 2010; MobileNetV2).
 *   forward    y = min(max(x, 0), 6), NaN passes
 *   backward   dx = dy where 0 < y < 6, else 0     (needs to know which elements pass)
 *   saves      which elements of y pass: shared with y, then 1 bit
 *   kink       at x = 0 and x = 6, and where x is NaN, the gradient is 0; gradcheck keeps away from both
 *   order      deterministic on all backends */
#include "ops/frame.h"

#include "base/status.h"

FRI_UNARY_KERNEL(relu6_forward)

fr_described fri_op_relu6 = {.op = {.name = "relu6"},
                             .operands = "x[*] > y[*]=x",
                             .forward = {{"x > y", &relu6_forward_kernel}},
                             .backward = {{"y dy > dx", .mask = FR_SAVE_RELU6}},
                             .rebuilds = true};

fr_status fr_relu6(fr_tensor *x, fr_tensor **y) {
    return fri_frame_call(&fri_op_relu6, &x, NULL, 0, y);
}

fr_status fr_relu6_inplace(fr_tensor *x) {
    return fri_frame_inplace(&fri_op_relu6, x, NULL, 0);
}
