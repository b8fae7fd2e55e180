/* softmax, log_softmax - over the last dimension, a row.
 *   forward    y = exp(x) / sum(exp(x)); log_softmax: y = x - log(sum(exp(x)))
 *   backward   dx = y * (dy - sum(y * dy)); log_softmax: dx = dy - exp(y) * sum(dy)
 *   saves      y
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   order      deterministic
 *   autocast   f32 */
#include "ops/op.h"

static fri_loss_desc rows_of(const fr_tensor *x) {
    const int64_t classes = x->shape.dim[x->shape.rank - 1];
    return (fri_loss_desc){.dtype = x->dtype, .rows = classes > 0 ? fri_numel(x) / classes : 0, .classes = classes};
}

static fr_status values(const void *logarithm, const fr_tensor *x, fr_tensor *y) {
    const fri_loss_desc d = rows_of(x);
    return FRI_KERNEL(fri_backend_of(x), d.dtype, softmax_forward,
                      (FRI_EXEC, &d, *(const bool *)logarithm, fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const bool *logarithm = fr_node_params(node);
    const fri_loss_desc d = rows_of(*dy);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *y = NULL;
    FRI_TRY(fr_node_saved(node, 0, &y));
    FRI_TRY(fri_gradient_like(*dy, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), d.dtype, softmax_backward,
                       (FRI_EXEC, &d, *logarithm, fri_data(y), fri_data(*dy), fri_data(dx))));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

#define ROWS .autocast = FR_AUTOCAST_F32, .backward = backward, FRI_UNARY
static const fri_unary softmax = {{.name = "softmax", ROWS}, values, FRI_SAVES_Y, FR_SAVE_VALUE};
static const fri_unary log_softmax = {{.name = "log_softmax", ROWS}, values, FRI_SAVES_Y, FR_SAVE_VALUE};

static fr_status call_softmax(const fri_unary *u, bool logarithm, fr_tensor *x, fr_tensor **y) {
    if (x->shape.rank < 1) return fr_fail(FR_ESHAPE, "%s: x has rank 0; at least 1 is needed", u->op.name);
    return fri_unary_call(u, &logarithm, sizeof logarithm, x, y);
}

fr_status fr_softmax(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return call_softmax(&softmax, false, x, y);
}

fr_status fr_log_softmax(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return call_softmax(&log_softmax, true, x, y);
}
