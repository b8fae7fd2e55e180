/* gather - the elements of a tensor that an index names along one dimension.
 *   forward    y[i] = x[i with index[i] along dim]
 *   backward   dx = 0, dx[i with index[i] along dim] += dy[i], in order along dim
 *   saves      index (a reference)
 *   in-place   no
 *   rebuild    no
 *   order      deterministic, also for repeated indices: a line along dim is one task's */
#include "ops/gather.h"

#include "base/status.h"
#include "tensor/readback.h"

typedef struct params {
    fri_gather_desc d;
    fr_shape x;
} params;

/* ---- shared by gather and scatter ---------------------------------------------------------------------------- */

static int64_t stride_of(const fr_shape *s, int dim) {
    int64_t stride = 1;
    for (int i = dim + 1; i < s->rank; i++) stride *= s->dim[i];
    return stride;
}

fr_status fri_gather_describe(const fr_op *op, const fr_tensor *x, int dim, const fr_tensor *index,
                              fri_gather_desc *d) {
    const fr_shape *xs = &x->shape, *is = &index->shape;
    int at = dim < 0 ? dim + xs->rank : dim;
    FRI_TRY(fri_expect_float(op, x, "x"));
    if (index->dtype != FR_I64)
        return fr_fail(FR_EDTYPE, "%s: index is %s; i64 is needed", op->name, fr_dtype_name(index->dtype));
    if (at < 0 || at >= xs->rank) return fr_fail(FR_EINVAL, "%s: dimension %d; x has rank %d", op->name, dim, xs->rank);
    if (is->rank != xs->rank)
        return fr_fail(FR_ESHAPE, "%s: index has rank %d, x has rank %d", op->name, is->rank, xs->rank);
    *d = (fri_gather_desc){.dtype = x->dtype,
                           .lines = 1,
                           .n = is->dim[at],
                           .extent = xs->dim[at],
                           .index_step = stride_of(is, at),
                           .x_step = stride_of(xs, at)};
    for (int i = xs->rank - 1; i >= 0; i--) {
        if (i == at) continue;
        if (is->dim[i] > xs->dim[i])
            return fr_fail(FR_ESHAPE, "%s: index has %lld in dimension %d, x has %lld", op->name, (long long)is->dim[i],
                           i, (long long)xs->dim[i]);
        d->lines *= is->dim[i];
        d->size[d->rank] = is->dim[i];
        d->index_stride[d->rank] = stride_of(is, i);
        d->x_stride[d->rank++] = stride_of(xs, i);
    }
    return FR_OK;
}

static fr_status check_range(const fr_op *op, const fri_gather_desc *d, const fr_tensor *bad) {
    double at = -1;
    if (fri_device_of(bad) == FR_META) return FR_OK;
    if (fri_backend_of(bad)->streams != NULL)
        return fri_readback_check(bad, op->name, "the index at position", d->extent - 1);
    fr_status s = fr_tensor_item(bad, &at);
    if (s < 0 || at < 0) return s;
    return fr_fail(FR_EINVAL, "%s: index[%lld] is outside 0..%lld", op->name, (long long)at,
                   (long long)(d->extent - 1));
}

static fr_status new_bad(const fr_tensor *like, fr_tensor **bad) {
    return fri_tensor_new(&(fr_shape){0}, FR_I64, fri_device_of(like), FR_MEM_TEMPORARY, bad);
}

fr_status fri_gather_run(const fr_op *op, const fri_gather_desc *d, const fr_tensor *index, const fr_tensor *x,
                         fr_tensor *y) {
    FRI_OWNED(fr_tensor_release) fr_tensor *bad = NULL;
    FRI_TRY(new_bad(x, &bad));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), d->dtype, gather,
                       (FRI_EXEC, d, fri_data(index), fri_data(x), fri_data(y), fri_data(bad))));
    return check_range(op, d, bad);
}

fr_status fri_scatter_run(const fr_op *op, const fri_gather_desc *d, const fr_tensor *index, const fr_tensor *src,
                          bool add, fr_tensor *x) {
    FRI_OWNED(fr_tensor_release) fr_tensor *bad = NULL;
    FRI_TRY(new_bad(x, &bad));
    FRI_TRY(FRI_KERNEL(fri_backend_of(x), d->dtype, scatter,
                       (FRI_EXEC, d, fri_data(index), src != NULL ? fri_data(src) : NULL, add, fri_data(x),
                        fri_data(bad))));
    return check_range(op, d, bad);
}

/* ---- gather -------------------------------------------------------------------------------------------------- */

static fr_status backward(fr_node *node, fr_tensor **dy);
static const fr_op gather = {.name = "gather", .backward = backward};

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dx = NULL, *index = NULL;
    FRI_TRY(fr_node_saved(node, 0, &index));
    FRI_TRY(fri_tensor_new(&p->x, p->d.dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dx));
    FRI_TRY(fr_tensor_fill(dx, 0));
    FRI_TRY(fri_scatter_run(&gather, &p->d, index, *dy, true, dx));
    return fr_node_grad(node, 0, &dx);
}

fr_status fr_gather(fr_tensor *x, int dim, fr_tensor *index, fr_tensor **y) {
    FRI_NOT_NULL(x, index, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    params p = {.x = x->shape};
    FRI_TRY(fri_call_begin(&c, &gather, 2, (fr_tensor *[]){x, index}, 2));
    FRI_TRY(fri_gather_describe(&gather, x, dim, index, &p.d));
    FRI_TRY(fri_tensor_new(&index->shape, x->dtype, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_gather_run(&gather, &p.d, index, x, out));
    fr_save save = {index, FR_SAVE_VALUE};
    FRI_TRY(fr_op_record(&gather, &p, sizeof p, &x, 1, &save, 1, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
