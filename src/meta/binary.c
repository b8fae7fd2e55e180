/* binary.c - cost of ops with an operand that has a value per run. */
#include "meta/kernels.h"

static fr_status image_op(const char *name, const fri_binary_desc *d, double flops, double maps) {
    const double map = (double)d->n * (double)d->hw * (double)d->c, values = (double)d->n * (double)d->c;
    return FRI_META_CALL(name, d->dtype, flops * map, fri_meta_size(d->dtype) * (maps * map + values), d->n, d->hw,
                         d->c, maps > 1, d->op);
}

fr_status fri_meta_binary_image(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *b, void *y) {
    return image_op("binary_image", d, 1, 2);
}

fr_status fri_meta_binary_image_sum(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *dy,
                                    void *db) {
    return image_op("binary_image_sum", d, 2, a != NULL ? 2 : 1);
}
