/* state.c - an optimizer's state by name: what training states save and restore. */
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = FRI_STATE_SLOTS, NAME_BYTES = 600 };

const char *fr_optimizer_name(const fr_optimizer *o) {
    if (o == NULL) return NULL;
    return o->kind == FRI_SGD ? "sgd" : o->eight ? "adam8" : o->decoupled ? "adamw" : "adam";
}

bool fri_optimizer_in_8_bits(const fr_optimizer *o, const fr_tensor *w) {
    return o->eight && w->dtype != FR_F64 && fri_numel(w) >= FRI_ADAM8_LEAST;
}

bool fri_optimizer_has_master(const fr_optimizer *o, const fr_tensor *w) {
    return o->masters && (w->dtype == FR_F16 || w->dtype == FR_BF16);
}

static int moments(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]) {
    if (o->kind == FRI_SGD) {
        slots[0] = (fri_state_slot){"momentum_buffer", fri_optimizer_has_master(o, w) ? FR_F32 : w->dtype, w->shape};
        return o->sgd.momentum != 0 ? 1 : 0;
    }
    if (!fri_optimizer_in_8_bits(o, w)) {
        fr_dtype dtype = w->dtype == FR_F64 ? FR_F64 : FR_F32;
        slots[0] = (fri_state_slot){"exp_avg", dtype, w->shape};
        slots[1] = (fri_state_slot){"exp_avg_sq", dtype, w->shape};
        return 2;
    }
    fr_shape blocks = {.rank = 1, .dim = {(fri_numel(w) + FRI_ADAM8_BLOCK - 1) / FRI_ADAM8_BLOCK}};
    slots[0] = (fri_state_slot){"exp_avg", FR_U8, w->shape};
    slots[1] = (fri_state_slot){"exp_avg_absmax", FR_F32, blocks};
    slots[2] = (fri_state_slot){"exp_avg_sq", FR_U8, w->shape};
    slots[3] = (fri_state_slot){"exp_avg_sq_absmax", FR_F32, blocks};
    return 4;
}

int fri_optimizer_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]) {
    int n = moments(o, w, slots);
    if (fri_optimizer_has_master(o, w)) slots[n++] = (fri_state_slot){"master", FR_F32, w->shape};
    return n;
}

/* A parameter's count of steps, where it is not the optimizer's, as "<path>.step" (PyTorch's name). */
static fr_status each_count(fr_optimizer *o, fr_optimizer_state_fn *fn, void *ctx) {
    const fr_shape scalar = {0};
    char name[NAME_BYTES];
    float *counts = NULL;
    fr_status s = FR_OK;
    if (o->kind != FRI_ADAM || o->counts == NULL || fri_device_of(o->counts) == FR_META) return FR_OK;
    FR_TRY(s, fri_optimizer_read_counts(o, &counts));
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        const size_t at = 1 + (size_t)i;
        if (p->state[0] == NULL || p->unused || counts[at] == counts[0]) continue;
        if (p->step == NULL)
            FR_TRY(s, fri_tensor_on_storage(o->counts->storage, at * sizeof(float), &scalar, FR_F32, &p->step));
        snprintf(name, sizeof name, "%s.step", p->path);
        FR_TRY(s, fn(ctx, name, p->step));
    }
done:
    free(counts);
    return s < 0 ? s : FR_OK;
}

fr_status fr_optimizer_each_state(fr_optimizer *o, fr_optimizer_state_fn *fn, void *ctx) {
    FRI_NOT_NULL(o, fn);
    fri_state_slot slots[SLOTS];
    char name[NAME_BYTES];
    for (int i = 0; i < o->n; i++) {
        int n = fri_optimizer_slots(o, o->parameters[i].parameter, slots);
        for (int k = 0; k < n; k++) {
            if (o->parameters[i].state[k] == NULL || o->parameters[i].unused) continue;
            snprintf(name, sizeof name, "%s.%s", o->parameters[i].path, slots[k].name);
            fr_status s = fn(ctx, name, o->parameters[i].state[k]);
            if (s < 0) return s;
        }
    }
    return each_count(o, fn, ctx);
}

/* The slots of one parameter; those that fn has nothing for stay NULL. */
static fr_status make_slots(fr_optimizer *o, const fri_parameter *p, fr_optimizer_state_fn *fn, void *ctx,
                            fr_tensor *fresh[SLOTS]) {
    fri_state_slot slots[SLOTS];
    char name[NAME_BYTES];
    fr_status s = FR_OK;
    int n = fri_optimizer_slots(o, p->parameter, slots);
    for (int k = 0; k < n; k++) {
        FR_TRY(s, fri_tensor_new(&slots[k].shape, slots[k].dtype, fri_device_of(p->parameter), FR_MEM_OPTIMIZER,
                                 &fresh[k]));
        snprintf(name, sizeof name, "%s.%s", p->path, slots[k].name);
        FR_TRY(s, fn(ctx, name, fresh[k]));
        if (s == FR_END) fr_tensor_release(&fresh[k]);
    }
    return FR_OK;
done:
    return s;
}

/* How many steps a parameter made; the optimizer's `steps` where fn has nothing else for it, as in states that were
 * written before parameters counted. */
static fr_status read_count(const fri_parameter *p, int64_t steps, fr_tensor *scalar, fr_optimizer_state_fn *fn,
                            void *ctx, int64_t *count) {
    char name[NAME_BYTES];
    double value = 0;
    *count = steps;
    if (fri_device_of(scalar) == FR_META) return FR_OK;
    snprintf(name, sizeof name, "%s.step", p->path);
    fr_status s = fn(ctx, name, scalar);
    if (s == FR_END) return FR_OK;
    if (s >= 0) s = fr_tensor_item(scalar, &value);
    if (s < 0) return s;
    if (!(value >= 0 && value <= (double)steps) || value != floor(value))
        return fr_fail(FR_EINVAL, "optimizer: '%s' is %g; it must be one of the numbers 0..%lld", name, value,
                       (long long)steps);
    *count = (int64_t)value;
    return FR_OK;
}

fr_status fr_optimizer_set_state(fr_optimizer *o, int64_t steps, fr_optimizer_state_fn *fn, void *ctx) {
    FRI_NOT_NULL(o, fn);
    fr_status s = FR_OK;
    fr_tensor *(*fresh)[SLOTS] = NULL;
    fr_tensor *scalar = NULL;
    int64_t *counts = NULL;
    if (steps < 0) return fr_fail(FR_EINVAL, "optimizer: %lld steps; at least 0", (long long)steps);
    fresh = calloc((size_t)o->n, sizeof *fresh);
    counts = calloc((size_t)o->n, sizeof *counts);
    if (fresh == NULL || counts == NULL) {
        s = fr_fail(FR_ENOMEM, "optimizer: out of host memory");
        goto done;
    }
    for (int i = 0; i < o->n; i++) {
        if (!o->parameters[i].parameter->requires_grad) continue;
        FR_TRY(s, make_slots(o, &o->parameters[i], fn, ctx, fresh[i]));
        if (o->kind != FRI_ADAM || fresh[i][0] == NULL) continue;
        if (scalar == NULL)
            FR_TRY(s, fri_tensor_new(&(fr_shape){0}, FR_F32, fri_device_of(o->parameters[i].parameter),
                                     FR_MEM_TEMPORARY, &scalar));
        FR_TRY(s, read_count(&o->parameters[i], steps, scalar, fn, ctx, &counts[i]));
    }
    FR_TRY(s, fri_optimizer_set_counts(o, steps, counts));
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) {
            fr_tensor_release(&o->parameters[i].state[k]);
            o->parameters[i].state[k] = fresh[i][k];
            o->parameters[i].unused = false;
            fresh[i][k] = NULL;
        }
done:
    for (int i = 0; fresh != NULL && i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) fr_tensor_release(&fresh[i][k]);
    fr_tensor_release(&scalar);
    free(fresh);
    free(counts);
    return s;
}
