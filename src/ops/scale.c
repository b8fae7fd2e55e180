/* scale, add_scalar - multiplication by a constant, addition of one.
 *   forward    y = alpha * x; y = x + alpha
 *   backward   dx = alpha * dy; dx = dy (the same tensor)
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
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    FRI_TRY(fri_gradient_like(*dy, &dx));
    FRI_TRY(values(fr_node_params(node), *dy, dx));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static const fri_unary scale = {{.name = "scale", .backward = backward, FRI_UNARY}, values, FRI_SAVES_NOTHING, 0};

static fr_status sum_values(const void *alpha, const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, add_scalar,
                      (FRI_EXEC, x->dtype, fri_numel(x), *(const double *)alpha, fri_data(x), fri_data(y)));
}

static fr_status sum_backward(fr_node *node, fr_tensor **dy) {
    return fr_node_grad(node, 0, dy);
}

static const fri_unary add_scalar = {{.name = "add_scalar", .backward = sum_backward, FRI_UNARY},
                                     sum_values,
                                     FRI_SAVES_NOTHING,
                                     0};

fr_status fr_scale(fr_tensor *x, double alpha, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_unary_call(&scale, &alpha, sizeof alpha, x, y);
}

fr_status fr_scale_inplace(fr_tensor *x, double alpha) {
    FRI_NOT_NULL(x);
    return fri_unary_inplace(&scale, &alpha, sizeof alpha, x);
}

fr_status fr_add_scalar(fr_tensor *x, double alpha, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_unary_call(&add_scalar, &alpha, sizeof alpha, x, y);
}

fr_status fr_add_scalar_inplace(fr_tensor *x, double alpha) {
    FRI_NOT_NULL(x);
    return fri_unary_inplace(&add_scalar, &alpha, sizeof alpha, x);
}
