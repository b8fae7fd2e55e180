/* reshape, flatten - the same bytes under another shape.
 *   forward    y shares x's storage
 *   backward   dx is dy under x's shape
 *   saves      nothing
 *   in-place   a view: no bytes move
 *   rebuild    from x
 *   order      - */
#include "ops/op.h"

#include "base/status.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fr_shape *shape = fr_node_params(node);
    fr_tensor *dx = NULL;
    FRI_TRY(fri_tensor_view(*dy, shape, &dx));
    fr_tensor_release(dy);
    return fr_node_grad(node, 0, &dx);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    return fri_tensor_view(in[0], &node->shape, y);
}

static const fr_op reshape = {.name = "reshape", .backward = backward, .rebuild = rebuild, .rebuild_inputs = 1};

/* Replaces a -1 in the shape by the remaining size. */
static fr_status infer_shape(const fr_tensor *x, fr_shape *shape) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    int64_t known = 1, n = fri_numel(x);
    int unknown = -1;
    bool fits = true;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape->dim[i] < 0 || !fri_mul_i64(known, shape->dim[i], &known))
            fits = false;
    }
    if (fits && unknown >= 0) {
        fits = known > 0 && n % known == 0;
        if (fits) shape->dim[unknown] = n / known;
    }
    if (fits && (unknown >= 0 || known == n)) return FR_OK;
    return fr_fail(FR_ESHAPE, "reshape: %s does not fit into %s", fri_shape_text(&x->shape, a),
                   fri_shape_text(shape, b));
}

static fr_status make_view(fr_tensor *x, fr_shape shape, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    FRI_TRY(fri_call_begin(&c, &reshape, 1, &x, 1));
    FRI_TRY(infer_shape(x, &shape));
    FRI_TRY(fri_tensor_view(x, &shape, &out));
    FRI_TRY(fr_op_record(&reshape, &x->shape, sizeof x->shape, &x, 1, NULL, 0, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

fr_status fr_reshape(fr_tensor *x, int rank, const int64_t *shape, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    if (rank > 0) FRI_NOT_NULL(shape);
    if (rank < 0 || rank > FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "reshape: rank %d is outside 0..%d", rank, FR_MAX_RANK);
    return make_view(x, fri_shape_of(rank, shape), y);
}

fr_status fr_flatten(fr_tensor *x, int start_dim, fr_tensor **y) {
    FRI_NOT_NULL(x, y);
    if (start_dim < 0 || start_dim >= x->shape.rank)
        return fr_fail(FR_ESHAPE, "flatten: start_dim %d is outside 0..%d", start_dim, x->shape.rank - 1);
    fr_shape shape = {.rank = start_dim + 1};
    for (int i = 0; i < start_dim; i++) shape.dim[i] = x->shape.dim[i];
    shape.dim[start_dim] = -1;
    if (fri_numel(x) == 0) {
        shape.dim[start_dim] = 1;
        for (int i = start_dim; i < x->shape.rank; i++) shape.dim[start_dim] *= x->shape.dim[i];
    }
    return make_view(x, shape, y);
}
