/* scale - multiplication by a constant.
 *   forward    y = alpha * x
 *   backward   dx = alpha * dy
 *   saves      nothing
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   order      deterministic */
#include "ops/op.h"

static fr_status values(const fr_tensor *x, double alpha, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, scale,
                      (FRI_EXEC, x->dtype, fri_numel(x), alpha, fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const double *alpha = fr_node_params(node);
    fr_tensor *dx = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(*dy, &dx));
    FR_TRY(s, values(*dy, *alpha, dx));
    fr_tensor_release(dy);
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    fr_tensor_release(&dx);
    return s;
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const double *alpha = fr_node_params(node);
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(in[0], &out));
    FR_TRY(s, values(in[0], *alpha, out));
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    return s;
}

static const fr_op scale = {.name = "scale", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};

fr_status fr_scale(fr_tensor *x, double alpha, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &scale, 1, &x, 1));
    FR_TRY(s, fri_expect_float(&scale, x, "x"));
    FR_TRY(s, fri_result_like(x, y, &out));
    FR_TRY(s, values(x, alpha, out));
    FR_TRY(s, fr_op_record(&scale, &alpha, sizeof alpha, &x, 1, NULL, 0, out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_scale_inplace(fr_tensor *x, double alpha) {
    FRI_NOT_NULL(x);
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &scale, 1, &x, 1));
    FR_TRY(s, fri_check_inplace(&scale, x));
    FR_TRY(s, fri_expect_float(&scale, x, "x"));
    fri_bump_version(x);
    FR_TRY(s, values(x, alpha, x));
    FR_TRY(s, fr_op_record(&scale, &alpha, sizeof alpha, &x, 1, NULL, 0, x));
done:
    fri_call_end(&c);
    return s;
}
