/* pool.c - see frame.h. */
#include "ops/frame.h"

#include "base/status.h"

#include <string.h>

/* PyTorch's rule: with ceil_mode, a last window that starts in the right padding is dropped. */
static int64_t output_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil_mode) {
    const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
    if (room < 0) return 0;
    int64_t out = room / stride + 1;
    if (ceil_mode && (out - 1) * stride >= in + pad) out--;
    return out;
}

fr_status fri_pool2d_describe(fri_frame *f, int64_t kernel, const fr_pool2d_opts *o, fri_pool2d_desc *d) {
    char text[FRI_SHAPE_TEXT];
    const char *op = f->read->op.name;
    const fr_shape *x = &f->c.in[0]->shape;
    const int64_t *xd = x->dim;
    FRI_TRY(fri_expect_bounded(op, "x's height and width", xd[1], xd[2]));
    FRI_TRY(fri_expect_bounded(op, "kernel", kernel, o->kernel_w));
    FRI_TRY(fri_expect_bounded(op, "stride", o->stride, o->stride_w));
    FRI_TRY(fri_expect_bounded(op, "padding", o->padding, o->padding_w));
    FRI_TRY(fri_expect_bounded(op, "dilation", o->dilation, o->dilation_w));
    int64_t kernel_w = o->kernel_w < 0 ? kernel : o->kernel_w;
    *d = (fri_pool2d_desc){.dtype = f->dtype,
                           .n = xd[0],
                           .h = xd[1],
                           .w = xd[2],
                           .c = xd[3],
                           .kernel_h = kernel,
                           .kernel_w = kernel_w,
                           .stride_h = o->stride < 0 ? kernel : o->stride,
                           .stride_w = o->stride_w >= 0 ? o->stride_w
                                       : o->stride < 0  ? kernel_w
                                                        : o->stride,
                           .pad_h = o->padding,
                           .pad_w = o->padding_w < 0 ? o->padding : o->padding_w,
                           .dilation_h = o->dilation,
                           .dilation_w = o->dilation_w < 0 ? o->dilation : o->dilation_w,
                           .count_include_pad = o->count_include_pad};
    if (kernel < 1 || kernel_w < 1 || d->stride_h < 1 || d->stride_w < 1 || d->dilation_h < 1 || d->dilation_w < 1)
        return fr_fail(FR_EINVAL, "%s: kernel %lld x %lld, stride %lld x %lld, dilation %lld must all be >= 1", op,
                       (long long)kernel, (long long)kernel_w, (long long)d->stride_h, (long long)d->stride_w,
                       (long long)o->dilation);
    if (d->pad_h < 0 || d->pad_w < 0 || 2 * d->pad_h > kernel || 2 * d->pad_w > kernel_w)
        return fr_fail(FR_EINVAL, "%s: padding %lld x %lld must be >= 0 and at most half the kernel %lld x %lld", op,
                       (long long)d->pad_h, (long long)d->pad_w, (long long)kernel, (long long)kernel_w);
    d->p = FRI_SIZE(*f, 'p') = output_size(d->h, kernel, d->stride_h, d->pad_h, d->dilation_h, o->ceil_mode);
    d->q = FRI_SIZE(*f, 'q') = output_size(d->w, kernel_w, d->stride_w, d->pad_w, d->dilation_w, o->ceil_mode);
    if (d->p < 1 || d->q < 1)
        return fr_fail(FR_ESHAPE, "%s: x %s is smaller than the %lld x %lld window", op, fri_shape_text(x, text),
                       (long long)kernel, (long long)kernel_w);
    return FR_OK;
}

static void window_cost(const fr_kernel_call *c, fri_kernel_call *work) {
    const fri_pool2d_desc *d = c->options;
    const double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    const double y = (double)d->n * (double)d->p * (double)d->q * (double)d->c;
    work->flops = y * (d->kernel_h > 0 ? (double)d->kernel_h * (double)d->kernel_w : x / (y > 0 ? y : 1));
    const int64_t dim[] = {d->n,        d->h,        d->w,        d->c,     d->p,     d->q,          d->kernel_h,
                           d->kernel_w, d->stride_h, d->stride_w, d->pad_h, d->pad_w, d->dilation_h, d->dilation_w};
    work->n = sizeof dim / sizeof *dim;
    memcpy(work->dim, dim, sizeof dim);
}

const fri_kernel_more fri_pool2d_more = {.cost = window_cost};
