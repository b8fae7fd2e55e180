/* test_overflow.c - loss scaling in a real training under f16 autocast: gradients that overflow are found, the step is
 * skipped, the scale halves, and training recovers with finite losses. */
#include "optim/scaler.h"
#include "autograd/run.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "support/golden.h"
#include "support/small_train.h"
#include "optim/optimizer.h"

enum { BATCH = 8, SIZE = 32, STEPS = 60, INTERVAL = 10, FORCED = 30 };

static fr_status keep(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    small_bytes *b = ctx;
    size_t n = fr_tensor_nbytes(t);
    (void)path;
    if (!is_parameter) return FR_OK;
    b->data = realloc(b->data, b->n + n);
    cr_assert_not_null(b->data);
    memcpy(b->data + b->n, host_of(t), n);
    b->n += n;
    return FR_OK;
}

static small_bytes parameters(fr_module *m) {
    small_bytes b = {0};
    must(fr_module_each_tensor(m, keep, &b));
    return b;
}

/* `blow` multiplies the scaled loss so that every f16 gradient overflows. */
static void forward_backward(fr_module *m, fr_tensor *x, fr_tensor *target, fr_grad_scaler *g, bool blow,
                             double *loss_out) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_autocast_state was = {0};
    must(fr_autocast_begin(FR_F16, &was));
    must(fr_module_forward(m, x, &y));
    must(fr_cross_entropy(y, target, NULL, &loss));
    fr_autocast_end(was);
    must(fr_tensor_item(loss, loss_out));
    must(fr_grad_scaler_scale(g, loss, &loss));
    if (blow) must(fr_scale(loss, 1e12, &loss));
    must(fr_backward(loss, NULL));
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
}

static bool step(fr_module *m, fr_optimizer *o, fr_grad_scaler *g, bool two_pass, bool blow, double *loss_out) {
    fr_tensor *x = NULL, *target = NULL;
    bool skipped = false, found = false;
    double again = 0;
    fr_step_scope scope;
    must(fr_step_begin(&scope));
    must(fr_tensor_uniform(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, -1, 1, FR_F32, test_device(), &x));
    must(fr_tensor_full(1, (int64_t[]){BATCH}, 3, FR_I64, test_device(), &target));
    if (two_pass) {
        fr_rng rng = fr_rng_get();
        must(fri_grad_scaler_check_begin(g, o));
        forward_backward(m, x, target, g, blow, loss_out);
        must(fri_grad_scaler_check_end(g, o, &found));
        if (!found) {
            fr_rng_set(rng);
            bool was = fri_statistics_freeze(true);
            forward_backward(m, x, target, g, blow, &again);
            (void)fri_statistics_freeze(was);
            cr_expect_eq(again, *loss_out, "the second pass saw a loss of %.17g, the first one of %.17g", again,
                         *loss_out);
        }
    } else {
        forward_backward(m, x, target, g, blow, loss_out);
        must(fr_grad_scaler_step(g, o));
    }
    must(fr_grad_scaler_update(g, &skipped));
    /* If the device decides, the updates of the second pass are skipped without notice. */
    if (two_pass && !fri_grad_scaler_device_decides(g)) cr_expect_eq(found, skipped);
    fr_optimizer_zero_grad(o);
    must(fr_step_end(&scope));
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    return skipped;
}

/* ---- kernels ------------------------------------------------------------------------------------------------ */

/* Optimizers' kernels read the overflow flag where the device decides: no parameter moves where it is not 0. */
Test(overflow, kernels_leave_everything_where_found_is_set) {
    const fri_kernels *k = fri_kernels_for(fri_backend_get(FR_CPU), FR_F32);
    const float step = 1;
    for (int found = 0; found < 2; found++) {
        float w[2] = {1, 1}, g[2] = {1, 1}, m[2] = {0}, v[2] = {0}, flag = (float)found;
        fri_step_item sgd = {.n = 1, .param = &w[0], .grad = &g[0]};
        fri_step_item adam = {.n = 1, .param = &w[1], .grad = &g[1], .state = {&m[1], &v[1]}, .step = &step};
        must(k->sgd(&(fri_exec){0}, &(fri_sgd_desc){.dtype = FR_F32, .grad_dtype = FR_F32, .lr = 0.5}, 1, &sgd, NULL,
                    &flag));
        must(k->adam(&(fri_exec){0},
                     &(fri_adam_desc){
                         .dtype = FR_F32, .grad_dtype = FR_F32, .lr = 0.5, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                     1, &adam, NULL, &flag));
        for (int i = 0; i < 2; i++) cr_expect_eq(w[i] == 1, found, "found %d: parameter %d is %g", found, i, w[i]);
        cr_expect_eq(m[1] == 0 && v[1] == 0, found);
    }
}

/* The scale starts where first gradients overflow. Every step must follow torch.amp.GradScaler's rule, repeated here:
 * halve on overflow and reset the count of clean steps; double after INTERVAL clean steps. */
static void train_through_overflow(small_net net, bool adam) {
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    double scale = ldexp(1, 30), first = 0, loss = 0;
    int clean = 0, skipped = 0, at_start = 0;
    fr_seed(31);
    fr_module *m = small_net_make(net, test_device());
    must(adam ? fr_adam(m, FR_ADAM_OPTS(.lr = 0.002), &o) : fr_sgd(m, FR_SGD_OPTS(.lr = 0.002, .momentum = 0.9), &o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = scale, .growth_interval = INTERVAL), test_device(),
                               &g));
    for (int i = 0; i < STEPS; i++) {
        small_bytes before = parameters(m);
        bool skip = step(m, o, g, false, i == FORCED, &loss);
        small_bytes after = parameters(m);
        cr_expect(isfinite(loss), "step %d: the loss is %g", i, loss);
        if (i == 0) first = loss;
        if (skip && skipped == i) at_start++;
        skipped += skip;
        clean = skip ? 0 : clean + 1;
        if (skip) scale *= 0.5;
        if (clean == INTERVAL) {
            scale *= 2;
            clean = 0;
        }
        if (i == FORCED) cr_expect(skip, "an overflow went unnoticed");
        cr_expect_eq(memcmp(before.data, after.data, before.n) == 0, skip, "step %d: %s", i,
                     skip ? "skipped, but parameters changed" : "not skipped, but no parameter changed");
        cr_expect_eq(fr_grad_scaler_value(g), scale, "step %d: scale %g, not %g", i, fr_grad_scaler_value(g), scale);
        cr_expect_eq(fri_grad_scaler_growth_tracker(g), clean);
        cr_expect_eq(fr_grad_scaler_skipped(g), skipped);
        cr_expect_eq(fr_optimizer_steps(o), i + 1 - skipped);
        free(before.data);
        free(after.data);
    }
    cr_expect_geq(at_start, 3, "only %d steps overflowed at the start", at_start);
    cr_expect_leq(skipped, STEPS / 2, "%d of %d steps were skipped: no recovery", skipped, STEPS);
    cr_log_info("%s: %d of %d steps skipped, %d at the start; loss %.3g -> %.3g", small_net_names[net], skipped, STEPS,
                at_start, first, loss);
    cr_expect_lt(loss, 0.5 * first, "the loss went from %g to %g", first, loss);
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}

Test(overflow, is_skipped_and_training_recovers, .timeout = 120) {
    train_through_overflow(SMALL_VGG, false);
    train_through_overflow(SMALL_RESNET, true);
}

/* ---- two passes ------------------------------------------------------------------------------------------------ */

static fr_status keep_all(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return keep(ctx, path, t, true);
}

static fr_status keep_state(void *ctx, const char *name, fr_tensor *t) {
    return keep(ctx, name, t, true);
}

typedef enum kind { SGD, RMSPROP, ADAM, ADAM8 } kind;

/* Parameters, running statistics, counters, optimizer state and losses of 20 steps, at least three steps
 * skipped. */
static small_bytes result(small_net net, kind k, bool two_pass) {
    enum { TWENTY = 20, BLOWN = 11 };
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    small_bytes b = {0};
    double losses[TWENTY];
    fr_seed(5);
    fr_module *m = small_net_make(net, test_device());
    const fr_sgd_opts *sgd = FR_SGD_OPTS(.lr = 0.002, .momentum = 0.9, .weight_decay = 1e-3);
    must(k == SGD       ? fr_sgd(m, sgd, &o)
         : k == RMSPROP ? fr_rmsprop(m, FR_RMSPROP_OPTS(.lr = 0.001, .centered = true), &o)
         : k == ADAM    ? fr_adam(m, FR_ADAM_OPTS(.lr = 0.002), &o)
                        : fr_adam8(m, FR_ADAM_OPTS(.lr = 0.002), &o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = ldexp(1, 24), .growth_interval = 5), test_device(),
                               &g));
    if (two_pass) must(fr_optimizer_fuse(o, true));
    for (int i = 0; i < TWENTY; i++) (void)step(m, o, g, two_pass, i == BLOWN, &losses[i]);
    cr_expect_geq(fr_grad_scaler_skipped(g), 3);
    cr_expect_leq(fr_grad_scaler_skipped(g), TWENTY / 2);
    must(fr_module_each_tensor(m, keep_all, &b));
    must(fri_optimizer_each_state(o, keep_state, &b));
    b.data = realloc(b.data, b.n + sizeof losses);
    cr_assert_not_null(b.data);
    memcpy(b.data + b.n, losses, sizeof losses);
    b.n += sizeof losses;
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
    return b;
}

Test(overflow, two_passes_end_with_the_same_bits, .timeout = 240) {
    static const struct {
        small_net net;
        kind k;
    } cases[] = {{SMALL_VGG, SGD},
                 {SMALL_RESNET, ADAM},
                 {SMALL_DENSENET, SGD},
                 {SMALL_VGG, ADAM8},
                 {SMALL_RESNET, RMSPROP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_bytes one = result(cases[i].net, cases[i].k, false), two = result(cases[i].net, cases[i].k, true);
        cr_expect(one.n == two.n && memcmp(one.data, two.data, one.n) == 0, "%s: two passes end with other bits",
                  small_net_names[cases[i].net]);
        free(one.data);
        free(two.data);
    }
}

Test(overflow, passes_out_of_order_are_refused) {
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    bool found = false;
    fr_seed(5);
    fr_module *m = small_net_make(SMALL_VGG, test_device());
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.002), &o));
    must(fr_grad_scaler_create(NULL, test_device(), &g));
    cr_expect_eq(fri_grad_scaler_check_begin(g, o), FR_EUSAGE);
    cr_expect_not_null(strstr(fr_last_error(), "is for a fused optimizer"));
    must(fr_optimizer_fuse(o, true));
    cr_expect_eq(fri_grad_scaler_check_end(g, o, &found), FR_EUSAGE);
    cr_expect_eq(fr_grad_scaler_step(g, o), FR_EUSAGE);
    must(fri_grad_scaler_check_begin(g, o));
    cr_expect_eq(fri_grad_scaler_check_begin(g, o), FR_EUSAGE);
    cr_expect_eq(fr_grad_scaler_step(g, o), FR_EUSAGE);
    must(fri_grad_scaler_check_end(g, o, &found));
    must(fr_grad_scaler_update(g, NULL));
    fr_grad_scaler_release(&g);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}
