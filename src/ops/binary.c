/* binary - elementwise sum, difference, product and quotient; b may have one value for a run of a's dimensions.
 *   forward    y = a + b, a - b, a * b, a / b
 *   backward   add, sub: da = dy (the same tensor, no copy), db = dy or -dy; mul: da = dy * b, db = dy * a;
 *              div: da = dy / b, db = -dy * a / b / b; db summed over the run where b has one value for it
 *   saves      mul: b if a wants a gradient, a if b wants one; div: b, and a if b wants one (references)
 *   in-place   forward over a where a is not saved; backward of add and sub shares dy
 *   rebuild    add, sub: from a and b; mul, div: no (their inputs are kept for backward anyway)
 *   order      deterministic
 *   autocast   the wider type of the two */
#include "ops/frame.h"

#include "backend/arith.h"

typedef struct params {
    fri_binary_desc d;
    bool same;  /* a and b have equal shapes */
    fr_shape b; /* shape of b */
} params;

/* Tests broadcasting: b's shape equals a's but for a run of 1s and leading 1s. a is then [n, hw, c] and b [n, 1,
 * c]. */
static bool shapes_fit(const fr_shape *a, const fr_shape *b, params *p) {
    enum { BEFORE, WITHIN, AFTER } place = BEFORE;
    const int lead = a->rank - b->rank;
    int64_t *size[] = {&p->d.n, &p->d.hw, &p->d.c};
    p->d.n = p->d.hw = p->d.c = 1;
    p->b = *b;
    if (lead < 0) return false;
    for (int i = 0; i < a->rank; i++) {
        const int64_t in_a = a->dim[i], in_b = i < lead ? 1 : b->dim[i - lead];
        if (in_a == 1 && in_b == 1) continue;
        if (in_b == in_a)
            place = place == WITHIN ? AFTER : place;
        else if (in_b == 1 && place != AFTER)
            place = WITHIN;
        else
            return false;
        *size[place] *= in_a;
    }
    p->same = place == BEFORE;
    return true;
}

static fr_status same_shapes(fri_binary op, const fr_tensor *a, const fr_tensor *b, fr_tensor *y) {
#define CASE(name, kind, sign) \
    case FRI_BINARY_##kind: return FRI_PASS(a, name, fri_data(a), fri_data(b), fri_data(y));
    switch (op) { FRI_BINARIES(CASE) }
#undef CASE
    return FR_OK;
}

/* y = a op b; y may be a. */
static fr_status values(const params *p, fri_binary op, const fr_tensor *a, const fr_tensor *b, fr_tensor *y) {
    fri_binary_desc d = p->d;
    if (p->same) return same_shapes(op, a, b, y);
    d.dtype = a->dtype;
    d.op = op;
    return FRI_KERNEL(fri_backend_of(a), a->dtype, binary_image, (FRI_EXEC, &d, fri_data(a), fri_data(b), fri_data(y)));
}

fr_status fri_fill_rows(const fr_kernel_call *c, const fr_tensor *b, const fr_tensor *y) {
    const fri_exec e = fri_exec_of(c);
    const int64_t k = b != NULL ? fri_numel(b) : 0;
    const size_t row = (size_t)k * fr_dtype_size(y->dtype);
    if (b == NULL) return FRI_KERNEL_SLOT_CALL(c, fill, (&e, y->dtype, fri_numel(y), 0, fri_data(y)));
    for (int64_t i = 0; k > 0 && i < fri_numel(y) / k; i++)
        FRI_TRY(FRI_KERNEL_SLOT_CALL(c, cast,
                                     (&e, b->dtype, y->dtype, k, fri_data(b), (char *)fri_data(y) + (size_t)i * row)));
    return FR_OK;
}

static fr_status add_row_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    const int64_t k = N(0);
    const fri_binary_desc d = {c->dtype, FRI_BINARY_ADD, 1, N(1) / (k > 0 ? k : 1), k};
    return FRI_KERNEL_SLOT_CALL(c, binary_image, (&e, &d, T(1), T(0), T(1)));
}
const fr_kernel fri_add_row = {.name = "binary_image", .run = add_row_run, .flops = 1, .moves = 2, .unit = 1};

/* Sums over rows [n, k] use the bias kernel, a single column the full sum. */
static fr_status sum_rows_run(const fr_kernel_call *c) {
    const fri_exec e = fri_exec_of(c);
    const int64_t k = N(1);
    const fri_linear_desc rows = {.dtype = c->dtype, .bias_dtype = c->dtype, .n = N(0) / (k > 0 ? k : 1), .out = k};
    if (N(0) == 0) return FRI_KERNEL_SLOT_CALL(c, fill, (&e, c->dtype, k, 0, T(1)));
    return k > 1 ? FRI_KERNEL_SLOT_CALL(c, linear_backward_bias, (&e, &rows, T(0), T(1)))
                 : FRI_KERNEL_SLOT_CALL(c, sum, (&e, c->dtype, rows.n, 1, T(0), T(1)));
}

static fr_status sum_rows_bytes(const fr_kernel_call *c, size_t *bytes) {
    const fri_backend *target = fri_target_of(c);
    const int64_t k = N(1);
    *bytes = target == NULL || N(0) == 0 ? 0
             : k > 1                     ? FRI_KERNEL_BYTES(target, c->dtype, bias_workspace, (c->dtype, N(0) / k, k))
                                         : FRI_KERNEL_BYTES(target, c->dtype, sum_workspace, (c->dtype, N(0)));
    return FR_OK;
}
const fr_kernel fri_sum_rows = {.name = "linear_backward_bias",
                                .run = sum_rows_run,
                                .workspace = sum_rows_bytes,
                                .flops = 1,
                                .moves = 1};

/* ---- backward -------------------------------------------------------------------------------------------------- */

/* *db = the sum of t, or of a * t, over the run. */
static fr_status run_sum(const params *p, const fr_tensor *a, fr_tensor *t, fr_tensor **db) {
    const fri_backend *be = fri_backend_of(t);
    fri_binary_desc d = p->d;
    d.dtype = t->dtype;
    FRI_TRY(fri_tensor_new(&p->b, t->dtype, be->device, FR_MEM_TEMPORARY, db));
    if (d.n == 1 || fri_numel(t) == 0)
        return fri_kernel_run(&fri_sum_rows, NULL, 0, d.dtype, (fr_tensor *[]){t, *db}, 2);
    return FRI_KERNEL(be, d.dtype, binary_image_sum, (FRI_EXEC, &d, fri_data_of(a), fri_data(t), fri_data(*db)));
}

enum { SAVED_A, SAVED_B };

/* Terms of db before the sum: dy, dy * a, or dy * (a / b / b). dy itself is not copied. */
static fr_status b_terms(fr_node *node, const params *p, fr_tensor *dy, fr_tensor **a, fr_tensor **t) {
    FRI_OWNED(fr_tensor_release) fr_tensor *b = NULL;
    const fri_binary op = p->d.op;
    if (op == FRI_BINARY_MUL || op == FRI_BINARY_DIV) FRI_TRY(fr_node_saved(node, SAVED_A, a));
    if (op == FRI_BINARY_ADD || op == FRI_BINARY_SUB || (op == FRI_BINARY_MUL && !p->same && p->d.n > 1)) {
        *t = fr_tensor_retain(dy);
        return FR_OK;
    }
    FRI_TRY(fri_new_like(dy, FR_MEM_TEMPORARY, t));
    if (op == FRI_BINARY_MUL) {
        FRI_TRY(same_shapes(FRI_BINARY_MUL, dy, *a, *t));
    } else {
        FRI_TRY(fr_node_saved(node, SAVED_B, &b));
        FRI_TRY(values(p, FRI_BINARY_DIV, *a, b, *t));
        FRI_TRY(values(p, FRI_BINARY_DIV, *t, b, *t));
        FRI_TRY(same_shapes(FRI_BINARY_MUL, *t, dy, *t));
    }
    fr_tensor_release(a); /* now part of t */
    return FR_OK;
}

static fr_status b_gradient(fr_node *node, const params *p, fr_tensor *dy) {
    FRI_OWNED(fr_tensor_release) fr_tensor *db = NULL, *t = NULL, *a = NULL;
    if (!fr_node_wants(node, 1)) return FR_OK;
    FRI_TRY(b_terms(node, p, dy, &a, &t));
    if (!p->same) {
        FRI_TRY(run_sum(p, a, t, &db));
        fr_tensor_release(&t);
        FRI_MOVE(&t, db);
    }
    if (p->d.op == FRI_BINARY_SUB || p->d.op == FRI_BINARY_DIV) {
        db = t == dy ? NULL : fr_tensor_retain(t);
        if (db == NULL) FRI_TRY(fri_new_like(t, FR_MEM_TEMPORARY, &db));
        FRI_TRY(FRI_PASS(t, scale, -1, fri_data(t), fri_data(db)));
        fr_tensor_release(&t);
        FRI_MOVE(&t, db);
    }
    fr_tensor_release(&a);
    if (t->shape.rank != p->b.rank) { /* b has as many elements as a but fewer dimensions */
        FRI_TRY(fri_tensor_on_storage(t->storage, t->offset, &p->b, t->dtype, &db));
        fr_tensor_release(&t);
        FRI_MOVE(&t, db);
    }
    return fr_node_grad(node, 1, &t);
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    const params *p = fr_node_params(node);
    const bool shared = p->d.op == FRI_BINARY_ADD || p->d.op == FRI_BINARY_SUB;
    FRI_OWNED(fr_tensor_release) fr_tensor *da = NULL, *b = NULL;
    FRI_TRY(b_gradient(node, p, *dy));
    if (shared) return fr_node_grad(node, 0, dy);
    fr_node_release_saved(node, SAVED_A);
    if (!fr_node_wants(node, 0)) return FR_OK;
    FRI_TRY(fr_node_saved(node, SAVED_B, &b));
    FRI_TRY(fri_new_like(*dy, FR_MEM_TEMPORARY, &da));
    FRI_TRY(values(p, p->d.op, *dy, b, da));
    fr_tensor_release(&b);
    fr_node_release_saved(node, SAVED_B);
    return fr_node_grad(node, 0, &da);
}

/* ---- forward --------------------------------------------------------------------------------------------------- */

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    const params *p = fr_node_params(node);
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    const bool over_b = fri_shape_equal(&in[0]->shape, &p->b) && fr_tensor_reusable(in[1]);
    FRI_TRY(fri_gradient_like(over_b ? in[1] : in[0], &out));
    FRI_TRY(values(p, p->d.op, in[0], in[1], out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

#define SHARES   .autocast = FR_AUTOCAST_PROMOTE, .backward = backward
#define REBUILDS .rebuild = rebuild, .rebuild_inputs = UINT64_MAX
static const fr_op ops[] = {[FRI_BINARY_ADD] = {.name = "add", SHARES, REBUILDS},
                            [FRI_BINARY_SUB] = {.name = "sub", SHARES, REBUILDS},
                            [FRI_BINARY_MUL] = {.name = "mul", SHARES},
                            [FRI_BINARY_DIV] = {.name = "div", SHARES}};

static fr_status describe(fri_binary op, const fr_tensor *a, const fr_tensor *b, params *p) {
    *p = (params){0};
    fr_status s = fri_expect_float(&ops[op], a, "a");
    if (s < 0 || a->dtype != b->dtype || !shapes_fit(&a->shape, &b->shape, p))
        return s < 0 ? s : fri_expect_same(&ops[op], a, b);
    p->d.op = op;
    return FR_OK;
}

static fr_status record_node(const params *p, fr_tensor *const *in, fr_tensor *out) {
    const bool a = in[0]->requires_grad, b = in[1]->requires_grad;
    const fr_save saves[] = {{b ? in[0] : NULL, FR_SAVE_VALUE},
                             {a || (b && p->d.op == FRI_BINARY_DIV) ? in[1] : NULL, FR_SAVE_VALUE}};
    const bool none = p->d.op == FRI_BINARY_ADD || p->d.op == FRI_BINARY_SUB;
    return fr_op_record(&ops[p->d.op], p, sizeof *p, in, 2, none ? NULL : saves, none ? 0 : 2, out);
}

static fr_status call_binary(fri_binary op, fr_tensor *a, fr_tensor *b, fr_tensor **y) {
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *out = NULL;
    params p;
    FRI_TRY(fri_call_begin(&c, &ops[op], 2, (fr_tensor *[]){a, b}, 2));
    FRI_TRY(describe(op, c.in[0], c.in[1], &p));
    const bool saves = op == FRI_BINARY_MUL || op == FRI_BINARY_DIV;
    if (saves && ((fr_grad_enabled() && c.in[1]->requires_grad) || a == b))
        FRI_TRY(fri_new_like(c.in[0], FR_MEM_TEMPORARY, &out));
    else
        FRI_TRY(fri_result_like(c.in[0], y, &out));
    FRI_TRY(values(&p, op, c.in[0], c.in[1], out));
    FRI_TRY(record_node(&p, c.in, out));
    fri_tensor_put(&out, y);
    return FR_OK;
}

static fr_status call_inplace(fri_binary op, fr_tensor *a, fr_tensor *b) {
    params p;
    FRI_OWNED(fri_call_end) fri_call c = {0};
    FRI_TRY(fri_call_begin(&c, &ops[op], 2, (fr_tensor *[]){a, b}, 2));
    FRI_TRY(fri_check_inplace(&ops[op], a));
    FRI_TRY(describe(op, a, b, &p));
    FRI_TRY(values(&p, op, a, b, a));
    /* Recorded before the version changes: if a is saved, backward detects the overwriting. */
    FRI_TRY(record_node(&p, (fr_tensor *[]){a, b}, a));
    fri_bump_version(a);
    if (fri_node_of(a) != NULL) fri_node_of(a)->output_version = a->storage->version;
    return FR_OK;
}

#define PUBLIC(name, kind, sign)                                     \
    fr_status fr_##name(fr_tensor *a, fr_tensor *b, fr_tensor **y) { \
        FRI_NOT_NULL(a, b, y);                                       \
        return call_binary(FRI_BINARY_##kind, a, b, y);              \
    }                                                                \
    fr_status fr_##name##_inplace(fr_tensor *a, fr_tensor *b) {      \
        FRI_NOT_NULL(a, b);                                          \
        return call_inplace(FRI_BINARY_##kind, a, b);                \
    }
FRI_BINARIES(PUBLIC)
