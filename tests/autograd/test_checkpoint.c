/* test_checkpoint.c - recomputation is invisible: same losses, statistics and counters; errors are sentences; ctx is
 * freed once. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/frugal.h>
#include <string.h>

#include "support/golden.h"

enum { STEPS = 50, CLASSES = 3 };

/* ---- dropout and batch norm over 50 steps ------------------------------------------------------------------------ */

static fr_module *make_net(void) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 3});
    for (int i = 0; i < 4; i++) {
        x = fr_net_conv2d(n, NULL, x, 6, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
        x = fr_net_dropout(n, NULL, x, 0.3);
    }
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1);
    x = fr_net_linear(n, NULL, x, CLASSES, FR_BIAS);
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

typedef enum form { PLAIN, TWO, FOUR, EACH, NESTED, FORMS } form;

static fr_status inner(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)n_in;
    (void)n_out;
    return fr_checkpoint_sequential(ctx, 5, in[0], out);
}

static fr_status forward(fr_module *m, form f, fr_tensor *x, fr_tensor **y) {
    static const int first[] = {0, 3, 7, 9, 12, 16}; /* cuts before relu and dropout, too */
    static const fr_unit_range all[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}};
    const fr_unit_plan each = {.units = 6, .ranges = 6, .range = all, .first = first};
    switch (f) {
    case TWO: return fr_checkpoint_sequential(m, 2, x, y);
    case FOUR: return fr_checkpoint_sequential(m, 4, x, y);
    case EACH: return fr_checkpoint_plan(m, &each, x, y);
    case NESTED: return fr_checkpoint(inner, m, NULL, &x, 1, y, 1);
    default: return fr_module_forward(m, x, y);
    }
}

struct bytes {
    unsigned char data[1 << 16];
    size_t n;
};

static fr_status collect(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct bytes *b = ctx;
    (void)path;
    (void)is_parameter;
    cr_assert_leq(b->n + fr_tensor_nbytes(t), sizeof b->data);
    must(fr_tensor_to_host(t, b->data + b->n));
    b->n += fr_tensor_nbytes(t);
    return FR_OK;
}

static void train(form f, double *loss, struct bytes *b) {
    fr_optimizer *o = NULL;
    fr_seed(31);
    fr_module *m = make_net();
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9), &o));
    for (int i = 0; i < STEPS; i++) {
        fr_tensor *x = NULL, *target = NULL, *y = NULL, *value = NULL;
        must(fr_tensor_uniform(4, (int64_t[]){4, 9, 8, 3}, -1, 1, FR_F32, test_device(), &x));
        must(fr_tensor_full(1, (int64_t[]){4}, i % CLASSES, FR_I64, test_device(), &target));
        must(forward(m, f, x, &y));
        must(fr_cross_entropy(y, target, NULL, &value));
        must(fr_backward(value, NULL));
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        must(fr_tensor_item(value, &loss[i]));
        RELEASE_ALL(&x, &target, &y, &value);
    }
    b->n = 0;
    must(fr_module_each_tensor(m, collect, b)); /* parameters, running statistics, num_batches_tracked */
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

Test(checkpoint, fifty_steps_with_dropout_and_batch_norm, .timeout = 120) {
    static double plain[STEPS], loss[STEPS];
    static struct bytes reference, got;
    train(PLAIN, plain, &reference);
    for (form f = TWO; f < FORMS; f++) {
        uint64_t before = fr_graph_stats_get().recomputed_segments;
        train(f, loss, &got);
        cr_expect_gt(fr_graph_stats_get().recomputed_segments, before, "form %d recomputed nothing", (int)f);
        cr_expect_eq(memcmp(loss, plain, sizeof loss), 0, "form %d: losses differ", (int)f);
        cr_expect_eq(memcmp(got.data, reference.data, reference.n), 0, "form %d: parameters or statistics differ",
                     (int)f);
    }
    expect_nothing_left();
}

Test(checkpoint, segments_out_of_range) {
    fr_module *m = make_net();
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 8, 8, 3}, FR_F32, test_device(), &x));
    expect_refused(fr_checkpoint_sequential(m, 0, x, &y), FR_EINVAL, "0 segments", "11 units", y);
    expect_refused(fr_checkpoint_sequential(m, 12, x, &y), FR_EINVAL, "12 segments", "11 units", y);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- the function's contract ------------------------------------------------------------------------------------- */

struct context {
    int calls, freed;
    bool change, fail;
};

static void context_free(void *p) {
    ((struct context *)p)->freed++;
}

/* Two outputs from two inputs: a b and a b + a. */
static fr_status two_outputs(void *p, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    struct context *c = p;
    fr_tensor *product = NULL, *sum = NULL;
    fr_status s = FR_OK;
    c->calls++;
    if (n_in != 2 || n_out != 2 || (c->fail && c->calls > 1)) return FR_EINVAL;
    if (c->change && c->calls > 1)
        FR_TRY(s, fr_add(in[0], in[1], &product));
    else
        FR_TRY(s, fr_mul(in[0], in[1], &product));
    FR_TRY(s, fr_mul(product, in[0], &sum));
    fr_tensor_release(&out[0]);
    fr_tensor_release(&out[1]);
    out[0] = product;
    out[1] = sum;
    return FR_OK;
done:
    fr_tensor_release(&product);
    fr_tensor_release(&sum);
    return s;
}

static fr_status run(struct context *c, bool backward) {
    fr_tensor *in[2] = {0}, *out[2] = {0}, *s = NULL;
    fr_status status = FR_OK;
    for (int i = 0; i < 2; i++) {
        must(fr_tensor_full(1, (int64_t[]){4}, 2 + i, FR_F32, test_device(), &in[i]));
        must(fr_tensor_set_requires_grad(in[i], true));
    }
    must(fr_checkpoint(two_outputs, c, context_free, in, 2, out, 2));
    must(fr_add(out[0], out[1], &s)); /* a b + a^2 b: da = b + 2 a b = 15, db = a + a^2 = 6 */
    must(fr_sum(s, &s));
    if (backward) status = fr_backward(s, NULL);
    if (backward && status == FR_OK) {
        float g[4];
        must(fr_tensor_to_host(fr_tensor_get_grad(in[0]), g));
        cr_expect_float_eq(g[0], 15, 1e-5);
        must(fr_tensor_to_host(fr_tensor_get_grad(in[1]), g));
        cr_expect_float_eq(g[0], 6, 1e-5);
    }
    for (int i = 0; i < 2; i++) {
        fr_tensor_release(&in[i]);
        fr_tensor_release(&out[i]);
    }
    fr_tensor_release(&s);
    return status;
}

Test(checkpoint, several_tensors_in_and_out) {
    struct context c = {0};
    must(run(&c, true));
    cr_expect_eq(c.calls, 2);
    cr_expect_eq(c.freed, 1);
    struct context unused = {0};
    must(run(&unused, false));
    cr_expect_eq(unused.calls, 1);
    cr_expect_eq(unused.freed, 1, "ctx was freed %d times", unused.freed);
    expect_nothing_left();
}

/* A function that fills the first output only. */
static fr_status half_filled(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)ctx;
    (void)n_in;
    (void)n_out;
    return fr_relu(in[0], &out[0]);
}

Test(checkpoint, an_output_that_is_not_filled_is_refused) {
    fr_tensor *x = NULL, *out[2] = {NULL, NULL};
    must(fr_tensor_full(1, (int64_t[]){4}, 1, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    expect_refused(fr_checkpoint(half_filled, NULL, NULL, &x, 1, out, 2), FR_EINVAL, "no output 1", "asked for 2",
                   out[0]);
    bool was = fr_no_grad_begin();
    expect_refused(fr_checkpoint(half_filled, NULL, NULL, &x, 1, out, 2), FR_EINVAL, "no output 1", "asked for 2",
                   out[0]);
    fr_no_grad_end(was);
    must(fr_checkpoint(half_filled, NULL, NULL, &x, 1, out, 1));
    fr_tensor_release(&out[0]);
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(checkpoint, another_function_the_second_time_is_an_error) {
    struct context changed = {.change = true}, failing = {.fail = true};
    expect_refused(run(&changed, true), FR_EUSAGE, "mul", "add", NULL);
    cr_expect_eq(changed.freed, 1);
    cr_expect_eq(run(&failing, true), FR_EINVAL);
    cr_expect_eq(failing.freed, 1);
    expect_nothing_left();
}
