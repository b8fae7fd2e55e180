/* scale - multiplication by a constant.
 *   forward    y = alpha * x
 *   backward   dx = alpha * dy
 *   saves      nothing
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   order      deterministic */
#include "ops/op.h"

static fr_status values(const void *alpha, const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, scale,
                      (FRI_EXEC, x->dtype, fri_numel(x), *(const double *)alpha, fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(*dy, &dx));
    FR_TRY(s, values(fr_node_params(node), *dy, dx));
    fr_tensor_release(dy);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&dx);
    return s;
}

static const fri_unary scale = {{.name = "scale", .backward = backward, FRI_UNARY}, values, FRI_SAVES_NOTHING, 0};

fr_status fr_scale(fr_tensor *x, double alpha, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_unary_call(&scale, &alpha, sizeof alpha, x, false, y);
}

fr_status fr_scale_inplace(fr_tensor *x, double alpha) {
    FRI_NOT_NULL(x);
    return fri_unary_inplace(&scale, &alpha, sizeof alpha, x);
}
