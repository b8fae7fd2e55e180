/* conv2d - two-dimensional convolution (cross-correlation), zero padded.
 *   forward    y[n,p,q,k] = b[k] + sum over r,s,c of x[n, p*u + r*d - pad, q*u + s*d - pad, c] * w[k,r,s,c]
 *   backward   db = sum of dy over n,p,q;  dw = correlation of x and dy;  dx = transposed convolution of dy and w
 *   saves      x and w (references), never y
 *   in-place   no
 *   rebuild    no: a convolution never runs twice outside a checkpoint; dw's kernel may normalize x while it reads
 *   order      dw and db first, then x is given up, then dx is made: x and dx never live together
 *   autocast   low precision; b too */
#include "ops/conv2d.h"

#include "autograd/anomaly.h"
#include "autograd/scratch.h"
#include "base/status.h"
#include "ops/batchnorm2d.h"
#include "ops/binary.h"

/* Bits for operands that are not 16-byte aligned: cuDNN requires the alignment, the CPU does not. A view may start
 * anywhere. NULL: the call does not read the operand. */
static uint8_t unaligned_operands(const fr_tensor *x, const fr_tensor *w, const fr_tensor *y, const fr_tensor *b) {
    const fr_tensor *t[4] = {x, w, y, b};
    const uint8_t bit[4] = {FRI_UNALIGNED_X, FRI_UNALIGNED_W, FRI_UNALIGNED_Y, FRI_UNALIGNED_B};
    uint8_t bits = 0;
    for (int i = 0; i < 4; i++)
        if (t[i] != NULL && (uintptr_t)fri_data(t[i]) % 16 != 0) bits |= bit[i];
    return bits;
}

/* Descriptor of one pass, with the pass's scratch limit. */
static fri_conv2d_desc limit_workspace(const fri_conv2d_desc *d, fri_scratch_pass pass, const fr_tensor *like) {
    fri_conv2d_desc of_pass = *d;
    of_pass.workspace_limit = fri_scratch_limit(d, pass, fri_device_of(like));
    return of_pass;
}

static fri_conv2d_desc desc_of(const fr_node *node) {
    return *(const fri_conv2d_desc *)fr_node_params(node);
}

/* ---- kernels with their scratch ------------------------------------------------------------------------------ */

/* True if a size is 0: the result is then 0, and kernels accept nonempty operands only. */
static bool is_empty(const fri_conv2d_desc *d) {
    return d->n == 0 || d->c == 0 || d->k == 0;
}

static fr_status run_forward(const fri_conv2d_desc *d, const fr_tensor *x, const fr_tensor *w, const fr_tensor *b,
                             fr_tensor *y) {
    const fri_backend *be = fri_backend_of(x);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(d)) return fri_fill_bias(b, y);
    FRI_TRY(FRI_KERNEL(be, d->dtype, conv2d_forward_workspace, (d, &bytes)));
    FRI_TRY(fri_workspace_begin(x, bytes, &ws));
    return FRI_KERNEL(be, d->dtype, conv2d_forward,
                      (&ws.exec, d, fri_data(x), fri_data(w), b != NULL ? fri_data(b) : NULL, fri_data(y)));
}

fr_status fri_conv2d_forward(const fri_conv2d_desc *described, const fr_tensor *x, const fr_tensor *w, fr_tensor *y) {
    fri_conv2d_desc d = limit_workspace(described, FRI_SCRATCH_FORWARD, x);
    d.unaligned = unaligned_operands(x, w, NULL, NULL);
    return run_forward(&d, x, w, NULL, y);
}

fr_status fri_conv2d_weight(const fri_conv2d_desc *described, const fr_tensor *x, const fr_tensor *dy, fr_tensor *dw) {
    const fri_backend *be = fri_backend_of(dy);
    fri_conv2d_desc d = limit_workspace(described, FRI_SCRATCH_BACKWARD_WEIGHT, dy);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(&d)) return fri_tensor_fill(dw, 0);
    d.unaligned = unaligned_operands(x, NULL, dy, NULL);
    FRI_TRY(FRI_KERNEL(be, d.dtype, conv2d_backward_weight_workspace, (&d, &bytes)));
    FRI_TRY(fri_workspace_begin(dy, bytes, &ws));
    return FRI_KERNEL(be, d.dtype, conv2d_backward_weight, (&ws.exec, &d, fri_data(x), fri_data(dy), fri_data(dw)));
}

fr_status fri_conv2d_input(const fri_conv2d_desc *described, const fr_tensor *w, const fr_tensor *dy, fr_tensor *dx) {
    const fri_backend *be = fri_backend_of(dy);
    fri_conv2d_desc d = limit_workspace(described, FRI_SCRATCH_BACKWARD_INPUT, dy);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(&d)) return fri_tensor_fill(dx, 0);
    d.unaligned = unaligned_operands(NULL, w, dy, NULL);
    FRI_TRY(FRI_KERNEL(be, d.dtype, conv2d_backward_input_workspace, (&d, &bytes)));
    FRI_TRY(fri_workspace_begin(dy, bytes, &ws));
    return FRI_KERNEL(be, d.dtype, conv2d_backward_input, (&ws.exec, &d, fri_data(w), fri_data(dy), fri_data(dx)));
}

/* ---- backward -------------------------------------------------------------------------------------------------- */

/* Reads the saved x; or, if a norm would recompute x and the kernel can normalize and activate while it reads, the
 * norm's operands (then d->norm is set). */
static fr_status read_x(fr_node *node, const fr_tensor *dy, fri_conv2d_desc *d, fri_norm_read *r) {
    fri_conv2d_reads_norm_fn *reads = fri_kernels_for(fri_backend_of(dy), d->dtype)->conv2d_reads_norm;
    fr_node *source = fri_rebuild_source(node, 0);
    if (source != NULL && reads != NULL && !is_empty(d) && reads(d) && !fri_results_examined())
        FRI_TRY(fri_norm_read_of(source, d->c, r));
    if (r->n == 0) {
        r->n = 1;
        return fr_node_saved(node, 0, &r->x[0]);
    }
    d->norm = &r->norm;
    return FR_OK;
}

static fr_status weight_gradient(fr_node *node, fri_conv2d_desc d, const fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dw = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read read = {0};
    fr_shape shape = FRI_SHAPE(d.k, d.r, d.s, d.c / d.groups);
    FRI_TRY(read_x(node, dy, &d, &read));
    FRI_TRY(fri_tensor_new(&shape, d.dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &dw));
    FRI_TRY(fri_conv2d_weight(&d, read.x[0], dy, dw));
    fri_norm_read_end(&read);
    return fr_node_grad(node, 1, &dw);
}

static fr_status bias_gradient(fr_node *node, const fri_conv2d_desc *d, const fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *db = NULL;
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    const fri_backend *be = fri_backend_of(dy);
    fr_shape shape = FRI_SHAPE(d->k);
    FRI_TRY(fri_tensor_new(&shape, d->bias_dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &db));
    FRI_TRY(fri_workspace_begin(dy,
                                FRI_KERNEL_BYTES(be, d->dtype, bias_workspace, (d->dtype, d->n * d->p * d->q, d->k)),
                                &ws));
    FRI_TRY(FRI_KERNEL(be, d->dtype, conv2d_backward_bias, (&ws.exec, d, fri_data(dy), fri_data(db))));
    fri_workspace_end(&ws);
    return fr_node_grad(node, 2, &db);
}

static fr_status input_gradient(fr_node *node, const fri_conv2d_desc *d, fr_tensor **dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *w = NULL;
    fr_shape shape = FRI_SHAPE(d->n, d->h, d->w, d->c);
    FRI_TRY(fr_node_saved(node, 1, &w));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(fri_conv2d_input(d, w, *dy, dx));
    fr_tensor_release(&w);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fri_conv2d_desc d = desc_of(node);
    if (fr_node_inputs(node) > 2 && fr_node_wants(node, 2)) FRI_TRY(bias_gradient(node, &d, *dy));
    if (fr_node_wants(node, 1)) FRI_TRY(weight_gradient(node, d, *dy));
    fr_node_release_saved(node, 0);
    return fr_node_wants(node, 0) ? input_gradient(node, &d, dy) : FR_OK;
}

static const fr_op conv2d = {.name = "conv2d", .autocast = FR_AUTOCAST_LOW, .backward = backward};

static int64_t output_size(int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
    int64_t span = dilation * (kernel - 1) + 1;
    return in + 2 * pad < span ? 0 : (in + 2 * pad - span) / stride + 1;
}

static fr_status expect_bounded(const int64_t *x, const int64_t *w, const fr_conv2d_opts *o) {
    FRI_TRY(fri_expect_bounded(&conv2d, "x's height and width", x[1], x[2]));
    FRI_TRY(fri_expect_bounded(&conv2d, "w's height and width", w[1], w[2]));
    FRI_TRY(fri_expect_bounded(&conv2d, "w's channels and groups", w[3], o->groups));
    FRI_TRY(fri_expect_bounded(&conv2d, "stride", o->stride, o->stride_w));
    FRI_TRY(fri_expect_bounded(&conv2d, "padding", o->padding, o->padding_w));
    return fri_expect_bounded(&conv2d, "dilation", o->dilation, o->dilation_w);
}

fr_status fri_conv2d_describe(const fr_tensor *x, const fr_tensor *w, const fr_tensor *b, const fr_conv2d_opts *o,
                              fri_conv2d_desc *d) {
    char xs[FRI_SHAPE_TEXT], ws[FRI_SHAPE_TEXT];
    FRI_TRY(fri_expect_float(&conv2d, x, "x"));
    FRI_TRY(fri_expect_rank(&conv2d, x, "x", 4));
    FRI_TRY(fri_expect_rank(&conv2d, w, "w", 4));
    if (x->dtype != w->dtype)
        return fr_fail(FR_EDTYPE, "conv2d: x is %s but w is %s", fr_dtype_name(x->dtype), fr_dtype_name(w->dtype));
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim;
    FRI_TRY(expect_bounded(xd, wd, o));
    *d = (fri_conv2d_desc){.dtype = x->dtype,
                           .bias_dtype = b != NULL ? b->dtype : x->dtype,
                           .n = xd[0],
                           .h = xd[1],
                           .w = xd[2],
                           .c = xd[3],
                           .k = wd[0],
                           .r = wd[1],
                           .s = wd[2],
                           .stride_h = o->stride,
                           .stride_w = o->stride_w < 0 ? o->stride : o->stride_w,
                           .pad_h = o->padding,
                           .pad_w = o->padding_w < 0 ? o->padding : o->padding_w,
                           .dilation_h = o->dilation,
                           .dilation_w = o->dilation_w < 0 ? o->dilation : o->dilation_w,
                           .groups = o->groups,
                           .workspace_limit = fri_switches()->workspace_limit,
                           .bias = b != NULL,
                           .unaligned = unaligned_operands(x, w, NULL, b)};
    if (d->stride_h < 1 || d->stride_w < 1 || d->dilation_h < 1 || d->dilation_w < 1 || d->pad_h < 0 || d->pad_w < 0 ||
        d->groups < 1)
        return fr_fail(FR_EINVAL,
                       "conv2d: stride %lld, padding %lld, dilation %lld, groups %lld: padding must be >= 0, "
                       "the others >= 1",
                       (long long)d->stride_h, (long long)d->pad_h, (long long)d->dilation_h, (long long)d->groups);
    if (d->c != wd[3] * d->groups || d->k % d->groups != 0)
        return fr_fail(FR_ESHAPE, "conv2d: x %s has %lld channels and w %s expects %lld (groups %lld)%s",
                       fri_shape_text(&x->shape, xs), (long long)d->c, fri_shape_text(&w->shape, ws),
                       (long long)(wd[3] * d->groups), (long long)d->groups,
                       fri_shape_advice(&x->shape, wd[3] * d->groups));
    d->p = output_size(d->h, d->pad_h, d->dilation_h, d->r, d->stride_h);
    d->q = output_size(d->w, d->pad_w, d->dilation_w, d->s, d->stride_w);
    if (d->p < 1 || d->q < 1 || d->h < 1 || d->w < 1 || d->r < 1 || d->s < 1)
        return fr_fail(FR_ESHAPE, "conv2d: x %s is smaller than the window of w %s%s (padding %lld, dilation %lld)",
                       fri_shape_text(&x->shape, xs), fri_shape_text(&w->shape, ws),
                       d->r < 1 || d->s < 1 ? ", which is empty" : "", (long long)d->pad_h, (long long)d->dilation_h);
    if (b != NULL) {
        FRI_TRY(fri_expect_vector(&conv2d, b, "b", d->k));
        if (b->dtype != x->dtype && b->dtype != FR_F32)
            return fr_fail(FR_EDTYPE, "conv2d: b is %s; %s or f32 is needed", fr_dtype_name(b->dtype),
                           fr_dtype_name(x->dtype));
    }
    return FR_OK;
}

fr_status fr_conv2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv2d_opts *opts, fr_tensor **y) {
    FRI_NOT_NULL(x, w, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_conv2d_desc plain, d;
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &conv2d, 2, (fr_tensor *[]){x, w, b}, 3));
    FRI_TRY(fri_conv2d_describe(c.in[0], c.in[1], c.in[2], opts != NULL ? opts : FR_CONV2D_OPTS(), &plain));
    fr_shape shape = FRI_SHAPE(plain.n, plain.p, plain.q, plain.k);
    FRI_TRY(fri_result_new(c.in, c.n_in, &shape, plain.dtype, &wanted, &out));
    d = limit_workspace(&plain, FRI_SCRATCH_FORWARD, out);
    if (wanted) FRI_TRY(run_forward(&d, c.in[0], c.in[1], c.in[2], out));
    /* Each factor is needed only for the gradient of the other factor. */
    fr_save saves[] = {{c.in[1]->requires_grad ? c.in[0] : NULL, FR_SAVE_VALUE},
                       {c.in[0]->requires_grad ? c.in[1] : NULL, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(&conv2d, &plain, sizeof plain, c.in, b != NULL ? 3 : 2, saves, 2, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
