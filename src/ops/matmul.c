/* matmul - product of matrices: a linear layer's kernels, each in another one's place.
 *   forward    y = a b                        (how a linear layer makes dx from dy and w)
 *   backward   da = dy b^T;  db = a^T dy      (its forward pass; its dw)
 *   saves      a if b wants a gradient, b if a wants one (references)
 *   in-place   no
 *   rebuild    no
 *   order      db first, then a is given up, then da is made
 *   autocast   low precision */
#include "ops/linear.h"

enum { SAVED_A, SAVED_B };

static fr_status b_gradient(fr_node *node, const fri_linear_desc *d, const fr_tensor *dy) {
    const fr_shape shape = FRI_SHAPE(d->out, d->in);
    FRI_OWNED(fr_tensor_release) fr_tensor *db = NULL, *a = NULL;
    if (!fr_node_wants(node, 1)) return FR_OK;
    FRI_TRY(fr_node_saved(node, SAVED_A, &a));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &db));
    FRI_TRY(fri_linear_weight(d, dy, a, db, NULL));
    fr_tensor_release(&a);
    return fr_node_grad(node, 1, &db);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_linear_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *da = NULL, *b = NULL;
    fr_shape shape = (*dy)->shape;
    FRI_TRY(b_gradient(node, d, *dy));
    fr_node_release_saved(node, SAVED_A);
    if (!fr_node_wants(node, 0)) return FR_OK;
    shape.dim[shape.rank - 1] = d->out;
    FRI_TRY(fr_node_saved(node, SAVED_B, &b));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &da));
    FRI_TRY(fri_linear_forward(d, *dy, b, NULL, da));
    fr_tensor_release(&b);
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &da);
}

static const fr_op matmul = {.name = "matmul", .autocast = FR_AUTOCAST_LOW, .backward = backward};

static fr_status describe(const fr_tensor *a, const fr_tensor *b, fri_linear_desc *d) {
    char as[FRI_SHAPE_TEXT], bs[FRI_SHAPE_TEXT];
    FRI_TRY(fri_expect_float(&matmul, a, "a"));
    FRI_TRY(fri_expect_rank(&matmul, b, "b", 2));
    if (a->shape.rank < 1 || a->shape.dim[a->shape.rank - 1] != b->shape.dim[0])
        return fr_fail(FR_ESHAPE, "matmul: a %s times b %s; a's last dimension must be b's first",
                       fri_shape_text(&a->shape, as), fri_shape_text(&b->shape, bs));
    if (a->dtype != b->dtype)
        return fr_fail(FR_EDTYPE, "matmul: a is %s but b is %s", fr_dtype_name(a->dtype), fr_dtype_name(b->dtype));
    *d = (fri_linear_desc){.dtype = a->dtype,
                           .bias_dtype = a->dtype,
                           .n = fri_rows(a),
                           .in = b->shape.dim[1],
                           .out = b->shape.dim[0]};
    return FR_OK;
}

fr_status fr_matmul(fr_tensor *a, fr_tensor *b, fr_tensor **y) {
    FRI_NOT_NULL(a, b, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    fri_linear_desc d;
    bool wanted = true;
    FRI_TRY(fri_call_begin(&c, &matmul, 2, (fr_tensor *[]){a, b}, 2));
    FRI_TRY(describe(c.in[0], c.in[1], &d));
    fr_shape shape = c.in[0]->shape;
    shape.dim[shape.rank - 1] = d.in;
    FRI_TRY(fri_result_new(c.in, c.n_in, &shape, d.dtype, &wanted, &out));
    if (wanted) FRI_TRY(fri_linear_input(&d, c.in[1], c.in[0], out));
    fr_save saves[] = {{c.in[1]->requires_grad ? c.in[0] : NULL, FR_SAVE_VALUE},
                       {c.in[0]->requires_grad ? c.in[1] : NULL, FR_SAVE_VALUE}};
    FRI_TRY(fr_op_record(&matmul, &d, sizeof d, c.in, 2, saves, 2, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
