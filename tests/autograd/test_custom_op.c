/* test_custom_op.c - rules of fr_op_record and backward for a program's own op, and their service to the op. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { N = 3 };

static fr_tensor *leaf(void) {
    fr_tensor *x = NULL;
    must(fr_tensor_full(1, (int64_t[]){N}, 2, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    return x;
}

/* y = a + b by way of fr_add on data alone, recorded as the given op. */
static fr_status record_sum(const fr_op *op, const void *params, size_t bytes, fr_tensor *a, fr_tensor *b,
                            fr_tensor **y) {
    fr_tensor *out = NULL;
    fr_status s = FR_OK;
    bool was = fr_no_grad_begin();
    s = fr_add(a, b, &out);
    fr_no_grad_end(was);
    if (s < 0) goto done;
    FR_TRY(s, fr_op_record(op, params, bytes, (fr_tensor *[]){a, b}, 2, NULL, 0, out));
    fr_tensor_release(y);
    *y = out;
    out = NULL;
done:
    fr_tensor_release(&out);
    return s;
}

static int hook_calls;

static fr_status count_call(void *ctx, fr_tensor *t) {
    (void)ctx;
    (void)t;
    hook_calls++;
    return FR_OK;
}

/* ---- the gradients ----------------------------------------------------------------------------------------------- */

static fr_status forgetful_backward(fr_node *node, fr_tensor **dy) {
    return fr_node_grad(node, 0, dy); /* and no gradient for input 1 */
}
static const fr_op forgetful = {.name = "forgetful", .backward = forgetful_backward};

/* Missing gradients would leave b's gradient incomplete and its hook uncalled. */
Test(custom_op, a_gradient_that_is_not_handed_over_is_an_error) {
    for (int early = 0; early < 2; early++) {
        fr_tensor *a = leaf(), *b = leaf(), *y = NULL;
        fr_switches_set(early ? fr_switches_default() : fr_switches_all_off());
        must(fr_tensor_set_grad_hook(b, count_call, NULL));
        must(record_sum(&forgetful, NULL, 0, a, b, &y));
        must(fr_sum(y, &y));
        expect_refused(fr_backward(y, NULL), FR_EUSAGE, "forgetful", "1 gradients, but 2", NULL);
        fr_tensor_release(&y);
        must(fr_tensor_set_requires_grad(b, false)); /* then a single gradient is complete */
        must(record_sum(&forgetful, NULL, 0, a, b, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        RELEASE_ALL(&a, &b, &y);
        expect_nothing_left();
    }
    cr_expect_eq(hook_calls, 0);
}

static fr_status misshapen_backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *scalar = NULL;
    fr_status s = fr_sum(*dy, &scalar);
    if (s == FR_OK) s = fr_node_grad(node, 0, &scalar);
    fr_tensor_release(&scalar);
    return s;
}
static const fr_op misshapen = {.name = "misshapen", .backward = misshapen_backward};

static fr_status mistyped_backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *half = NULL;
    fr_status s = fr_cast(*dy, FR_F16, &half);
    if (s == FR_OK) s = fr_node_grad(node, 0, &half);
    fr_tensor_release(&half);
    return s;
}
static const fr_op mistyped = {.name = "mistyped", .backward = mistyped_backward};

Test(custom_op, a_gradient_of_another_shape_or_type_is_an_error) {
    fr_tensor *a = leaf(), *x = NULL, *y = NULL;
    must(fr_scale(a, 1, &x));
    must(record_sum(&misshapen, NULL, 0, x, x, &y));
    must(fr_sum(y, &y));
    expect_refused(fr_backward(y, NULL), FR_EINTERNAL, "misshapen", "[3]", NULL);
    must(fr_scale(a, 1, &x));
    must(record_sum(&mistyped, NULL, 0, x, x, &y));
    must(fr_sum(y, &y));
    expect_refused(fr_backward(y, NULL), FR_EINTERNAL, "mistyped", "f16", NULL);
    RELEASE_ALL(&a, &x, &y);
    expect_nothing_left();
}

static size_t given_back;

static fr_status masking_backward(fr_node *node, fr_tensor **dy) {
    fr_memory_stats before, after;
    fr_tensor *dx = NULL;
    cr_expect(fr_node_inputs(node) == 2 && fr_node_wants(node, 0) && !fr_node_wants(node, 1));
    must(fr_node_mask(node, 0, 0.5, dy, &dx));
    must(fr_memory_stats_get(test_device(), &before));
    fr_node_release_saved(node, 1);
    must(fr_memory_stats_get(test_device(), &after));
    given_back = before.allocated - after.allocated;
    return fr_node_grad(node, 0, &dx);
}
static const fr_op masking = {.name = "masking", .backward = masking_backward};

/* y = a + b saves its sign, and b, which needs no gradient. Early release frees b inside backward. */
Test(custom_op, a_node_masks_by_a_saved_sign_and_releases_bytes) {
    for (int early = 0; early < 2; early++) {
        fr_tensor *a = leaf(), *b = NULL, *y = NULL;
        float g[N];
        fr_switches_set(early ? fr_switches_default() : fr_switches_all_off());
        must(fr_tensor_from_host((float[]){-3, -2, 1}, 1, (int64_t[]){N}, FR_F32, test_device(), &b));
        bool was = fr_no_grad_begin();
        must(fr_add(a, b, &y));
        fr_no_grad_end(was);
        must(fr_op_record(&masking, NULL, 0, (fr_tensor *[]){a, b}, 2,
                          (fr_save[]){{y, FR_SAVE_SIGN}, {b, FR_SAVE_VALUE}}, 2, y));
        fr_tensor_release(&b);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        must(fr_tensor_to_host(fr_tensor_get_grad(a), g));
        cr_expect(g[0] == 0.5f && g[1] == 0.5f && g[2] == 1, "slope 0.5 at -1 and 0, 1 at 3");
        cr_expect_eq(given_back, early ? 512u : 0u);
        RELEASE_ALL(&a, &y);
        expect_nothing_left();
    }
}

static fr_status unmasked_backward(fr_node *node, fr_tensor **dy) {
    return fr_node_grad(node, 0, dy);
}
static const fr_op unmasked = {.name = "unmasked", .backward = unmasked_backward};

/* The pass that masks adds the last of two gradients. An op without this pass is refused, not given half of dy. */
Test(custom_op, a_saved_mask_that_backward_does_not_use_is_an_error) {
    fr_tensor *a = leaf(), *y = NULL, *z = NULL;
    bool was = fr_no_grad_begin();
    must(fr_add(a, a, &y));
    fr_no_grad_end(was);
    must(fr_op_record(&unmasked, NULL, 0, &a, 1, &(fr_save){y, FR_SAVE_MASK}, 1, y));
    must(fr_scale(y, 2, &z));
    must(fr_add(y, z, &y));
    fr_tensor_release(&z);
    must(fr_sum(y, &y));
    expect_refused(fr_backward(y, NULL), FR_EUSAGE, "unmasked", "fr_node_mask", NULL);
    RELEASE_ALL(&a, &y);
    expect_nothing_left();
}

static fr_status failing_backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *copy = fr_tensor_retain(*dy);
    fr_status s = fr_node_grad(node, 1, &copy);
    return s < 0 ? s : FR_EIO;
}
static const fr_op failing = {.name = "failing", .backward = failing_backward};

/* A status from the middle of the walk comes out, the graph is gone, and the next backward is not affected. */
Test(custom_op, a_failure_in_the_middle_leaves_nothing) {
    for (int early = 0; early < 2; early++) {
        fr_tensor *a = leaf(), *b = leaf(), *x = NULL, *y = NULL;
        fr_switches_set(early ? fr_switches_default() : fr_switches_all_off());
        must(fr_mul(a, b, &x));
        must(record_sum(&failing, NULL, 0, x, x, &y));
        must(fr_mul(y, y, &y));
        must(fr_sum(y, &y));
        cr_expect_eq(fr_backward(y, NULL), FR_EIO);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        cr_expect_eq(fr_graph_stats_get().nodes, 0u);
        cr_expect(fr_grad_enabled());
        must(fr_tensor_set_grad(a, NULL));
        must(fr_mul(a, b, &x));
        must(fr_sum(x, &x));
        must(fr_backward(x, NULL));
        float g[N];
        must(fr_tensor_to_host(fr_tensor_get_grad(a), g));
        cr_expect_float_eq(g[0], 2, 1e-6);
        RELEASE_ALL(&a, &b, &x);
        expect_nothing_left();
    }
}

/* ---- hooks and gradients from outside ---------------------------------------------------------------------------- */

static fr_status failing_hook(void *ctx, fr_tensor *t) {
    (void)ctx;
    (void)t;
    return FR_EIO;
}

static fr_status nested_hook(void *ctx, fr_tensor *t) {
    (void)ctx;
    return fr_backward(t, NULL);
}

Test(custom_op, a_hook_s_failure_comes_out_and_backward_does_not_nest) {
    fr_tensor *a = leaf(), *y = NULL;
    must(fr_tensor_set_grad_hook(a, failing_hook, NULL));
    must(fr_sum(a, &y));
    cr_expect_eq(fr_backward(y, NULL), FR_EIO);
    must(fr_tensor_set_grad_hook(a, nested_hook, NULL));
    must(fr_sum(a, &y));
    expect_refused(fr_backward(y, NULL), FR_EUSAGE, "inside", "backward", NULL);
    must(fr_tensor_set_grad_hook(a, NULL, NULL));
    must(fr_sum(a, &y));
    must(fr_backward(y, NULL));
    expect_refused(fr_tensor_set_grad_hook(y, count_call, NULL), FR_EUSAGE, "hook", "leaf", NULL);
    fr_tensor_release(&a);
    fr_tensor_release(&y);
    expect_nothing_left();
}

Test(custom_op, a_gradient_on_another_device_is_refused) {
    fr_tensor *a = leaf(), *y = NULL, *g = NULL;
    must(fr_scale(a, 2, &y));
    must(fr_tensor_zeros(1, (int64_t[]){N}, FR_F32, FR_META, &g));
    expect_refused(fr_backward(y, g), FR_EDEVICE, fr_device_name(test_device()), "meta", NULL);
    expect_refused(fr_tensor_set_grad(a, g), FR_EDEVICE, fr_device_name(test_device()), "meta", NULL);
    RELEASE_ALL(&a, &y, &g);
    expect_nothing_left();
}

/* ---- parameters that own memory ------------------------------------------------------------------------------ */

struct owned {
    char *text;
};

static int frees;

static void owned_free(void *p) {
    free(((struct owned *)p)->text);
    frees++;
}

static fr_status pass_backward(fr_node *node, fr_tensor **dy) {
    const struct owned *o = fr_node_params(node);
    fr_tensor *copy = fr_tensor_retain(*dy);
    cr_expect_str_eq(o->text, "mine");
    fr_status s = fr_node_grad(node, 1, &copy);
    return s < 0 ? s : fr_node_grad(node, 0, dy);
}
static const fr_op owner = {.name = "owner", .backward = pass_backward, .params_free = owned_free};

/* Recorded and walked, recorded and dropped, not recorded at all, refused: freed once each. */
Test(custom_op, what_parameters_own_is_freed_exactly_once) {
    fr_tensor *a = leaf(), *b = leaf(), *base = NULL, *view = NULL, *y = NULL;
    frees = 0;
    for (int i = 0; i < 3; i++) {
        struct owned o = {strdup("mine")};
        bool was = i == 2 ? fr_no_grad_begin() : true;
        must(record_sum(&owner, &o, sizeof o, a, b, &y));
        fr_no_grad_end(was);
        cr_expect_eq(frees, i == 2 ? 3 : i);
        if (i == 0) must(fr_sum(y, &y));
        if (i == 0) must(fr_backward(y, NULL));
        fr_tensor_release(&y);
        cr_expect_eq(frees, i + 1);
    }
    must(fr_scale(a, 2, &base));
    must(fr_reshape(base, 1, (int64_t[]){N}, &view));
    must(fr_scale_inplace(base, 2));
    struct owned o = {strdup("mine")};
    expect_refused(record_sum(&owner, &o, sizeof o, view, b, &y), FR_EUSAGE, "owner", "scale", y);
    cr_expect_eq(frees, 4);
    RELEASE_ALL(&a, &b, &base, &view);
    expect_nothing_left();
}
