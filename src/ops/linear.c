/* linear - fully connected layer.
 *   forward    y = x w^T + b over the last dimension
 *   backward   db = sum of dy over rows;  dw = dy^T x;  dx = dy w
 *   saves      x and w (references), never y
 *   in-place   no
 *   rebuild    no
 *   order      db and dw in one call, then x is given up, then dx is made
 *   autocast   low precision; b too */
#include "ops/linear.h"

#include "base/status.h"
#include "ops/binary.h"

/* ---- products -------------------------------------------------------------------------------------------------- */

/* True if a size is 0: the result is 0, and kernels only accept nonempty matrices. */
static bool is_empty(const fri_linear_desc *d) {
    return d->n == 0 || d->in == 0 || d->out == 0;
}

fr_status fri_linear_forward(const fri_linear_desc *d, const fr_tensor *x, const fr_tensor *w, const fr_tensor *b,
                             fr_tensor *y) {
    const fri_backend *be = fri_backend_of(x);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(d)) return fri_fill_bias(b, y);
    FRI_TRY(FRI_KERNEL(be, d->dtype, linear_forward_workspace, (d, &bytes)));
    FRI_TRY(fri_workspace_begin(x, bytes, &ws));
    return FRI_KERNEL(be, d->dtype, linear_forward,
                      (&ws.exec, d, fri_data(x), fri_data(w), b != NULL ? fri_data(b) : NULL, fri_data(y)));
}

fr_status fri_linear_input(const fri_linear_desc *d, const fr_tensor *w, const fr_tensor *dy, fr_tensor *dx) {
    const fri_backend *be = fri_backend_of(dy);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(d)) return fri_tensor_fill(dx, 0);
    FRI_TRY(FRI_KERNEL(be, d->dtype, linear_backward_input_workspace, (d, &bytes)));
    FRI_TRY(fri_workspace_begin(dy, bytes, &ws));
    return FRI_KERNEL(be, d->dtype, linear_backward_input, (&ws.exec, d, fri_data(w), fri_data(dy), fri_data(dx)));
}

fr_status fri_linear_weight(const fri_linear_desc *d, const fr_tensor *x, const fr_tensor *dy, fr_tensor *dw,
                            fr_tensor *db) {
    const fri_backend *be = fri_backend_of(dy);
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    size_t bytes = 0;
    if (is_empty(d)) return fri_tensor_fill(dw, 0);
    FRI_TRY(FRI_KERNEL(be, d->dtype, linear_backward_weight_workspace, (d, &bytes)));
    FRI_TRY(fri_workspace_begin(dy, bytes, &ws));
    return FRI_KERNEL(be, d->dtype, linear_backward_weight,
                      (&ws.exec, d, fri_data(x), fri_data(dy), fri_data(dw), db != NULL ? fri_data(db) : NULL));
}

/* ---- backward -------------------------------------------------------------------------------------------------- */

/* Computes dw and, because the product reads dy anyway, db. */
static fr_status weight_gradient(fr_node *node, const fri_linear_desc *forward, const fr_tensor *dy, bool bias) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dw = NULL, *db = NULL, *x = NULL;
    fri_linear_desc d = *forward;
    fr_shape shape = FRI_SHAPE(d.out, d.in), vector = FRI_SHAPE(d.out);
    d.bias_gradient = bias;
    FRI_TRY(fr_node_saved(node, 0, &x));
    if (bias) FRI_TRY(fri_tensor_new(&vector, d.bias_dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &db));
    FRI_TRY(fri_tensor_new(&shape, d.dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &dw));
    FRI_TRY(fri_linear_weight(&d, x, dy, dw, db));
    fr_tensor_release(&x);
    if (bias) FRI_TRY(fr_node_grad(node, 2, &db));
    return fr_node_grad(node, 1, &dw);
}

static fr_status bias_gradient(fr_node *node, const fri_linear_desc *d, const fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *db = NULL;
    FRI_OWNED(fri_workspace_end) fri_workspace ws = {0};
    const fri_backend *be = fri_backend_of(dy);
    fr_shape shape = FRI_SHAPE(d->out);
    FRI_TRY(fri_tensor_new(&shape, d->bias_dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &db));
    FRI_TRY(fri_workspace_begin(dy, FRI_KERNEL_BYTES(be, d->dtype, bias_workspace, (d->dtype, d->n, d->out)), &ws));
    FRI_TRY(FRI_KERNEL(be, d->dtype, linear_backward_bias, (&ws.exec, d, fri_data(dy), fri_data(db))));
    fri_workspace_end(&ws);
    return fr_node_grad(node, 2, &db);
}

static fr_status input_gradient(fr_node *node, const fri_linear_desc *d, fr_tensor **dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *w = NULL;
    fr_shape shape = (*dy)->shape;
    shape.dim[shape.rank - 1] = d->in;
    FRI_TRY(fr_node_saved(node, 1, &w));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(fri_linear_input(d, w, *dy, dx));
    fr_tensor_release(&w);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_linear_desc *d = fr_node_params(node);
    const bool bias = fr_node_inputs(node) > 2 && fr_node_wants(node, 2), weight = fr_node_wants(node, 1);
    const bool both = bias && weight && !is_empty(d);
    if (bias && !both) FRI_TRY(bias_gradient(node, d, *dy));
    if (weight) FRI_TRY(weight_gradient(node, d, *dy, both));
    fr_node_release_saved(node, 0);
    return fr_node_wants(node, 0) ? input_gradient(node, d, dy) : FR_OK;
}

static const fr_op linear = {.name = "linear", .autocast = FR_AUTOCAST_LOW, .backward = backward};

static fr_status describe(const fr_tensor *x, const fr_tensor *w, const fr_tensor *b, fri_linear_desc *d) {
    char xs[FRI_SHAPE_TEXT], ws[FRI_SHAPE_TEXT];
    FRI_TRY(fri_expect_float(&linear, x, "x"));
    FRI_TRY(fri_expect_rank(&linear, w, "w", 2));
    if (x->shape.rank < 1)
        return fr_fail(FR_ESHAPE, "linear: x is a scalar; w %s needs features", fri_shape_text(&w->shape, ws));
    if (x->dtype != w->dtype)
        return fr_fail(FR_EDTYPE, "linear: x is %s but w is %s", fr_dtype_name(x->dtype), fr_dtype_name(w->dtype));
    *d = (fri_linear_desc){.dtype = x->dtype,
                           .bias_dtype = b != NULL ? b->dtype : x->dtype,
                           .in = x->shape.dim[x->shape.rank - 1],
                           .out = w->shape.dim[0],
                           .n = fri_rows(x)};
    if (w->shape.dim[1] != d->in)
        return fr_fail(FR_ESHAPE, "linear: x %s has %lld features but w %s expects %lld", fri_shape_text(&x->shape, xs),
                       (long long)d->in, fri_shape_text(&w->shape, ws), (long long)w->shape.dim[1]);
    if (b != NULL) {
        FRI_TRY(fri_expect_vector(&linear, b, "b", d->out));
        if (b->dtype != x->dtype && b->dtype != FR_F32)
            return fr_fail(FR_EDTYPE, "linear: b is %s; %s or f32 is needed", fr_dtype_name(b->dtype),
                           fr_dtype_name(x->dtype));
    }
    return FR_OK;
}

fr_status fr_linear(fr_tensor *x, fr_tensor *w, fr_tensor *b, fr_tensor **y) {
    FRI_NOT_NULL(x, w, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_linear_desc d;
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &linear, 2, (fr_tensor *[]){x, w, b}, 3));
    FRI_TRY(describe(c.in[0], c.in[1], c.in[2], &d));
    fr_shape shape = c.in[0]->shape;
    shape.dim[shape.rank - 1] = d.out;
    FRI_TRY(fri_result_new(c.in, c.n_in, &shape, d.dtype, &wanted, &out));
    if (wanted) FRI_TRY(fri_linear_forward(&d, c.in[0], c.in[1], c.in[2], out));
    fr_save saves[] = {{c.in[1]->requires_grad ? c.in[0] : NULL, FR_SAVE_VALUE},
                       {c.in[0]->requires_grad ? c.in[1] : NULL, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(&linear, &d, sizeof d, c.in, b != NULL ? 3 : 2, saves, 2, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
