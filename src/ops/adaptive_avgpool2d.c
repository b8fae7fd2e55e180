/* adaptive_avgpool2d - average pooling to a given output size; 1 x 1 is global average pooling.
 *   forward    y[i] = mean of x over floor(i H / P) .. ceil((i + 1) H / P), likewise the width
 *   backward   every position of a window gets dy / size of the window
 *   order      deterministic */
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(adaptive_avgpool2d_forward, fri_pool2d_desc, (e, d, T(0), T(1)), .fri_more = &fri_pool2d_more)
FRI_OP_KERNEL(adaptive_avgpool2d_backward, fri_pool2d_desc, (e, d, T(0), T(1)), .fri_more = &fri_pool2d_more)

fr_described fri_op_adaptive_avgpool2d = {.op = {.name = "adaptive_avgpool2d"},
                                          .operands = "x[n,h,w,c] > y[n,p,q,c]",
                                          .forward = {{"x > y", &adaptive_avgpool2d_forward_kernel}},
                                          .backward = {{"dy > dx", &adaptive_avgpool2d_backward_kernel}}};

fr_status fr_adaptive_avgpool2d(fr_tensor *x, int64_t p, int64_t q, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_adaptive_avgpool2d, &x, y));
    const int64_t h = FRI_SIZE(f, 'h'), w = FRI_SIZE(f, 'w');
    if (p < 1 || q < 1 || h < 1 || w < 1)
        return fr_fail(FR_EINVAL, "adaptive_avgpool2d: from %lld x %lld to %lld x %lld pixels; all must be >= 1",
                       (long long)h, (long long)w, (long long)p, (long long)q);
    const fri_pool2d_desc d = {.dtype = f.dtype,
                               .n = FRI_SIZE(f, 'n'),
                               .h = h,
                               .w = w,
                               .c = FRI_SIZE(f, 'c'),
                               .p = FRI_SIZE(f, 'p') = p,
                               .q = FRI_SIZE(f, 'q') = q};
    return fri_frame_run(&f, &d, sizeof d, y);
}
