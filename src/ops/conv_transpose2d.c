/* conv_transpose2d - transposed convolution: a convolution from y to x run backwards, with that one's kernels.
 *   forward    y = the gradient that conv2d with these options gives its input where x is its output's, plus b
 *   backward   db = sum of dy over n,h,w;  dw = conv2d's, with dy as its input and x as its output's gradient;
 *              dx = conv2d(dy, w)
 *   order      db and dw first, then x is given up, then dx is made
 *   autocast   low precision; b too */
#include "ops/conv2d.h"

#include "base/status.h"

fr_described fri_op_conv_transpose2d = {.op = {.name = "conv_transpose2d", .autocast = FR_AUTOCAST_LOW},
                                        .operands = "x[n,h,w,k] w[l,r,s,g] b:bias[b]? > y[n,p,q,o]",
                                        .forward = {{"w x > y", &fri_conv2d_input}, {"b > y", &fri_add_row}},
                                        .backward = {{"dy > db", &fri_sum_rows},
                                                     {"dy x > dw", &fri_conv2d_weight},
                                                     {"dy w . > dx", &fri_conv2d_forward}},
                                        .costly = true};

static int64_t height_or_width(int64_t w, int64_t h) {
    return w < 0 ? h : w;
}

/* Bounds all sizes by 2^31, so products cannot overflow. */
static fr_status expect_options(const fr_conv_transpose2d_opts *o, const int64_t *x, const int64_t *w) {
    const char *op = "conv_transpose2d";
    FRI_TRY(fri_expect_bounded(op, "x's height and width", x[1], x[2]));
    FRI_TRY(fri_expect_bounded(op, "w's height and width", w[1], w[2]));
    FRI_TRY(fri_expect_bounded(op, "w's channels and groups", w[3], o->groups));
    FRI_TRY(fri_expect_bounded(op, "stride", o->stride, o->stride_w));
    FRI_TRY(fri_expect_bounded(op, "padding", o->padding, o->padding_w));
    FRI_TRY(fri_expect_bounded(op, "dilation", o->dilation, o->dilation_w));
    FRI_TRY(fri_expect_bounded(op, "output_padding", o->output_padding, o->output_padding_w));
    const int64_t extra = o->output_padding, extra_w = height_or_width(o->output_padding_w, extra);
    if (o->stride < 1 || o->stride_w == 0 || o->dilation < 1 || o->dilation_w == 0 || o->padding < 0 || o->groups < 1 ||
        extra < 0 || extra >= o->stride || extra_w >= height_or_width(o->stride_w, o->stride))
        return fr_fail(FR_EINVAL,
                       "conv_transpose2d: stride %lld, padding %lld, dilation %lld, groups %lld, output_padding %lld: "
                       "paddings must be >= 0, output_padding below the stride, the others >= 1",
                       (long long)o->stride, (long long)o->padding, (long long)o->dilation, (long long)o->groups,
                       (long long)o->output_padding);
    return FR_OK;
}

/* Descriptor of the convolution from y's shape to x's shape. */
static fr_status describe(fri_frame *f, const fr_conv_transpose2d_opts *o, fri_conv2d_desc *d) {
    char xs[FRI_SHAPE_TEXT], ws[FRI_SHAPE_TEXT];
    const fr_tensor *x = f->c.in[0], *w = f->c.in[1], *b = f->c.in[2];
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim;
    FRI_TRY(expect_options(o, xd, wd));
    if (xd[3] != wd[0] || xd[3] % o->groups != 0)
        return fr_fail(FR_ESHAPE, "conv_transpose2d: x %s has %lld channels and w %s expects %lld (groups %lld)%s",
                       fri_shape_text(&x->shape, xs), (long long)xd[3], fri_shape_text(&w->shape, ws), (long long)wd[0],
                       (long long)o->groups, fri_shape_advice(&x->shape, wd[0]));
    *d = (fri_conv2d_desc){.dtype = x->dtype,
                           .bias_dtype = x->dtype,
                           .n = xd[0],
                           .p = xd[1],
                           .q = xd[2],
                           .k = xd[3],
                           .r = wd[1],
                           .s = wd[2],
                           .c = wd[3] * o->groups,
                           .stride_h = o->stride,
                           .stride_w = height_or_width(o->stride_w, o->stride),
                           .pad_h = o->padding,
                           .pad_w = height_or_width(o->padding_w, o->padding),
                           .dilation_h = o->dilation,
                           .dilation_w = height_or_width(o->dilation_w, o->dilation),
                           .groups = o->groups,
                           .workspace_limit = fri_switches()->workspace_limit};
    d->h = (d->p - 1) * d->stride_h - 2 * d->pad_h + d->dilation_h * (d->r - 1) + 1 + o->output_padding;
    d->w = (d->q - 1) * d->stride_w - 2 * d->pad_w + d->dilation_w * (d->s - 1) + 1 +
           height_or_width(o->output_padding_w, o->output_padding);
    if (d->p < 1 || d->q < 1 || d->r < 1 || d->s < 1 || d->h < 1 || d->w < 1 || d->h > INT32_MAX || d->w > INT32_MAX)
        return fr_fail(FR_ESHAPE, "conv_transpose2d: x %s and w %s make an image of %lld x %lld",
                       fri_shape_text(&x->shape, xs), fri_shape_text(&w->shape, ws), (long long)d->h, (long long)d->w);
    FRI_SIZE(*f, 'p') = d->h;
    FRI_SIZE(*f, 'q') = d->w;
    FRI_SIZE(*f, 'o') = d->c;
    if (b == NULL || (b->shape.dim[0] == d->c && b->dtype == x->dtype)) return FR_OK;
    return fr_fail(b->dtype != x->dtype ? FR_EDTYPE : FR_ESHAPE, "conv_transpose2d: b is %s %s; %s [%lld] is needed",
                   fr_dtype_name(b->dtype), fri_shape_text(&b->shape, ws), fr_dtype_name(x->dtype), (long long)d->c);
}

fr_status fr_conv_transpose2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv_transpose2d_opts *opts,
                              fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_conv2d_desc d;
    FRI_TRY(fri_frame_begin(&f, &fri_op_conv_transpose2d, (fr_tensor *[]){x, w, b}, y));
    FRI_TRY(describe(&f, opts != NULL ? opts : FR_CONV_TRANSPOSE2D_OPTS(), &d));
    return fri_frame_run(&f, &d, sizeof d, y);
}
