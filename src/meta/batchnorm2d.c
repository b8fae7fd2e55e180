/* batchnorm2d.c - cost of batch norm. */
#include "meta/kernels.h"

size_t fri_meta_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    return FRI_META_BYTES(d->dtype, batchnorm2d_workspace, (d));
}

bool fri_meta_batchnorm2d_reads_parts(fr_dtype dtype, int64_t granule) {
    fri_batchnorm2d_reads_parts_fn *reads = FRI_META_TARGET(dtype, batchnorm2d_reads_parts);
    return reads != NULL && reads(dtype, granule);
}

static fr_status batchnorm(const char *name, const fri_batchnorm2d_desc *d, double flops, double moves, int variant) {
    double n = (double)d->rows * (double)d->c;
    return FRI_META_CALL(name, d->dtype, flops * n, moves * fri_meta_size(d->dtype) * n, d->rows, d->c, variant);
}

fr_status fri_meta_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, void *mean,
                                     void *invstd, void *running_mean, void *running_var) {
    return batchnorm("batchnorm2d_stats", d, 4, 1, running_mean != NULL);
}

fr_status fri_meta_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var, void *invstd) {
    return FRI_META_CALL("batchnorm2d_invstd", d->dtype, 3 * d->c, 8 * d->c, d->c);
}

fr_status fri_meta_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const void *mean,
                                     const void *invstd, const void *gamma, const void *beta, const void *addend,
                                     fri_activation act, void *y) {
    return batchnorm("batchnorm2d_apply", d, addend != NULL ? 3 : 2, addend != NULL ? 3 : 2,
                     2 * (int)act + (addend != NULL));
}

fr_status fri_meta_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                        const void *mean, const void *invstd, const void *gamma, const void *beta,
                                        fri_activation act, const void *dy, void *dx, void *dgamma, void *dbeta) {
    return batchnorm("batchnorm2d_backward", d, act != FRI_ACTIVATION_NONE ? 14 : 8, 5, train + 2 * (int)act);
}
