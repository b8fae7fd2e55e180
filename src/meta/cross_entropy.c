/* cross_entropy.c - what the loss costs. */
#include "meta/kernels.h"

size_t fri_meta_cross_entropy_workspace(const fri_cross_entropy_desc *d) {
    return FRI_META_BYTES(d->dtype, cross_entropy_workspace, (d));
}

static fr_status rows(const char *name, const fri_cross_entropy_desc *d, double flops, double moves) {
    double n = (double)d->rows * (double)d->classes;
    return FRI_META_CALL(name, d->dtype, flops * n, moves * fri_meta_size(d->dtype) * n, d->rows, d->classes);
}

fr_status fri_meta_cross_entropy_forward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                         const int64_t *t, void *loss, void *lse, void *count, int64_t *bad) {
    return rows("cross_entropy_forward", d, 8, 1);
}

fr_status fri_meta_cross_entropy_backward(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x,
                                          const int64_t *t, const void *lse, const void *count, const void *dloss,
                                          void *dx) {
    return rows("cross_entropy_backward", d, 8, 2);
}

fr_status fri_meta_count_correct(const fri_exec *e, const fri_cross_entropy_desc *d, const void *x, const int64_t *t,
                                 int64_t *correct) {
    return rows("count_correct", d, 1, 1);
}
