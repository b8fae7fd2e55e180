/* loss.c - see frame.h. Saved for backward: x, target and weights (references), one value per row, a few factors. */
#include "ops/frame.h"

#include "base/status.h"

fr_status fri_loss_describe(const fri_frame *f, bool shares_allowed, fri_loss_desc *d) {
    char a[FRI_SHAPE_TEXT], b[FRI_SHAPE_TEXT];
    const char *op = f->read->op.name;
    const fr_tensor *x = f->c.in[0], *target = f->c.in[1];
    const fr_dtype real = fri_real_of(x);
    d->shares = shares_allowed && target->dtype == real && fri_shape_equal(&x->shape, &target->shape);
    if (target->dtype != FR_I64 && !d->shares)
        return fr_fail(FR_EDTYPE, "%s: target is %s; i64 is needed%s%s", op, fr_dtype_name(target->dtype),
                       shares_allowed ? ", or x's shape in " : "", shares_allowed ? fr_dtype_name(real) : "");
    d->dtype = f->dtype;
    d->rows = fri_shape_numel(&f->any);
    d->classes = FRI_SIZE(*f, 'v');
    if (d->classes < 1) return fr_fail(FR_ESHAPE, "%s: x %s has no classes", op, fri_shape_text(&x->shape, a));
    if (x->shape.rank < 2 || (!d->shares && !fri_shape_equal(&f->any, &target->shape)))
        return fr_fail(FR_ESHAPE, "%s: x %s needs a target of the same shape without the last dimension, not %s", op,
                       fri_shape_text(&x->shape, a), fri_shape_text(&target->shape, b));
    return FR_OK;
}

fr_status fri_loss_call(fr_described *op, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        bool factor_per_class, fri_loss_desc d, fr_tensor **loss) {
    FRI_OWNED(fri_frame_end) fri_frame f;
    FRI_TRY(fri_frame_begin(&f, op, (fr_tensor *[]){x, target, weight}, loss));
    FRI_TRY(fri_loss_describe(&f, shares_allowed, &d));
    FRI_SIZE(f, 'r') = d.rows;
    FRI_SIZE(f, 'u') = factor_per_class ? 2 * d.classes : 1;
    return fri_frame_run(&f, &d, sizeof d, loss);
}
