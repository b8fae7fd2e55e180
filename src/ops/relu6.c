/* relu6 - rectifier with a ceiling (Krizhevsky, 2010; MobileNetV2).
 *   forward    y = min(max(x, 0), 6), NaN passes
 *   backward   dx = dy where 0 < y < 6, else 0     (needs to know which elements pass)
 *   saves      which elements of y pass: shared with y, then 1 bit
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 and x = 6, and where x is NaN, the gradient is 0; gradcheck keeps away from both
 *   order      deterministic on all backends */
#include "ops/op.h"

#include "base/status.h"

static fr_status values(const void *unused, const fr_tensor *x, fr_tensor *y) {
    (void)unused;
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu6_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    FRI_TRY(fr_node_mask(node, 0, 0, dy, &dx));
    return fr_node_grad(node, 0, &dx);
}

static const fri_unary relu6 = {{.name = "relu6", .backward = backward, FRI_UNARY}, values, FRI_SAVES_Y, FR_SAVE_RELU6};

fr_status fr_relu6(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_unary_call(&relu6, NULL, 0, x, y);
}

fr_status fr_relu6_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    return fri_unary_inplace(&relu6, NULL, 0, x);
}
