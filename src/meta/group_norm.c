/* group_norm.c - cost of group norm and layer norm: x is read for the statistics and again for y. */
#include "meta/kernels.h"

size_t fri_meta_group_norm_workspace(const fri_group_norm_desc *d) {
    return FRI_META_BYTES(d->dtype, group_norm_workspace, (d));
}

static double element_count(const fri_group_norm_desc *d) {
    return (double)d->n * (double)d->hw * (double)d->c;
}

fr_status fri_meta_group_norm_forward(const fri_exec *e, const fri_group_norm_desc *d, const void *x, const void *gamma,
                                      const void *beta, void *y, void *mean, void *invstd) {
    return FRI_META_CALL("group_norm_forward", d->dtype, 8 * element_count(d),
                         3 * fri_meta_size(d->dtype) * element_count(d), d->n, d->hw, d->c, d->groups);
}

/* x and dy are read twice, and once more for dgamma and dbeta. */
fr_status fri_meta_group_norm_backward(const fri_exec *e, const fri_group_norm_desc *d, const void *x,
                                       const void *gamma, const void *mean, const void *invstd, const void *dy,
                                       void *dx, void *dgamma, void *dbeta) {
    const double passes = (dx != NULL ? 5 : 0) + (dgamma != NULL ? 2 : 0);
    return FRI_META_CALL("group_norm_backward", d->dtype, 3 * passes * element_count(d),
                         passes * fri_meta_size(d->dtype) * element_count(d), d->n, d->hw, d->c, d->groups);
}
