/* test_fused.c - optimizer state and its creation, and the fused step: each parameter is updated inside backward,
 * with the bits of an ordinary step and without storing all gradients. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/optim.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "tensor/tensor.h"

enum { LAYERS = 4, WIDTH = 64, STEPS = 3 };

/* A parameter of WIDTH x WIDTH floats has 16,384 bytes; a bias has 256 bytes and occupies 512. */
enum { WEIGHT_BYTES = WIDTH * WIDTH * 4, BIAS_BYTES = 512 };

static fr_module *chain(fr_device device) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, WIDTH});
    for (int i = 0; i < LAYERS; i++) x = fr_net_relu(n, NULL, fr_net_linear(n, NULL, x, WIDTH, FR_BIAS));
    must(fr_net_end(&n, &x, 1, &m));
    return m;
}

typedef fr_status make_fn(fr_module *m, fr_optimizer **o);

static fr_status sgd(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.05), o);
}
static fr_status momentum(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3), o);
}
static fr_status adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, NULL, o);
}
static fr_status adamw(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, NULL, o);
}

static fr_status rmsprop(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.momentum = 0.9), o);
}

static fr_status adam8(fr_module *m, fr_optimizer **o) {
    return fr_adam8(m, NULL, o);
}

/* Bytes of state per layer (8-bit moments: codes, and 16 scales occupying 512; f32 for the bias), and of the
 * optimizer: Adam's step count on the device, one float; the 8-bit maps. */
static const struct {
    const char *name;
    make_fn *make;
    size_t layer, extra;
} kinds[] = {{"sgd", sgd, 0, 0},
             {"momentum", momentum, WEIGHT_BYTES + BIAS_BYTES, 0},
             {"rmsprop", rmsprop, 2 * (WEIGHT_BYTES + BIAS_BYTES), 0},
             {"adam", adam, 2 * (WEIGHT_BYTES + BIAS_BYTES), 512},
             {"adamw", adamw, 2 * (WEIGHT_BYTES + BIAS_BYTES), 512},
             {"adam8", adam8, 2 * (WEIGHT_BYTES / 4 + 512 + BIAS_BYTES), 512 + 2048}};

enum { KINDS = sizeof kinds / sizeof *kinds };

static void backward(fr_module *m, fr_device device) {
    fr_tensor *x = NULL;
    must(fr_tensor_uniform(2, (int64_t[]){8, WIDTH}, -1, 1, FR_F32, device, &x));
    must(fr_module_forward(m, x, &x));
    must(fr_mean(x, &x));
    must(fr_backward(x, NULL));
    fr_tensor_release(&x);
}

/* ---- state --------------------------------------------------------------------------------------------------- */

Test(fused, state_is_made_at_the_first_step) {
    for (int k = 0; k < KINDS; k++) {
        fr_module *m = chain(FR_META);
        fr_optimizer *o = NULL;
        fr_memory_stats t;
        must(kinds[k].make(m, &o));
        backward(m, FR_META);
        must(fr_memory_stats_get(FR_META, &t));
        cr_expect_eq(t.requested_by[FR_MEM_OPTIMIZER], 0u, "%s has state before its first step", kinds[k].name);
        for (int i = 0; i < 2; i++) {
            must(fr_optimizer_step(o));
            must(fr_memory_stats_get(FR_META, &t));
            cr_expect_eq(t.requested_by[FR_MEM_OPTIMIZER], kinds[k].layer * LAYERS + kinds[k].extra,
                         "%s keeps %zu bytes", kinds[k].name, t.requested_by[FR_MEM_OPTIMIZER]);
        }
        fr_optimizer_release(&o);
        fr_module_release(&m);
        must(fr_memory_stats_get(FR_META, &t));
        cr_expect_eq(t.requested, 0u);
    }
}

/* A step allocates only state, no temporaries. */
Test(fused, a_step_has_no_temporaries) {
    for (int k = 0; k < KINDS; k++) {
        fr_module *m = chain(FR_META);
        fr_optimizer *o = NULL;
        fr_memory_stats before, after;
        must(kinds[k].make(m, &o));
        backward(m, FR_META);
        must(fr_optimizer_step(o));
        must(fr_memory_stats_get(FR_META, &before));
        must(fr_memory_reset_peak(FR_META));
        must(fr_optimizer_step(o));
        must(fr_memory_stats_get(FR_META, &after));
        cr_expect_eq(after.allocs, before.allocs, "%s allocated %d blocks", kinds[k].name,
                     (int)(after.allocs - before.allocs));
        cr_expect_eq(after.peak_requested, before.requested);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
}

static fr_status touch(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (is_parameter) *(uint64_t *)ctx += fri_tensor_version(t);
    return FR_OK;
}

/* Parameters without a gradient are unchanged, and saved tensors detect a step as a write. */
Test(fused, steps_what_has_a_gradient) {
    fr_module *m = chain(test_device()), *first = fr_module_child(m, 0);
    fr_optimizer *o = NULL;
    fr_tensor *w = fr_module_tensor(first, "weight");
    uint64_t before = 0, after = 0;
    must(sgd(m, &o));
    must(fr_module_each_tensor(m, touch, &before));
    must(fr_optimizer_step(o));
    must(fr_module_each_tensor(m, touch, &after));
    cr_expect_eq(after, before, "a step without gradients wrote");
    backward(m, test_device());
    must(fr_tensor_set_grad(w, NULL));
    before = fri_tensor_version(w);
    after = fri_tensor_version(fr_module_tensor(first, "bias"));
    must(fr_optimizer_step(o));
    cr_expect_eq(fri_tensor_version(w), before);
    cr_expect_gt(fri_tensor_version(fr_module_tensor(first, "bias")), after);
    cr_expect_not_null(fr_tensor_get_grad(fr_module_tensor(first, "bias")));
    fr_optimizer_zero_grad(o);
    cr_expect_null(fr_tensor_get_grad(fr_module_tensor(first, "bias")));
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}

/* ---- the fused step ------------------------------------------------------------------------------------------ */

struct bytes {
    unsigned char data[LAYERS * (WEIGHT_BYTES + WIDTH * 4)];
    size_t n;
};

static fr_status collect(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    struct bytes *b = ctx;
    cr_assert(is_parameter);
    cr_expect_null(fr_tensor_get_grad(t), "%s kept its gradient", path);
    must(fr_tensor_to_host(t, b->data + b->n));
    b->n += fr_tensor_nbytes(t);
    return FR_OK;
}

static void train(make_fn *make, bool fused, struct bytes *b) {
    fr_optimizer *o = NULL;
    fr_seed(17);
    fr_module *m = chain(test_device());
    must(make(m, &o));
    must(fr_optimizer_fuse(o, fused));
    for (int i = 0; i < STEPS; i++) {
        fr_step_scope scope;
        fr_optimizer_set_lr(o, 0.05 / (1 + i));
        must(fr_step_begin(&scope));
        backward(m, test_device());
        must(fr_optimizer_step(o));
        must(fr_step_end(&scope));
        if (!fused) fr_optimizer_zero_grad(o);
    }
    cr_expect_eq(fr_optimizer_steps(o), STEPS);
    b->n = 0;
    must(fr_module_each_tensor(m, collect, b));
    fr_optimizer_release(&o);
    backward(m, test_device()); /* the hooks are gone with the optimizer */
    cr_expect_not_null(fr_tensor_get_grad(fr_module_tensor(fr_module_child(m, 0), "weight")));
    fr_module_release(&m);
}

Test(fused, equals_the_ordinary_step) {
    static struct bytes plain, fused;
    for (int k = 0; k < KINDS; k++) {
        train(kinds[k].make, false, &plain);
        train(kinds[k].make, true, &fused);
        cr_assert_eq(plain.n, sizeof plain.data);
        cr_expect_eq(memcmp(plain.data, fused.data, plain.n), 0, "%s: the fused step gives other parameters",
                     kinds[k].name);
    }
    expect_nothing_left();
}

/* Ordinarily all LAYERS gradients are alive at the end of backward; fused, a single layer's at a time. */
Test(fused, gradients_die_in_backward) {
    size_t peak[2];
    for (int fused = 0; fused < 2; fused++) {
        fr_module *m = chain(FR_META);
        fr_optimizer *o = NULL;
        fr_memory_stats t;
        fr_step_scope scope;
        must(sgd(m, &o));
        must(fr_optimizer_fuse(o, fused));
        must(fr_step_begin(&scope));
        must(fr_memory_reset_peak(FR_META));
        backward(m, FR_META);
        must(fr_step_end(&scope));
        must(fr_memory_stats_get(FR_META, &t));
        peak[fused] = t.peak_requested;
        cr_expect_eq(t.requested_by[FR_MEM_GRADIENT], fused ? 0 : (size_t)LAYERS * (WEIGHT_BYTES + BIAS_BYTES));
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    cr_expect_geq(peak[0] - peak[1], (size_t)(LAYERS - 2) * WEIGHT_BYTES, "the peak falls by %zu bytes",
                  peak[0] - peak[1]);
}
