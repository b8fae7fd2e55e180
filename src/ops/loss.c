/* loss.c - see loss.h. Saved for backward: x, target and weights (references), one value per row, a few factors. */
#include "ops/loss.h"

#include "base/status.h"
#include "tensor/readback.h"

enum { SAVED_X, SAVED_TARGET, SAVED_LSE, SAVED_FACTORS, SAVED_WEIGHT, SAVES };

static void *data_of(const fr_tensor *t) {
    return t != NULL ? fri_data(t) : NULL;
}

fr_status fri_loss_backward(fr_node *node, fr_tensor **dy) {
    const fri_loss_desc *d = fr_node_params(node);
    const fri_loss *l = (const fri_loss *)node->op;
    fr_tensor *saved[SAVES] = {0}, *dx = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < SAVES; i++) FR_TRY(s, fr_node_saved(node, i, &saved[i]));
    FR_TRY(s, fri_new_like(saved[SAVED_X], FR_MEM_TEMPORARY, &dx));
    const fri_loss_data v = {.x = fri_data(saved[SAVED_X]),
                             .target = fri_data(saved[SAVED_TARGET]),
                             .weight = data_of(saved[SAVED_WEIGHT]),
                             .lse = data_of(saved[SAVED_LSE]),
                             .factors = fri_data(saved[SAVED_FACTORS]),
                             .loss = fri_data(*dy),
                             .dx = fri_data(dx)};
    FR_TRY(s, l->backward(fri_backend_of(*dy), d, &v));
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

fr_status fri_loss_describe(const fr_op *op, const fr_tensor *x, const fr_tensor *target, bool shares_allowed,
                            fri_loss_desc *d) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    FRI_TRY(fri_expect_float(op, x, "x"));
    const bool shares = shares_allowed && target->dtype == fri_real_of(x) && fri_shape_equal(&x->shape, &target->shape);
    if (target->dtype != FR_I64 && !shares)
        return fr_fail(FR_EDTYPE, "%s: target is %s; i64 is needed%s%s", op->name, fr_dtype_name(target->dtype),
                       shares_allowed ? ", or x's shape in " : "", shares_allowed ? fr_dtype_name(fri_real_of(x)) : "");
    fr_shape rows = x->shape;
    rows.rank--;
    if (x->shape.rank > 0 && x->shape.dim[rows.rank] < 1)
        return fr_fail(FR_ESHAPE, "%s: x %s has no classes", op->name, fri_shape_text(&x->shape, a));
    if (x->shape.rank < 2 || (!shares && !fri_shape_equal(&rows, &target->shape)))
        return fr_fail(FR_ESHAPE, "%s: x %s needs a target of the same shape without the last dimension, not %s",
                       op->name, fri_shape_text(&x->shape, a), fri_shape_text(&target->shape, b));
    *d = (fri_loss_desc){.dtype = x->dtype,
                         .rows = fri_shape_numel(&rows),
                         .classes = x->shape.dim[rows.rank],
                         .ignore_index = -100,
                         .shares = shares};
    return FR_OK;
}

static fr_status check_weight(const fr_op *op, const fr_tensor *x, const fr_tensor *weight, int64_t classes) {
    if (weight == NULL) return FR_OK;
    fr_status s = fri_expect_vector(op, weight, "weight", classes);
    if (s == FR_OK && weight->dtype != fri_real_of(x))
        s = fr_fail(FR_EDTYPE, "%s: weight is %s; %s is needed", op->name, fr_dtype_name(weight->dtype),
                    fr_dtype_name(fri_real_of(x)));
    return s;
}

static fr_status check_targets(const char *name, const fri_loss_desc *d, const fr_tensor *bad) {
    double at = -1;
    if (fri_device_of(bad) == FR_META) return FR_OK;
    if (fri_backend_of(bad)->streams != NULL) return fri_readback_check(bad, name, "the target of row", d->classes - 1);
    fr_status s = fr_tensor_item(bad, &at);
    if (s < 0 || at < 0) return s;
    return fr_fail(FR_EINVAL, "%s: the target of row %lld is neither a class 0..%lld nor ignore_index %lld", name,
                   (long long)at, (long long)(d->classes - 1), (long long)d->ignore_index);
}

/* Results of the call; the caller releases them. */
typedef struct results {
    fr_tensor *loss, *lse, *factors, *bad;
} results;

static fr_status new_results(const fri_loss *l, const fri_loss_desc *d, fr_dtype real, fr_device device, results *r) {
    const fr_shape scalar = {0}, rows = FRI_SHAPE(d->rows), per_class = FRI_SHAPE(l->per_class * d->classes);
    FRI_TRY(fri_tensor_new(&scalar, real, device, FR_MEM_TEMPORARY, &r->loss));
    if (l->lse) FRI_TRY(fri_tensor_new(&rows, real, device, FR_MEM_TEMPORARY, &r->lse));
    FRI_TRY(fri_tensor_new(l->per_class > 0 ? &per_class : &scalar, real, device, FR_MEM_TEMPORARY, &r->factors));
    return fri_tensor_new(&scalar, FR_I64, device, FR_MEM_TEMPORARY, &r->bad);
}

fr_status fri_loss_call(const fri_loss *l, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        const fri_loss_desc *options, fr_tensor **loss) {
    results r = {0};
    fri_workspace ws = {0};
    fri_loss_desc of, d = *options;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &l->op, 2, (fr_tensor *[]){x, target, weight}, 3));
    fr_tensor *v = c.in[0], *t = c.in[1], *w = c.in[2];
    FR_TRY(s, fri_loss_describe(&l->op, v, t, shares_allowed, &of));
    FR_TRY(s, check_weight(&l->op, v, w, of.classes));
    d.dtype = of.dtype;
    d.rows = of.rows;
    d.classes = of.classes;
    d.shares = of.shares;
    const fri_backend *be = fri_backend_of(v);
    FR_TRY(s, new_results(l, &d, fri_real_of(v), be->device, &r));
    FR_TRY(s, fri_workspace_begin(v, l->workspace(be, &d), &ws));
    const fri_loss_data data = {.x = fri_data(v),
                                .target = fri_data(t),
                                .weight = data_of(w),
                                .lse = data_of(r.lse),
                                .factors = fri_data(r.factors),
                                .loss = fri_data(r.loss),
                                .bad = fri_data(r.bad)};
    FR_TRY(s, l->forward(be, &ws.exec, &d, &data));
    fri_workspace_end(&ws);
    FR_TRY(s, check_targets(l->op.name, &d, r.bad));
    fr_tensor_release(&r.bad);
    fr_save saves[SAVES] = {{v, FR_SAVE_VALUE},
                            {t, FR_SAVE_VALUE},
                            {r.lse, FR_SAVE_VALUE},
                            {r.factors, FR_SAVE_VALUE},
                            {w, FR_SAVE_VALUE}};
    FR_TRY(s, fr_op_record(&l->op, &d, sizeof d, &v, 1, saves, SAVES, r.loss));
    fri_tensor_put(&r.loss, loss);
done:
    fri_workspace_end(&ws);
    fr_tensor_release(&r.bad);
    fr_tensor_release(&r.factors);
    fr_tensor_release(&r.lse);
    fr_tensor_release(&r.loss);
    fri_call_end(&c);
    return s;
}
