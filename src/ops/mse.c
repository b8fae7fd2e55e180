/* mse, l1, smooth_l1 - mean squared error, mean absolute error, and what is one near 0 and the other elsewhere.
 *   forward    loss = mean(f(x - t)); mse: f(d) = d^2; l1: |d|; smooth_l1: d^2 / (2 beta) where |d| < beta, else
 *              |d| - beta / 2
 *   backward   dx = f'(x - t) / n * dloss, dt = -dx
 *   saves      x and t (references)
 *   in-place   no
 *   rebuild    no
 *   kink       l1 at x = t, where dx is 0, as PyTorch
 *   order      deterministic: chunks depend on the size only
 *   autocast   f32 */
#include "ops/op.h"

#include "base/status.h"

#include <math.h>

/* Params: beta; negative: mse. */
static fr_status backward_of(fr_node *node, int i, const fr_tensor *x, const fr_tensor *t, const fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    if (!fr_node_wants(node, i)) return FR_OK;
    FRI_TRY(fri_new_like(x, FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), x->dtype, mse_backward,
                       (FRI_EXEC, x->dtype, fri_numel(x), *(const double *)fr_node_params(node), i == 0 ? 1.0 : -1.0,
                        fri_data(x), fri_data(t), fri_data(dy), fri_data(dx))));
    return fr_node_grad(node, i, &dx);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL, *x = NULL;
    FRI_TRY(fr_node_saved(node, 0, &x));
    FRI_TRY(fr_node_saved(node, 1, &t));
    FRI_TRY(backward_of(node, 1, x, t, *dy));
    return backward_of(node, 0, x, t, *dy);
}

static const fr_op mse = {.name = "mse", .autocast = FR_AUTOCAST_F32, .backward = backward};
static const fr_op l1 = {.name = "l1", .autocast = FR_AUTOCAST_F32, .backward = backward};
static const fr_op smooth_l1 = {.name = "smooth_l1", .autocast = FR_AUTOCAST_F32, .backward = backward};

static fr_status call_loss(const fr_op *op, double beta, fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    fr_shape scalar = {0};
    FRI_TRY(fri_call_begin(&c, op, 2, (fr_tensor *[]){x, t}, 2));
    const fr_tensor *a = c.in[0], *b = c.in[1];
    FRI_TRY(fri_expect_float(op, a, "x"));
    FRI_TRY(fri_expect_same(op, a, b));
    const fri_backend *be = fri_backend_of(a);
    FRI_TRY(fri_tensor_new(&scalar, a->dtype, be->device, FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_workspace_begin(a, FRI_KERNEL_BYTES(be, a->dtype, sum_workspace, (a->dtype, fri_numel(a))), &ws));
    FRI_TRY(FRI_KERNEL(be, a->dtype, mse_forward,
                       (&ws.exec, a->dtype, fri_numel(a), beta, fri_data(a), fri_data(b), fri_data(out))));
    fri_workspace_end(&ws);
    fr_save saves[] = {{c.in[0], FR_SAVE_VALUE}, {c.in[1], FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(op, &beta, sizeof beta, c.in, 2, saves, 2, out));
    fri_tensor_put(&out, loss);
    return FR_OK;
}

fr_status fr_mse(fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    FRI_NOT_NULL(x, t, loss);
    return call_loss(&mse, -1, x, t, loss);
}

fr_status fr_l1(fr_tensor *x, fr_tensor *t, fr_tensor **loss) {
    FRI_NOT_NULL(x, t, loss);
    return call_loss(&l1, 0, x, t, loss);
}

fr_status fr_smooth_l1(fr_tensor *x, fr_tensor *t, double beta, fr_tensor **loss) {
    FRI_NOT_NULL(x, t, loss);
    if (!(beta >= 0) || !isfinite(beta))
        return fr_fail(FR_EINVAL, "smooth_l1: beta is %g; it must be >= 0 and finite", beta);
    return call_loss(&smooth_l1, beta, x, t, loss);
}
