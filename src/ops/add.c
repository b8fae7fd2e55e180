/* add - elementwise sum.
 *   forward    y = a + b
 *   backward   da = dy, db = dy (the same tensor, no copy)
 *   saves      nothing
 *   in-place   forward yes, over a; backward shares dy
 *   rebuild    from a and b
 *   order      deterministic
 *   autocast   the wider type of the two */
#include "ops/op.h"

static fr_status values(const fr_tensor *a, const fr_tensor *b, bool relu, fr_tensor *y) {
    if (relu)
        return FRI_KERNEL(fri_backend_of(a), a->dtype, add_relu,
                          (FRI_EXEC, a->dtype, fri_numel(a), fri_data(a), fri_data(b), fri_data(y)));
    return FRI_KERNEL(fri_backend_of(a), a->dtype, add,
                      (FRI_EXEC, a->dtype, fri_numel(a), fri_data(a), fri_data(b), fri_data(y)));
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *db = fr_tensor_retain(*dy);
    fr_status s = fr_node_grad(node, 1, &db);
    return s < 0 ? s : fr_node_grad(node, 0, dy);
}

static fr_status rebuild(fr_node *node, fr_tensor *const *in, fr_tensor **y) {
    (void)node;
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fri_gradient_like(fr_tensor_reusable(in[1]) ? in[1] : in[0], &out));
    FR_TRY(s, values(in[0], in[1], false, out));
    fri_tensor_put(&out, y);
done:
    fr_tensor_release(&out);
    return s;
}

static const fr_op add = {.name = "add",
                          .autocast = FR_AUTOCAST_PROMOTE,
                          .backward = backward,
                          .rebuild = rebuild,
                          .rebuild_inputs = UINT64_MAX};

fr_status fri_add_tail(fr_tensor *a, fr_tensor *b, bool there, bool relu, fr_tensor **y) {
    fr_tensor *out = NULL;
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &add, 2, (fr_tensor *[]){a, b}, 2));
    FR_TRY(s, fri_expect_float(&add, c.in[0], "a"));
    FR_TRY(s, fri_expect_same(&add, c.in[0], c.in[1]));
    FR_TRY(s, fri_result_like(c.in[0], y, &out));
    if (!there)
        FR_TRY(s, values(c.in[0], c.in[1], relu, out));
    else if (out != a)
        FR_TRY(s, fr_fail(FR_EINTERNAL, "add: a sum that is there already cannot go elsewhere"));
    FR_TRY(s, fr_op_record(&add, NULL, 0, c.in, 2, NULL, 0, out));
    fri_result_put(&out, y);
done:
    fr_tensor_release(&out);
    fri_call_end(&c);
    return s;
}

fr_status fr_add(fr_tensor *a, fr_tensor *b, fr_tensor **y) {
    FRI_NOT_NULL(a, b, y);
    return fri_add_tail(a, b, false, false, y);
}

fr_status fr_add_inplace(fr_tensor *a, fr_tensor *b) {
    FRI_NOT_NULL(a, b);
    fri_call c;
    fr_status s = FR_OK;
    FR_TRY(s, fri_call_begin(&c, &add, 2, (fr_tensor *[]){a, b}, 2));
    FR_TRY(s, fri_check_inplace(&add, a));
    FR_TRY(s, fri_expect_float(&add, a, "a"));
    FR_TRY(s, fri_expect_same(&add, a, b));
    fri_bump_version(a);
    FR_TRY(s, values(a, b, false, a));
    FR_TRY(s, fr_op_record(&add, NULL, 0, (fr_tensor *[]){a, b}, 2, NULL, 0, a));
done:
    fri_call_end(&c);
    return s;
}
