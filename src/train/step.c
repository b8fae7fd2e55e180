/* step.c - one optimizer step: the forward and backward of its batches, then the update.
 *
 * Order of deaths within a step, which decides its peak: images and logits are released as soon as the graph is the
 * only one that may need them, targets and loss after backward, gradients after the optimizer's step, so that none
 * lives through the next forward. */
#include "base/rng.h"
#include "base/status.h"
#include "base/tag.h"
#include "train/run.h"

#include <math.h>

fr_status fri_value(const fr_tensor *t, double *out) {
    *out = NAN;
    return fr_tensor_device(t) == FR_META ? FR_OK : fr_tensor_item(t, out);
}

/* ---- precision --------------------------------------------------------------------------------------------- */

fr_dtype fri_run_dtype(const fr_train_opts *o) {
    fr_train_amp type = o->half != FR_TRAIN_AMP_OFF ? o->half : o->amp;
    return type == FR_TRAIN_AMP_FP16 ? FR_F16 : type == FR_TRAIN_AMP_BF16 ? FR_BF16 : FR_F32;
}

fr_status fri_precision_begin(const fri_run *r, fr_autocast_state *was) {
    *was = fr_autocast_get();
    return r->opts.amp == FR_TRAIN_AMP_OFF ? FR_OK : fr_autocast_begin(fri_run_dtype(&r->opts), was);
}

void fri_precision_end(const fri_run *r, fr_autocast_state was) {
    if (r->opts.amp != FR_TRAIN_AMP_OFF) fr_autocast_end(was);
}

/* ---- forward and backward ------------------------------------------------------------------------------------ */

/* Loss and gradients of one batch that counts `share` of the step. Adds to *loss and *correct. */
static fr_status forward_backward(fri_run *r, fr_tensor **images, fr_tensor **targets, double share, double *loss,
                                  double *correct) {
    fr_tensor *y = NULL, *l = NULL, *count = NULL, *scaled = NULL;
    fr_autocast_state was;
    double value = NAN;
    fr_status s = fri_precision_begin(r, &was);
    if (s < 0) return s;
    FR_TRY(s, fri_model_forward(r, *images, &y));
    fr_tensor_release(images);
    FR_TRY(s, fr_count_correct(y, *targets, &count));
    FR_TRY(s, fri_value(count, &value));
    *correct += value;
    fr_tensor_release(&count);
    FR_TRY(s, fr_cross_entropy(y, *targets, FR_CROSS_ENTROPY_OPTS(.label_smoothing = r->opts.label_smoothing), &l));
    fr_tensor_release(&y);
    fr_tensor_release(targets);
    if (share != 1) FR_TRY(s, fr_scale(l, share, &l));
    fri_precision_end(r, was);
    FR_TRY(s, fr_grad_scaler_scale(r->scaler, l, &scaled));
    FR_TRY(s, fr_backward(scaled, NULL));
    FR_TRY(s, fri_value(l, &value));
    *loss += value;
done:
    if (s < 0) fri_precision_end(r, was);
    fr_tensor_release(&count);
    fr_tensor_release(&y);
    fr_tensor_release(&l);
    fr_tensor_release(&scaled);
    return s;
}

/* The batch in --split-batch parts of equal size, up to one image. */
static fr_status in_parts(fri_run *r, fr_tensor **images, fr_tensor **targets, double share, double *loss,
                          double *correct) {
    int64_t parts = r->opts.split_batch, n = fr_tensor_dim(*images, 0);
    fr_tensor *x = NULL, *t = NULL;
    fr_status s = FR_OK;
    if (parts > n) parts = n;
    if (parts == 1) return forward_backward(r, images, targets, share, loss, correct);
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = n * i / parts, count = n * (i + 1) / parts - first;
        FR_TRY(s, fr_tensor_narrow0(*images, first, count, &x));
        FR_TRY(s, fr_tensor_narrow0(*targets, first, count, &t));
        FR_TRY(s, forward_backward(r, &x, &t, share * (double)count / (double)n, loss, correct));
    }
done:
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_tensor_release(images);
    fr_tensor_release(targets);
    return s;
}

/* A fused step under a loss scale: the first pass looks at the gradients, the second, of the same numbers, updates.
 * What the report counts is the first's. */
static fr_status two_passes(fri_run *r, fr_tensor **images, fr_tensor **targets, double *loss, double *correct) {
    fr_tensor *x = fr_tensor_retain(*images), *t = fr_tensor_retain(*targets);
    fri_rng rng = fri_rng_get();
    double again = 0;
    bool found = false, was = false;
    fr_status s = FR_OK;
    FR_TRY(s, fr_grad_scaler_check_begin(r->scaler, r->optimizer));
    FR_TRY(s, forward_backward(r, &x, &t, 1, loss, correct));
    FR_TRY(s, fr_grad_scaler_check_end(r->scaler, r->optimizer, &found));
    if (!found) {
        fri_rng_set(rng);
        was = fr_statistics_freeze(true);
        s = forward_backward(r, images, targets, 1, &again, &again);
        (void)fr_statistics_freeze(was);
    }
done:
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_tensor_release(images);
    fr_tensor_release(targets);
    return s;
}

/* ---- the update ---------------------------------------------------------------------------------------------- */

static fr_status clear_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx;
    (void)path;
    fr_tensor *g = is_parameter ? fr_tensor_get_grad(t) : NULL;
    return g != NULL ? fr_tensor_fill(g, 0) : FR_OK;
}

static fr_status optimizer_step(fri_run *r) {
    bool skipped = false;
    fr_phase was = fri_scope_phase_push(FR_PHASE_OPTIMIZER);
    fr_status s = FR_OK;
    if (r->opts.clip != FR_TRAIN_AUTO) {
        FR_TRY(s, fr_grad_scaler_unscale(r->scaler, r->optimizer));
        FR_TRY(s, fri_watch_overflow(r)); /* a norm of inf or NaN spoils all of them */
        FR_TRY(s, fr_clip_grad_norm(r->model, r->opts.clip, NULL));
    }
    if (r->opts.fused_step != FR_TRAIN_FUSED_TWO_PASS) FR_TRY(s, fr_grad_scaler_step(r->scaler, r->optimizer));
    FR_TRY(s, fr_grad_scaler_update(r->scaler, &skipped));
    r->step_skipped = skipped;
    if (skipped && r->opts.clip == FR_TRAIN_AUTO) FR_TRY(s, fri_watch_overflow(r));
    if (r->opts.grad_zero)
        FR_TRY(s, fr_module_each_tensor(r->model, clear_gradient, NULL));
    else
        fr_optimizer_zero_grad(r->optimizer);
done:
    fri_scope_phase_pop(was);
    return s;
}

fr_status fri_train_step(fri_run *r, const fri_batches *batches, fr_tensor **images, fr_tensor **targets,
                         double *loss) {
    fr_step_scope scope;
    double correct = 0, n = 0;
    fr_status s = fr_step_begin(&scope);
    if (s < 0) return s;
    *loss = 0;
    fr_optimizer_set_lr(r->optimizer, fr_schedule_lr(&r->schedule, r->step));
    if (r->opts.fused_step != FR_TRAIN_FUSED_OFF) fr_optimizer_fused_begin(r->optimizer);
    for (int64_t i = 0; i < r->opts.accumulate; i++) {
        if (i > 0) FR_TRY(s, batches->next(batches->ctx, images, targets));
        n += (double)fr_tensor_numel(*targets);
        if (r->opts.fused_step == FR_TRAIN_FUSED_TWO_PASS)
            FR_TRY(s, two_passes(r, images, targets, loss, &correct));
        else
            FR_TRY(s, in_parts(r, images, targets, 1.0 / (double)r->opts.accumulate, loss, &correct));
    }
    FR_TRY(s, optimizer_step(r));
    if (r->step_skipped) {
        r->overflow_step = r->step + 1;
        r->overflow_loss = *loss;
    }
    r->epoch_loss += *loss * n;
    r->epoch_correct += correct;
    r->epoch_targets += n;
done:
    return fr_step_end(&scope) < 0 && s == FR_OK ? FR_EINTERNAL : s;
}
