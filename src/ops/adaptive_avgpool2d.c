/* adaptive_avgpool2d - average pooling to a given output size; 1 x 1 is global average pooling.
 *   forward    y[i] = mean of x over floor(i H / P) .. ceil((i + 1) H / P), likewise the width
 *   backward   every position of a window gets dy / size of the window
 *   saves      nothing
 *   in-place   no
 *   rebuild    no
 *   kink       none
 *   order      deterministic */
#include "ops/op.h"

#include "base/status.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_pool2d_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    fr_shape shape = FRI_SHAPE(d->n, d->h, d->w, d->c);
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), d->dtype, adaptive_avgpool2d_backward,
                       (FRI_EXEC, d, fri_data(*dy), fri_data(dx))));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static const fr_op adaptive_avgpool2d = {.name = "adaptive_avgpool2d", .backward = backward};

fr_status fr_adaptive_avgpool2d(fr_tensor *x, int64_t p, int64_t q, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_call_begin(&c, &adaptive_avgpool2d, 1, &x, 1));
    FRI_TRY(fri_expect_float(&adaptive_avgpool2d, x, "x"));
    FRI_TRY(fri_expect_rank(&adaptive_avgpool2d, x, "x", 4));
    const int64_t *xd = x->shape.dim;
    if (p < 1 || q < 1 || xd[1] < 1 || xd[2] < 1)
        return fr_fail(FR_EINVAL, "adaptive_avgpool2d: from %lld x %lld to %lld x %lld pixels; all must be >= 1",
                       (long long)xd[1], (long long)xd[2], (long long)p, (long long)q);
    fri_pool2d_desc d = {.dtype = x->dtype, .n = xd[0], .h = xd[1], .w = xd[2], .c = xd[3], .p = p, .q = q};
    fr_shape shape = FRI_SHAPE(d.n, p, q, d.c);
    FRI_TRY(fri_tensor_new(&shape, x->dtype, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), x->dtype, adaptive_avgpool2d_forward,
                       (FRI_EXEC, &d, fri_data(x), fri_data(out))));
    FRI_TRY(fr_op_record(&adaptive_avgpool2d, &d, sizeof d, &x, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
