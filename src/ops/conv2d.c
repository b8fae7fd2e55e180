/* conv2d - two-dimensional convolution (cross-correlation), zero padded.
 *   forward    y[n,p,q,k] = b[k] + sum over r,s,c of x[n, p*u + r*d - pad, q*u + s*d - pad, c] * w[k,r,s,c]
 *   backward   db = sum of dy over n,p,q;  dw = correlation of x and dy;  dx = transposed convolution of dy and w
 *   rebuild    no: a convolution never runs twice outside a checkpoint; dw's kernel may normalize x while it reads
 *   order      dw and db first, then x is given up, then dx is made: x and dx never live together
 *   autocast   low precision; b too */
#include "ops/conv2d.h"

#include "autograd/anomaly.h"
#include "autograd/scratch.h"
#include "base/status.h"
#include "ops/batchnorm2d.h"

#include <string.h>

/* Bits for operands that are not 16-byte aligned: cuDNN requires the alignment, the CPU does not. A view may start
 * anywhere. -1: the call does not read the operand. */
static uint8_t unaligned_operands(const fr_kernel_call *c, int x, int w, int y, int b) {
    const int at[4] = {x, w, y, b};
    const uint8_t bit[4] = {FRI_UNALIGNED_X, FRI_UNALIGNED_W, FRI_UNALIGNED_Y, FRI_UNALIGNED_B};
    uint8_t bits = 0;
    for (int i = 0; i < 4; i++)
        if (at[i] >= 0 && (uintptr_t)T(at[i]) % 16 != 0) bits |= bit[i];
    return bits;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* True if a size is 0: the result is then 0, or b, and kernels accept nonempty operands only. */
static bool is_empty(const fri_conv2d_desc *d) {
    return d->n == 0 || d->c == 0 || d->k == 0;
}

static void window_cost(const fr_kernel_call *c, fri_kernel_call *work) {
    const fri_conv2d_desc *d = c->options;
    const double x = (double)d->n * (double)d->h * (double)d->w * (double)d->c;
    const double y = (double)d->n * (double)d->p * (double)d->q * (double)d->k;
    const double window = (double)d->r * (double)d->s * (double)d->c / (double)d->groups;
    const int64_t dim[] = {FRI_CONV2D_KEY(d)};
    work->flops = 2 * y * window;
    work->bytes = (double)fr_dtype_size(c->dtype) * (x + y + window * (double)d->k);
    work->n = sizeof dim / sizeof *dim;
    memcpy(work->dim, dim, sizeof dim);
}

/* A pass: the descriptor with the pass's scratch limit, the workspace, the kernel. */
#define PASS(word, pass, which, x, w, y, b, empty, ...)                                            \
    static void word##_prepare(const fr_kernel_call *c, void *options) {                           \
        fri_conv2d_desc *d = options;                                                              \
        d->workspace_limit = fri_scratch_limit(d, FRI_SCRATCH_##which, c->device);                 \
        d->unaligned = unaligned_operands(c, x, w, y, b);                                          \
    }                                                                                              \
    static fr_status word##_bytes(const fr_kernel_call *c, size_t *bytes) {                        \
        const fri_conv2d_desc *d = c->options;                                                     \
        *bytes = 0;                                                                                \
        if (fri_target_of(c) == NULL || is_empty(d)) return FR_OK;                                 \
        return FRI_KERNEL_SLOT_CALL(c, conv2d_##pass##_workspace, (d, bytes));                     \
    }                                                                                              \
    static fr_status word##_run(const fr_kernel_call *c) {                                         \
        const fri_exec e = fri_exec_of(c);                                                         \
        const fri_conv2d_desc *d = c->options;                                                     \
        return is_empty(d) ? empty : FRI_KERNEL_SLOT_CALL(c, conv2d_##pass, (&e, d, __VA_ARGS__)); \
    }                                                                                              \
    static const fri_kernel_more word##_more = {.prepare = word##_prepare, .cost = window_cost};   \
    const fr_kernel fri_conv2d_##word = {"conv2d_" #pass, word##_run, word##_bytes, .fri_more = &word##_more};
PASS(forward, forward, FORWARD, 0, 1, -1, 2, fri_fill_rows(c, c->t[2], c->t[3]), T(0), T(1), T(2), T(3))
PASS(weight, backward_weight, BACKWARD_WEIGHT, 0, -1, 1, -1, fri_fill_rows(c, NULL, c->t[2]), T(0), T(1), T(2))
PASS(input, backward_input, BACKWARD_INPUT, -1, 0, 1, -1, fri_fill_rows(c, NULL, c->t[2]), T(0), T(1), T(2))

static void align_forward(const fr_kernel_call *c, void *options) {
    ((fri_conv2d_desc *)options)->unaligned = unaligned_operands(c, 0, 1, -1, 2);
}
const fri_kernel_more fri_conv2d_own_limit = {.prepare = align_forward, .cost = window_cost};

FRI_OP_BYTES(bias_workspace, fri_conv2d_desc, (c->dtype, d->n * d->p * d->q, d->k))
FRI_OP_KERNEL(conv2d_backward_bias, fri_conv2d_desc, (e, d, T(0), T(1)), .workspace = bias_workspace_bytes, .flops = 1,
              .moves = 1)

/* ---- the weight gradient, whose kernel may normalize x while it reads -------------------------------------------- */

/* Reads the saved x; or, if a norm would recompute x and the kernel can normalize and activate while it reads, the
 * norm's operands (then d->norm is set). */
static fr_status read_x(fr_node *node, const fr_tensor *dy, fri_conv2d_desc *d, fri_norm_read *r) {
    const fr_kernel_call c = {.dtype = d->dtype, .device = fri_device_of(dy)};
    const fri_backend *target = fri_target_of(&c);
    fri_conv2d_reads_norm_fn *reads = target != NULL ? fri_kernels_for(target, d->dtype)->conv2d_reads_norm : NULL;
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

static fr_status weight_gradient(fr_node *node, const fr_step *step, fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dw = NULL;
    FRI_OWNED(fri_norm_read_end) fri_norm_read read = {0};
    fri_conv2d_desc d = *(const fri_conv2d_desc *)fri_frame_options(node);
    FRI_TRY(read_x(node, dy, &d, &read));
    FRI_TRY(fri_frame_gradient(node, 1, dy, &dw));
    FRI_TRY(fri_kernel_run(step->kernel, &d, sizeof d, d.dtype, (fr_tensor *[]){read.x[0], dy, dw}, 3));
    fri_norm_read_end(&read);
    return fr_node_grad(node, 1, &dw);
}

/* ---- the op ------------------------------------------------------------------------------------------------------ */

fr_described fri_op_conv2d = {.op = {.name = "conv2d", .autocast = FR_AUTOCAST_LOW},
                              .operands = "x[n,h,w,c] w[k,r,s,g] b:bias[k]? > y[n,p,q,k]",
                              .forward = {{"x w b? > y", &fri_conv2d_forward}},
                              .backward = {{"dy > db", &conv2d_backward_bias_kernel},
                                           {"x dy > dw", &fri_conv2d_weight, .by = weight_gradient},
                                           {"w dy > dx", &fri_conv2d_input}},
                              .costly = true};

static int64_t output_size(int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
    int64_t span = dilation * (kernel - 1) + 1;
    return in + 2 * pad < span ? 0 : (in + 2 * pad - span) / stride + 1;
}

static fr_status expect_bounded(const int64_t *x, const int64_t *w, const fr_conv2d_opts *o) {
    FRI_TRY(fri_expect_bounded("conv2d", "x's height and width", x[1], x[2]));
    FRI_TRY(fri_expect_bounded("conv2d", "w's height and width", w[1], w[2]));
    FRI_TRY(fri_expect_bounded("conv2d", "w's channels and groups", w[3], o->groups));
    FRI_TRY(fri_expect_bounded("conv2d", "stride", o->stride, o->stride_w));
    FRI_TRY(fri_expect_bounded("conv2d", "padding", o->padding, o->padding_w));
    return fri_expect_bounded("conv2d", "dilation", o->dilation, o->dilation_w);
}

fr_status fri_conv2d_describe(fri_frame *f, const fr_conv2d_opts *o, fri_conv2d_desc *d) {
    char xs[FRI_SHAPE_TEXT], ws[FRI_SHAPE_TEXT];
    const fr_tensor *x = f->c.in[0], *w = f->c.in[1], *b = f->c.in[2];
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
                           .bias = b != NULL};
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
    d->p = FRI_SIZE(*f, 'p') = output_size(d->h, d->pad_h, d->dilation_h, d->r, d->stride_h);
    d->q = FRI_SIZE(*f, 'q') = output_size(d->w, d->pad_w, d->dilation_w, d->s, d->stride_w);
    if (d->p < 1 || d->q < 1 || d->h < 1 || d->w < 1 || d->r < 1 || d->s < 1)
        return fr_fail(FR_ESHAPE, "conv2d: x %s is smaller than the window of w %s%s (padding %lld, dilation %lld)",
                       fri_shape_text(&x->shape, xs), fri_shape_text(&w->shape, ws),
                       d->r < 1 || d->s < 1 ? ", which is empty" : "", (long long)d->pad_h, (long long)d->dilation_h);
    return FR_OK;
}

fr_status fr_conv2d(fr_tensor *x, fr_tensor *w, fr_tensor *b, const fr_conv2d_opts *opts, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    fri_conv2d_desc d;
    FRI_TRY(fri_frame_begin(&f, &fri_op_conv2d, (fr_tensor *[]){x, w, b}, y));
    FRI_TRY(fri_conv2d_describe(&f, opts != NULL ? opts : FR_CONV2D_OPTS(), &d));
    return fri_frame_run(&f, &d, sizeof d, y);
}
