/* avgpool2d - average over windows.
 *   forward    y = sum of x over the window / number of positions (with or without the padding)
 *   backward   every position of the window gets dy / number of positions
 *   saves      nothing
 *   in-place   no
 *   rebuild    no
 *   kink       none
 *   order      deterministic */
#include "ops/pool.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_pool2d_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL;
    fr_shape shape = FRI_SHAPE(d->n, d->h, d->w, d->c);
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), d->dtype, avgpool2d_backward, (FRI_EXEC, d, fri_data(*dy), fri_data(dx))));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static const fr_op avgpool2d = {.name = "avgpool2d", .backward = backward};

fr_status fr_avgpool2d(fr_tensor *x, int64_t kernel, const fr_pool2d_opts *opts, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_pool2d_desc d;
    FRI_TRY(fri_call_begin(&c, &avgpool2d, 1, &x, 1));
    FRI_TRY(fri_pool2d_describe(&avgpool2d, x, kernel, opts != NULL ? opts : FR_POOL2D_OPTS(), &d));
    fr_shape shape = FRI_SHAPE(d.n, d.p, d.q, d.c);
    FRI_TRY(fri_tensor_new(&shape, x->dtype, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), x->dtype, avgpool2d_forward, (FRI_EXEC, &d, fri_data(x), fri_data(out))));
    FRI_TRY(fr_op_record(&avgpool2d, &d, sizeof d, &x, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
