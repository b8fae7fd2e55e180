/* test_overflow.c - loss scaling in a real training under f16 autocast: gradients that overflow are found, the step is
 * skipped, the scale halves, and training recovers with finite losses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "support/small_train.h"

enum { BATCH = 8, SIZE = 32, STEPS = 60, INTERVAL = 10, FORCED = 30 };

static fr_status keep(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    small_bytes *b = ctx;
    size_t n = fr_tensor_nbytes(t);
    (void)path;
    if (!is_parameter) return FR_OK;
    b->data = realloc(b->data, b->n + n);
    cr_assert_not_null(b->data);
    memcpy(b->data + b->n, fr_tensor_data(t), n);
    b->n += n;
    return FR_OK;
}

static small_bytes parameters(fr_module *m) {
    small_bytes b = {0};
    must(fr_module_each_tensor(m, keep, &b));
    return b;
}

/* One step; `blow` multiplies the scaled loss by a number that no gradient survives in f16. */
static bool step(fr_module *m, fr_optimizer *o, fr_grad_scaler *g, bool blow, double *loss_out) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL, *loss = NULL;
    fr_autocast_state was = {0};
    bool skipped = false;
    must(fr_tensor_uniform(4, (int64_t[]){BATCH, SIZE, SIZE, 3}, -1, 1, FR_F32, FR_CPU, &x));
    must(fr_tensor_full(1, (int64_t[]){BATCH}, 3, FR_I64, FR_CPU, &target));
    must(fr_autocast_begin(FR_F16, &was));
    must(fr_module_forward(m, x, &y));
    must(fr_cross_entropy(y, target, NULL, &loss));
    fr_autocast_end(was);
    must(fr_tensor_item(loss, loss_out));
    must(fr_grad_scaler_scale(g, loss, &loss));
    if (blow) must(fr_scale(loss, 1e12, &loss));
    must(fr_backward(loss, NULL));
    must(fr_grad_scaler_step(g, o));
    must(fr_grad_scaler_update(g, &skipped));
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    return skipped;
}

/* The scale starts where the first gradients overflow. Every step must follow torch.amp.GradScaler's rule, written here
 * once more: halve on overflow and forget the clean steps; double after INTERVAL clean ones. */
static void train_through_overflow(small_net net, bool adam) {
    fr_optimizer *o = NULL;
    fr_grad_scaler *g = NULL;
    double scale = ldexp(1, 30), first = 0, loss = 0;
    int clean = 0, skipped = 0, at_start = 0;
    fr_seed(31);
    fr_module *m = small_net_make(net, FR_CPU);
    must(adam ? fr_adam(m, FR_ADAM_OPTS(.lr = 0.002), &o) : fr_sgd(m, FR_SGD_OPTS(.lr = 0.002, .momentum = 0.9), &o));
    must(fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.init_scale = scale, .growth_interval = INTERVAL), FR_CPU, &g));
    for (int i = 0; i < STEPS; i++) {
        small_bytes before = parameters(m);
        bool skip = step(m, o, g, i == FORCED, &loss);
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
        cr_expect_eq(fr_grad_scaler_scale_of(g), scale, "step %d: scale %g, not %g", i, fr_grad_scaler_scale_of(g),
                     scale);
        cr_expect_eq(fr_grad_scaler_growth_tracker(g), clean);
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
