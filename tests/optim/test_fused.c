/* test_fused.c - optimizer state and its creation, and the fused step: each parameter is updated inside backward,
 * with the bits of an ordinary step and without storing all gradients. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/optim.h>
#include <pthread.h>
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

/* ---- what a fused step refuses ------------------------------------------------------------------------------- */

static void expect_late(fr_status s, const char *call, const char *name) {
    char start[64], fused[64];
    snprintf(start, sizeof start, "%s: the fused", call);
    snprintf(fused, sizeof fused, "the fused %s has updated '", name);
    expect_refused(s, FR_EUSAGE, start, fused, NULL);
}

static fr_status run_backward(fr_module *m) {
    fr_tensor *x = NULL;
    must(fr_tensor_full(2, (int64_t[]){8, WIDTH}, 0.5, FR_F32, test_device(), &x));
    must(fr_module_forward(m, x, &x));
    must(fr_mean(x, &x));
    const fr_status s = fr_backward(x, NULL);
    fr_tensor_release(&x);
    return s;
}

/* The second pass, clipping and unscaling come too late; the next step goes on from the parameters of the first. */
Test(fused, calls_behind_an_update_are_refused) {
    for (int k = 0; k < 2 * KINDS; k++) {
        static struct bytes once, refused;
        fr_module *m = NULL;
        for (int late = 0; late < 2; late++) {
            struct bytes *b = late ? &refused : &once;
            fr_optimizer *o = NULL;
            fr_grad_scaler *g = NULL;
            fr_seed(17);
            m = chain(test_device());
            must(kinds[k / 2].make(m, &o));
            must(fr_optimizer_fuse(o, true));
            must(fr_grad_scaler_create(NULL, test_device(), &g));
            if (k % 2 == 1) must(fr_optimizer_ema(o, 0.9));
            for (int i = 0; i < 2; i++) {
                fr_step_scope scope;
                must(fr_step_begin(&scope));
                must(run_backward(m));
                if (late) {
                    expect_late(run_backward(m), "backward", fr_optimizer_name(o));
                    fr_optimizer_zero_grad(o);
                    expect_late(fr_clip_grad_norm(m, 1, NULL), "clip_grad_norm", fr_optimizer_name(o));
                    expect_late(fr_grad_scaler_unscale(g, o), "grad scaler: unscale", fr_optimizer_name(o));
                }
                must(fr_optimizer_step(o));
                must(fr_step_end(&scope));
            }
            cr_expect_eq(fr_optimizer_steps(o), 2);
            if (k % 2 == 1) must(fr_optimizer_ema_swap(o));
            b->n = 0;
            must(fr_module_each_tensor(m, collect, b));
            fr_grad_scaler_release(&g);
            fr_optimizer_release(&o);
            fr_module_release(&m);
        }
        cr_expect_eq(memcmp(once.data, refused.data, once.n), 0, "%s: a refused call moved a parameter",
                     kinds[k / 2].name);
    }
    expect_nothing_left();
}

static fr_status keeps(void *ctx, fr_tensor *leaf) {
    ++*(int *)ctx;
    return fr_tensor_get_grad(leaf) != NULL ? FR_OK : FR_EINTERNAL;
}

static fr_status hold(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    return is_parameter ? fr_tensor_set_grad_hook(t, keeps, ctx) : FR_OK;
}

/* Gradients that hooks of the program keep are accumulated, clipped and then updated, as without the fused step. */
Test(fused, gradients_that_a_hook_keeps_may_be_clipped) {
    static struct bytes plain, held;
    for (int fused = 0; fused < 2; fused++) {
        fr_optimizer *o = NULL;
        int calls = 0;
        double norm = 0;
        fr_step_scope scope;
        fr_seed(17);
        fr_module *m = chain(test_device());
        must(adam(m, &o));
        must(fr_module_each_tensor(m, hold, &calls));
        must(fr_optimizer_fuse(o, fused));
        must(fr_step_begin(&scope));
        must(run_backward(m));
        must(run_backward(m));
        must(fr_clip_grad_norm(m, 1e-3, &norm));
        cr_expect(norm > 0 && calls == 4 * LAYERS, "norm %g, %d calls", norm, calls);
        must(fr_optimizer_step(o));
        fr_optimizer_zero_grad(o);
        must(fr_step_end(&scope));
        (fused ? &held : &plain)->n = 0;
        must(fr_module_each_tensor(m, collect, fused ? &held : &plain));
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    cr_expect_eq(memcmp(plain.data, held.data, plain.n), 0);
}

typedef struct handed {
    fr_module *m;
    fr_status status;
} handed;

static void *trains_a_step(void *ctx) {
    handed *h = ctx;
    fr_step_scope scope;
    h->status = fr_step_begin(&scope);
    if (h->status == FR_OK) h->status = run_backward(h->m);
    (void)fr_step_end(&scope);
    return NULL;
}

/* Steps of two threads are two steps, though each is the first of its thread. */
Test(fused, an_optimizer_goes_on_in_another_thread) {
    fr_optimizer *o = NULL;
    handed h = {.m = chain(FR_CPU)};
    must(adam(h.m, &o));
    must(fr_optimizer_fuse(o, true));
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        cr_assert_eq(pthread_create(&t, NULL, trains_a_step, &h), 0);
        pthread_join(t, NULL);
        cr_expect_eq(h.status, FR_OK, "%s", fr_last_error());
    }
    cr_expect_eq(fr_optimizer_steps(o), 3);
    fr_optimizer_release(&o);
    fr_module_release(&h.m);
}

/* Losses over disjoint parameters are two passes of one step. */
Test(fused, losses_of_other_parameters_share_a_step) {
    fr_optimizer *o = NULL;
    fr_step_scope scope;
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_tensor *x = NULL, *y = NULL;
    fr_value in = fr_net_input(n, FR_F32, 2, (int64_t[]){1, WIDTH});
    const fr_value heads[2] = {fr_net_linear(n, "a", in, 1, FR_BIAS), fr_net_linear(n, "b", in, 1, FR_BIAS)};
    must(fr_net_end(&n, heads, 2, &m));
    must(adam(m, &o));
    must(fr_optimizer_fuse(o, true));
    must(fr_tensor_full(2, (int64_t[]){8, WIDTH}, 0.5, FR_F32, test_device(), &x));
    must(fr_step_begin(&scope));
    for (int k = 0; k < 2; k++) {
        must(fr_module_forward(fr_module_find(m, k == 0 ? "a" : "b"), x, &y));
        must(fr_mean(y, &y));
        must(fr_backward(y, NULL));
    }
    must(fr_step_end(&scope));
    cr_expect_eq(fr_optimizer_steps(o), 1);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_optimizer_release(&o);
    fr_module_release(&m);
}
