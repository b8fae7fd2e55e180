/* embedding - rows of a table.
 *   forward    y[i] = w[index[i]]
 *   backward   dw[index[i]] += dy[i], in order of i; rows that no index names get 0
 *   saves      index (a reference)
 *   in-place   no
 *   rebuild    no
 *   order      deterministic, also for repeated indices */
#include "ops/op.h"

#include "base/status.h"
#include "tensor/readback.h"

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_embedding_desc *d = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *dw = NULL, *index = NULL;
    fr_shape shape = FRI_SHAPE(d->vocabulary, d->dim);
    FRI_TRY(fr_node_saved(node, 0, &index));
    FRI_TRY(fri_tensor_new(&shape, d->dtype, fri_device_of(*dy), FR_MEM_TEMPORARY, &dw));
    FRI_TRY(FRI_KERNEL(fri_backend_of(*dy), d->dtype, embedding_backward,
                       (FRI_EXEC, d, fri_data(index), fri_data(*dy), fri_data(dw))));
    return fr_node_grad(node, 0, &dw);
}

static const fr_op embedding = {.name = "embedding", .backward = backward};

static fr_status describe(const fr_tensor *index, const fr_tensor *w, fri_embedding_desc *d, fr_shape *shape) {
    FRI_TRY(fri_expect_float(&embedding, w, "w"));
    FRI_TRY(fri_expect_rank(&embedding, w, "w", 2));
    if (index->dtype != FR_I64)
        return fr_fail(FR_EDTYPE, "embedding: index is %s; i64 is needed", fr_dtype_name(index->dtype));
    if (index->shape.rank == FR_MAX_RANK)
        return fr_fail(FR_ESHAPE, "embedding: index has rank %d; %d is the most", index->shape.rank, FR_MAX_RANK - 1);
    *d = (fri_embedding_desc){.dtype = w->dtype,
                              .n = fri_numel(index),
                              .vocabulary = w->shape.dim[0],
                              .dim = w->shape.dim[1]};
    *shape = index->shape;
    shape->dim[shape->rank++] = d->dim;
    return FR_OK;
}

/* Reports an index out of range, at once or on an asynchronous device by a readback. */
static fr_status check_range(const fri_embedding_desc *d, const fr_tensor *bad) {
    double at = -1;
    if (fri_device_of(bad) == FR_META) return FR_OK;
    if (fri_backend_of(bad)->streams != NULL)
        return fri_readback_check(bad, "embedding", "the index at position", d->vocabulary - 1);
    fr_status s = fr_tensor_item(bad, &at);
    if (s < 0 || at < 0) return s;
    return fr_fail(FR_EINVAL, "embedding: index[%lld] is outside 0..%lld", (long long)at,
                   (long long)(d->vocabulary - 1));
}

fr_status fr_embedding(fr_tensor *index, fr_tensor *w, fr_tensor **y) {
    FRI_NOT_NULL(index, w, y);
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL, *bad = NULL;
    fri_embedding_desc d;
    fr_shape shape, scalar = {0};
    FRI_TRY(fri_call_begin(&c, &embedding, 2, (fr_tensor *[]){w, index}, 2));
    FRI_TRY(describe(index, w, &d, &shape));
    const fri_backend *be = fri_backend_of(w);
    FRI_TRY(fri_tensor_new(&shape, w->dtype, be->device, FR_MEM_TEMPORARY, &out));
    FRI_TRY(fri_tensor_new(&scalar, FR_I64, be->device, FR_MEM_TEMPORARY, &bad));
    FRI_TRY(FRI_KERNEL(be, w->dtype, embedding_forward,
                       (FRI_EXEC, &d, fri_data(index), fri_data(w), fri_data(out), fri_data(bad))));
    FRI_TRY(check_range(&d, bad));
    fr_tensor_release(&bad);
    fr_save save = {index, FR_SAVE_VALUE};
    FRI_TRY(fr_op_record(&embedding, &d, sizeof d, &w, 1, &save, 1, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}
