/* avgpool2d - average over windows.
 *   forward    y = sum of x over the window / number of positions (with or without the padding)
 *   backward   every position of the window gets dy / number of positions
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(avgpool2d_forward, fri_pool2d_desc, (e, d, T(0), T(1)), .fri_more = &fri_pool2d_more)
FRI_OP_KERNEL(avgpool2d_backward, fri_pool2d_desc, (e, d, T(0), T(1)), .fri_more = &fri_pool2d_more)

fr_described fri_op_avgpool2d = {.op = {.name = "avgpool2d"},
                                 .operands = "x[n,h,w,c] > y[n,p,q,c]",
                                 .forward = {{"x > y", &avgpool2d_forward_kernel}},
                                 .backward = {{"dy > dx", &avgpool2d_backward_kernel}}};

fr_status fr_avgpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_pool2d_desc d;
    FRI_TRY(fri_frame_begin(&f, &fri_op_avgpool2d, &x, y));
    FRI_TRY(fri_pool2d_describe(&f, kernel, opts != NULL ? opts : FR_POOL2D_OPTS(), &d));
    return fri_frame_run(&f, &d, sizeof d, y);
}
