/* matmul - product of matrices: a linear layer's kernels, each in another one's place.
 *   forward    y = a b                        (how a linear layer makes dx from dy and w)
 *   backward   da = dy b^T;  db = a^T dy      (its forward pass; its dw)
 *   order      db first, then a is given up, then da is made
 *   autocast   low precision */
#include "ops/frame.h"

#include "base/status.h"

fr_described fri_op_matmul = {.op = {.name = "matmul", .autocast = FR_AUTOCAST_LOW},
                              .operands = "a[*,k] b[k,n] > y[*,n]",
                              .forward = {{"b a > y", &fri_linear_input}},
                              .backward = {{"dy a > . db", &fri_linear_weight}, {"dy b . > da", &fri_linear_forward}},
                              .costly = true};

fr_status fr_matmul(fr_tensor *a, fr_tensor *b, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_matmul, (fr_tensor *[]){a, b}, y));
    const fri_linear_desc d = {f.dtype, f.dtype, fri_shape_numel(&f.any), FRI_SIZE(f, 'n'), FRI_SIZE(f, 'k'), false};
    return fri_frame_run(&f, &d, sizeof d, y);
}
