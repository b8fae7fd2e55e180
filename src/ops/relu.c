/* relu - rectifier.
 *   forward    y = max(x, 0), NaN passes
 *   backward   dx = dy where !(y <= 0), else 0          (needs the sign of y only)
 *   saves      the sign of y: shared with y, then 1 bit, or nothing if a max pool takes the mask over
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 the gradient is 0; gradcheck keeps |x| > 1e-2
 *   order      deterministic on all backends */
#include "ops/op.h"

static fr_status values(const void *unused, const fr_tensor *x, fr_tensor *y) {
    (void)unused;
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    fr_status s = fr_node_mask(node, 0, 0, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

static const fri_unary relu = {{.name = "relu", .backward = backward, FRI_UNARY}, values, FRI_SAVES_Y, FR_SAVE_MASK};

fr_status fr_relu(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_unary_call(&relu, NULL, 0, x, y);
}

fr_status fr_relu_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    return fri_unary_inplace(&relu, NULL, 0, x);
}
