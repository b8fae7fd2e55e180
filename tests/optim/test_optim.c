/* test_optim.c - optimizers against torch.optim, schedules, clipping, the loss scaler's published behaviour. */
#include "optim/scaler.h"
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <frugal/optim.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"

enum { N = 5, STEPS = 4 };

static fr_status no_forward(fr_module *m, fr_tensor **x) {
    (void)m;
    (void)x;
    return FR_OK;
}
static const fr_module_class bag_class = {.name = "Bag", .forward = no_forward};

/* A module with a single parameter w = [0.5, -1.25, 2, 0.03125, -0.75]. */
static fr_module *bag(void) {
    fr_module *m = NULL;
    fr_tensor *w = NULL;
    must(fr_module_create(&bag_class, 0, &m));
    must(fr_tensor_from_host((const float[N]){0.5f, -1.25f, 2, 0.03125f, -0.75f}, 1, (int64_t[]){N}, FR_F32,
                             test_device(), &w));
    must(fr_module_add_parameter(m, "w", &w));
    return m;
}

static fr_tensor *parameter(fr_module *m) {
    return fr_module_tensor(m, "w");
}

static void set_gradient(fr_module *m, int t, float factor) {
    float g[N] = {0.1f * (float)(t + 1), -0.2f, t % 2 ? -0.3f : 0.3f, 1.5f, -0.01f * (float)t};
    fr_tensor *grad = NULL;
    for (int i = 0; i < N; i++) g[i] *= factor;
    must(fr_tensor_from_host(g, 1, (int64_t[]){N}, FR_F32, test_device(), &grad));
    must(fr_tensor_set_grad(parameter(m), grad));
    fr_tensor_release(&grad);
}

static void nothing_left(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(test_device(), &t));
    cr_expect_eq(t.requested, 0u, "%zu bytes live at the end", t.requested);
}

typedef fr_status make_fn(fr_module *m, fr_optimizer **o);

static fr_status sgd(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.1), o);
}
static fr_status momentum(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01), o);
}
static fr_status dampening(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .dampening = 0.3), o);
}
static fr_status nesterov(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01), o);
}
static fr_status maximize(fr_module *m, fr_optimizer **o) {
    return fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.5, .maximize = true), o);
}
static fr_status adam(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, FR_ADAM_OPTS(.lr = 0.01, .weight_decay = 0.1), o);
}
static fr_status adam_default(fr_module *m, fr_optimizer **o) {
    return fr_adam(m, NULL, o);
}
static fr_status adamw(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, FR_ADAMW_OPTS(.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.05), o);
}
static fr_status adamw_default(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, NULL, o);
}
static fr_status adamw_maximize(fr_module *m, fr_optimizer **o) {
    return fr_adamw(m, FR_ADAMW_OPTS(.lr = 0.01, .maximize = true), o);
}
static fr_status rmsprop(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, NULL, o);
}
static fr_status rmsprop_momentum(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 0.01, .alpha = 0.9, .eps = 0.0316, .momentum = 0.9, .weight_decay = 0.1),
                      o);
}
static fr_status rmsprop_centered(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m,
                      FR_RMSPROP_OPTS(.lr = 0.002, .alpha = 0.95, .eps = 1e-6, .momentum = 0.5, .centered = true,
                                      .maximize = true),
                      o);
}
static fr_status rmsprop_centered_plain(fr_module *m, fr_optimizer **o) {
    return fr_rmsprop(m, FR_RMSPROP_OPTS(.alpha = 0.8, .eps = 1e-3, .centered = true, .weight_decay = 0.05), o);
}

/* Parameter after four steps of torch.optim in f64 with equal options and gradients. */
static const struct {
    const char *name;
    make_fn *make;
    double expected[N];
} cases[] = {
    {"sgd", sgd, {0.4, -1.17, 2.0, -0.56875, -0.744}},
    {"momentum", momentum, {0.310088635, -1.0580025, 1.93324641, -1.32430885, -0.733719416}},
    {"dampening", dampening, {0.35977, -1.10268, 1.93484, -1.07365, -0.743343}},
    {"nesterov", nesterov, {0.227432045, -0.992666412, 1.93220842, -1.78560082, -0.726376149}},
    {"maximize", maximize, {0.63875, -1.3725, 2.01875, 0.95, -0.75775}},
    {"adam", adam, {0.460613796, -1.21000707, 1.97254567, -0.0087484932, -0.709883074}},
    {"adam_default", adam_default, {0.496116407, -1.246, 1.99876947, 0.02725, -0.7475558}},
    {"adamw", adamw, {0.45954631, -1.20753206, 1.98479824, -0.00878243649, -0.722810111}},
    {"adamw_default", adamw_default, {0.496096466, -1.24595006, 1.9986895, 0.02724881, -0.747525823}},
    {"adamw_maximize", adamw_maximize, {0.538630075, -1.28949407, 2.01150219, 0.071231502, -0.774139733}},
    {"rmsprop", rmsprop, {0.156843958, -0.970710354, 1.96323995, -0.248039736, -0.48011887}},
    {"rmsprop_momentum", rmsprop_momentum, {0.321507034, -1.0715014, 1.89059516, -0.181339888, -0.634496064}},
    {"rmsprop_centered", rmsprop_centered, {0.550776649, -1.29272873, 2.00936031, 0.0739794072, -0.786416163}},
    {"rmsprop_centered_plain",
     rmsprop_centered_plain,
     {0.40216471, -1.16474936, 1.97686774, -0.0547619957, -0.6605181}},
};

/* f32 rounds each of the four updates once or twice: a few units in the last place of values near 2. */
static const double tolerance = 2e-6;

static void expect_near(const char *name, fr_module *m, const double *expected) {
    float w[N];
    must(fr_tensor_to_host(parameter(m), w));
    for (int i = 0; i < N; i++)
        cr_expect(fabs(w[i] - expected[i]) <= tolerance, "%s element %d: %.9g, expected %.9g", name, i, (double)w[i],
                  expected[i]);
}

Test(optim, matches_torch) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fr_module *m = bag();
        fr_optimizer *o = NULL;
        must(cases[c].make(m, &o));
        for (int t = 0; t < STEPS; t++) {
            set_gradient(m, t, 1);
            must(fr_optimizer_step(o));
        }
        expect_near(cases[c].name, m, cases[c].expected);
        cr_expect_eq(fr_optimizer_steps(o), STEPS);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    nothing_left();
}

/* Scaled gradients, unscaled before or inside the step, give the unscaled result; powers of two are exact. */
/* A parameter that the CPU cuts into several tasks: all elements are alike, so all take the same step. */
Test(optim, parameters_of_several_tasks) {
    enum { COUNT = 3 * 16384 + 5 };
    static float w[COUNT];
    make_fn *const kinds[] = {sgd, momentum, adam, rmsprop};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fr_module *m = NULL;
        fr_optimizer *o = NULL;
        fr_tensor *t = NULL;
        must(fr_module_create(&bag_class, 0, &m));
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 1, FR_F32, test_device(), &t));
        must(fr_module_add_parameter(m, "w", &t));
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 0.5, FR_F32, test_device(), &t));
        must(fr_tensor_set_grad(parameter(m), t));
        must(kinds[k](m, &o));
        must(fr_optimizer_step(o));
        must(fr_tensor_to_host(parameter(m), w));
        cr_expect(w[0] < 1, "optimizer %zu takes no step", k);
        for (int i = 1; i < COUNT; i++)
            cr_assert_float_eq(w[i], w[0], 0, "optimizer %zu: element %d is %.9g, the first %.9g", k, i, (double)w[i],
                               (double)w[0]);
        fr_optimizer_release(&o);
        fr_module_release(&m);
        fr_tensor_release(&t);
    }
}

Test(optim, scaler_unscales) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int before = 0; before < 2; before++) {
            fr_module *m = bag();
            fr_optimizer *o = NULL;
            fr_grad_scaler *g = NULL;
            must(cases[c].make(m, &o));
            must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1024), test_device(), &g));
            for (int t = 0; t < STEPS; t++) {
                set_gradient(m, t, 1024);
                if (before) must(fr_grad_scaler_unscale(g, o));
                must(fr_grad_scaler_step(g, o));
                must(fr_grad_scaler_update(g, NULL));
            }
            expect_near(cases[c].name, m, cases[c].expected);
            fr_grad_scaler_release(&g);
            fr_optimizer_release(&o);
            fr_module_release(&m);
        }
    nothing_left();
}

/* A constant gradient has no variance: f32 rounding makes the variance negative, and PyTorch's result NaN. */
Test(optim, a_centered_variance_is_not_negative) {
    fr_module *m = bag();
    fr_optimizer *o = NULL;
    float w[N];
    must(fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 1e-9, .alpha = 0.5, .centered = true), &o));
    for (int t = 0; t < 200; t++) {
        set_gradient(m, 0, 1);
        must(fr_optimizer_step(o));
    }
    must(fr_tensor_to_host(parameter(m), w));
    for (int i = 0; i < N; i++) cr_expect(isfinite(w[i]), "element %d: %g", i, (double)w[i]);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    nothing_left();
}

static size_t optimizer_bytes(void) {
    fr_memory_stats t;
    must(fr_memory_stats_get(test_device(), &t));
    return t.requested_by[FR_MEM_OPTIMIZER];
}

/* A first step that overflows creates the state, so that memory does not depend on data, and has no other effect:
 * later steps equal those of an optimizer without it. */
Test(optim, a_skipped_first_step_makes_the_state_and_no_difference) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fr_module *m = bag();
        fr_optimizer *o = NULL;
        fr_grad_scaler *g = NULL;
        must(cases[c].make(m, &o));
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 2048), test_device(), &g));
        set_gradient(m, 0, INFINITY);
        size_t before = optimizer_bytes(), made = 0;
        for (int t = -1; t < STEPS; t++) {
            if (t >= 0) set_gradient(m, t, 1024);
            must(fr_grad_scaler_step(g, o));
            must(fr_grad_scaler_update(g, NULL));
            if (t == -1) made = optimizer_bytes() - before;
        }
        cr_expect_eq(optimizer_bytes() - before, made, "%s: %zu bytes of state after a skipped step", cases[c].name,
                     made);
        expect_near(cases[c].name, m, cases[c].expected);
        fr_grad_scaler_release(&g);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    nothing_left();
}

/* ---- the scaler's test vectors ------------------------------------------------------------------------------- */

struct bench {
    fr_module *m;
    fr_optimizer *o;
    fr_grad_scaler *g;
};

static struct bench bench_new(double scale) {
    struct bench b = {.m = bag()};
    must(fr_adam(b.m, NULL, &b.o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = scale), test_device(), &b.g));
    return b;
}

static void bench_release(struct bench *b) {
    fr_grad_scaler_release(&b->g);
    fr_optimizer_release(&b->o);
    fr_module_release(&b->m);
    nothing_left();
}

static bool bench_step(struct bench *b, bool overflow) {
    bool skipped = false;
    set_gradient(b->m, 0, overflow ? INFINITY : 1e-6f);
    must(fr_grad_scaler_step(b->g, b->o));
    must(fr_grad_scaler_update(b->g, &skipped));
    return skipped;
}

/* Adam with f16 moments would fail: eps 1e-8 is 0 in f16, so a gradient of 0 gives 0 / 0; the square of 6e-8 is 0,
 * that of 300 infinite. Moments are f32, so f16 parameters follow f32 parameters. */
Test(optim, squares_of_half_gradients_stay_finite) {
    static const float g[N] = {0, 0x1p-24f, 300, -0x1p-14f, 65504};
    static make_fn *const make[] = {adam_default, adamw_default, rmsprop};
    for (int k = 0; k < 6; k++) {
        fr_dtype half = k < 3 ? FR_F16 : FR_BF16;
        double *value[2];
        for (int i = 0; i < 2; i++) {
            fr_module *m = bag();
            fr_optimizer *o = NULL;
            if (i == 1) must(fr_module_to_dtype(m, half));
            must(make[k % 3](m, &o));
            for (int t = 0; t < STEPS; t++) {
                fr_tensor *wide = NULL, *grad = NULL;
                must(fr_tensor_from_host(g, 1, (int64_t[]){N}, FR_F32, test_device(), &wide));
                must(fr_cast(wide, i == 1 ? half : FR_F32, &grad));
                must(fr_tensor_set_grad(parameter(m), grad));
                must(fr_optimizer_step(o));
                fr_tensor_release(&grad);
                fr_tensor_release(&wide);
            }
            value[i] = values_of(parameter(m));
            fr_optimizer_release(&o);
            fr_module_release(&m);
        }
        double rounding = half == FR_F16 ? 0x1p-11 : 0x1p-8; /* of a parameter, once a step */
        for (int i = 0; i < N; i++)
            cr_expect(fabs(value[1][i] - value[0][i]) <= STEPS * rounding * fmax(1, fabs(value[0][i])),
                      "%s, gradient %g: %g, f32 %g", fr_dtype_name(half), (double)g[i], value[1][i], value[0][i]);
        cr_expect_eq(value[1][0], 0.5, "a gradient of 0 moved a parameter to %g", value[1][0]);
        free(value[0]);
        free(value[1]);
    }
    nothing_left();
}

Test(optim, a_parameter_of_no_elements_is_left_alone) {
    for (int kind = 0; kind < 5; kind++) {
        fr_module *m = bag();
        fr_tensor *empty = NULL, *g = NULL;
        fr_optimizer *o = NULL;
        float before[N], after[N];
        must(fr_tensor_to_host(parameter(m), before));
        must(fr_tensor_zeros(2, (int64_t[]){0, 3}, FR_F32, test_device(), &empty));
        must(fr_module_add_parameter(m, "empty", &empty));
        must(fr_tensor_zeros(2, (int64_t[]){0, 3}, FR_F32, test_device(), &g));
        must(fr_tensor_set_grad(fr_module_tensor(m, "empty"), g));
        fr_tensor_release(&g);
        if (kind == 0) must(fr_sgd(m, FR_SGD_OPTS(.momentum = 0.9), &o));
        if (kind == 1) must(fr_adam(m, NULL, &o));
        if (kind == 2) must(fr_adam8(m, NULL, &o));
        if (kind == 3) must(fr_rmsprop(m, FR_RMSPROP_OPTS(.momentum = 0.9, .centered = true), &o));
        if (kind == 4) must(fr_adamw(m, NULL, &o));
        for (int t = 0; t < 2; t++) {
            set_gradient(m, t, 1);
            must(fr_optimizer_step(o));
        }
        must(fr_tensor_to_host(parameter(m), after));
        cr_expect(memcmp(before, after, sizeof before) != 0, "optimizer %d: w stays", kind);
        fr_optimizer_release(&o);
        fr_module_release(&m);
    }
    expect_nothing_left();
}

Test(scaler, grows_after_2000_clean_steps) {
    struct bench b = bench_new(65536);
    for (int i = 0; i < 1999; i++) cr_assert(!bench_step(&b, false));
    cr_expect_eq(fr_grad_scaler_value(b.g), 65536.0);
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 1999);
    bench_step(&b, false);
    cr_expect_eq(fr_grad_scaler_value(b.g), 131072.0);
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 0);
    bench_release(&b);
}

Test(scaler, halves_and_skips_on_overflow) {
    struct bench b = bench_new(65536);
    float before[N], after[N];
    must(fr_tensor_to_host(parameter(b.m), before));
    cr_expect(bench_step(&b, true));
    must(fr_tensor_to_host(parameter(b.m), after));
    cr_expect_eq(memcmp(before, after, sizeof before), 0, "a skipped step changed the parameter");
    cr_expect_eq(fr_optimizer_steps(b.o), 0, "a skipped step was counted");
    cr_expect_eq(fr_grad_scaler_value(b.g), 32768.0);
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 0);
    for (int i = 1; i < 16; i++) bench_step(&b, true);
    cr_expect_eq(fr_grad_scaler_value(b.g), 1.0);
    cr_expect_eq(fr_grad_scaler_skipped(b.g), 16);
    cr_expect(!bench_step(&b, false));
    must(fr_tensor_to_host(parameter(b.m), after));
    cr_expect_neq(memcmp(before, after, sizeof before), 0, "the step after recovery did nothing");
    bench_release(&b);
}

Test(scaler, stays_finite) {
    struct bench b = bench_new(ldexp(1, 127));
    for (int i = 0; i < 2000; i++) bench_step(&b, false);
    cr_expect_eq(fr_grad_scaler_value(b.g), ldexp(1, 127));
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 0, "a scale that cannot grow counts from 0 again, too");
    bench_release(&b);
}

/* Repeated overflow reduces the scale to 0, as in PyTorch; min_scale is a floor not found in PyTorch. */
Test(scaler, shrinks_to_zero_or_to_the_floor) {
    for (int floor = 0; floor < 2; floor++) {
        struct bench b = bench_new(1);
        must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1, .min_scale = floor ? 0.125 : 0), test_device(),
                                   &b.g));
        for (int i = 0; i < 160; i++) cr_assert(bench_step(&b, true));
        cr_expect_eq(fr_grad_scaler_value(b.g), floor ? 0.125 : 0.0);
        cr_expect_eq(fr_optimizer_steps(b.o), 0);
        bench_release(&b);
    }
}

/* An overflow restarts the growth count; values set by the program continue. */
Test(scaler, goes_on_from_what_was_set) {
    struct bench b = bench_new(65536);
    must(fri_grad_scaler_set(b.g, 1024, 1999));
    cr_expect(!bench_step(&b, false));
    cr_expect_eq(fr_grad_scaler_value(b.g), 2048.0);
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 0);
    must(fri_grad_scaler_set(b.g, 1024, 1999));
    cr_expect(bench_step(&b, true));
    cr_expect_eq(fr_grad_scaler_value(b.g), 512.0);
    cr_expect_eq(fri_grad_scaler_growth_tracker(b.g), 0);
    cr_expect_eq(fri_grad_scaler_set(b.g, -1, 0), FR_EINVAL);
    cr_expect_eq(fri_grad_scaler_set(b.g, NAN, 0), FR_EINVAL);
    cr_expect_eq(fri_grad_scaler_set(b.g, 1, -1), FR_EINVAL);
    cr_expect_eq(fr_grad_scaler_value(b.g), 512.0);
    bench_release(&b);
}

/* A fixed scale still skips steps; a disabled scaler multiplies by 1 and steps. */
Test(scaler, fixed_or_off) {
    struct bench b = bench_new(1024);
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = 1024, .dynamic = false), test_device(), &b.g));
    cr_expect(bench_step(&b, true));
    cr_expect_eq(fr_grad_scaler_value(b.g), 1024.0);
    cr_expect_eq(fr_optimizer_steps(b.o), 0);
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = false), test_device(), &b.g));
    cr_expect_eq(fr_grad_scaler_value(b.g), 1.0);
    cr_expect(!bench_step(&b, false));
    cr_expect_eq(fr_optimizer_steps(b.o), 1);
    bench_release(&b);
}

/* Gradients of f16 parameters cannot be unscaled by hand: PyTorch's words. */
Test(scaler, refuses_f16_gradients) {
    struct bench b = bench_new(1024);
    fr_tensor *grad = NULL;
    must(fr_module_to_dtype(b.m, FR_F16));
    must(fr_adam(b.m, NULL, &b.o));
    must(fr_tensor_zeros(1, (int64_t[]){N}, FR_F16, test_device(), &grad));
    must(fr_tensor_set_grad(parameter(b.m), grad));
    fr_tensor_release(&grad);
    cr_expect_eq(fr_grad_scaler_unscale(b.g, b.o), FR_EDTYPE);
    cr_expect(strstr(fr_last_error(), "Attempting to unscale FP16 gradients") != NULL, "%s", fr_last_error());
    must(fr_grad_scaler_step(b.g, b.o)); /* checks, and unscales inside the update */
    must(fr_grad_scaler_update(b.g, NULL));
    bench_release(&b);
}

Test(scaler, refuses_wrong_order) {
    struct bench b = bench_new(1024);
    set_gradient(b.m, 0, 1);
    cr_expect_eq(fr_grad_scaler_update(b.g, NULL), FR_EUSAGE);
    must(fr_grad_scaler_unscale(b.g, b.o));
    cr_expect_eq(fr_grad_scaler_unscale(b.g, b.o), FR_EUSAGE);
    must(fr_grad_scaler_step(b.g, b.o));
    cr_expect_eq(fr_grad_scaler_step(b.g, b.o), FR_EUSAGE);
    cr_expect_eq(fr_grad_scaler_unscale(b.g, b.o), FR_EUSAGE);
    must(fr_grad_scaler_update(b.g, NULL));
    bench_release(&b);
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

Test(optim, clips_by_global_norm) {
    fr_module *m = bag();
    double norm = 0;
    float g[N];
    set_gradient(m, 0, 1); /* 0.1, -0.2, 0.3, 1.5, 0 */
    double expected = sqrt(0.01 + 0.04 + 0.09 + 2.25);
    must(fr_clip_grad_norm(m, 0.5, &norm));
    cr_expect(fabs(norm - expected) < 1e-6, "norm %.9g, expected %.9g", norm, expected);
    must(fr_tensor_to_host(fr_tensor_get_grad(parameter(m)), g));
    cr_expect(fabs(g[3] - 1.5 * 0.5 / (expected + 1e-6)) < 1e-6, "clipped to %.9g", (double)g[3]);
    must(fr_clip_grad_norm(m, 10, &norm));
    cr_expect(fabs(norm - 0.5) < 1e-5, "norm after clipping %.9g", norm);
    cr_expect_eq(fr_clip_grad_norm(m, 0, NULL), FR_EINVAL);
    fr_module_release(&m);
    nothing_left();
}

/* A single NaN gradient turns all gradients into NaN, as in PyTorch, so that the fault is noticed. */
Test(optim, a_norm_that_is_nan_spoils_all_gradients) {
    fr_module *m = bag();
    double norm = 0;
    float g[N];
    set_gradient(m, 0, 1);
    must(fr_tensor_to_host(fr_tensor_get_grad(parameter(m)), g));
    g[1] = NAN;
    host_to(fr_tensor_get_grad(parameter(m)), g);
    must(fr_clip_grad_norm(m, 0.5, &norm));
    cr_expect(isnan(norm), "the norm is %g", norm);
    must(fr_tensor_to_host(fr_tensor_get_grad(parameter(m)), g));
    for (int i = 0; i < N; i++) cr_expect(isnan(g[i]), "gradient %d is %g", i, (double)g[i]);
    fr_module_release(&m);
    nothing_left();
}

/* The norm covers all gradients of any type, and clips all. */
Test(optim, clips_gradients_of_two_types_by_one_norm) {
    fr_module *m = bag();
    fr_tensor *v = NULL, *grad = NULL, *wide = NULL;
    const double expected = sqrt(0.01 + 0.04 + 0.09 + 2.25 + 9 + 16);
    double norm = 0;
    float g[N], h[2];
    must(fr_tensor_zeros(1, (int64_t[]){2}, FR_F16, test_device(), &v));
    must(fr_module_add_parameter(m, "v", &v));
    must(fr_tensor_from_host((const float[]){3, 4}, 1, (int64_t[]){2}, FR_F32, test_device(), &wide));
    must(fr_cast(wide, FR_F16, &grad));
    must(fr_tensor_set_grad(fr_module_tensor(m, "v"), grad));
    set_gradient(m, 0, 1);
    must(fr_clip_grad_norm(m, 0.5, &norm));
    cr_expect(fabs(norm - expected) < 1e-6, "norm %.9g, expected %.9g", norm, expected);
    must(fr_cast(fr_tensor_get_grad(fr_module_tensor(m, "v")), FR_F32, &wide));
    must(fr_tensor_to_host(wide, h));
    must(fr_tensor_to_host(fr_tensor_get_grad(parameter(m)), g));
    cr_expect(fabs(g[3] - 1.5 * 0.5 / expected) < 1e-5, "clipped to %.9g", (double)g[3]);
    cr_expect(fabs(h[1] - 4 * 0.5 / expected) < 1e-3, "clipped to %.9g", (double)h[1]);
    fr_tensor_release(&grad);
    fr_tensor_release(&wide);
    fr_module_release(&m);
    nothing_left();
}

Test(optim, schedules) {
    fr_schedule cosine = {.kind = FR_SCHEDULE_COSINE, .lr = 1, .warmup = 10, .total = 110};
    cr_expect(fabs(fr_schedule_lr(&cosine, 0) - 0.1) < 1e-12);
    cr_expect(fabs(fr_schedule_lr(&cosine, 9) - 1) < 1e-12);
    cr_expect(fabs(fr_schedule_lr(&cosine, 60) - 0.5) < 1e-12);
    cr_expect(fabs(fr_schedule_lr(&cosine, 110)) < 1e-12);
    fr_schedule step = {.kind = FR_SCHEDULE_STEP, .lr = 2, .step_size = 30, .gamma = 0.1};
    cr_expect(fabs(fr_schedule_lr(&step, 29) - 2) < 1e-12);
    cr_expect(fabs(fr_schedule_lr(&step, 60) - 0.02) < 1e-12);
}

/* Creating an optimizer in a used slot releases the old optimizer, its state and hooks. */
Test(optim, create_replaces) {
    struct bench b = bench_new(1024);
    must(fr_optimizer_fuse(b.o, true)); /* releases the old hooks */
    must(fr_sgd(b.m, NULL, &b.o));
    cr_expect_str_eq(fr_optimizer_name(b.o), "sgd");
    must(fr_grad_scaler_create(NULL, test_device(), &b.g));
    cr_expect_eq(fr_grad_scaler_value(b.g), 65536.0);
    cr_expect_eq(fr_sgd(b.m, FR_SGD_OPTS(.lr = -1), &b.o), FR_EINVAL);
    cr_expect_str_eq(fr_optimizer_name(b.o), "sgd", "a refusal emptied the slot");
    bench_step(&b, false);
    bench_release(&b);
}

Test(optim, rejects_bad_options) {
    fr_module *m = bag();
    fr_optimizer *o = NULL;
    cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.lr = -1), &o), FR_EINVAL);
    cr_expect(strstr(fr_last_error(), "lr") != NULL && strstr(fr_last_error(), "-1") != NULL, "%s", fr_last_error());
    cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.nesterov = true), &o), FR_EINVAL);
    cr_expect_eq(fr_adam(m, FR_ADAM_OPTS(.beta2 = 1), &o), FR_EINVAL);
    cr_expect_eq(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.growth_factor = 1), test_device(), &(fr_grad_scaler *){0}),
                 FR_EINVAL);
    for (int k = 0; k < 3; k++) {
        const double bad = (double[]){NAN, INFINITY, -INFINITY}[k];
        cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.lr = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.momentum = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.dampening = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_sgd(m, FR_SGD_OPTS(.weight_decay = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_rmsprop(m, FR_RMSPROP_OPTS(.alpha = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_rmsprop(m, FR_RMSPROP_OPTS(.eps = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_rmsprop(m, FR_RMSPROP_OPTS(.momentum = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_rmsprop(m, FR_RMSPROP_OPTS(.weight_decay = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_adam(m, FR_ADAM_OPTS(.lr = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_adam8(m, FR_ADAM_OPTS(.eps = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_adamw(m, FR_ADAMW_OPTS(.weight_decay = bad), &o), FR_EINVAL);
        cr_expect_eq(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = bad), test_device(),
                                           &(fr_grad_scaler *){0}),
                     FR_EINVAL);
    }
    cr_expect_null(o);
    fr_module_release(&m);
    nothing_left();
}

/* The setter returns nothing, so the step fails. */
Test(optim, a_learning_rate_that_is_no_number_is_refused_by_the_step) {
    fr_module *m = bag();
    fr_optimizer *o = NULL;
    float before[N], after[N];
    must(fr_adam(m, NULL, &o));
    must(fr_tensor_to_host(parameter(m), before));
    for (int k = 0; k < 2; k++) {
        set_gradient(m, 0, 1);
        fr_optimizer_set_lr(o, k == 0 ? NAN : INFINITY);
        expect_refused(fr_optimizer_step(o), FR_EINVAL, "adam: lr", "it must be >= -inf", NULL);
    }
    must(fr_tensor_to_host(parameter(m), after));
    cr_expect_eq(memcmp(before, after, sizeof before), 0, "a refused step changed the parameter");
    cr_expect_eq(fr_optimizer_steps(o), 0, "a refused step was counted");
    fr_optimizer_release(&o);
    fr_module_release(&m);
    nothing_left();
}
