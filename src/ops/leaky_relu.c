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

static fr_status values(const fr_tensor *x, double slope, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, leaky_relu_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), slope, fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const double *slope = fr_node_params(node);
    fr_tensor *dx = NULL;
    fr_status s = fr_node_mask(node, 0, *slope, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const double *slope = fr_node_params(node);
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(in[0], &out));
    FR_TRY(s, values(in[0], *slope, out));
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    return s;
}

static const fr_op leaky_relu = {.name = "leaky_relu", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};

static fr_status check(const fr_tensor *x, double slope) {
    if (!(slope >= 0) || !isfinite(slope))
        return fr_fail(FR_EINVAL, "leaky_relu: slope is %g; it must be >= 0, so that the sign of y is the sign of x",
                       slope);
    return fri_expect_float(&leaky_relu, x, "x");
}

static fr_status record(fr_tensor *x, double slope, fr_tensor *out) {
    fr_save save = {out, FR_SAVE_SIGN};
    return fr_op_record(&leaky_relu, &slope, sizeof slope, &x, 1, &save, 1, out);
}

fr_status fr_leaky_relu(fr_tensor *x, double slope, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &leaky_relu, 1, &x, 1));
    FR_TRY(s, check(x, slope));
    FR_TRY(s, fri_result_like(x, y, &out));
    FR_TRY(s, values(x, slope, out));
    FR_TRY(s, record(x, slope, out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_leaky_relu_inplace(fr_tensor *x, double slope) {
    FRI_NOT_NULL(x);
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &leaky_relu, 1, &x, 1));
    FR_TRY(s, check(x, slope));
    FR_TRY(s, fri_check_inplace(&leaky_relu, x));
    fri_bump_version(x);
    FR_TRY(s, values(x, slope, x));
    FR_TRY(s, record(x, slope, x));
done:
    fri_call_end(&c);
    return s;
}
