/* linear.c - cost of matrix products, and the scratch of the target. */
#include "meta/kernels.h"

FRI_META_WORKSPACE(linear_forward, fri_linear_desc)
FRI_META_WORKSPACE(linear_backward_input, fri_linear_desc)
FRI_META_WORKSPACE(linear_backward_weight, fri_linear_desc)

static fr_status linear(const char *name, const fri_linear_desc *d) {
    double n = (double)d->n, in = (double)d->in, out = (double)d->out;
    return FRI_META_CALL(name, d->dtype, 2 * n * in * out, fri_meta_size(d->dtype) * (n * in + in * out + n * out),
                         d->n, d->in, d->out);
}

fr_status fri_meta_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                  const void *b, void *y) {
    return linear("linear_forward", d);
}

fr_status fri_meta_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                         void *dx) {
    return linear("linear_backward_input", d);
}

fr_status fri_meta_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                          void *dw, void *db) {
    return linear("linear_backward_weight", d);
}

fr_status fri_meta_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    double y = (double)d->n * (double)d->out;
    return FRI_META_CALL("linear_backward_bias", d->dtype, y, fri_meta_size(d->dtype) * y, d->n, d->out);
}
