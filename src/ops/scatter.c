/* scatter - a tensor of which some elements, named along one dimension, are replaced by those of another; scatter_add -
 * the same, added.
 *   forward    y = x; y[i with index[i] along dim] = src[i], or += src[i], in order along dim: of equal places the last
 *   backward   dx = dy, for scatter with 0 at these places; dsrc[i] = dy[i with index[i] along dim]
 *   saves      index (a reference)
 *   in-place   forward over x; scatter's backward over dy, scatter_add's shares dy
 *   rebuild    no
 *   order      deterministic, also for repeated indices: a line along dim is one task's
 *   autocast   the wider type of x and src; in place, none */
#include "ops/gather.h"

#include "autograd/run.h"
#include "base/status.h"

static fr_status backward(fr_node *node, fr_tensor **dy);
static const fr_op scatter = {.name = "scatter", .backward = backward};
static const fr_op scatter_add = {.name = "scatter_add", .backward = backward};

typedef struct params {
    fri_gather_desc d;
    fr_shape src;
    bool add;
} params;

static fr_status gradient_of_src(fr_node *node, const params *p, const fr_tensor *index, const fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *dsrc = NULL;
    if (!fr_node_wants(node, 1)) return FR_OK;
    FRI_TRY(fri_tensor_new(&p->src, p->d.dtype, fri_device_of(dy), FR_MEM_TEMPORARY, &dsrc));
    FRI_TRY(fri_gather_run(&scatter, &p->d, index, dy, dsrc));
    return fr_node_grad(node, 1, &dsrc);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *index = NULL;
    FRI_TRY(fr_node_saved(node, 0, &index));
    FRI_TRY(gradient_of_src(node, p, index, *dy));
    if (fr_node_wants(node, 0) && p->add) {
        FRI_TRY(fr_node_grad(node, 0, dy));
    } else if (fr_node_wants(node, 0)) {
        FRI_TRY(fri_gradient_like(*dy, &dx));
        if (dx != *dy) FRI_TRY(fr_tensor_copy(dx, *dy));
        FRI_TRY(fri_scatter_run(&scatter, &p->d, index, NULL, false, dx));
        FRI_TRY(fr_node_grad(node, 0, &dx));
    }
    return FR_OK;
}

static fr_status describe(const fr_op *op, const fr_tensor *x, int dim, const fr_tensor *index, const fr_tensor *src,
                          params *p) {
    FRI_TRY(fri_gather_describe(op, x, dim, index, &p->d));
    if (src->dtype != x->dtype)
        return fr_fail(FR_EDTYPE, "%s: src is %s but x is %s", op->name, fr_dtype_name(src->dtype),
                       fr_dtype_name(x->dtype));
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    if (!fri_shape_equal(&src->shape, &index->shape))
        return fr_fail(FR_ESHAPE, "%s: src has shape %s but index has %s", op->name, fri_shape_text(&src->shape, a),
                       fri_shape_text(&index->shape, b));
    *p = (params){p->d, src->shape, op == &scatter_add};
    return FR_OK;
}

static fr_status record_node(const fr_op *op, const params *p, fr_tensor *x, fr_tensor *index, fr_tensor *src,
                             fr_tensor *out) {
    fr_save save = {index, FR_SAVE_VALUE};
    return fr_op_record(op, p, sizeof *p, (fr_tensor *[]){x, src}, 2, &save, 1, out);
}

static fr_status scatter_copy(const fr_op *op, fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    params p = {0};
    FRI_TRY(fri_call_begin(&c, op, 3, (fr_tensor *[]){x, index, src}, 3));
    if (fri_autocast_get().enabled) { /* otherwise different types are refused, as in PyTorch */
        FRI_TRY(fri_promote(2, (fr_tensor *[]){x, src}, c.owned));
        x = c.owned[0];
        src = c.owned[1];
    }
    FRI_TRY(describe(op, x, dim, index, src, &p));
    if (src == x)
        FRI_TRY(fri_new_like(x, FR_MEM_TEMPORARY, &out));
    else
        FRI_TRY(fri_result_like(x, y, &out));
    if (out != x) FRI_TRY(fr_tensor_copy(out, x));
    FRI_TRY(fri_scatter_run(op, &p.d, index, src, p.add, out));
    FRI_TRY(record_node(op, &p, x, index, src, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static fr_status scatter_inplace(const fr_op *op, fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src) {
    params p = {0};
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_TRY(fri_call_begin(&c, op, 3, (fr_tensor *[]){x, index, src}, 3));
    FRI_TRY(fri_check_inplace(op, x));
    FRI_TRY(describe(op, x, dim, index, src, &p));
    if (src == x) FRI_TRY(fr_fail(FR_EINVAL, "%s: src is x itself, which is overwritten; clone src", op->name));
    fri_bump_version(x);
    FRI_TRY(fri_scatter_run(op, &p.d, index, src, p.add, x));
    return record_node(op, &p, x, index, src, x);
}

fr_status fr_scatter(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y) {
    FRI_NOT_NULL(x, index, src, y);
    return scatter_copy(&scatter, x, dim, index, src, y);
}

fr_status fr_scatter_inplace(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src) {
    FRI_NOT_NULL(x, index, src);
    return scatter_inplace(&scatter, x, dim, index, src);
}

fr_status fr_scatter_add(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y) {
    FRI_NOT_NULL(x, index, src, y);
    return scatter_copy(&scatter_add, x, dim, index, src, y);
}

fr_status fr_scatter_add_inplace(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src) {
    FRI_NOT_NULL(x, index, src);
    return scatter_inplace(&scatter_add, x, dim, index, src);
}
