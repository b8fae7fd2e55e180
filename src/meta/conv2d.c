/* conv2d.c - cost of convolutions, and the scratch of the target. */
#include "meta/kernels.h"

FRI_META_WORKSPACE(conv2d_forward, fri_conv2d_desc)
FRI_META_WORKSPACE(conv2d_backward_input, fri_conv2d_desc)
FRI_META_WORKSPACE(conv2d_backward_weight, fri_conv2d_desc)

bool fri_meta_conv2d_reads_norm(const fri_conv2d_desc *d) {
    fri_conv2d_reads_norm_fn *f = FRI_META_TARGET(d->dtype, conv2d_reads_norm);
    return f != NULL && f(d);
}

fr_status fri_meta_conv2d_constant_plan(const fri_conv2d_desc *d, bool *there, size_t *workspace) {
    fri_conv2d_constant_plan_fn *f = FRI_META_TARGET(d->dtype, conv2d_constant_plan);
    *there = false, *workspace = 0;
    return f != NULL ? f(d, there, workspace) : FR_OK;
}

static fr_status conv2d(const char *name, const fri_conv2d_desc *d) {
    double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->k;
    double window = (double)d->r * (double)d->s * (double)d->c / (double)d->groups;
    return FRI_META_CALL(name, d->dtype, 2 * y * window, fri_meta_size(d->dtype) * (x + y + window * (double)d->k),
                         FRI_CONV2D_KEY(d));
}

fr_status fri_meta_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    return conv2d("conv2d_forward", d);
}

fr_status fri_meta_conv2d_constant_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                           const void *b, void *y) {
    return conv2d("conv2d_forward", d);
}

fr_status fri_meta_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return conv2d("conv2d_backward_input", d);
}

fr_status fri_meta_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                          void *dw) {
    return conv2d("conv2d_backward_weight", d);
}

fr_status fri_meta_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->k;
    return FRI_META_CALL("conv2d_backward_bias", d->dtype, y, fri_meta_size(d->dtype) * y, d->n, d->p, d->q, d->k);
}
