/* linear - fully connected layer.
 *   forward    y = x w^T + b over the last dimension
 *   backward   db = sum of dy over rows;  dw = dy^T x;  dx = dy w
 *   order      db and dw in one call, then x is given up, then dx is made
 *   autocast   low precision; b too */
#include "ops/frame.h"

#include "base/status.h"

/* ---- products: kernels only accept nonempty matrices; else the result is 0, or b -------------------------------- */

static bool is_empty(const fri_linear_desc *d) {
    return d->n == 0 || d->in == 0 || d->out == 0;
}

static void product_cost(const fr_kernel_call *c, fri_kernel_call *work) {
    const fri_linear_desc *d = c->options;
    const double n = (double)d->n, in = (double)d->in, out = (double)d->out;
    work->flops = 2 * n * in * out;
    work->bytes = (double)fr_dtype_size(c->dtype) * (n * in + in * out + n * out);
    work->n = 3;
    work->dim[0] = d->n, work->dim[1] = d->in, work->dim[2] = d->out;
}
static const fri_kernel_more product = {.cost = product_cost};

static fr_status empty_weight(const fr_kernel_call *c, const fri_exec *e, const fri_linear_desc *d) {
    FRI_TRY(fri_fill_rows(c, NULL, c->t[3]));
    return d->bias_gradient ? FRI_KERNEL_SLOT_CALL(c, linear_backward_bias, (e, d, T(1), T(2))) : FR_OK;
}

#define PRODUCT(word, pass, bias, empty_bytes, empty, ...)                                           \
    static fri_linear_desc word##_desc(const fr_kernel_call *c) {                                    \
        fri_linear_desc d = *(const fri_linear_desc *)c->options;                                    \
        d.bias_gradient = bias;                                                                      \
        return d;                                                                                    \
    }                                                                                                \
    static fr_status word##_bytes(const fr_kernel_call *c, size_t *bytes) {                          \
        const fri_linear_desc d = word##_desc(c);                                                    \
        *bytes = 0;                                                                                  \
        if (fri_target_of(c) == NULL) return FR_OK;                                                  \
        if (!is_empty(&d)) return FRI_KERNEL_SLOT_CALL(c, linear_##pass##_workspace, (&d, bytes));   \
        *bytes = empty_bytes;                                                                        \
        return FR_OK;                                                                                \
    }                                                                                                \
    static fr_status word##_run(const fr_kernel_call *c) {                                           \
        const fri_exec e = fri_exec_of(c);                                                           \
        const fri_linear_desc d = word##_desc(c);                                                    \
        return is_empty(&d) ? empty : FRI_KERNEL_SLOT_CALL(c, linear_##pass, (&e, &d, __VA_ARGS__)); \
    }                                                                                                \
    const fr_kernel fri_linear_##word = {"linear_" #pass, word##_run, word##_bytes, .fri_more = &product};
PRODUCT(forward, forward, false, 0, fri_fill_rows(c, c->t[2], c->t[3]), T(0), T(1), T(2), T(3))
PRODUCT(input, backward_input, false, 0, fri_fill_rows(c, NULL, c->t[2]), T(0), T(1), T(2))
PRODUCT(weight, backward_weight, c->t[2] != NULL, fri_target_of(c)->kernels.bias_workspace(c->dtype, d.n, d.out),
        empty_weight(c, &e, &d), T(0), T(1), T(3), T(2))
FRI_OP_BYTES(bias_workspace, fri_linear_desc, (c->dtype, d->n, d->out))
FRI_OP_KERNEL(linear_backward_bias, fri_linear_desc, (e, d, T(0), T(1)), .workspace = bias_workspace_bytes, .flops = 1,
              .moves = 1)

/* ---- the op ------------------------------------------------------------------------------------------------------ */

fr_described fri_op_linear = {.op = {.name = "linear", .autocast = FR_AUTOCAST_LOW},
                              .operands = "x[*,i] w[o,i] b:bias[o]? > y[*,o]",
                              .forward = {{"x w b? > y", &fri_linear_forward}},
                              .backward = {{"x dy > +db dw", &fri_linear_weight},
                                           {"dy > db", &linear_backward_bias_kernel},
                                           {"w dy > dx", &fri_linear_input}},
                              .costly = true};

fr_status fr_linear(fr_tensor *x, fr_tensor *w, fr_tensor *b, fr_tensor **y) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, &fri_op_linear, (fr_tensor *[]){x, w, b}, y));
    const fr_dtype bias = b != NULL ? f.c.in[2]->dtype : f.dtype;
    const fri_linear_desc d = {f.dtype, bias, fri_shape_numel(&f.any), FRI_SIZE(f, 'i'), FRI_SIZE(f, 'o'), false};
    return fri_frame_run(&f, &d, sizeof d, y);
}
