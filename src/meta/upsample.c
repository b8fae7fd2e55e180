/* upsample.c - cost of upsampling. */
#include "meta/kernels.h"

#define UPSAMPLE(name_)                                                                                               \
    fr_status fri_meta_##name_(const fri_exec *e, const fri_upsample_desc *d, const void *x, void *y) {               \
        double in = (double)d->n * (double)d->h * (double)d->w * (double)d->c;                                        \
        double out = (double)d->n * (double)d->p * (double)d->q * (double)d->c;                                       \
        return FRI_META_CALL(#name_, d->dtype, 4 * out, fri_meta_size(d->dtype) * (in + out), d->n, d->h, d->w, d->c, \
                             d->p, d->q, d->bilinear, d->align_corners);                                              \
    }
UPSAMPLE(upsample_forward)
UPSAMPLE(upsample_backward)
