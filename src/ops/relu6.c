/* relu6 - rectifier with a ceiling (Krizhevsky, 2010; MobileNetV2).
 *   forward    y = min(max(x, 0), 6), NaN passes
 *   backward   dx = dy where 0 < y < 6, else 0     (needs to know which elements pass)
 *   saves      which elements of y pass: shared with y, then 1 bit
 *   in-place   forward yes; backward yes (dx may be dy)
 *   rebuild    from x
 *   kink       at x = 0 and x = 6, and where x is NaN, the gradient is 0; gradcheck keeps away from both
 *   order      deterministic on all backends */
#include "ops/op.h"

static fr_status values(const fr_tensor *x, fr_tensor *y) {
    return FRI_KERNEL(fri_backend_of(x), x->dtype, relu6_forward,
                      (FRI_EXEC, x->dtype, fri_numel(x), fri_data(x), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *dx = NULL;
    fr_status s = fr_node_mask(node, 0, 0, dy, &dx);
    return s < 0 ? s : fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    (void)node;
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(in[0], &out));
    FR_TRY(s, values(in[0], out));
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    return s;
}

const fr_op fri_relu6_op = {.name = "relu6", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};

static fr_status record(fr_tensor *x, fr_tensor *out) {
    fr_save save = {out, FR_SAVE_RELU6};
    return fr_op_record(&fri_relu6_op, NULL, 0, &x, 1, &save, 1, out);
}

fr_status fri_relu6_tail(fr_tensor *x, bool there, fr_tensor **y) {
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &fri_relu6_op, 1, &x, 1));
    FR_TRY(s, fri_expect_float(&fri_relu6_op, x, "x"));
    FR_TRY(s, fri_result_like(x, y, &out));
    if (out != x || !there) FR_TRY(s, values(x, out));
    FR_TRY(s, record(x, out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_relu6(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return fri_relu6_tail(x, false, y);
}

fr_status fr_relu6_inplace(fr_tensor *x) {
    FRI_NOT_NULL(x);
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &fri_relu6_op, 1, &x, 1));
    FR_TRY(s, fri_expect_float(&fri_relu6_op, x, "x"));
    FR_TRY(s, fri_check_inplace(&fri_relu6_op, x));
    fri_bump_version(x);
    FR_TRY(s, values(x, x));
    FR_TRY(s, record(x, x));
done:
    fri_call_end(&c);
    return s;
}
