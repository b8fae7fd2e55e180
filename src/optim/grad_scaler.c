/* grad_scaler.c - dynamic loss scaling with torch.amp.GradScaler's semantics.
 *
 *   READY --unscale--> UNSCALED --step--> STEPPED --update--> READY
 *   READY --step (checks first, unscales inside the update)--> STEPPED
 * and with a fused optimizer (updates inside backward):
 *   READY --check_begin--> CHECKING (a backward) --check_end--> STEPPED (a backward that updates, if all is finite)
 *         --update--> READY
 * A failed step is forgotten: the state of an earlier training step (fr_step_begin) counts as READY.
 *
 * Note [Deciding on the device]
 * A host that asks an asynchronous device "was there an inf?" inside a step waits for it. So the scale lives on such a
 * device: a kernel multiplies the loss by it, the optimizer's kernels read `found` and do nothing where it is set, and
 * update is a kernel. The host's copy of the scale and of the counts is older, so their getters read them back and
 * wait. */
#include "optim/optimizer.h"

#include "backend/arith.h"
#include "optim/scaler.h"
#include "tensor/readback.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum stage { READY, UNSCALED, STEPPED, CHECKING } stage;

struct fr_grad_scaler {
    fr_grad_scaler_opts opts;
    fr_device device;
    bool device_decides; /* Note [Deciding on the device] */
    bool stale;          /* `now` is older than the device's values */
    fri_loss_scale now;
    stage stage;
    bool checked;
    uint64_t step;    /* the training step to which stage and found belong */
    fr_tensor *state; /* an fri_loss_scale on the device; where the host decides, only its inverse holds */
    fr_tensor *found; /* f32 scalar on the device */
};

static fri_loss_scale_desc scale_rule(const fr_grad_scaler *g) {
    return (fri_loss_scale_desc){.growth_factor = g->opts.growth_factor,
                                 .backoff_factor = g->opts.backoff_factor,
                                 .min_scale = g->opts.min_scale,
                                 .growth_interval = g->opts.growth_interval,
                                 .dynamic = g->opts.dynamic};
}

/* Copies the host's state to the device. */
static fr_status upload_scale(fr_grad_scaler *g) {
    return fri_backend_of(g->state)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, &g->now, fri_data(g->state),
                                          sizeof g->now);
}

/* Reads the device's state back if the host's is older; waits for it. */
static void refresh_host_copy(const fr_grad_scaler *known) {
    fr_grad_scaler *g = (fr_grad_scaler *)(uintptr_t)known; /* getters keep the state that they read back */
    if (!g->stale || g->device == FR_META) return;
    if (fr_tensor_to_host(g->state, &g->now) == FR_OK) g->stale = false;
}

fr_status fr_grad_scaler_create(const fr_grad_scaler_opts *opts, fr_device device, fr_grad_scaler **out) {
    FRI_NOT_NULL(out);
    fr_grad_scaler_opts o = opts != NULL ? *opts : *FR_GRAD_SCALER_OPTS();
    fr_shape scalar = {0}, state = FRI_SHAPE((int64_t)sizeof(fri_loss_scale));
    FRI_OWNED(fr_grad_scaler_release) fr_grad_scaler *g = NULL;
    if (!(o.growth_factor > 1) || !(o.backoff_factor < 1) || !(o.init_scale > 0) || !isfinite(o.init_scale) ||
        !isfinite(o.growth_factor) || !isfinite(o.backoff_factor) || o.growth_interval < 1)
        return fr_fail(
            FR_EINVAL,
            "grad scaler: scale %g must be > 0 and finite, growth %g > 1, backoff %g < 1, interval %lld >= 1",
            o.init_scale, o.growth_factor, o.backoff_factor, (long long)o.growth_interval);
    if ((g = calloc(1, sizeof *g)) == NULL) return fr_fail(FR_ENOMEM, "grad scaler: out of host memory");
    g->opts = o;
    g->device = device;
    g->now.scale = (float)o.init_scale;
    g->now.inverse = fri_loss_scale_inverse(g->now.scale);
    g->device_decides = fr_device_is_asynchronous(device);
    if (o.enabled) {
        FRI_TRY(fri_tensor_new(&state, FR_U8, device, FR_MEM_OTHER, &g->state));
        FRI_TRY(fri_tensor_new(&scalar, FR_F32, device, FR_MEM_OTHER, &g->found));
        if (g->device_decides) FRI_TRY(upload_scale(g));
        FRI_TRY(fri_tensor_fill(g->found, 0));
    }
    fr_grad_scaler_release(out);
    FRI_MOVE(out, g);
    return FR_OK;
}

void fr_grad_scaler_release(fr_grad_scaler **p) {
    if (p == NULL) return;
    fr_grad_scaler *g = *p;
    *p = NULL;
    if (g == NULL) return;
    fr_tensor_release(&g->state);
    fr_tensor_release(&g->found);
    free(g);
}

double fr_grad_scaler_value(const fr_grad_scaler *g) {
    if (g == NULL) return 0;
    refresh_host_copy(g);
    return g->opts.enabled ? (double)g->now.scale : 1;
}

int64_t fri_grad_scaler_growth_tracker(const fr_grad_scaler *g) {
    if (g == NULL) return 0;
    refresh_host_copy(g);
    return g->now.tracker;
}

int64_t fr_grad_scaler_skipped(const fr_grad_scaler *g) {
    if (g == NULL) return 0;
    refresh_host_copy(g);
    return g->now.skipped;
}

fr_status fri_grad_scaler_set(fr_grad_scaler *g, double scale, int64_t growth_tracker) {
    FRI_NOT_NULL(g);
    if (!(scale >= 0) || growth_tracker < 0)
        return fr_fail(FR_EINVAL, "grad scaler: scale %g and growth tracker %lld must not be negative", scale,
                       (long long)growth_tracker);
    refresh_host_copy(g);
    g->now.scale = (float)scale;
    g->now.inverse = fri_loss_scale_inverse(g->now.scale);
    g->now.tracker = growth_tracker;
    g->stale = false;
    return g->device_decides && g->opts.enabled ? upload_scale(g) : FR_OK;
}

fr_status fr_grad_scaler_scale(fr_grad_scaler *g, fr_tensor *loss, fr_tensor **scaled) {
    FRI_NOT_NULL(g, loss, scaled);
    fr_shape scalar = {0};
    FRI_OWNED(fr_tensor_release) fr_tensor *factor = NULL;
    if (!g->device_decides || !g->opts.enabled || loss->dtype != FR_F32 || fri_numel(loss) != 1)
        return fr_scale(loss, fr_grad_scaler_value(g), scaled);
    FRI_TRY(fri_tensor_on_storage(g->state->storage, offsetof(fri_loss_scale, scale), &scalar, FR_F32, &factor));
    factor->shape = loss->shape;
    return fr_mul(loss, factor, scaled);
}

bool fri_grad_scaler_device_decides(const fr_grad_scaler *g) {
    return g != NULL && g->device_decides && g->opts.enabled;
}

fr_status fri_grad_scaler_outcome(const fr_grad_scaler *g, fri_readback *r) {
    FRI_NOT_NULL(g, r);
    return fri_readback_begin(g->state, r);
}

fr_status fri_grad_scaler_learn(fri_readback *r, double *scale, int64_t *skipped) {
    FRI_NOT_NULL(r, scale, skipped);
    fri_loss_scale now;
    FRI_TRY(fri_readback_wait(r));
    memcpy(&now, r->bytes, sizeof now);
    *scale = (double)now.scale;
    *skipped = now.skipped;
    return FR_OK;
}

/* ---- passes over the gradients ----------------------------------------------------------------------------- */

/* g->found becomes 1 on inf or NaN. Multiplies by inv_scale unless it is NULL. */
static fr_status look_at(fr_grad_scaler *g, const fr_tensor *like, int count, const fri_array *gradients,
                         const fr_tensor *inv_scale) {
    return FRI_KERNEL(fri_backend_of(like), like->dtype, unscale,
                      (FRI_EXEC, like->dtype, count, gradients, fri_data_of(inv_scale), fri_data(g->found)));
}

static fr_status check_gradient(fr_grad_scaler *g, const fr_tensor *grad) {
    fri_array array = {fri_numel(grad), fri_data(grad)};
    return look_at(g, grad, 1, &array, NULL);
}

static fr_status look_at_list(void *ctx, const fr_tensor *like, int count, const fri_array *gradients) {
    return look_at(ctx, like, count, gradients, NULL);
}

static fr_status unscale_list(void *ctx, const fr_tensor *like, int count, const fri_array *gradients) {
    return look_at(ctx, like, count, gradients, ((fr_grad_scaler *)ctx)->state);
}

/* Overflow on any rank counts as overflow on all. */
static fr_status look_at_others(fr_grad_scaler *g, const fr_optimizer *o) {
    return o->sharing != NULL ? o->sharing->any(o->sharing->ctx, g->found) : FR_OK;
}

/* Writes the factor of this step's gradients to the device, where the host decides. */
static fr_status set_inverse(fr_grad_scaler *g) {
    if (g->device_decides) return FR_OK;
    g->now.inverse = fri_loss_scale_inverse(g->now.scale);
    return FRI_KERNEL(fri_backend_of(g->state), FR_F32, fill,
                      (FRI_EXEC, FR_F32, 1, g->now.inverse, fri_data(g->state)));
}

/* Checks all gradients for inf and NaN; multiply: and unscales them. */
static fr_status check_all(fr_grad_scaler *g, fr_optimizer *o, bool multiply) {
    FRI_TRY(set_inverse(g));
    for (int i = 0; i < o->n && multiply; i++) {
        const fri_parameter *p = &o->parameters[i];
        FRI_TRY(fri_optimizer_kept(o, p, "grad scaler: unscale"));
        FRI_TRY(fri_leaf_widen(p->parameter));
        if (fri_parameter_moves(o, p) && p->parameter->dtype == FR_F16)
            return fr_fail(FR_EDTYPE,
                           "grad scaler: Attempting to unscale FP16 gradients (%s); keep the parameters in "
                           "f32 and use autocast",
                           o->parameters[i].path);
    }
    FRI_TRY(fri_optimizer_gradients(o, multiply ? unscale_list : look_at_list, g));
    FRI_TRY(look_at_others(g, o));
    g->checked = true;
    return FR_OK;
}

static fr_status forget_other_step(fr_grad_scaler *g) {
    if (g->step == fri_step_number()) return FR_OK;
    if (g->stage != READY || g->checked) FRI_TRY(fri_tensor_fill(g->found, 0));
    g->stage = READY;
    g->checked = false;
    g->step = fri_step_number();
    return FR_OK;
}

fr_status fr_grad_scaler_unscale(fr_grad_scaler *g, fr_optimizer *o) {
    FRI_NOT_NULL(g, o);
    if (!g->opts.enabled) return FR_OK;
    FRI_TRY(forget_other_step(g));
    if (g->stage == UNSCALED)
        return fr_fail(FR_EUSAGE, "grad scaler: unscale was already called for this optimizer since the last update");
    if (g->stage == STEPPED) return fr_fail(FR_EUSAGE, "grad scaler: unscale was called after step; call it before");
    fr_status s = check_all(g, o, true);
    if (s == FR_OK) g->stage = UNSCALED;
    return s;
}

fr_status fr_grad_scaler_step(fr_grad_scaler *g, fr_optimizer *o) {
    FRI_NOT_NULL(g, o);
    double found = 0;
    if (!g->opts.enabled) return fr_optimizer_step(o);
    FRI_TRY(forget_other_step(g));
    if (g->stage == CHECKING || (o->fused && o->scaler != g))
        return fr_fail(FR_EUSAGE, "grad scaler: a fused optimizer has no step of its own under a loss scale; "
                                  "train.memory.fused_step of a session makes both passes");
    if (g->stage == STEPPED) return fr_fail(FR_EUSAGE, "grad scaler: step was already called since the last update");
    bool unscaled = g->stage == UNSCALED;
    if (!unscaled) FRI_TRY(check_all(g, o, false));
    if (fri_optimizer_can_skip(o) && g->device_decides) {
        FRI_TRY(fri_optimizer_step(o, unscaled ? NULL : g->state, g->found));
    } else if (g->device == FR_META) {
        FRI_TRY(fri_optimizer_step(o, unscaled ? NULL : g->state, NULL));
    } else {
        FRI_TRY(fr_tensor_item(g->found, &found));
        if (found == 0)
            FRI_TRY(fri_optimizer_step(o, unscaled ? NULL : g->state, NULL));
        else
            FRI_TRY(fri_optimizer_skip(o));
    }
    g->stage = STEPPED;
    return FR_OK;
}

/* ---- two passes -------------------------------------------------------------------------------------------- */

fr_status fri_grad_scaler_check_begin(fr_grad_scaler *g, fr_optimizer *o) {
    FRI_NOT_NULL(g, o);
    if (!o->fused) return fr_fail(FR_EUSAGE, "grad scaler: check_begin is for a fused optimizer; this one is not");
    if (!g->opts.enabled) return fr_fail(FR_EUSAGE, "grad scaler: check_begin needs an enabled scaler");
    if (o->sharing != NULL)
        return fr_fail(FR_EUNSUPPORTED, "grad scaler: check_begin does not support an optimizer shared by ranks");
    FRI_TRY(forget_other_step(g));
    if (g->stage != READY) return fr_fail(FR_EUSAGE, "grad scaler: check_begin before the last step's update");
    FRI_TRY(set_inverse(g));
    o->scaler = g;
    g->stage = CHECKING;
    return FR_OK;
}

fr_status fri_grad_scaler_check_end(fr_grad_scaler *g, fr_optimizer *o, bool *found) {
    FRI_NOT_NULL(g, o, found);
    double value = 0;
    *found = false;
    if (g->stage != CHECKING || o->scaler != g)
        return fr_fail(FR_EUSAGE, "grad scaler: check_end without check_begin for this optimizer");
    if (g->device != FR_META && !(g->device_decides && fri_optimizer_can_skip(o))) {
        FRI_TRY(fr_tensor_item(g->found, &value));
    }
    *found = value != 0;
    g->checked = true;
    g->stage = STEPPED;
    return FR_OK;
}

fr_status fri_grad_scaler_complete(fr_grad_scaler *g, fr_optimizer *o, fri_parameter *p, bool *update,
                                   const fr_tensor **inv_scale, const fr_tensor **found) {
    if (g->stage == CHECKING) {
        *update = false;
        FRI_TRY(fri_optimizer_skip_one(o, p)); /* a step that is skipped makes the state, too */
        return check_gradient(g, fr_tensor_get_grad(p->parameter));
    }
    if (g->stage != STEPPED)
        return fr_fail(FR_EUSAGE, "grad scaler: backward with a fused optimizer (%s) before check_begin", p->path);
    *inv_scale = g->state;
    *found = g->device_decides && fri_optimizer_can_skip(o) ? g->found : NULL;
    return FR_OK;
}

/* ---- what overflowed --------------------------------------------------------------------------------------- */

/* Storages are numbered as they are made, so the smallest number is the first in backward. */
fr_status fri_grad_scaler_find_overflow(fr_grad_scaler *g, fr_optimizer *o, const char **path, const char **op) {
    FRI_NOT_NULL(g, o, path, op);
    uint64_t first = UINT64_MAX;
    double was = 0, found = 0;
    *path = *op = NULL;
    if (!g->opts.enabled || g->device == FR_META) return FR_OK;
    FRI_TRY(fr_tensor_item(g->found, &was));
    if (g->stage == UNSCALED && was == 0) return FR_OK;
    for (int i = 0; i < o->n; i++) {
        const fr_tensor *grad = fri_parameter_gradient(o, &o->parameters[i]);
        if (grad == NULL || grad->storage->birth >= first) continue;
        FRI_TRY(fri_tensor_fill(g->found, 0));
        FRI_TRY(check_gradient(g, grad));
        FRI_TRY(fr_tensor_item(g->found, &found));
        if (found == 0) continue;
        first = grad->storage->birth;
        *path = o->parameters[i].path;
        *op = grad->storage->block->tag.op;
    }
    return fri_tensor_fill(g->found, was);
}

/* ---- update ------------------------------------------------------------------------------------------------ */

fr_status fr_grad_scaler_update(fr_grad_scaler *g, bool *skipped) {
    FRI_NOT_NULL(g);
    fri_loss_scale_desc d = scale_rule(g);
    double found = 0;
    if (skipped != NULL) *skipped = false;
    if (!g->opts.enabled) return FR_OK;
    if (!g->checked)
        return fr_fail(FR_EUSAGE, "grad scaler: no inf checks were recorded since the last update; call step first");
    if (g->device_decides) {
        if (skipped != NULL && g->device != FR_META) FRI_TRY(fr_tensor_item(g->found, &found));
        FRI_TRY(FRI_KERNEL(fri_backend_of(g->state), FR_F32, loss_scale_update,
                           (FRI_EXEC, &d, fri_data(g->state), fri_data(g->found))));
        g->stale = true; /* the device's state is newer than the host's */
    } else {
        if (g->device != FR_META) FRI_TRY(fr_tensor_item(g->found, &found));
        g->now = fri_loss_scale_next(&d, g->now, found != 0);
        if (found != 0) FRI_TRY(fri_tensor_fill(g->found, 0));
    }
    if (skipped != NULL) *skipped = found != 0;
    g->stage = READY;
    g->checked = false;
    return FR_OK;
}
