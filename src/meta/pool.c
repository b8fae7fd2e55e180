/* pool.c - cost of pooling. */
#include "meta/kernels.h"

/* Bytes of x and y once; flops: the windows. */
static fr_status pool(const char *name, const fri_pool2d_desc *d, double index_bytes) {
    double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    double y = (double)d->n * (double)d->p * (double)d->q * (double)d->c;
    double window = d->kernel_h > 0 ? (double)d->kernel_h * (double)d->kernel_w : x / (y > 0 ? y : 1);
    return FRI_META_CALL(name, d->dtype, y * window, fri_meta_size(d->dtype) * (x + y) + index_bytes * y, d->n, d->h,
                         d->w, d->c, d->p, d->q, d->kernel_h, d->kernel_w, d->stride_h, d->stride_w, d->pad_h, d->pad_w,
                         d->dilation_h, d->dilation_w, (int64_t)index_bytes);
}

fr_status fri_meta_maxpool2d_forward(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y,
                                     fr_dtype index_dtype, void *index) {
    return pool("maxpool2d_forward", d, index != NULL ? fri_meta_size(index_dtype) : 0);
}

fr_status fri_meta_maxpool2d_backward(const fri_exec *e, const fri_pool2d_desc *d, fr_dtype index_dtype,
                                      const void *index, const void *dy, void *dx) {
    return pool("maxpool2d_backward", d, fri_meta_size(index_dtype));
}

fr_status fri_meta_maxpool2d_mask(const fri_exec *e, const fri_pool2d_desc *d, const void *y, fr_dtype index_dtype,
                                  void *index) {
    double n = (double)d->n * (double)d->p * (double)d->q * (double)d->c;
    return FRI_META_CALL("maxpool2d_mask", d->dtype, n, (fri_meta_size(d->dtype) + 2 * fri_meta_size(index_dtype)) * n,
                         d->n, d->p, d->q, d->c, (int64_t)index_dtype);
}

#define POOL(name_)                                                                                   \
    fr_status fri_meta_##name_(const fri_exec *e, const fri_pool2d_desc *d, const void *x, void *y) { \
        return pool(#name_, d, 0);                                                                    \
    }
POOL(avgpool2d_forward)
POOL(avgpool2d_backward)
POOL(adaptive_avgpool2d_forward)
POOL(adaptive_avgpool2d_backward)
