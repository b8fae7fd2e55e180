/* cast - conversion between element types.
 *   forward    y = x rounded to the type (nearest, ties to even)
 *   backward   dx = dy converted to x's type; a leaf converts by itself (fr_switches.half_gradients)
 *   rebuild    from x; a cast of a leaf (a weight under autocast) always, unless casts are cached
 *   order      deterministic */
#include "ops/casts.h"
#include "ops/frame.h"

#include "base/status.h"

FRI_OP_KERNEL(cast, void, (e, c->t[0]->dtype, c->t[1]->dtype, N(0), T(0), T(1)))

static fr_status backward(fr_node *node, fr_tensor **dy) {
    return node->edges[0].leaf != NULL ? fr_node_grad(node, 0, dy) : fri_frame_backward(node, dy);
}

fr_described fri_op_cast = {.op = {.name = "cast", .backward = backward, .rebuild_from_leaf = true},
                            .operands = "x:any[*] > y:any[*]",
                            .forward = {{"x > y", &cast_kernel}},
                            .backward = {{"dy > dx", &cast_kernel}},
                            .rebuilds = true};

fr_status fr_cast(fr_tensor *x, fr_dtype dtype, fr_tensor **y) {
    FRI_NOT_NULL(y);
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_cast, &x, y));
    if (fr_dtype_size(dtype) == 0) return fr_fail(FR_EDTYPE, "cast: %d is not an element type", (int)dtype);
    if (x->requires_grad && !fr_dtype_is_float(dtype) && fr_grad_enabled())
        return fr_fail(FR_EDTYPE, "cast: x requires grad, but %s has no gradient; detach x first",
                       fr_dtype_name(dtype));
    f.dtype = f.code = dtype;
    if (x->dtype != dtype) return fri_frame_run(&f, NULL, 0, y);
    fr_tensor *same = fr_tensor_retain(x); /* no copy, as in PyTorch */
    fri_tensor_put(&same, y);
    return FR_OK;
}

fr_status fri_cast_given(fr_tensor *x, fr_tensor *given, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_cast, &x, y));
    f.dtype = f.code = given->dtype;
    f.given = given;
    return fri_frame_run(&f, NULL, 0, y);
}
