/* cross_entropy.c - cost of losses of classes. */
#include "meta/kernels.h"

static fr_status rows_op(const char *name, const fri_loss_desc *d, double flops, double moves) {
    double n = (double)d->rows * (double)d->classes;
    return FRI_META_CALL(name, d->dtype, flops * n, moves * fri_meta_size(d->dtype) * n, d->rows, d->classes);
}

#define LOSS(name_, flops_, moves_)                                                                                    \
    size_t fri_meta_##name_##_workspace(const fri_loss_desc *d) {                                                      \
        return FRI_META_BYTES(d->dtype, name_##_workspace, (d));                                                       \
    }                                                                                                                  \
    fr_status fri_meta_##name_##_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *t,      \
                                         const void *weight, void *loss, void *lse, void *factors, int64_t *bad) {     \
        return rows_op(#name_ "_forward", d, flops_, moves_);                                                          \
    }                                                                                                                  \
    fr_status fri_meta_##name_##_backward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *t,     \
                                          const void *weight, const void *lse, const void *factors, const void *dloss, \
                                          void *dx) {                                                                  \
        return rows_op(#name_ "_backward", d, flops_, 1 + moves_);                                                     \
    }
LOSS(cross_entropy, 8, 1)
LOSS(bce, 12, 1)
LOSS(dice, 8, 2)

fr_status fri_meta_count_correct(const fri_exec *e, const fri_loss_desc *d, const void *x, const int64_t *t,
                                 int64_t *correct) {
    return rows_op("count_correct", d, 1, 1);
}
