/* test_relu_gradient.c - a relu's gradient made by the node of norm and relu, or by a sum of gradients: equal bits, no
 * further bytes, a pass fewer (Note [The mask of a relu] in src/autograd/node.h). */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <math.h>
#include <string.h>

#include "net/layers.h"
#include "backend/backend.h"
#include "net/module.h"
#include "support/golden.h"
#include "support/kernels_run.h"
#include "tensor/tensor.h"

enum { N = 3, H = 5, W = 7, C = 8, COUNT = N * H * W * C };

/* Kernels that masked a gradient. */
static int masks(void) {
    return kernels_run("relu_backward") + kernels_run("relu_backward_bits") + kernels_run("add_mask");
}

/* Normalized by mean 0 and variance 1: values near the limit where each type rounds to 0, both signs; with `wild`
 * also infinities and NaN. */
static fr_tensor *image(fr_dtype t, int seed, bool wild) {
    static const float odd[] = {0.0f,       -0.0f,     0x1p-24f,  -0x1p-24f,   0x1p-25f,   0x1.8p-25f,
                                0x1p-26f,   0x1p-133f, 0x1p-134f, 0x1.8p-134f, -0x1p-134f, 0x1p-149f,
                                -0x1p-149f, 1e-7f,     INFINITY,  -INFINITY,   NAN};
    float v[COUNT];
    fr_tensor *f = NULL, *x = NULL;
    for (int i = 0; i < COUNT; i++) v[i] = (float)(((i + seed) * 2654435761u >> 12) % 2001) / 500.0f - 2.0f;
    for (int i = 0; i < (wild ? 17 : 14); i++) v[(i * 41 + seed * 7) % COUNT] = odd[i];
    must(fr_tensor_from_host(v, 4, (int64_t[]){N, H, W, C}, FR_F32, test_device(), &f));
    must(fr_cast(f, t, &x));
    fr_tensor_release(&f);
    return x;
}

typedef struct setting {
    fr_dtype dtype;
    bool eval, frozen, wild, checkpoint, looked;
    fr_switches switches;
} setting;

typedef struct result {
    fr_tensor *y, *grad[4]; /* of x, gamma, beta, the factor */
    size_t peak, allocated;
} result;

static void release(result *r) {
    fr_tensor_release(&r->y);
    for (int i = 0; i < 4; i++) fr_tensor_release(&r->grad[i]);
}

static fr_status net(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_module *bn = ctx;
    const fri_layer_args relu = {.act = FRI_ACTIVATION_RELU};
    fr_tensor *y = fr_tensor_retain(in[0]);
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    const bool fuses = fri_norm_fuses(y, NULL);
    FR_TRY(s, fri_layer_run(bn, NULL, fuses ? &relu : &(fri_layer_args){0}, &y));
    if (!fuses) FR_TRY(s, fr_relu(y, &y));
    FR_TRY(s, fr_mul(y, in[1], &out[0])); /* reads values, and in backward gives the values up */
done:
    fr_tensor_release(&y);
    return s;
}

static void set(fr_tensor *t, const float *values) {
    fr_tensor *v = NULL;
    bool was = fr_no_grad_begin();
    must(fr_tensor_from_host(values, 1, (int64_t[]){C}, FR_F32, test_device(), &v));
    must(fr_tensor_copy(t, v));
    fr_no_grad_end(was);
    fr_tensor_release(&v);
}

/* Gamma and beta of both signs and 0, so that some channels are all 0 and some as small as x is. */
static result run(setting c) {
    static const float gammas[C] = {1, -1, -0.5f, 1, -0.7f, 0, 0.5f, 1}, betas[C] = {0, 0, 0, -0.3f, 0.2f, 0, -0.0f, 0};
    result r = {0};
    fr_memory_stats m;
    fr_module *bn = NULL;
    fr_switches was = fr_switches_get();
    fr_switches_set(c.switches);
    must(fri_nn_batchnorm2d(C, NULL, test_device(), &bn));
    fr_tensor *x = image(c.dtype, 1, c.wild), *dy = image(c.dtype, 5, c.wild);
    fr_tensor *factor = image(c.dtype, 3, false), *in[2] = {x, factor};
    fr_tensor *leaf[4] = {x, fr_module_tensor(bn, "weight"), fr_module_tensor(bn, "bias"), factor};
    set(leaf[1], gammas);
    set(leaf[2], betas);
    for (int i = 1; i < 3; i++) must(fr_tensor_set_requires_grad(leaf[i], !c.frozen));
    fr_module_train(bn, !c.eval);
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(factor, true));
    must(fr_memory_empty_cache(test_device()));
    must(fr_memory_reset_peak(test_device()));
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.requested;
    r.allocated = m.allocated;
    if (c.looked) fr_detect_anomaly(true);
    kernels_watch();
    if (c.checkpoint)
        must(fr_checkpoint(net, bn, NULL, in, 2, &r.y, 1));
    else
        must(net(bn, in, 2, &r.y, 1));
    must(fr_backward(r.y, dy));
    kernels_unwatch();
    fr_detect_anomaly(false);
    must(fr_memory_stats_get(test_device(), &m));
    r.peak = m.peak_requested - r.peak;
    r.allocated = m.peak_allocated - r.allocated;
    for (int i = 0; i < 4; i++) r.grad[i] = fr_tensor_retain(fr_tensor_get_grad(leaf[i]));
    fr_switches_set(was);
    RELEASE_ALL(&x, &dy, &factor);
    fr_module_release(&bn);
    return r;
}

static void expect_equal(const fr_tensor *a, const fr_tensor *b, const char *what) {
    cr_assert_eq(a == NULL, b == NULL, "%s", what);
    if (a == NULL) return;
    size_t n = fri_nbytes(a);
    char *p = malloc(n), *q = malloc(n);
    must(fr_tensor_to_host(a, p));
    must(fr_tensor_to_host(b, q));
    cr_expect_eq(memcmp(p, q, n), 0, "%s differs (%s)", what, fr_dtype_name(a->dtype));
    free(p);
    free(q);
}

/* Compares a mask in a pass of its own, which an anomaly check forces, with a fused mask. */
static void compare(setting c, int wanted) {
    static const char *const names[] = {"dx", "dgamma", "dbeta", "the factor's gradient"};
    c.looked = true;
    result two = run(c);
    cr_expect_eq(masks(), 1, "where gradients are looked at the relu masks");
    c.looked = false;
    result one = run(c);
    cr_expect_eq(masks(), wanted, "%d passes that mask, %d expected", masks(), wanted);
    if (wanted == 0) cr_expect_eq(kernels_run("relu_encode"), 0, "bits were made that nobody reads");
    expect_equal(one.y, two.y, "y");
    for (int i = 0; i < 4; i++) expect_equal(one.grad[i], two.grad[i], names[i]);
    cr_expect_leq(one.peak, two.peak, "peak of %zu bytes, %zu with a pass of its own", one.peak, two.peak);
    cr_expect_leq(one.allocated, two.allocated, "%zu bytes allocated, %zu with a pass of its own", one.allocated,
                  two.allocated);
    release(&one);
    release(&two);
}

static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};

/* Batch norm in eval mode with a frozen gamma keeps no input that tells the signs: the relu masks. */
Test(relu_gradient, every_bit_and_byte_is_that_of_the_separate_passes) {
    for (int i = 0; i < 3 * 16; i++) {
        const bool eval = i / 3 & 1, frozen = i / 6 & 1;
        compare((setting){.dtype = types[i % 3],
                          .eval = eval,
                          .frozen = frozen,
                          .wild = i / 12 & 1,
                          .checkpoint = i / 24 & 1,
                          .switches = fr_switches_default()},
                eval && frozen);
    }
    expect_nothing_left();
}

/* The relu masks in a separate pass only where in-place and rebuild are off: then the calls are separate. */
Test(relu_gradient, under_every_switch) {
    for (int i = 0; i < 16; i++) {
        fr_switches s = fr_switches_default();
        s.inplace = i & 1;
        s.early_release = i & 2;
        s.encode = i & 4;
        s.rebuild = i & 8;
        compare((setting){.dtype = FR_F16, .switches = s}, !s.inplace && !s.rebuild);
    }
    expect_nothing_left();
}

/* ---- two gradients that meet --------------------------------------------------------------------------------- */

typedef struct meeting {
    bool scaled, leaky;
} meeting;

/* relu(x) is read by a product, whose backward gives the value up, and by a sum, plain or scaled. */
static fr_status meet(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_tensor *y = NULL, *z = NULL, *w = NULL;
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    const meeting *c = ctx;
    FR_TRY(s, c->leaky ? fr_leaky_relu(in[0], 0.25, &y) : fr_relu(in[0], &y));
    if (c->scaled) FR_TRY(s, fr_scale(y, 0.5, &z));
    FR_TRY(s, fr_mul(y, in[1], &w));
    if (z != NULL) FR_TRY(s, fr_add(w, z, &w));
    FR_TRY(s, fr_add(w, y, &out[0]));
done:
    RELEASE_ALL(&y, &z, &w);
    return s;
}

static fr_tensor *met(fr_dtype t, meeting c, bool checkpoint, fr_switches switches) {
    fr_tensor *x = image(t, 1, true), *factor = image(t, 3, false), *dy = image(t, 5, true), *y = NULL;
    fr_tensor *in[] = {x, factor};
    fr_switches was = fr_switches_get();
    fr_switches_set(switches);
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(factor, true));
    kernels_watch();
    must(checkpoint ? fr_checkpoint(meet, &c, NULL, in, 2, &y, 1) : meet(&c, in, 2, &y, 1));
    must(fr_backward(y, dy));
    kernels_unwatch();
    fr_switches_set(was);
    fr_tensor *dx = fr_tensor_retain(fr_tensor_get_grad(x)), *given = image(t, 5, true);
    expect_equal(dy, given, "the gradient that backward was given");
    RELEASE_ALL(&given, &x, &factor, &dy, &y);
    return dx;
}

Test(relu_gradient, gradients_that_meet_are_masked_by_the_pass_that_adds_them) {
    fr_switches late = fr_switches_default();
    late.early_release = false; /* gradients are summed before the mask is applied */
    for (int i = 0; i < 3 * 8; i++) {
        const fr_dtype t = types[i % 3];
        const meeting c = {.scaled = i / 3 & 1, .leaky = i / 12 & 1};
        const bool checkpoint = i / 6 & 1;
        fr_tensor *apart = met(t, c, checkpoint, late);
        cr_expect_eq(kernels_run("add_mask"), 0);
        fr_tensor *one = met(t, c, checkpoint, fr_switches_default());
        cr_expect_eq(kernels_run("add_mask"), !c.leaky, "scaled %d leaky %d checkpoint %d: %d", c.scaled, c.leaky,
                     checkpoint, kernels_run("add_mask"));
        cr_expect_eq(masks(), 1);
        expect_equal(one, apart, "dx");
        RELEASE_ALL(&apart, &one);
    }
    expect_nothing_left();
}

/* ---- batch norm writes its own gradient ---------------------------------------------------------------------- */

/* act(batch norm(2 x)) + 3 x: the gradient of the sum is both sides', so dx goes over what the norm saved, unless the
 * activation's gradient has to be made of that first. */
static fr_tensor *gradient_beside(fri_activation act, fr_dtype t, bool inplace) {
    fr_switches s = fr_switches_default();
    fr_module *bn = NULL;
    fr_tensor *x = image(t, 1, false), *dy = image(t, 7, false), *y = NULL, *z = NULL;
    s.inplace = inplace;
    fr_switches_set(s);
    must(fri_nn_batchnorm2d(C, NULL, test_device(), &bn));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 3, &z));
    must(fr_scale(x, 2, &y));
    must(fri_layer_run(bn, NULL, &(fri_layer_args){.act = act}, &y));
    must(fr_add(y, z, &y));
    fr_tensor_release(&z);
    must(fr_backward(y, dy));
    fr_tensor *dx = fr_tensor_retain(fr_tensor_get_grad(x));
    RELEASE_ALL(&x, &y, &dy);
    fr_module_release(&bn);
    return dx;
}

Test(relu_gradient, a_gradient_that_others_read_stays) {
    for (int i = 0; i < 3 * 5; i++) {
        fr_tensor *over = gradient_beside((fri_activation)(i / 3), types[i % 3], true);
        fr_tensor *apart = gradient_beside((fri_activation)(i / 3), types[i % 3], false);
        expect_equal(over, apart, "dx");
        RELEASE_ALL(&over, &apart);
    }
    expect_nothing_left();
}

/* ---- norm, sum and relu, where gradients meet -------------------------------------------------------------------- */

enum { BLOCK_LEAVES = 5 };

typedef struct block {
    fr_dtype dtype;
    bool fused, over, checkpoint, eval, frozen, constant, written;
    fr_module *bn;
} block;

/* y = relu(bn(x) + in[1]), read by a product, which then gives the value up, and by a sum. */
static fr_status residual(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    const block *c = ctx;
    fr_tensor *addend = NULL, *y = fr_tensor_retain(in[0]), *w = NULL;
    const fri_layer_args tail = {.addend = &addend, .act = FRI_ACTIVATION_RELU};
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    FR_TRY(s, fr_scale(in[1], 1, &addend));
    if (c->fused) {
        FR_TRY(s, fri_layer_run(c->bn, NULL, &tail, &y));
    } else {
        FR_TRY(s, fr_module_forward(c->bn, y, &y));
        FR_TRY(s, c->over ? fr_add(addend, y, &y) : fr_add(y, addend, &y));
        FR_TRY(s, fr_relu(y, &y));
    }
    FR_TRY(s, fr_mul(y, in[2], &w));
    FR_TRY(s, fr_add(w, y, &out[0]));
done:
    RELEASE_ALL(&addend, &y, &w);
    return s;
}

static void run_block(block c, fr_tensor *grad[BLOCK_LEAVES]) {
    fr_tensor *y = NULL;
    must(fri_nn_batchnorm2d(C, NULL, test_device(), &c.bn));
    fr_tensor *leaf[BLOCK_LEAVES] = {image(c.dtype, 1, false), image(c.dtype, 2, true), image(c.dtype, 3, false),
                                     fr_tensor_retain(fr_module_tensor(c.bn, "weight")),
                                     fr_tensor_retain(fr_module_tensor(c.bn, "bias"))};
    fr_tensor *dy = image(c.dtype, 5, false);
    fr_seed(3);
    must(fr_init_uniform(leaf[3], -1, 1));
    fr_module_train(c.bn, !c.eval);
    for (int i = 0; i < BLOCK_LEAVES; i++)
        must(fr_tensor_set_requires_grad(leaf[i], i == 0 ? !c.constant : i != 3 || !c.frozen));
    kernels_watch();
    must(c.checkpoint ? fr_checkpoint(residual, &c, NULL, leaf, 3, &y, 1) : residual(&c, leaf, 3, &y, 1));
    if (c.written) {
        bool was = fr_no_grad_begin();
        must(fr_scale_inplace(leaf[0], 2));
        fr_no_grad_end(was);
        expect_refused(fr_backward(y, dy), FR_EUSAGE, "batchnorm2d", "modified in place", NULL);
    } else {
        must(fr_backward(y, dy));
    }
    kernels_unwatch();
    for (int i = 0; i < BLOCK_LEAVES; i++) {
        grad[i] = fr_tensor_retain(fr_tensor_get_grad(leaf[i]));
        fr_tensor_release(&leaf[i]);
    }
    fr_tensor_release(&y);
    fr_tensor_release(&dy);
    fr_module_release(&c.bn);
}

Test(relu_gradient, gradients_that_meet_at_norm_sum_and_relu) {
    static const char *const names[] = {"dx", "the addend's gradient", "the factor's gradient", "dgamma", "dbeta"};
    for (int i = 0; i < 3 * 16; i++) {
        block c = {.dtype = types[i % 3],
                   .over = i / 3 & 1,
                   .checkpoint = i / 6 & 1,
                   .eval = i / 12 & 1,
                   .frozen = i / 24 & 1};
        fr_tensor *one[BLOCK_LEAVES], *apart[BLOCK_LEAVES];
        run_block(c, apart);
        c.fused = true;
        run_block(c, one);
        cr_expect_eq(kernels_run("batchnorm2d_backward"), 1, "case %d", i);
        cr_expect_eq(masks(), 1, "case %d: %d passes that mask", i, masks());
        for (int k = 0; k < BLOCK_LEAVES; k++) {
            expect_equal(one[k], apart[k], names[k]);
            fr_tensor_release(&one[k]);
            fr_tensor_release(&apart[k]);
        }
    }
    expect_nothing_left();
}

/* Batch norm's input wants no gradient: no sums of dx are begun. It was written to: backward refuses. */
Test(relu_gradient, a_block_whose_input_is_constant_or_was_written_to) {
    for (int i = 0; i < 2; i++) {
        fr_tensor *grad[BLOCK_LEAVES];
        run_block((block){.dtype = FR_F16, .fused = true, .constant = i == 0, .written = i == 1}, grad);
        for (int k = 0; k < BLOCK_LEAVES; k++) fr_tensor_release(&grad[k]);
    }
    expect_nothing_left();
}
