/* softmax.c - cost of softmax over rows: later passes over a row hit the cache. */
#include "meta/kernels.h"

static fr_status softmax_rows(const char *name, const fri_loss_desc *d, bool logarithm, double flops, double maps) {
    const double n = (double)d->rows * (double)d->classes;
    return FRI_META_CALL(name, d->dtype, flops * n, maps * fri_meta_size(d->dtype) * n, d->rows, d->classes, logarithm);
}

fr_status fri_meta_softmax_forward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *x, void *y) {
    return softmax_rows("softmax_forward", d, logarithm, 8, 2);
}

fr_status fri_meta_softmax_backward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *y,
                                    const void *dy, void *dx) {
    return softmax_rows("softmax_backward", d, logarithm, 4, 3);
}
