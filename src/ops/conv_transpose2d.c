/* conv_transpose2d - transposed convolution: a convolution from y to x run backwards, with that one's kernels.
 *   forward    y = the gradient that conv2d with these options gives its input where x is its output's, plus b
 *   backward   db = sum of dy over n,h,w;  dw = conv2d's, with dy as its input and x as its output's gradient;
 *              dx = conv2d(dy, w)
 *   saves      x if w wants a gradient, w if x wants one (references)
 *   in-place   no
 *   rebuild    no
 *   order      db and dw first, then x is given up, then dx is made
 *   autocast   low precision; b too */
#include "ops/binary.h"
#include "ops/conv2d.h"

#include "base/status.h"

enum { SAVED_X, SAVED_W };

static fr_status weight_gradient(fr_node *node, const fri_conv2d_desc *d, const fr_tensor *dy) {
    const fr_shape shape = FRI_SHAPE(d->k, d->r, d->s, d->c / d->groups);
    FRI_OWNED(fr_tensor_release) fr_tensor *dw = NULL, *x = NULL;
    FRI_TRY(fr_node_saved(node, SAVED_X, &x));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &dw));
    FRI_TRY(fri_conv2d_weight(d, dy, x, dw));
    fr_tensor_release(&x);
    return fr_node_grad(node, 1, &dw);
}

static fr_status input_gradient(fr_node *node, const fri_conv2d_desc *d, fr_tensor **dy) {
    const fr_shape shape = FRI_SHAPE(d->n, d->p, d->q, d->k);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *w = NULL;
    FRI_TRY(fr_node_saved(node, SAVED_W, &w));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(fri_conv2d_forward(d, *dy, w, dx));
    fr_tensor_release(&w);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_conv2d_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *db = NULL;
    if (fr_node_inputs(node) > 2 && fr_node_wants(node, 2)) {
        FRI_TRY(fri_vector_sum(*dy, &db));
        FRI_TRY(fr_node_grad(node, 2, &db));
    }
    if (fr_node_wants(node, 1)) FRI_TRY(weight_gradient(node, d, *dy));
    fr_node_release_saved(node, SAVED_X);
    return fr_node_wants(node, 0) ? input_gradient(node, d, dy) : FR_OK;
}

static const fr_op conv_transpose2d = {.name = "conv_transpose2d", .autocast = FR_AUTOCAST_LOW, .backward = backward};

static int64_t height_or_width(int64_t w, int64_t h) {
    return w < 0 ? h : w;
}

/* Bounds all sizes by 2^31, so products cannot overflow. */
static fr_status expect_options(const fr_conv_transpose2d_opts *o, const int64_t *x, const int64_t *w) {
    const fr_op *op = &conv_transpose2d;
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

static fr_status expect_bias(const fr_tensor *x, const fr_tensor *b, int64_t c) {
    fr_status s = fri_expect_vector(&conv_transpose2d, b, "b", c);
    if (s < 0 || b->dtype == x->dtype) return s;
    return fr_fail(FR_EDTYPE, "conv_transpose2d: b is %s but x is %s", fr_dtype_name(b->dtype),
                   fr_dtype_name(x->dtype));
}

/* Descriptor of the convolution from y's shape to x's shape. */
static fr_status describe(const fr_tensor *x, const fr_tensor *w, const fr_tensor *b, const fr_conv_transpose2d_opts *o,
                          fri_conv2d_desc *d) {
    char xs[FRI_SHAPE_TEXT], ws[FRI_SHAPE_TEXT];
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim;
    FRI_TRY(fri_expect_float(&conv_transpose2d, x, "x"));
    FRI_TRY(fri_expect_rank(&conv_transpose2d, x, "x", 4));
    FRI_TRY(fri_expect_rank(&conv_transpose2d, w, "w", 4));
    FRI_TRY(expect_options(o, xd, wd));
    if (x->dtype != w->dtype)
        return fr_fail(FR_EDTYPE, "conv_transpose2d: x is %s but w is %s", fr_dtype_name(x->dtype),
                       fr_dtype_name(w->dtype));
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
    return b != NULL ? expect_bias(x, b, d->c) : FR_OK;
}

fr_status fr_conv_transpose2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv_transpose2d_opts *opts,
                              fr_tensor **y) {
    FRI_NOT_NULL(x, w, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_conv2d_desc d;
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &conv_transpose2d, 2, (fr_tensor *[]){x, w, b}, 3));
    FRI_TRY(describe(c.in[0], c.in[1], c.in[2], opts != NULL ? opts : FR_CONV_TRANSPOSE2D_OPTS(), &d));
    fr_shape shape = FRI_SHAPE(d.n, d.h, d.w, d.c);
    FRI_TRY(fri_result_new(c.in, c.n_in, &shape, d.dtype, &wanted, &out));
    if (wanted) FRI_TRY(fri_conv2d_input(&d, c.in[1], c.in[0], out));
    if (wanted && b != NULL) FRI_TRY(fri_add_vector(c.in[2], out));
    fr_save saves[] = {{c.in[1]->requires_grad ? c.in[0] : NULL, FR_SAVE_VALUE},
                       {c.in[0]->requires_grad ? c.in[1] : NULL, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(&conv_transpose2d, &d, sizeof d, c.in, b != NULL ? 3 : 2, saves, 2, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
