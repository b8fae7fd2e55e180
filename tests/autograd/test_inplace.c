/* test_inplace.c - writing over a tensor: a demand follows PyTorch's rules, a permission is never visible. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/ops.h>
#include <string.h>

#include "support/golden.h"
#include "tensor/tensor.h"

enum { N = 6 };

static const float values[N] = {-2, -1, 0.5f, 1, 2, 3};

static fr_tensor *leaf(void) {
    fr_tensor *x = NULL;
    must(fr_tensor_from_host(values, 1, (int64_t[]){N}, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    return x;
}

static void expect_values(fr_tensor *t, const float *want, const char *what) {
    float got[N];
    cr_assert_not_null(t, "%s is missing", what);
    must(fr_tensor_to_host(t, got));
    for (int i = 0; i < N; i++)
        cr_expect_float_eq(got[i], want[i], 1e-6, "%s[%d]: %g, not %g", what, i, got[i], want[i]);
}

/* ---- the demand -------------------------------------------------------------------------------------------------- */

Test(inplace, a_leaf_that_requires_grad_is_refused) {
    fr_tensor *x = leaf(), *b = leaf();
    expect_refused(fr_relu_inplace(x), FR_EUSAGE, "relu", "leaf", NULL);
    expect_refused(fr_leaky_relu_inplace(x, 0.1), FR_EUSAGE, "leaky_relu", "leaf", NULL);
    expect_refused(fr_add_inplace(x, b), FR_EUSAGE, "add", "leaf", NULL);
    expect_refused(fr_mul_inplace(x, b), FR_EUSAGE, "mul", "leaf", NULL);
    expect_refused(fr_scale_inplace(x, 2), FR_EUSAGE, "scale", "leaf", NULL);
    expect_values(x, values, "the leaf");
    cr_expect_eq(fri_tensor_version(x), 0u);
    bool was = fr_no_grad_begin(); /* as optimizers do */
    must(fr_scale_inplace(x, 2));
    fr_no_grad_end(was);
    cr_expect_eq(fri_tensor_version(x), 1u);
    RELEASE_ALL(&x, &b);
    expect_nothing_left();
}

/* y = relu(2 x) in place, then y += c and y *= 3, all on a single storage. */
Test(inplace, a_chain_on_one_storage_has_the_gradient_of_the_plain_chain) {
    fr_tensor *x = leaf(), *c = leaf(), *y = NULL, *s = NULL;
    must(fr_scale(x, 2, &y));
    const void *data = fr_tensor_data(y);
    must(fr_add_inplace(y, c));
    must(fr_scale_inplace(y, 3));
    must(fr_relu_inplace(y));
    cr_expect_eq(fr_tensor_data(y), data);
    must(fr_sum(y, &s));
    must(fr_backward(s, NULL));
    expect_values(fr_tensor_get_grad(x), (float[]){0, 0, 6, 6, 6, 6}, "dx");
    expect_values(fr_tensor_get_grad(c), (float[]){0, 0, 3, 3, 3, 3}, "dc");
    RELEASE_ALL(&x, &c, &y, &s);
    expect_nothing_left();
}

/* y += y with no other reader of y: both summands are read before the sum is written. */
Test(inplace, a_tensor_added_to_itself) {
    fr_tensor *x = leaf(), *y = NULL, *s = NULL;
    must(fr_scale(x, 3, &y));
    const void *data = fr_tensor_data(y);
    must(fr_add(y, y, &y));
    cr_expect_eq(fr_tensor_data(y), data);
    expect_values(y, (float[]){-12, -6, 3, 6, 12, 18}, "y");
    must(fr_sum(y, &s));
    must(fr_backward(s, NULL));
    expect_values(fr_tensor_get_grad(x), (float[]){6, 6, 6, 6, 6, 6}, "dx");
    RELEASE_ALL(&x, &y, &s);
    expect_nothing_left();
}

/* The mask of y is kept as bits when the last handle to y goes: the bits of y, not of its overwriting value. */
Test(inplace, an_overwritten_result_is_not_encoded_when_its_last_handle_goes) {
    fr_tensor *x = leaf(), *y = NULL, *z = NULL, *s = NULL;
    must(fr_relu(x, &y));
    must(fr_scale(y, 2, &z));
    must(fr_tensor_fill(y, 1));
    fr_tensor_release(&y);
    must(fr_sum(z, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "relu", "modified in place", NULL);
    RELEASE_ALL(&x, &z, &s);
    expect_nothing_left();
}

/* Ops whose saved tensor was overwritten fail in backward, and the sentence names both ops. */
Test(inplace, an_overwritten_saved_tensor_is_an_error_that_names_both_ops) {
    fr_tensor *x = leaf(), *w = leaf(), *y = NULL, *z = NULL, *s = NULL;
    must(fr_scale(x, 2, &y));
    must(fr_mul(y, w, &z)); /* saves y for dw */
    must(fr_relu_inplace(y));
    must(fr_sum(z, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "mul", "relu", NULL);
    RELEASE_ALL(&y, &z, &s);

    must(fr_relu(x, &y)); /* relu saves its output */
    must(fr_scale_inplace(y, 2));
    must(fr_sum(y, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "relu", "scale", NULL);
    RELEASE_ALL(&y, &s);

    must(fr_scale(x, 2, &y)); /* y *= w saves the overwritten y */
    must(fr_mul_inplace(y, w));
    must(fr_sum(y, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "mul", "mul", NULL);
    RELEASE_ALL(&x, &w, &y, &s);
    expect_nothing_left();
}

/* An optimizer that steps between forward and backward is caught, too. */
Test(inplace, a_weight_changed_between_forward_and_backward_is_an_error) {
    fr_tensor *x = leaf(), *w = leaf(), *y = NULL;
    must(fr_mul(x, w, &y));
    must(fr_sum(y, &y));
    must(fr_tensor_fill(w, 3));
    expect_refused(fr_backward(y, NULL), FR_EUSAGE, "mul", "modified in place", NULL);
    RELEASE_ALL(&x, &w, &y);
    expect_nothing_left();
}

Test(inplace, what_is_not_saved_may_be_overwritten) {
    fr_tensor *x = leaf(), *y = NULL, *z = NULL, *s = NULL;
    must(fr_scale(x, 2, &y));
    must(fr_scale(y, 5, &z)); /* scale saves nothing */
    must(fr_relu_inplace(y));
    must(fr_sum(z, &s));
    must(fr_backward(s, NULL));
    expect_values(fr_tensor_get_grad(x), (float[]){10, 10, 10, 10, 10, 10}, "dx");
    RELEASE_ALL(&x, &y, &z, &s);
    expect_nothing_left();
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* A write through the base changes a view's content, and the view's graph no longer describes the content. PyTorch
 * rewrites the view's history; frugal refuses the use of the view, and never computes a wrong gradient. */
Test(inplace, the_other_side_of_a_view_is_stale) {
    fr_tensor *x = leaf(), *base = NULL, *view = NULL, *s = NULL;
    for (int through_view = 0; through_view < 2; through_view++) {
        must(fr_scale(x, 2, &base));
        must(fr_reshape(base, 2, (int64_t[]){2, 3}, &view));
        must(fr_relu_inplace(through_view ? view : base));
        must(fr_sum(through_view ? view : base, &s)); /* the handle used for writing is fine */
        must(fr_backward(s, NULL));
        expect_values(fr_tensor_get_grad(x), (float[]){0, 0, 2, 2, 2, 2}, "dx");
        must(fr_tensor_set_grad(x, NULL));
        fr_tensor_release(&s);
        expect_refused(fr_sum(through_view ? base : view, &s), FR_EUSAGE, "sum", "relu", s);
        RELEASE_ALL(&base, &view);
    }
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(inplace, a_view_of_a_leaf_that_requires_grad_is_refused) {
    fr_tensor *x = leaf(), *view = NULL;
    must(fr_reshape(x, 2, (int64_t[]){2, 3}, &view));
    expect_refused(fr_relu_inplace(view), FR_EUSAGE, "relu", "leaf", NULL);
    RELEASE_ALL(&x, &view);
    expect_nothing_left();
}

/* torch: detach shares storage and version; only saved tensors are protected. */
Test(inplace, a_detached_handle_does_not_stand_in_the_way) {
    fr_tensor *x = leaf(), *y = NULL, *d = NULL, *s = NULL;
    must(fr_scale(x, 2, &y));
    must(fr_tensor_detach(y, &d));
    must(fr_relu_inplace(y));
    cr_expect_eq(fri_tensor_version(d), 1u);
    must(fr_sum(y, &s));
    must(fr_backward(s, NULL));
    expect_values(fr_tensor_get_grad(x), (float[]){0, 0, 2, 2, 2, 2}, "dx");
    RELEASE_ALL(&x, &y, &d, &s);
    expect_nothing_left();
}

/* ---- the permission ---------------------------------------------------------------------------------------------- */

/* x = op(x) writes over x only if no other handle sees x. */
Test(inplace, permission_is_used_only_where_nobody_else_looks) {
    fr_tensor *x = leaf(), *y = NULL, *other = NULL, *view = NULL;
    fr_graph_stats before = fr_graph_stats_get();
    must(fr_scale(x, 2, &y));
    const void *data = fr_tensor_data(y);
    must(fr_scale(y, 2, &y));
    cr_expect_eq(fr_tensor_data(y), data, "nobody else reads y");
    other = fr_tensor_retain(y);
    must(fr_scale(y, 2, &y));
    cr_expect_neq(fr_tensor_data(y), data, "another reference reads it");
    fr_tensor_release(&other);
    data = fr_tensor_data(y);
    must(fr_tensor_detach(y, &view));
    must(fr_scale(y, 2, &y));
    cr_expect_neq(fr_tensor_data(y), data, "a view reads it");
    fr_tensor_release(&view);
    must(fr_relu(y, &y)); /* in place, and relu saves its output */
    data = fr_tensor_data(y);
    must(fr_scale(y, 2, &y));
    cr_expect_neq(fr_tensor_data(y), data, "relu saved it");
    data = fr_tensor_data(x);
    must(fr_scale(x, 2, &x));
    cr_expect_neq(fr_tensor_data(x), data, "a leaf that requires grad keeps its value");
    fr_graph_stats after = fr_graph_stats_get();
    cr_expect_eq(after.inplace - before.inplace, 2u);
    cr_expect_eq(after.out_of_place - before.out_of_place, 4u);
    RELEASE_ALL(&x, &y);
    expect_nothing_left();
}

Test(inplace, the_switch_takes_the_permission_away) {
    fr_tensor *x = leaf(), *y = NULL;
    fr_switches off = fr_switches_default();
    off.inplace = false;
    fr_switches_set(off);
    must(fr_scale(x, 2, &y));
    const void *data = fr_tensor_data(y);
    must(fr_scale(y, 2, &y));
    cr_expect_neq(fr_tensor_data(y), data);
    cr_expect(!fr_tensor_reusable(y));
    must(fr_relu_inplace(y)); /* a demand is none of the switch's business */
    fr_switches_set(fr_switches_default());
    RELEASE_ALL(&x, &y);
    expect_nothing_left();
}

/* Backward writes over its own gradients, never over the caller's. */
Test(inplace, the_gradient_that_was_passed_in_survives) {
    fr_tensor *x = leaf(), *y = NULL, *dy = NULL;
    const float before[N] = {1, 2, 3, 4, 5, 6};
    must(fr_tensor_from_host(before, 1, (int64_t[]){N}, FR_F32, test_device(), &dy));
    must(fr_relu(x, &y));
    must(fr_scale(y, 2, &y));
    must(fr_backward(y, dy));
    expect_values(dy, before, "dy");
    expect_values(fr_tensor_get_grad(x), (float[]){0, 0, 6, 8, 10, 12}, "dx");
    must(fr_backward(x, dy)); /* a leaf takes a copy */
    expect_values(fr_tensor_get_grad(x), (float[]){1, 2, 9, 12, 15, 18}, "dx");
    expect_values(dy, before, "dy");
    RELEASE_ALL(&x, &y, &dy);
    expect_nothing_left();
}
