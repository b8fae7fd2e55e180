/* cross_entropy - softmax cross-entropy with integer targets, mean over the rows that count.
 *   forward    loss = mean of lse(x) - (1 - e) x[t] - e mean(x),  lse = log sum exp, e = label_smoothing
 *   backward   dx = (softmax(x) - (1 - e) onehot(t) - e / classes) * dloss / count; 0 on ignored rows
 *   saves      x, target (references), one value per row and the count
 *   in-place   forward no; backward no
 *   rebuild    no
 *   order      deterministic; sums in f64 per row
 *   autocast   f32 */
#include "ops/op.h"

#include "base/status.h"
#include "tensor/readback.h"

enum { SAVED_X, SAVED_TARGET, SAVED_LSE, SAVED_COUNT, SAVES };

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const fri_cross_entropy_desc *d = fr_node_params(node);
    fr_tensor *saved[SAVES] = {0}, *dx = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < SAVES; i++) FR_TRY(s, fr_node_saved(node, i, &saved[i]));
    FR_TRY(s, fri_new_like(saved[SAVED_X], FR_MEM_TEMPORARY, &dx));
    FR_TRY(s, FRI_KERNEL(fri_backend_of(*dy), d->dtype, cross_entropy_backward,
                         (FRI_EXEC, d, fri_data(saved[SAVED_X]), fri_data(saved[SAVED_TARGET]),
                          fri_data(saved[SAVED_LSE]), fri_data(saved[SAVED_COUNT]), fri_data(*dy), fri_data(dx))));
    for (int i = 0; i < SAVES; i++) {
        fr_tensor_release(&saved[i]);
        fr_node_release_saved(node, i);
    }
    FR_TRY(s, fr_node_grad(node, 0, &dx));
done:
    for (int i = 0; i < SAVES; i++) fr_tensor_release(&saved[i]);
    fr_tensor_release(&dx);
    return s;
}

static const fr_op cross_entropy = {.name = "cross_entropy", .autocast = FR_AUTOCAST_F32, .backward = backward};
static const fr_op count_correct = {.name = "count_correct"};

static fr_status describe(const fr_op *op, const fr_tensor *x, const fr_tensor *target, fri_cross_entropy_desc *d) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    fr_status s = fri_expect_float(op, x, "x");
    if (s < 0) return s;
    if (target->dtype != FR_I64)
        return fr_fail(FR_EDTYPE, "%s: target is %s; i64 is needed", op->name, fr_dtype_name(target->dtype));
    fr_shape rows = x->shape;
    rows.rank--;
    if (x->shape.rank < 2 || !fri_shape_equal(&rows, &target->shape) || x->shape.dim[rows.rank] < 1)
        return fr_fail(FR_ESHAPE, "%s: x %s needs a target of the same shape without the last dimension, not %s",
                       op->name, fri_shape_text(&x->shape, a), fri_shape_text(&target->shape, b));
    *d = (fri_cross_entropy_desc){.dtype = x->dtype,
                                  .rows = fri_shape_numel(&rows),
                                  .classes = x->shape.dim[rows.rank],
                                  .ignore_index = -100};
    return FR_OK;
}

static fr_status check_targets(const fri_cross_entropy_desc *d, const fr_tensor *bad) {
    double at = -1;
    if (fri_device_of(bad) == FR_META) return FR_OK;
    if (fri_backend_of(bad)->streams != NULL)
        return fri_readback_check(bad, "cross_entropy", "the target of row", d->classes - 1);
    fr_status s = fr_tensor_item(bad, &at);
    if (s < 0 || at < 0) return s;
    return fr_fail(FR_EINVAL, "cross_entropy: the target of row %lld is neither a class 0..%lld nor ignore_index %lld",
                   (long long)at, (long long)(d->classes - 1), (long long)d->ignore_index);
}

fr_status fr_cross_entropy(fr_tensor *x, fr_tensor *target, const fr_cross_entropy_opts *opts, fr_tensor **loss) {
    FRI_NOT_NULL(x, target, loss);
    fr_tensor *out = NULL, *lse = NULL, *count = NULL, *bad = NULL;
    fri_workspace ws = {0};
    fri_cross_entropy_desc d;
    fr_shape scalar = {0};
    fri_call c;
    fr_status s = FR_OK;
    const fr_cross_entropy_opts *o = opts != NULL ? opts : FR_CROSS_ENTROPY_OPTS();
    FR_TRY(s, fri_call_begin(&c, &cross_entropy, 2, (fr_tensor *[]){x, target}, 2));
    fr_tensor *v = c.in[0];
    FR_TRY(s, describe(&cross_entropy, v, target, &d));
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1)) {
        s = fr_fail(FR_EINVAL, "cross_entropy: label_smoothing is %g; it must lie in 0..1", o->label_smoothing);
        goto done;
    }
    d.label_smoothing = o->label_smoothing;
    d.ignore_index = o->ignore_index;
    const fri_backend *be = fri_backend_of(v);
    fr_dtype real = fri_real_of(v);
    fr_shape rows = FRI_SHAPE(d.rows);
    FR_TRY(s, fri_tensor_new(&scalar, real, be->device, FR_MEM_TEMPORARY, &out));
    FR_TRY(s, fri_tensor_new(&rows, real, be->device, FR_MEM_TEMPORARY, &lse));
    FR_TRY(s, fri_tensor_new(&scalar, real, be->device, FR_MEM_TEMPORARY, &count));
    FR_TRY(s, fri_tensor_new(&scalar, FR_I64, be->device, FR_MEM_TEMPORARY, &bad));
    FR_TRY(s, fri_workspace_begin(v, FRI_KERNEL_BYTES(be, d.dtype, cross_entropy_workspace, (&d)), &ws));
    FR_TRY(s, FRI_KERNEL(be, d.dtype, cross_entropy_forward,
                         (&ws.exec, &d, fri_data(v), fri_data(target), fri_data(out), fri_data(lse), fri_data(count),
                          fri_data(bad))));
    fri_workspace_end(&ws);
    FR_TRY(s, check_targets(&d, bad));
    fr_tensor_release(&bad);
    fr_save saves[SAVES] = {{v, FR_SAVE_VALUE}, {target, FR_SAVE_VALUE}, {lse, FR_SAVE_VALUE}, {count, FR_SAVE_VALUE}};
    FR_TRY(s, fr_op_record(&cross_entropy, &d, sizeof d, &v, 1, saves, SAVES, out));
    fri_tensor_put(&out, loss);
done:
    fri_workspace_end(&ws);
    fr_tensor_release(&bad);
    fr_tensor_release(&count);
    fr_tensor_release(&lse);
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_count_correct(fr_tensor *x, fr_tensor *target, fr_tensor **correct) {
    FRI_NOT_NULL(x, target, correct);
    fr_tensor *out = NULL;
    fri_cross_entropy_desc d;
    fr_shape scalar = {0};
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &count_correct, 2, (fr_tensor *[]){x, target}, 2));
    FR_TRY(s, describe(&count_correct, x, target, &d));
    FR_TRY(s, fri_tensor_new(&scalar, FR_I64, fri_device_of(x), FR_MEM_TEMPORARY, &out));
    FR_TRY(s, FRI_KERNEL(fri_backend_of(x), d.dtype, count_correct,
                         (FRI_EXEC, &d, fri_data(x), fri_data(target), fri_data(out))));
    fri_tensor_put(&out, correct);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}
