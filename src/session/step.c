/* step.c - one optimizer step: forward and backward of a batch, then the update.
 *
 * The order of releases decides a step's peak: images and logits are released as soon as only the graph may need
 * them, targets and loss after backward, gradients after the optimizer's step and before the next forward. */
#include "session/model.h"
#include "session/step.h"
#include "autograd/run.h"
#include "optim/scaler.h"
#include "tensor/readback.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- precision --------------------------------------------------------------------------------------------- */

fr_status fri_precision_begin(const fr_train_opts *o, fr_autocast_state *was) {
    *was = fri_autocast_get();
    return o->precision.amp == FR_TRAIN_AMP_OFF ? FR_OK : fr_autocast_begin(fri_compute_dtype(o), was);
}

void fri_precision_end(const fr_train_opts *o, fr_autocast_state was) {
    if (o->precision.amp != FR_TRAIN_AMP_OFF) fr_autocast_end(was);
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

static fr_status part_next(fri_step_values *v, fri_step_part **out) {
    if (v->n == v->capacity) {
        int64_t capacity = v->capacity > 0 ? 2 * v->capacity : 4;
        fri_step_part *part = realloc(v->part, (size_t)capacity * sizeof *part);
        if (part == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for %" PRId64 " losses", capacity);
        v->part = part;
        v->capacity = capacity;
    }
    v->part[v->n] = (fri_step_part){0};
    *out = &v->part[v->n++];
    return FR_OK;
}

void fri_step_values_forget(fri_step_values *v) {
    for (int64_t i = 0; i < v->n; i++) {
        fri_readback_drop(&v->part[i].loss);
        fri_readback_drop(&v->part[i].correct);
    }
    fri_readback_drop(&v->scaler);
    v->anomaly = (fr_anomaly){0};
    v->n = 0;
    v->targets = 0;
    v->device_decided = false;
}

void fri_step_values_free(fri_step_values *v) {
    fri_step_values_forget(v);
    free(v->part);
    *v = (fri_step_values){0};
}

/* Determines whether the step was skipped, and the loss scale after the step. */
static fr_status settle_scaler(fri_run *r, fri_step_values *v) {
    int64_t before = r->numbers.skipped;
    if (v->device_decided) {
        fr_status s = fri_grad_scaler_learn(&v->scaler, &r->numbers.scale, &r->numbers.skipped);
        r->numbers.step_skipped = r->numbers.skipped > before;
        return s;
    }
    r->numbers.scale = fr_grad_scaler_value(r->net.scaler);
    r->numbers.skipped = fr_grad_scaler_skipped(r->net.scaler);
    return FR_OK;
}

/* Sums over the batches of all ranks, in the order of the batches. */
static fr_status settle_together(fri_run *r, fri_step_values *v, double *correct, double *loss) {
    const int64_t most = (r->config->opts.memory.accumulate + r->config->ranks - 1) / r->config->ranks;
    FRI_OWNED(fri_free) fri_batch_numbers *all = NULL, *mine = calloc((size_t)most, sizeof *mine);
    if (mine == NULL) return fr_fail(FR_ENOMEM, "trainer: no host memory for %" PRId64 " losses", most);
    for (int64_t i = 0; i < v->n; i++) {
        mine[i].targets = v->part[i].targets;
        FRI_TRY(fri_readback_value(&v->part[i].correct, &mine[i].correct));
        FRI_TRY(fri_readback_value(&v->part[i].loss, &mine[i].loss));
        if (v->part[i].empty) mine[i].loss = 0;
    }
    FRI_TRY(fri_ranks_check_step(r, v->number));
    FRI_TRY(fri_ranks_numbers(r, mine, v->n, most, &all));
    v->targets = 0;
    for (int64_t i = 0; i < r->config->opts.memory.accumulate; i++) {
        *correct += all[i].correct;
        *loss += all[i].loss;
        v->targets += all[i].targets;
    }
    return FR_OK;
}

fr_status fri_step_settle(fri_run *r, fri_step_values *v, double *loss) {
    double correct = 0, value = NAN;
    *loss = 0;
    for (int64_t i = 0; i < v->n && r->config->ranks == 1; i++) {
        FRI_TRY(fri_readback_value(&v->part[i].correct, &value));
        correct += value;
        FRI_TRY(fri_readback_value(&v->part[i].loss, &value));
        *loss += v->part[i].empty ? 0 : value;
    }
    if (r->config->ranks > 1) FRI_TRY(settle_together(r, v, &correct, loss));
    if (r->config->opts.device != FR_META) FRI_TRY(settle_scaler(r, v));
    r->numbers.anomaly = v->anomaly;
    if (r->numbers.step_skipped) {
        r->numbers.overflow_step = v->number;
        r->numbers.overflow_loss = *loss;
        r->numbers.overflow_first = v->anomaly;
    }
    r->numbers.epoch_loss += *loss * v->targets;
    r->numbers.epoch_correct += correct;
    r->numbers.epoch_targets += v->targets;
    return FR_OK;
}

/* ---- forward and backward ------------------------------------------------------------------------------------ */

/* *l = share * loss of a batch with logits *y; releases *y and *targets. share 0 is for a batch without counted
 * targets: class weights are left out, because dividing by their sum of 0 would give NaN gradients. v: receives the
 * batch's numbers, or NULL. *part: where the loss is to be stored. */
static fr_status loss_of(fri_run *r, fr_tensor **y, fr_tensor **targets, double share, fri_step_values *v,
                         fri_step_part **part, fr_tensor **l) {
    FRI_OWNED(fr_tensor_release) fr_tensor *count = NULL;
    *part = NULL;
    if (v != NULL) FRI_TRY(part_next(v, part));
    if (fri_counts_steps(r->config)) FRI_TRY(fr_count_correct(*y, *targets, &count));
    if (v != NULL && count != NULL) FRI_TRY(fri_readback_begin(count, &(*part)->correct));
    fr_tensor_release(&count);
    if (v != NULL) (*part)->empty = share == 0;
    FRI_TRY(fri_loss_of_batch(r, *y, *targets, share != 0, l));
    fr_tensor_release(y);
    fr_tensor_release(targets);
    if (share != 1) FRI_TRY(fr_scale(*l, share, l));
    return FR_OK;
}

/* Loss and gradients of one batch with weight `share` in the step. v: as in loss_of. */
static fr_status forward_backward(fri_run *r, fr_tensor **images, fr_tensor **targets, double share,
                                  fri_step_values *v) {
    FRI_OWNED(fr_tensor_release) fr_tensor *y = NULL, *l = NULL, *scaled = NULL;
    fri_step_part *part = NULL;
    fr_autocast_state was;
    fr_status s = fri_precision_begin(&r->config->opts, &was);
    if (s < 0) return s;
    FR_TRY(s, fri_casts_begin(&r->net.casts));
    FR_TRY(s, fri_model_images(r, images));
    FR_TRY(s, fri_model_forward(r, *images, &y));
    fr_tensor_release(images);
    FR_TRY(s, loss_of(r, &y, targets, share, v, &part, &l));
    fri_casts_end(&r->net.casts);
    fri_precision_end(&r->config->opts, was);
    FR_TRY(s, fr_grad_scaler_scale(r->net.scaler, l, &scaled));
    FR_TRY(s, fr_backward(scaled, NULL));
    if (part != NULL) FR_TRY(s, fri_readback_begin(l, &part->loss));
done:
    if (s < 0) fri_casts_end(&r->net.casts);
    if (s < 0) fri_precision_end(&r->config->opts, was);
    return s;
}

/* *out: denominator of the mean loss. For classes, the number of counted targets or the sum of their weights;
 * otherwise, and on meta, the number of images. */
static fr_status loss_divisor(const fri_run *r, fr_tensor *targets, double *out) {
    const fri_config *c = r->config;
    const int64_t n = fr_tensor_numel(targets);
    const bool classes = c->program->loss == NULL && fr_tensor_dtype(targets) == FR_I64;
    FRI_OWNED(fri_free) int64_t *class = NULL;
    FRI_OWNED(fri_free) float *weight = NULL;
    *out = (double)fr_tensor_dim(targets, 0);
    if (!classes || c->opts.device == FR_META || (c->targets == FR_TARGET_CLASS && r->net.class_weights == NULL))
        return FR_OK;
    class = malloc((size_t)n * sizeof *class);
    weight = malloc((size_t)c->outputs * sizeof *weight);
    if (class == NULL || weight == NULL)
        return fr_fail(FR_ENOMEM, "trainer: no host memory for %" PRId64 " targets", n);
    FRI_TRY(fr_tensor_to_host(targets, class));
    for (int64_t i = 0; i < c->outputs; i++) weight[i] = 1;
    if (r->net.class_weights != NULL) FRI_TRY(fr_tensor_to_host(r->net.class_weights, weight));
    *out = 0;
    for (int64_t i = 0; i < n; i++) *out += class[i] >= 0 && class[i] < c->outputs ? (double)weight[class[i]] : 0;
    return FR_OK;
}

/* Trains on the batch in `parts` (--split-batch) pieces of equal size, up to one image. Each piece is weighted by its
 * divisor relative to `all`, the batch's divisor, so the sum is the mean loss of the batch. */
static fr_status in_parts(fri_run *r, fr_tensor *images, fr_tensor *targets, int64_t parts, double share, double all,
                          fri_step_values *v) {
    FRI_OWNED(fr_tensor_release) fr_tensor *x = NULL, *t = NULL;
    const int64_t n = fr_tensor_dim(images, 0);
    double of = 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = n * i / parts, count = n * (i + 1) / parts - first;
        FRI_TRY(fr_tensor_narrow0(images, first, count, &x));
        FRI_TRY(fr_tensor_narrow0(targets, first, count, &t));
        FRI_TRY(loss_divisor(r, t, &of));
        FRI_TRY(forward_backward(r, &x, &t, all > 0 ? share * (of / all) : 0, v));
    }
    return FR_OK;
}

/* Fused step under a loss scale. The first pass only searches the gradients for inf and NaN; the second repeats the
 * computation and updates. Statistics are taken from the first pass. */
static fr_status two_passes(fri_run *r, fr_tensor **images, fr_tensor **targets, double share, fri_step_values *v) {
    FRI_OWNED(fr_tensor_release) fr_tensor *x = fr_tensor_retain(*images), *t = fr_tensor_retain(*targets);
    fr_rng rng = fr_rng_get();
    bool found = false, was = false;
    fr_status s = FR_OK;
    FR_TRY(s, fri_grad_scaler_check_begin(r->net.scaler, r->net.optimizer));
    FR_TRY(s, forward_backward(r, &x, &t, share, v));
    FR_TRY(s, fri_grad_scaler_check_end(r->net.scaler, r->net.optimizer, &found));
    if (!found) {
        fr_rng_set(rng);
        was = fri_statistics_freeze(true);
        s = forward_backward(r, images, targets, share, NULL);
        (void)fri_statistics_freeze(was);
    }
done:
    fr_tensor_release(images);
    fr_tensor_release(targets);
    return s;
}

/* Loss and gradients of the batch, with weight `share` in the step. A batch without counted targets (masks that are
 * ignored everywhere) has loss 0 and gradients 0. */
static fr_status train_batch(fri_step_work *w, double share) {
    fri_run *r = w->r;
    const fr_train_opts *o = &r->config->opts;
    const int64_t n = fr_tensor_dim(w->images, 0), parts = o->memory.split_batch < n ? o->memory.split_batch : n;
    /* the loader has counted the targets; a dry run has none */
    const bool host =
        parts == 1 && r->net.class_weights == NULL && r->config->program->loss == NULL && o->device != FR_META;
    double all = (double)w->count;
    if (!host) FRI_TRY(loss_divisor(r, w->targets, &all));
    if (all == 0) share = 0;
    if (o->memory.fused_step == FR_TRAIN_FUSED_TWO_PASS) return two_passes(r, &w->images, &w->targets, share, w->v);
    if (parts == 1) return forward_backward(r, &w->images, &w->targets, share, w->v);
    fr_status s = in_parts(r, w->images, w->targets, parts, share, all, w->v);
    fr_tensor_release(&w->images);
    fr_tensor_release(&w->targets);
    return s;
}

/* ---- the update ---------------------------------------------------------------------------------------------- */

static fr_status clear_gradient(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx;
    (void)path;
    fr_tensor *g = is_parameter ? fr_tensor_get_grad(t) : NULL;
    return g != NULL ? fr_tensor_fill(g, 0) : FR_OK;
}

/* Clips half gradients in scaled form, against a scaled limit, because unscaled halves would underflow. */
static fr_status clip_gradients(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    double limit = o->optim.clip, norm = 0;
    if (o->precision.half != FR_TRAIN_AMP_OFF && fri_loss_scaled(o)) {
        limit *= fr_grad_scaler_value(r->net.scaler);
    } else {
        FRI_TRY(fr_grad_scaler_unscale(r->net.scaler, r->net.optimizer));
        if (!fri_grad_scaler_device_decides(r->net.scaler))
            FRI_TRY(fri_watch_overflow(r)); /* one inf or NaN in the norm would spread to all gradients */
    }
    return r->net.share != NULL ? r->config->rank_calls->clip_grad_norm(r->net.share, limit, &norm)
                                : fr_clip_grad_norm(r->net.model, limit, NULL);
}

/* Updates the parameters. A decision of the device whether to skip the step is read back after the step. */
static fr_status optimizer_step(fri_run *r, fri_step_values *v) {
    bool skipped = false, device_decides = fri_grad_scaler_device_decides(r->net.scaler);
    FRI_OWNED(fri_phase_over) fr_phase was = fr_phase_begin(FR_PHASE_OPTIMIZER);
    if (r->config->opts.optim.clip != FR_TRAIN_AUTO) FRI_TRY(clip_gradients(r));
    if (r->config->opts.memory.fused_step != FR_TRAIN_FUSED_TWO_PASS)
        FRI_TRY(fr_grad_scaler_step(r->net.scaler, r->net.optimizer));
    FRI_TRY(fr_grad_scaler_update(r->net.scaler, device_decides ? NULL : &skipped));
    v->device_decided = device_decides;
    if (device_decides) FRI_TRY(fri_grad_scaler_outcome(r->net.scaler, &v->scaler));
    r->numbers.step_skipped = skipped;
    if (skipped && r->config->opts.optim.clip == FR_TRAIN_AUTO) FRI_TRY(fri_watch_overflow(r));
    if (r->config->opts.memory.grad_zero)
        FRI_TRY(fr_module_each_tensor(r->net.model, clear_gradient, NULL));
    else
        fr_optimizer_zero_grad(r->net.optimizer);
    return FR_OK;
}

fr_status fri_step_train(void *ctx, int64_t i) {
    fri_step_work *w = ctx;
    const fr_train_opts *o = &w->r->config->opts;
    (void)i;
    w->v->targets += (double)w->count;
    fr_status s = train_batch(w, 1.0 / (double)o->memory.accumulate);
    if (s == FR_OK && w->v->n > 0) w->v->part[w->v->n - 1].targets = (double)w->count;
    return s;
}

fr_status fri_step_update(void *ctx) {
    const fri_step_work *w = ctx;
    return optimizer_step(w->r, w->v);
}

void fri_step_work_end(fri_step_work *w) {
    fr_tensor_release(&w->images);
    fr_tensor_release(&w->targets);
}
