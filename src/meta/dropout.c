/* dropout.c - cost of dropout. */
#include "meta/kernels.h"

static fr_status dropout(const char *name, const fri_dropout_desc *d, double per) {
    double n = (double)d->n * (double)d->hw * (double)d->c;
    return FRI_META_CALL(name, d->dtype, 10 * n, per * n, d->n, d->hw, d->c, d->per_channel);
}

fr_status fri_meta_dropout(const fri_exec *e, const fri_dropout_desc *d, const void *x, void *y) {
    return dropout("dropout", d, 2 * fri_meta_size(d->dtype));
}

fr_status fri_meta_dropout_mask(const fri_exec *e, const fri_dropout_desc *d, uint8_t *mask) {
    return dropout("dropout_mask", d, 1);
}

fr_status fri_meta_dropout_apply_mask(const fri_exec *e, const fri_dropout_desc *d, const uint8_t *mask, const void *x,
                                      void *y) {
    return dropout("dropout_apply_mask", d, 2 * fri_meta_size(d->dtype) + 1);
}
