/* test_master_weights.c - half parameters with f32 masters: masters equal an f32 optimizer's result for equal half
 * gradients bit for bit, parameters are rounded copies, and state bytes follow the formula. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/net.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "optim/optimizer.h"

enum { WIDTH = 64, NUMBERS = WIDTH * WIDTH, STEPS = 4, OVERFLOWS_AT = 2 };

/* A weight of 64 x 64, for which adam8 uses 8-bit moments. */
static fr_module *layer(fr_dtype dtype) {
    fr_module *m = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, WIDTH});
    fr_seed(1);
    x = fr_net_linear(n, NULL, x, WIDTH, 0);
    must(fr_net_end(&n, &x, 1, &m));
    must(fr_module_to_dtype(m, dtype));
    return m;
}

static fr_status find_weight(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)path;
    if (is_parameter) *(fr_tensor **)ctx = t;
    return FR_OK;
}

static fr_tensor *weight(fr_module *m) {
    fr_tensor *w = NULL;
    must(fr_module_each_tensor(m, find_weight, &w));
    cr_assert_not_null(w);
    return w;
}

typedef fr_status make_fn(fr_module *m, fr_optimizer **o);

static fr_status sgd(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.001, .weight_decay = 0.01), o);
}
static fr_status momentum(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.001, .momentum = 0.9), o);
}
static fr_status dampened(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.001, .momentum = 0.9, .dampening = 0.5), o);
}
static fr_status rmsprop(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 1e-5, .centered = true), o);
}
static fr_status adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, FR_ADAM_OPTS(.lr = 1e-5), o);
}
static fr_status adamw(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, NULL, o);
}
static fr_status adam8(fr_module *m, fr_optimizer **o) {
    return fr_adam8(m, NULL, o);
}

/* Blocks of 512 bytes: the scales of 16 blocks, the counts of steps. */
enum { MAPS = 2 * 256 * 4, SCALES = 512, COUNTS = 512 };
static const struct {
    const char *name;
    make_fn *make;
    int64_t bytes; /* state bytes of a half weight without its master's 4 per element */
} kinds[] = {{"sgd", sgd, 0},
             {"momentum", momentum, 4 * NUMBERS},
             {"dampened", dampened, 4 * NUMBERS},
             {"rmsprop", rmsprop, 8 * NUMBERS},
             {"adam", adam, 8 * NUMBERS + COUNTS},
             {"adamw", adamw, 8 * NUMBERS + COUNTS},
             {"adam8", adam8, 2 * NUMBERS + 2 * SCALES + MAPS + COUNTS}};
enum { KINDS = sizeof kinds / sizeof *kinds };
static const fr_dtype halves[] = {FR_F16, FR_BF16};

/* Gradient of step i, exact in half types; `infinite`: with an inf. */
static void give_gradient(fr_tensor *w, int i, bool infinite, fr_dtype dtype) {
    fr_tensor *g = NULL;
    float *host = malloc(NUMBERS * sizeof *host);
    cr_assert_not_null(host);
    for (int k = 0; k < NUMBERS; k++) host[k] = (float)((k * 37 + i * 11) % 127 - 63) / 64.0f;
    if (infinite) host[NUMBERS / 2] = INFINITY;
    must(fr_tensor_from_host(host, 2, (int64_t[]){WIDTH, WIDTH}, FR_F32, test_device(), &g));
    must(fr_cast(g, dtype, &g));
    must(fr_tensor_set_grad(w, g));
    fr_tensor_release(&g);
    free(host);
}

/* Trains with a loss scale of 8 or without; one scaled step overflows. */
static void train(fr_module *m, fr_optimizer *o, bool scaled, fr_dtype gradients) {
    fr_grad_scaler *g = NULL;
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 8, .enabled = scaled), test_device(), &g));
    for (int i = 0; i < STEPS; i++) {
        fr_step_scope scope;
        must(fr_step_begin(&scope));
        give_gradient(weight(m), i, scaled && i == OVERFLOWS_AT, gradients);
        must(fr_grad_scaler_step(g, o));
        must(fr_grad_scaler_update(g, NULL));
        fr_optimizer_zero_grad(o);
        fr_step_end(&scope);
    }
    fr_grad_scaler_release(&g);
}

static fr_status find_master(void *ctx, const char *name, fr_tensor *t) {
    const char *last = strrchr(name, '.');
    if (last != NULL && strcmp(last, ".master") == 0) *(fr_tensor **)ctx = t;
    return FR_OK;
}

static fr_tensor *master(fr_optimizer *o) {
    fr_tensor *t = NULL;
    must(fri_optimizer_each_state(o, find_master, &t));
    return t;
}

static void expect_equal(const fr_tensor *a, const fr_tensor *b, const char *kind, const char *what) {
    cr_assert_eq(fr_tensor_dtype(a), fr_tensor_dtype(b), "%s: %s", kind, what);
    void *x = malloc(fr_tensor_nbytes(a)), *y = malloc(fr_tensor_nbytes(b));
    must(fr_tensor_to_host(a, x));
    must(fr_tensor_to_host(b, y));
    cr_expect_eq(memcmp(x, y, fr_tensor_nbytes(a)), 0, "%s: %s", kind, what);
    free(x);
    free(y);
}

/* The parameter is the master, rounded. */
static void expect_rounded(fr_optimizer *o, fr_tensor *w, const char *kind) {
    fr_tensor *rounded = NULL;
    bool was = fr_no_grad_begin();
    must(fr_cast(master(o), fr_tensor_dtype(w), &rounded));
    fr_no_grad_end(was);
    expect_equal(rounded, w, kind, "the parameter is not its master rounded");
    fr_tensor_release(&rounded);
}

Test(master_weights, are_what_an_f32_optimizer_makes_of_half_gradients) {
    for (int k = 0; k < KINDS; k++)
        for (int h = 0; h < 2; h++)
            for (int scaled = 0; scaled < 2; scaled++) {
                fr_module *half = layer(halves[h]), *single = layer(halves[h]);
                fr_optimizer *o = NULL, *reference = NULL;
                must(fr_module_to_dtype(single, FR_F32)); /* values of the half parameters */
                must(kinds[k].make(half, &o));
                must(fr_optimizer_master_weights(o, true));
                must(kinds[k].make(single, &reference));
                train(half, o, scaled, halves[h]);
                train(single, reference, scaled, FR_F32);
                cr_assert_not_null(master(o), "%s", kinds[k].name);
                expect_equal(master(o), weight(single), kinds[k].name, "the master is not the f32 parameter");
                expect_rounded(o, weight(half), kinds[k].name);
                cr_expect_eq(fr_optimizer_steps(o), STEPS - scaled, "%s", kinds[k].name);
                fr_optimizer_release(&o);
                fr_optimizer_release(&reference);
                fr_module_release(&half);
                fr_module_release(&single);
            }
}

/* Updates below half a unit in the last place are lost without masters, and add up with masters. */
Test(master_weights, keep_what_a_half_parameter_rounds_away) {
    for (int with = 0; with < 2; with++) {
        fr_module *m = layer(FR_BF16);
        fr_optimizer *o = NULL;
        must(fr_tensor_fill(weight(m), 1));
        must(fr_sgd(m, FR_SGD_OPTS(.lr = 1), &o));
        must(fr_optimizer_master_weights(o, with));
        for (int i = 0; i < 16; i++) { /* a unit below 1 is 2^-8 in bf16 */
            fr_tensor *g = NULL;
            must(fr_tensor_full(2, (int64_t[]){WIDTH, WIDTH}, 1.0 / 1024, FR_BF16, test_device(), &g));
            must(fr_tensor_set_grad(weight(m), g));
            fr_tensor_release(&g);
            must(fr_optimizer_step(o));
        }
        const float expected = with ? 1 - 16.0f / 1024 : 1;
        fr_tensor *wide = NULL;
        bool was = fr_no_grad_begin();
        must(fr_cast(weight(m), FR_F32, &wide));
        fr_no_grad_end(was);
        float *host = malloc(fr_tensor_nbytes(wide));
        must(fr_tensor_to_host(wide, host));
        cr_expect_eq(host[0], expected, "%s: %g", with ? "with" : "without", (double)host[0]);
        cr_expect_eq(host[NUMBERS - 1], expected);
        free(host);
        fr_tensor_release(&wide);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
}

/* 4 bytes per element of a half parameter; f32 parameters have no master. */
Test(master_weights, take_four_bytes_for_each_half_element) {
    const fr_dtype types[] = {FR_F16, FR_BF16, FR_F32};
    for (int k = 0; k < KINDS; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            const bool half = fr_dtype_size(types[t]) == 2;
            int64_t bytes[2];
            for (int with = 0; with < 2; with++) {
                fr_module *m = layer(types[t]);
                fr_optimizer *o = NULL;
                must(kinds[k].make(m, &o));
                must(fr_optimizer_master_weights(o, with));
                fr_memory_stats before, after;
                must(fr_memory_stats_get(test_device(), &before));
                give_gradient(weight(m), 0, false, types[t]);
                must(fr_optimizer_step(o));
                fr_optimizer_zero_grad(o);
                must(fr_memory_stats_get(test_device(), &after));
                bytes[with] = (int64_t)(after.requested_by[FR_MEM_OPTIMIZER] - before.requested_by[FR_MEM_OPTIMIZER]);
                cr_expect_eq(master(o) != NULL, with && half, "%s, %s", kinds[k].name, fr_dtype_name(types[t]));
                fr_optimizer_release(&o);
                fr_module_release(&m);
            }
            if (half)
                cr_expect_eq(bytes[1], kinds[k].bytes + 4 * NUMBERS, "%s: %lld bytes", kinds[k].name,
                             (long long)bytes[1]);
            else
                cr_expect_eq(bytes[1], bytes[0], "%s, %s", kinds[k].name, fr_dtype_name(types[t]));
        }
}

/* ---- further kinds of steps ---------------------------------------------------------------------------------- */

Test(master_weights, are_the_same_in_a_fused_step) {
    for (int k = 0; k < KINDS; k++) {
        fr_module *m[2];
        fr_optimizer *o[2] = {NULL, NULL};
        for (int fused = 0; fused < 2; fused++) {
            m[fused] = layer(FR_F16);
            must(kinds[k].make(m[fused], &o[fused]));
            must(fr_optimizer_master_weights(o[fused], true));
            must(fr_optimizer_fuse(o[fused], fused));
            for (int i = 0; i < STEPS; i++) {
                fr_tensor *x = NULL;
                fr_step_scope scope;
                must(fr_step_begin(&scope));
                fr_seed(10 + (uint64_t)i);
                must(fr_tensor_uniform(2, (int64_t[]){4, WIDTH}, -1, 1, FR_F16, test_device(), &x));
                must(fr_module_forward(m[fused], x, &x));
                must(fr_mul(x, x, &x));
                must(fr_mean(x, &x));
                must(fr_backward(x, NULL));
                fr_tensor_release(&x);
                must(fr_optimizer_step(o[fused]));
                fr_optimizer_zero_grad(o[fused]);
                fr_step_end(&scope);
            }
        }
        expect_equal(master(o[0]), master(o[1]), kinds[k].name, "fused: another master");
        expect_equal(weight(m[0]), weight(m[1]), kinds[k].name, "fused: another parameter");
        for (int i = 0; i < 2; i++) {
            fr_optimizer_release(&o[i]);
            fr_module_release(&m[i]);
        }
    }
}

Test(master_weights, are_chosen_before_the_first_step) {
    fr_module *m = layer(FR_F16);
    fr_optimizer *o = NULL;
    cr_expect_eq(fr_optimizer_master_weights(NULL, true), FR_EINVAL);
    must(fr_adam(m, NULL, &o));
    must(fr_optimizer_master_weights(o, true));
    must(fr_optimizer_master_weights(o, false));
    train(m, o, false, FR_F16);
    must(fr_optimizer_master_weights(o, false));
    cr_expect_eq(fr_optimizer_master_weights(o, true), FR_EUSAGE);
    cr_expect_not_null(strstr(fr_last_error(), "before the first step"), "%s", fr_last_error());
    fr_optimizer_release(&o);
    fr_module_release(&m);
}

/* Freezing a parameter releases its master; unfreezing creates a new master from the parameter. */
Test(master_weights, go_with_what_is_frozen) {
    fr_module *m = layer(FR_F16);
    fr_optimizer *o = NULL;
    must(sgd(m, &o));
    must(fr_optimizer_master_weights(o, true));
    train(m, o, false, FR_F16);
    must(fr_module_freeze(m, "", true));
    must(fr_optimizer_step(o));
    cr_expect_null(master(o));
    must(fr_module_freeze(m, "", false));
    must(fr_tensor_fill(weight(m), 2));
    train(m, o, false, FR_F16);
    cr_assert_not_null(master(o));
    expect_rounded(o, weight(m), "sgd");
    fr_optimizer_release(&o);
    fr_module_release(&m);
}
