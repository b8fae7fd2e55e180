/* test_module.c - the module tree: ownership, names, order, modes, paths, slots, conversion, a program's own
 * modules. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include "net/layers.h"

#include <frugal/nn.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/tag.h"
#include "support/golden.h"

static fr_tensor *filled(int rank, const int64_t *shape, double value) {
    fr_tensor *t = NULL;
    must(fr_tensor_full(rank, shape, value, FR_F32, test_device(), &t));
    return t;
}

static size_t live(fr_device d) {
    fr_memory_stats t;
    must(fr_memory_stats_get(d, &t));
    return t.requested;
}

/* conv 3 -> 4 without bias, batch norm, relu, named as in torch.nn.Sequential(OrderedDict(...)). */
static fr_module *conv_bn_relu(fr_device device) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3});
    x = fr_net_conv2d(n, "conv", x, 4, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_batchnorm2d(n, "norm", x, NULL);
    x = fr_net_relu(n, "act", x);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

static fr_status where(fr_module *m, fr_tensor **x) {
    (void)x;
    strncpy(fr_module_state(m), fri_scope_module(), 63);
    return FR_OK;
}

static const fr_module_class probe_class = {.name = "Probe", .forward = where};

/* ---- a program's own module ---------------------------------------------------------------------------------- */

struct residual {
    int *freed;
};

/* x + body(x), through the public interface only. */
static fr_status residual_forward(fr_module *m, fr_tensor **x) {
    fr_tensor *identity = fr_tensor_retain(*x);
    fr_status s = FR_OK;
    FR_TRY(s, fr_module_run_child(m, 0, x));
    FR_TRY(s, fr_add(*x, identity, x));
done:
    fr_tensor_release(&identity);
    return s;
}

static void residual_free(void *state) {
    ++*((struct residual *)state)->freed;
}

static const fr_module_class residual_class = {.name = "Residual",
                                               .forward = residual_forward,
                                               .free_state = residual_free};

static fr_module *residual(fr_module *body, int *freed) {
    fr_module *m = NULL;
    must(fr_module_create(&residual_class, sizeof(struct residual), &m));
    ((struct residual *)fr_module_state(m))->freed = freed;
    must(fr_module_add_child(m, "body", &body));
    return m;
}

Test(module, own_module) {
    int freed = 0;
    fr_module *body = NULL;
    must(fri_nn_linear(2, 2, true, test_device(), &body));
    must(fr_tensor_fill(fr_module_tensor(body, "weight"), 1));
    fr_module *m = residual(body, &freed), *shared = fr_module_retain(m);
    must(fr_tensor_fill(fr_module_tensor(fr_module_child(m, 0), "bias"), 0.5));
    fr_tensor *x = filled(2, (int64_t[]){1, 2}, 3), *y = NULL, *g = NULL;
    float v[4];
    must(fr_module_forward(m, x, &y));
    must(fr_tensor_to_host(y, v));
    cr_expect_eq(v[0], 9.5f); /* 3 + (3 + 3 + 0.5) */
    must(fr_tensor_to_host(x, v));
    cr_expect_eq(v[0], 3.0f, "forward wrote over its borrowed input");
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    g = fr_tensor_get_grad(fr_module_tensor(fr_module_child(m, 0), "weight"));
    must(fr_tensor_to_host(g, v));
    for (int i = 0; i < 4; i++) cr_expect_eq(v[i], 3.0f);
    fr_module_zero_grad(m);
    cr_expect_null(fr_tensor_get_grad(fr_module_tensor(fr_module_child(m, 0), "weight")));
    fr_module_release(&m);
    cr_expect_null(m);
    cr_expect_eq(freed, 0, "the module died although it was retained");
    fr_module_release(&shared);
    cr_expect_eq(freed, 1, "its state was freed %d times", freed);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

Test(module, takes_its_parts_also_on_failure) {
    static const char *const bad[] = {"act", "", "a.b", "weight"};
    fr_module *m = NULL, *c = NULL;
    must(fri_nn_linear(2, 3, true, test_device(), &m));
    must(fri_nn_relu(&c));
    must(fr_module_add_child(m, "act", &c));
    cr_expect_null(c);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_tensor *t = filled(1, (int64_t[]){2}, 0);
        must(fri_nn_relu(&c));
        expect_refused(fr_module_add_child(m, bad[i], &c), FR_EINVAL, "Linear", bad[i], NULL);
        cr_expect_null(c);
        expect_refused(fr_module_add_parameter(m, bad[i], &t), FR_EINVAL, "Linear", bad[i], NULL);
        cr_expect_null(t);
    }
    fr_tensor *integer = NULL;
    must(fr_tensor_zeros(1, (int64_t[]){2}, FR_I64, test_device(), &integer));
    cr_expect_eq(fr_module_add_parameter(m, "steps", &integer), FR_EDTYPE);
    cr_expect_null(integer);
    cr_expect_null(fr_module_child(m, 1));
    cr_expect_not_null(fr_module_child(m, 0));
    cr_expect_null(fr_module_child(m, 1));
    cr_expect_null(fr_module_child(m, -1));
    cr_expect_null(fr_module_tensor(m, "running_mean"));
    fr_module_release(&m);
    expect_nothing_left();
}

struct listing {
    int n, stop;
    char text[512];
};

static fr_status list(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct listing *l = ctx;
    size_t at = strlen(l->text);
    if (l->n++ == l->stop) return FR_EINVAL;
    cr_expect_eq(fr_tensor_requires_grad(t), is_parameter, "%s", path);
    snprintf(l->text + at, sizeof l->text - at, "%s%s%s ", path, is_parameter ? "" : "*",
             fr_tensor_dtype(t) == FR_I64 ? "#" : "");
    return FR_OK;
}

/* torch: nn.Sequential(OrderedDict(conv=..., norm=..., act=...)) inside a second Sequential, state_dict().keys(). */
/* A cycle would run, and be released, without an end. */
Test(module, is_not_below_itself) {
    fr_module *outer = NULL, *inner = NULL, *again = NULL;
    must(fr_module_create(&probe_class, 64, &outer));
    must(fr_module_create(&probe_class, 64, &inner));
    fr_module *borrowed = inner;
    again = fr_module_retain(outer);
    expect_refused(fr_module_add_child(outer, "itself", &again), FR_EINVAL, "Probe", "itself", NULL);
    cr_expect_null(again);
    must(fr_module_add_child(outer, "inner", &inner));
    again = fr_module_retain(outer);
    expect_refused(fr_module_add_child(borrowed, "outer", &again), FR_EINVAL, "'outer'", "contains it", NULL);
    cr_expect_null(fr_module_child(outer, 1));
    cr_expect_null(fr_module_child(borrowed, 0));
    again = fr_module_retain(borrowed); /* a part used twice is no cycle */
    must(fr_module_add_child(outer, "twice", &again));
    fr_module_release(&outer);
    expect_nothing_left();
}

Test(module, state_order_is_torchs) {
    fr_module *m = NULL, *c = conv_bn_relu(test_device());
    struct listing l = {.stop = -1}, stopped = {.stop = 2};
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3});
    fr_net_module(n, NULL, &c, &x, 1, &x, 1);
    x = fr_net_flatten(n, "flat", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1);
    x = fr_net_linear(n, "1", x, 2, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    must(fr_module_each_tensor(m, list, &l));
    cr_expect_str_eq(l.text, "0.conv.weight 0.norm.weight 0.norm.bias 0.norm.running_mean* 0.norm.running_var* "
                             "0.norm.num_batches_tracked*# 1.weight 1.bias ");
    cr_expect_eq(fr_module_parameter_count(m), 4 * 27 + 8 + 10);
    cr_expect_eq(fr_module_each_tensor(m, list, &stopped), FR_EINVAL, "a negative status does not stop the visit");
    cr_expect_eq(stopped.n, 3);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- modes ------------------------------------------------------------------------------------------------- */

static int64_t batches(fr_module *norm) {
    int64_t n = -1;
    must(fr_tensor_to_host(fr_module_tensor(norm, "num_batches_tracked"), &n));
    return n;
}

Test(module, train_and_eval) {
    fr_module *m = conv_bn_relu(test_device()), *norm = fr_module_child(m, 1);
    fr_tensor *x = NULL, *y = NULL;
    float before[4], after[4];
    must(fr_tensor_uniform(4, (int64_t[]){2, 5, 4, 3}, -1, 1, FR_F32, test_device(), &x));
    cr_expect(fr_module_training(m) && fr_module_training(norm), "new modules train");
    must(fr_module_forward(m, x, &y));
    cr_expect_eq(batches(norm), 1);
    fr_module_train(m, false);
    cr_expect(!fr_module_training(m) && !fr_module_training(norm), "eval does not reach the children");
    must(fr_tensor_to_host(fr_module_tensor(norm, "running_mean"), before));
    must(fr_module_forward(m, x, &y));
    must(fr_tensor_to_host(fr_module_tensor(norm, "running_mean"), after));
    cr_expect_eq(memcmp(before, after, sizeof before), 0, "eval changed the running mean");
    cr_expect_eq(batches(norm), 1);
    fr_module_train(m, true);
    must(fr_module_forward(m, x, &y));
    must(fr_tensor_to_host(fr_module_tensor(norm, "running_mean"), after));
    cr_expect_neq(memcmp(before, after, sizeof before), 0, "training left the running mean alone");
    cr_expect_eq(batches(norm), 2);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- paths ------------------------------------------------------------------------------------------------- */

static fr_status run_first(fr_module *m, fr_tensor **x) {
    return fr_module_run_child(m, 0, x);
}

static const fr_module_class first_class = {.name = "First", .forward = run_first};

/* A leaf's failure and a composite's own failure carry the path once; the slot and the scope stay as they were. */
Test(module, errors_name_the_path) {
    int freed = 0;
    fr_module *m = NULL, *c = NULL, *body = NULL;
    fr_tensor *narrow = filled(2, (int64_t[]){2, 3}, 1), *wide = filled(2, (int64_t[]){2, 4}, 1), *y = NULL;
    must(fri_nn_linear(4, 3, true, test_device(), &body));
    c = residual(body, &freed);
    must(fr_module_create(&first_class, 0, &m));
    must(fr_module_add_child(m, "block", &c));
    expect_refused(fr_module_forward(m, narrow, &y), FR_ESHAPE, "block.body (Linear): linear: ", "[2, 3]", y);
    cr_expect(strstr(fr_last_error(), "Residual") == NULL, "the path is there twice: %s", fr_last_error());
    expect_refused(fr_module_forward(m, wide, &y), FR_ESHAPE, "block (Residual): add: ", "[2, 4]", y);
    cr_expect_str_eq(fri_scope_module(), "", "the module path was left at '%s'", fri_scope_module());
    expect_refused(fr_module_forward(NULL, wide, &y), FR_EINVAL, "module", "NULL", y);
    expect_refused(fr_module_forward(m, NULL, &y), FR_EINVAL, "x", "NULL", y);
    fr_module_release(&m);
    fr_tensor_release(&narrow);
    fr_tensor_release(&wide);
    expect_nothing_left();
}

Test(module, runs_under_its_path) {
    fr_module *m = NULL, *probe = NULL;
    fr_tensor *x = filled(1, (int64_t[]){1}, 1), *y = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value v = fr_net_input(n, FR_F32, 1, (int64_t[]){1});
    must(fr_module_create(&probe_class, 64, &probe));
    char *seen = fr_module_state(probe);
    fr_net_scope_begin(n, "features");
    fr_net_module(n, NULL, &probe, &v, 1, &v, 1);
    fr_net_scope_end(n);
    must(fr_net_end(&n, &v, 1, &m));
    must(fr_module_forward(m, x, &y));
    cr_expect_str_eq(seen, "features.0");
    fr_module_release(&m);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* Forward leaves no activations, and the slot's old tensor dies at once. x is [8, 16, 16, 3]: 24,576 bytes; y has 4
 * channels: 32,768. Without a graph the chain needs, at most, x and the convolution's output; norm and relu run in the
 * latter. mean and invstd take 512 bytes each. */
Test(module, keeps_no_activations) {
    fr_module *m = conv_bn_relu(FR_META);
    fr_tensor *x = NULL, *y = NULL;
    fr_memory_stats t;
    size_t parameters = live(FR_META);
    bool was = fr_no_grad_begin();
    must(fr_tensor_empty(4, (int64_t[]){8, 16, 16, 3}, FR_F32, FR_META, &x));
    must(fr_memory_reset_peak(FR_META));
    must(fr_module_forward(m, x, &y));
    must(fr_memory_stats_get(FR_META, &t));
    fr_no_grad_end(was);
    cr_expect_eq(t.requested, parameters + 24576 + 32768);
    cr_expect_eq(t.peak_requested, parameters + 24576 + 32768 + 2 * 512, "the peak is %zu above the parameters",
                 t.peak_requested - parameters);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    cr_expect_eq(live(FR_META), parameters);
    fr_module_release(&m);
    cr_expect_eq(live(FR_META), 0u);
}

/* ---- conversion ---------------------------------------------------------------------------------------------- */

Test(module, to_dtype_spares_batch_norm) {
    fr_module *m = conv_bn_relu(test_device()), *norm = fr_module_child(m, 1);
    fr_tensor *x = NULL, *y = NULL;
    float before[108], after[108];
    must(fr_tensor_to_host(fr_module_tensor(fr_module_child(m, 0), "weight"), before));
    must(fr_module_to_dtype(m, FR_BF16));
    fr_tensor *w = fr_module_tensor(fr_module_child(m, 0), "weight");
    cr_expect_eq(fr_tensor_dtype(w), FR_BF16);
    cr_expect(fr_tensor_requires_grad(w));
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(norm, "weight")), FR_F32);
    cr_expect_eq(fr_tensor_dtype(fr_module_tensor(norm, "num_batches_tracked")), FR_I64);
    must(fr_tensor_uniform(4, (int64_t[]){2, 6, 5, 3}, -1, 1, FR_BF16, test_device(), &x));
    must(fr_module_forward(m, x, &y));
    cr_expect_eq(fr_tensor_dtype(y), FR_BF16);
    must(fr_module_to_dtype(m, FR_F32));
    must(fr_tensor_to_host(fr_module_tensor(fr_module_child(m, 0), "weight"), after));
    for (int i = 0; i < 108; i++)
        cr_expect_eq(after[i], fri_f32_from_bf16(fri_bf16_from_f32(before[i])), "weight %d is not rounded once", i);
    expect_refused(fr_module_to_dtype(m, FR_I64), FR_EDTYPE, "i64", "f32", NULL);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    expect_nothing_left();
}
