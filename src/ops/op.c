/* op.c - see op.h. */
#include "ops/op.h"

#include "autograd/run.h"
#include "base/status.h"
#include "ops/casts.h"
#include "memory/event.h"

/* ---- autocast ---------------------------------------------------------------------------------------------- */

/* Type order for promotion: f64 > f32 > half types; f16 with bf16 gives f32, as in PyTorch. */
static fr_dtype wider_dtype(fr_dtype a, fr_dtype b) {
    if (a == b) return a;
    if (a == FR_F64 || b == FR_F64) return FR_F64;
    return FR_F32;
}

static fr_dtype widest_dtype(fr_tensor *const *in, int n) {
    fr_dtype to = in[0]->dtype;
    for (int i = 1; i < n; i++)
        if (in[i] != NULL) to = wider_dtype(to, in[i]->dtype);
    return to;
}

fr_status fri_promote(int n, fr_tensor *const *x, fr_tensor **out) {
    const fr_dtype to = widest_dtype(x, n);
    for (int i = 0; i < n; i++) {
        if (x[i]->dtype == to || !fr_dtype_is_float(x[i]->dtype))
            out[i] = fr_tensor_retain(x[i]);
        else
            FRI_TRY(fr_cast(x[i], to, &out[i]));
    }
    return FR_OK;
}

/* f64 and integers are never cast. */
static bool is_castable(const fr_tensor *t) {
    return t != NULL && (t->dtype == FR_F32 || t->dtype == FR_F16 || t->dtype == FR_BF16);
}

static fr_status apply_autocast(fri_call *c) {
    fr_autocast_state cast = fri_autocast_get();
    fr_autocast_class class = c->op->autocast;
    fr_dtype to = FR_F32;
    if (class == FR_AUTOCAST_PROMOTE) { /* type promotion, with or without autocast */
        to = widest_dtype(c->in, c->n_in);
    } else if (!cast.enabled || class == FR_AUTOCAST_NONE) {
        return FR_OK;
    } else if (class == FR_AUTOCAST_LOW) {
        to = cast.dtype;
    }
    for (int i = 0; i < c->n_in; i++) {
        bool any = class == FR_AUTOCAST_PROMOTE ? c->in[i] != NULL : is_castable(c->in[i]);
        if (!any || c->in[i]->dtype == to) continue;
        FRI_TRY(fri_casts_take(c->in[i], to, &c->owned[i]));
        c->in[i] = c->owned[i];
    }
    return FR_OK;
}

/* ---- frame ------------------------------------------------------------------------------------------------- */

fr_status fri_call_begin(fri_call *c, const fr_op *op, int required, fr_tensor *const *in, int n_in) {
    *c = (fri_call){.op = op, .n_in = n_in};
    const fr_tensor *first = NULL;
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NULL && i < required) return fr_fail(FR_EINVAL, "%s: input %d is NULL", op->name, i);
        if (in[i] == NULL) continue;
        if (first == NULL) first = in[i];
        if (fri_device_of(in[i]) != fri_device_of(first))
            return fr_fail(FR_EDEVICE, "%s: input %d is on %s but the first is on %s", op->name, i,
                           fr_device_name(fri_device_of(in[i])), fr_device_name(fri_device_of(first)));
        c->in[i] = in[i];
    }
    c->was_op = fri_scope_op_push(op->name);
    c->begun = true;
    fri_event_mark(FR_EVENT_OP_BEGIN);
    return apply_autocast(c);
}

void fri_call_end(fri_call *c) {
    for (int i = 0; i < c->n_in; i++) fr_tensor_release(&c->owned[i]);
    if (!c->begun) return;
    fri_event_mark(FR_EVENT_OP_END);
    fri_scope_op_pop(c->was_op);
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

fr_status fri_expect_float(const fr_op *op, const fr_tensor *t, const char *what) {
    if (fr_dtype_is_float(t->dtype)) return FR_OK;
    return fr_fail(FR_EDTYPE, "%s: %s is %s; a float type is needed", op->name, what, fr_dtype_name(t->dtype));
}

fr_status fri_expect_rank(const fr_op *op, const fr_tensor *t, const char *what, int rank) {
    char text[FRI_SHAPE_TEXT];
    if (t->shape.rank == rank) return FR_OK;
    return fr_fail(FR_ESHAPE, "%s: %s has shape %s; rank %d is needed%s", op->name, what,
                   fri_shape_text(&t->shape, text), rank, rank == 4 ? " ([N, H, W, C])" : "");
}

fr_status fri_expect_same(const fr_op *op, const fr_tensor *a, const fr_tensor *b) {
    char x[FRI_SHAPE_TEXT], y[FRI_SHAPE_TEXT];
    if (a->dtype != b->dtype)
        return fr_fail(FR_EDTYPE, "%s: types %s and %s differ", op->name, fr_dtype_name(a->dtype),
                       fr_dtype_name(b->dtype));
    if (!fri_shape_equal(&a->shape, &b->shape))
        return fr_fail(FR_ESHAPE, "%s: shapes %s and %s differ", op->name, fri_shape_text(&a->shape, x),
                       fri_shape_text(&b->shape, y));
    return FR_OK;
}

fr_status fri_expect_vector(const fr_op *op, const fr_tensor *t, const char *what, int64_t n) {
    char text[FRI_SHAPE_TEXT];
    if (t->shape.rank == 1 && t->shape.dim[0] == n) return FR_OK;
    return fr_fail(FR_ESHAPE, "%s: %s has shape %s; [%lld] is needed", op->name, what, fri_shape_text(&t->shape, text),
                   (long long)n);
}

fr_status fri_expect_bounded(const char *op, const char *what, int64_t a, int64_t b) {
    if (a >= -1 && b >= -1 && a <= INT32_MAX && b <= INT32_MAX) return FR_OK;
    return fr_fail(FR_EINVAL, "%s: %s %lld x %lld: both must be in -1..%ld", op, what, (long long)a, (long long)b,
                   (long)INT32_MAX);
}

fr_dtype fri_real_of(const fr_tensor *x) {
    return x->dtype == FR_F64 ? FR_F64 : FR_F32;
}

/* ---- results ----------------------------------------------------------------------------------------------- */

fr_status fri_new_like(const fr_tensor *x, fr_category c, fr_tensor **out) {
    return fri_tensor_new(&x->shape, x->dtype, fri_device_of(x), c, out);
}

fr_status fri_result_like(fr_tensor *x, fr_tensor *const *y, fr_tensor **out) {
    fr_graph_stats *stats = &fri_autograd()->stats;
    bool asked = y != NULL && *y == x;
    bool leaf = x->requires_grad && fri_node_of(x) == NULL;
    if (asked && !leaf && fr_tensor_reusable(x)) {
        stats->inplace++;
        *out = fr_tensor_retain(x);
        fri_bump_version(x);
        return FR_OK;
    }
    if (asked) stats->out_of_place++;
    return fri_new_like(x, FR_MEM_TEMPORARY, out);
}

fr_status fri_result_new(fr_tensor *const *in, int n_in, const fr_shape *shape, fr_dtype dtype, bool *wanted,
                         fr_tensor **out) {
    fr_shape none = FRI_SHAPE(0);
    FRI_OWNED(fr_tensor_release) fr_tensor *empty = NULL;
    *wanted = !fri_recompute_ends(in, n_in);
    if (*wanted) return fri_tensor_new(shape, dtype, fri_device_of(in[0]), FR_MEM_TEMPORARY, out);
    FRI_TRY(fri_tensor_new(&none, dtype, fri_device_of(in[0]), FR_MEM_TEMPORARY, &empty));
    return fri_tensor_on_storage(empty->storage, 0, shape, dtype, out);
}

fr_status fri_check_inplace(const fr_op *op, const fr_tensor *x) {
    if (fr_grad_enabled() && x->requires_grad && fri_node_of(x) == NULL)
        return fr_fail(FR_EUSAGE, "%s: a leaf that requires grad cannot be changed in place; use no_grad", op->name);
    return FR_OK;
}

fr_status fri_gradient_like(fr_tensor *dy, fr_tensor **dx) {
    if (fr_tensor_reusable(dy)) {
        *dx = fr_tensor_retain(dy);
        return FR_OK;
    }
    return fri_new_like(dy, FR_MEM_TEMPORARY, dx);
}

fr_status fri_gradient_over(fr_node *node, int index, fr_tensor *x, fr_tensor *dy, fr_tensor **dx) {
    if (x == NULL || x->dtype != dy->dtype || fr_tensor_reusable(dy) || !fri_slot_yields(node, index, x))
        return fri_gradient_like(dy, dx);
    fri_bump_version(x);
    *dx = fr_tensor_retain(x);
    return FR_OK;
}
