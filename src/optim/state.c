/* state.c - an optimizer's state by name: what training states save and restore. */
#include "optim/optimizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = FRI_STATE_SLOTS, NAME_BYTES = 600 };

const char *fr_optimizer_name(const fr_optimizer *o) {
    return o->kind == FRI_SGD ? "sgd" : o->eight ? "adam8" : o->decoupled ? "adamw" : "adam";
}

bool fri_optimizer_in_8_bits(const fr_optimizer *o, const fr_tensor *w) {
    return o->eight && w->dtype != FR_F64 && fri_numel(w) >= FRI_ADAM8_LEAST;
}

int fri_optimizer_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]) {
    if (o->kind == FRI_SGD) {
        slots[0] = (fri_state_slot){"momentum_buffer", w->dtype, w->shape};
        return o->sgd.momentum != 0 ? 1 : 0;
    }
    if (!fri_optimizer_in_8_bits(o, w)) {
        fr_dtype dtype = w->dtype == FR_F64 ? FR_F64 : FR_F32;
        slots[0] = (fri_state_slot){"exp_avg", dtype, w->shape};
        slots[1] = (fri_state_slot){"exp_avg_sq", dtype, w->shape};
        return 2;
    }
    fri_shape blocks = {.rank = 1, .dim = {(fri_numel(w) + FRI_ADAM8_BLOCK - 1) / FRI_ADAM8_BLOCK}};
    slots[0] = (fri_state_slot){"exp_avg", FR_U8, w->shape};
    slots[1] = (fri_state_slot){"exp_avg_absmax", FR_F32, blocks};
    slots[2] = (fri_state_slot){"exp_avg_sq", FR_U8, w->shape};
    slots[3] = (fri_state_slot){"exp_avg_sq_absmax", FR_F32, blocks};
    return 4;
}

fr_status fr_optimizer_each_state(fr_optimizer *o, fr_optimizer_state_fn *fn, void *ctx) {
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
    return FR_OK;
}

/* The slots of one parameter; those that fn has nothing for stay NULL. */
static fr_status make_slots(fr_optimizer *o, const fri_parameter *p, fr_optimizer_state_fn *fn, void *ctx,
                            fr_tensor *fresh[SLOTS]) {
    fri_state_slot slots[SLOTS];
    char name[NAME_BYTES];
    fr_status s = FR_OK;
    int n = fri_optimizer_slots(o, p->parameter, slots);
    for (int k = 0; k < n; k++) {
        FRI_TRY(s, fri_tensor_new(&slots[k].shape, slots[k].dtype, fri_device_of(p->parameter), FR_MEM_OPTIMIZER,
                                  &fresh[k]));
        snprintf(name, sizeof name, "%s.%s", p->path, slots[k].name);
        FRI_TRY(s, fn(ctx, name, fresh[k]));
        if (s == FR_END) fr_tensor_release(&fresh[k]);
    }
    return FR_OK;
done:
    return s;
}

fr_status fr_optimizer_set_state(fr_optimizer *o, int64_t steps, fr_optimizer_state_fn *fn, void *ctx) {
    fr_status s = FR_OK;
    fr_tensor *(*fresh)[SLOTS] = NULL;
    if (steps < 0) return fri_fail(FR_EINVAL, "optimizer: %lld steps; at least 0", (long long)steps);
    fresh = calloc((size_t)o->n, sizeof *fresh);
    if (fresh == NULL) return fri_fail(FR_ENOMEM, "optimizer: out of host memory");
    for (int i = 0; i < o->n; i++) FRI_TRY(s, make_slots(o, &o->parameters[i], fn, ctx, fresh[i]));
    s = FR_OK;
    o->steps = steps;
    o->counted_there = o->step_holds = false;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) {
            fr_tensor_release(&o->parameters[i].state[k]);
            o->parameters[i].state[k] = fresh[i][k];
            o->parameters[i].unused = false;
            fresh[i][k] = NULL;
        }
done:
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) fr_tensor_release(&fresh[i][k]);
    free(fresh);
    return s;
}
