/* sum, mean - reductions to a scalar.
 *   forward    y = alpha * sum of x, alpha = 1 or 1 / numel; summed in f32 or wider over fixed chunks
 *   backward   dx = alpha * dy everywhere
 *   saves      nothing
 *   in-place   no
 *   rebuild    no
 *   order      deterministic: chunks depend on the size only
 *   autocast   f32 */
#include "ops/op.h"

typedef struct params {
    double alpha;
    fr_shape shape;
} params;

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    FRI_TRY(fri_tensor_new(&p->shape, (*dy)->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), dx->dtype, broadcast,
                       (FRI_EXEC, dx->dtype, fri_numel(dx), p->alpha, fri_data(*dy), fri_data(dx))));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static const fr_op sum = {.name = "sum", .autocast = FR_AUTOCAST_F32, .backward = backward};
static const fr_op mean = {.name = "mean", .autocast = FR_AUTOCAST_F32, .backward = backward};

static fr_status reduce_all(const fr_op *op, fr_tensor *x, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    fr_shape scalar = {0};
    FRI_TRY(fri_call_begin(&c, op, 1, &x, 1));
    const fr_tensor *v = c.in[0];
    FRI_TRY(fri_expect_float(op, v, "x"));
    params p = {.alpha = op == &mean ? 1.0 / (double)fri_numel(v) : 1.0, .shape = v->shape};
    const fri_backend *be = fri_backend_of(v);
    FRI_TRY(fri_tensor_new(&scalar, v->dtype, be->device, FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_workspace_begin(v, FRI_KERNEL_BYTES(be, v->dtype, sum_workspace, (v->dtype, fri_numel(v))), &ws));
    FRI_TRY(FRI_KERNEL(be, v->dtype, sum, (&ws.exec, v->dtype, fri_numel(v), p.alpha, fri_data(v), fri_data(out))));
    fri_workspace_end(&ws);
    FRI_TRY(fr_op_record(op, &p, sizeof p, c.in, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fr_sum(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return reduce_all(&sum, x, y);
}

fr_status fr_mean(fr_tensor *x, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    return reduce_all(&mean, x, y);
}
