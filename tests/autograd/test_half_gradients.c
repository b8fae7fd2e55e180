/* test_half_gradients.c - the switch half_gradients: types, values and bytes of leaves' gradients under autocast.
 *
 * The loss is the sum of x w, x in [3, 8] and w in [4, 8], so dw is the sum of x's rows in f16. */
#include "autograd/node.h"
#include <criterion/criterion.h>
#include <frugal/frugal.h>

#include "support/golden.h"

enum { ROWS = 3, IN = 8, OUT = 4 };

static void init(void) {
    fr_switches s = fr_switches_default();
    s.half_gradients = true;
    fr_switches_set(s);
    fr_seed(3);
}

TestSuite(half_gradients, .init = init);

static fr_module *linear(int64_t in, int64_t out) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, in});
    x = fr_net_linear(n, "l", x, out, FR_NO_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static fr_module *layer(void) {
    return linear(IN, OUT);
}

static fr_tensor *weight_of(fr_module *m) {
    return fr_module_tensor(fr_module_find(m, "l"), "weight");
}

static fr_tensor *input(void) {
    fr_tensor *x = NULL;
    fr_seed(7);
    must(fr_tensor_uniform(2, (int64_t[]){ROWS, IN}, -1, 1, FR_F32, test_device(), &x));
    return x;
}

/* One backward pass of the sum of m(x), `uses` times added. */
static void backward(fr_module *m, int uses) {
    fr_tensor *x = input(), *sum = NULL, *y = NULL;
    fr_autocast_state was;
    must(fr_autocast_begin(FR_F16, &was));
    for (int i = 0; i < uses; i++) {
        must(fr_module_forward(m, x, &y));
        if (i == 0)
            sum = fr_tensor_retain(y);
        else
            must(fr_add(sum, y, &sum));
    }
    fr_autocast_end(was);
    must(fr_sum(sum, &sum));
    must(fr_backward(sum, NULL));
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&sum);
}

/* The gradient of a pass without the switch, for comparison. */
static fr_tensor *wide_gradient(int uses, int passes) {
    fr_module *m = layer();
    const fr_switches on = fr_switches_get();
    fr_switches_set(fr_switches_default());
    for (int i = 0; i < passes; i++) backward(m, uses);
    fr_tensor *g = fr_tensor_retain(fr_tensor_get_grad(weight_of(m)));
    cr_assert_eq(fr_tensor_dtype(g), FR_F32, "without the switch");
    fr_switches_set(on);
    fr_module_release(&m);
    return g;
}

static void expect_gradient(fr_module *m, fr_dtype dtype, fr_tensor *expected, const char *what) {
    const fr_tensor *g = fr_tensor_get_grad(weight_of(m));
    cr_assert_not_null(g, "%s", what);
    cr_expect_eq(fr_tensor_dtype(g), dtype, "%s: %s, not %s", what, fr_dtype_name(fr_tensor_dtype(g)),
                 fr_dtype_name(dtype));
    expect_same_values(g, expected, what);
    fr_tensor_release(&expected);
}

Test(half_gradients, the_only_contribution_stays_half) {
    fr_module *m = layer();
    backward(m, 1);
    expect_gradient(m, FR_F16, wide_gradient(1, 1), "one use");
    fr_module_release(&m);
}

Test(half_gradients, sums_are_wide) {
    fr_module *m = layer();
    backward(m, 2);
    expect_gradient(m, FR_F32, wide_gradient(2, 1), "two uses");
    must(fr_tensor_set_grad(weight_of(m), NULL));
    backward(m, 1);
    backward(m, 1);
    expect_gradient(m, FR_F32, wide_gradient(1, 2), "two passes");
    fr_module_release(&m);
}

static fr_status note_type(void *ctx, fr_tensor *leaf) {
    *(fr_dtype *)ctx = fr_tensor_dtype(fr_tensor_get_grad(leaf));
    return FR_OK;
}

Test(half_gradients, a_hook_of_the_program_reads_the_leafs_type) {
    fr_module *m = layer();
    fr_dtype seen = FR_U8;
    must(fr_tensor_set_grad_hook(weight_of(m), note_type, &seen));
    backward(m, 1);
    cr_expect_eq(seen, FR_F32, "the hook saw %s", fr_dtype_name(seen));
    expect_gradient(m, FR_F32, wide_gradient(1, 1), "with a hook");
    fr_module_release(&m);
}

/* Parameters after a step with a scaled loss, by the switch and by how the gradient is read. */
static fr_tensor *stepped(bool on, bool unscale, bool clip) {
    fr_module *m = layer();
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    fr_switches s = fr_switches_get();
    s.half_gradients = on;
    fr_switches_set(s);
    must(fr_adamw(m, NULL, &o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 3), test_device(), &g));
    backward(m, 1);
    if (unscale) must(fr_grad_scaler_unscale(g, o));
    if (clip) must(fr_clip_grad_norm(m, 0.01, NULL));
    const fr_dtype type = fr_tensor_dtype(fr_tensor_get_grad(weight_of(m)));
    cr_expect_eq(type, on && !unscale && !clip ? FR_F16 : FR_F32, "%s before the step", fr_dtype_name(type));
    must(fr_grad_scaler_step(g, o));
    must(fr_grad_scaler_update(g, NULL));
    fr_tensor *w = fr_tensor_retain(weight_of(m));
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    return w;
}

Test(half_gradients, unscaling_clipping_and_the_step_have_the_bits_of_wide_gradients) {
    for (int how = 0; how < 4; how++) {
        fr_seed(3);
        fr_tensor *wide = stepped(false, how & 1, how & 2);
        fr_seed(3);
        fr_tensor *half = stepped(true, how & 1, how & 2);
        expect_same_values(half, wide, how & 2 ? "clipped" : how & 1 ? "unscaled" : "scaled");
        fr_tensor_release(&wide);
        fr_tensor_release(&half);
    }
}

/* The update inside backward takes a half gradient. */
Test(half_gradients, the_fused_step_reads_them) {
    fr_tensor *w[2];
    for (int on = 0; on < 2; on++) {
        fr_seed(3);
        fr_module *m = layer();
        fr_optimizer *o = NULL;
        fr_switches s = fr_switches_get();
        s.half_gradients = on;
        fr_switches_set(s);
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
        must(fr_optimizer_fuse(o, true));
        cr_expect(fri_leaf_of(weight_of(m))->hook_reads_half);
        fr_step_scope scope;
        must(fr_step_begin(&scope));
        backward(m, 1);
        must(fr_step_end(&scope));
        cr_expect_null(fr_tensor_get_grad(weight_of(m)));
        w[on] = fr_tensor_retain(weight_of(m));
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_same_values(w[1], w[0], "fused");
    fr_tensor_release(&w[0]);
    fr_tensor_release(&w[1]);
}

/* A half gradient has half the bytes, and nothing of f32 is made on the way. */
Test(half_gradients, bytes) {
    fr_memory_stats stats[2];
    for (int on = 0; on < 2; on++) {
        fr_switches s = fr_switches_get();
        s.half_gradients = on;
        fr_switches_set(s);
        fr_module *m = linear(64, 64);
        fr_tensor *x = NULL, *y = NULL;
        fr_autocast_state was;
        must(fr_tensor_uniform(2, (int64_t[]){1, 64}, -1, 1, FR_F32, test_device(), &x));
        must(fr_autocast_begin(FR_F16, &was));
        must(fr_module_forward(m, x, &y));
        fr_autocast_end(was);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        must(fr_memory_stats_get(test_device(), &stats[on]));
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_module_release(&m);
    }
    cr_expect_eq(stats[0].requested_by[FR_MEM_GRADIENT], 64 * 64 * 4);
    cr_expect_eq(stats[1].requested_by[FR_MEM_GRADIENT], 64 * 64 * 2);
}
