/* state.c - an optimizer's state by name: what training states save and restore. */
#include "optim/optimizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 2, NAME_BYTES = 600 };

static const char *const slot_names[2][SLOTS] =
    {[FRI_SGD] = {"momentum_buffer", NULL}, [FRI_ADAM] = {"exp_avg", "exp_avg_sq"}};

const char *fr_optimizer_name(const fr_optimizer *o) {
    return o->kind == FRI_SGD ? "sgd" : o->decoupled ? "adamw" : "adam";
}

fr_dtype fri_optimizer_state_dtype(const fr_optimizer *o, const fr_tensor *w) {
    if (o->kind == FRI_SGD || w->dtype == FR_F64) return w->dtype;
    return FR_F32;
}

fr_status fr_optimizer_each_state(fr_optimizer *o, fr_optimizer_state_fn *fn, void *ctx) {
    char name[NAME_BYTES];
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) {
            if (o->parameters[i].state[k] == NULL) continue;
            snprintf(name, sizeof name, "%s.%s", o->parameters[i].path, slot_names[o->kind][k]);
            fr_status s = fn(ctx, name, o->parameters[i].state[k]);
            if (s < 0) return s;
        }
    return FR_OK;
}

/* The slots of one parameter; those that fn has nothing for stay NULL. */
static fr_status make_slots(fr_optimizer *o, const fri_parameter *p, fr_optimizer_state_fn *fn, void *ctx,
                            fr_tensor *fresh[SLOTS]) {
    char name[NAME_BYTES];
    fr_status s = FR_OK;
    for (int k = 0; k < SLOTS && slot_names[o->kind][k] != NULL; k++) {
        FRI_TRY(s, fri_tensor_new(&p->parameter->shape, fri_optimizer_state_dtype(o, p->parameter),
                                  fri_device_of(p->parameter), FR_MEM_OPTIMIZER, &fresh[k]));
        snprintf(name, sizeof name, "%s.%s", p->path, slot_names[o->kind][k]);
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
    /* Without momentum SGD has no use for a buffer. */
    bool stateful = o->kind != FRI_SGD || o->sgd.momentum != 0;
    for (int i = 0; i < o->n && stateful; i++) FRI_TRY(s, make_slots(o, &o->parameters[i], fn, ctx, fresh[i]));
    s = FR_OK;
    o->steps = steps;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) {
            fr_tensor_release(&o->parameters[i].state[k]);
            o->parameters[i].state[k] = fresh[i][k];
            fresh[i][k] = NULL;
        }
done:
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) fr_tensor_release(&fresh[i][k]);
    free(fresh);
    return s;
}
