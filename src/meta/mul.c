/* mul.c - what products with a factor per image and channel cost. */
#include "meta/kernels.h"

static fr_status image(const char *name, const fri_mul_image_desc *d, double flops) {
    const double map = (double)d->n * (double)d->hw * (double)d->c, factors = (double)d->n * (double)d->c;
    return FRI_META_CALL(name, d->dtype, flops * map, fri_meta_size(d->dtype) * (2 * map + factors), d->n, d->hw, d->c);
}

fr_status fri_meta_mul_image(const fri_exec *e, const fri_mul_image_desc *d, const void *a, const void *b, void *y) {
    return image("mul_image", d, 1);
}

fr_status fri_meta_mul_image_sum(const fri_exec *e, const fri_mul_image_desc *d, const void *a, const void *dy,
                                 void *db) {
    return image("mul_image_sum", d, 2);
}
