/* leaky_relu - rectifier with a slope on the negative side (Maas et al., 2013).
 *   forward    y = x where x > 0, else slope * x           (0 <= slope)
 *   backward   dx = dy where y > 0, else slope * dy       (y and x have the same sign)
 *   saves      the sign of y: shared with y, later 1 bit per element
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 the gradient is slope * dy, as PyTorch
 *   order      deterministic */
#include "ops/op.h"

#include "base/status.h"

#include <math.h>

static fr_status values(const void *slope, const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, leaky_relu_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), *(const double *)slope, fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const double *slope = fr_node_params(node);
    fr_tensor *dx = NULL;
    fr_status s = fr_node_mask(node, 0, *slope, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

static const fri_unary leaky_relu = {{.name = "leaky_relu", .backward = backward, FRI_UNARY},
                                     values,
                                     FRI_SAVES_Y,
                                     FR_SAVE_SIGN};

static fr_status check_slope(double slope) {
    if (!(slope >= 0) || !isfinite(slope))
        return fr_fail(FR_EINVAL, "leaky_relu: slope is %g; it must be >= 0, so that the sign of y is the sign of x",
                       slope);
    return FR_OK;
}

fr_status fr_leaky_relu(fr_tensor *x, double slope, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    fr_status s = check_slope(slope);
    return s < 0 ? s : fri_unary_call(&leaky_relu, &slope, sizeof slope, x, y);
}

fr_status fr_leaky_relu_inplace(fr_tensor *x, double slope) {
    FRI_NOT_NULL(x);
    fr_status s = check_slope(slope);
    return s < 0 ? s : fri_unary_inplace(&leaky_relu, &slope, sizeof slope, x);
}
