/* state.c - an optimizer's state by name: for saving and restoring training states. */
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = FRI_STATE_SLOTS, NAME_BYTES = 600 };

const char *fr_optimizer_name(const fr_optimizer *o) {
    if (o == NULL) return NULL;
    if (o->kind == FRI_SGD) return "sgd";
    if (o->kind == FRI_RMSPROP) return "rmsprop";
    return o->eight ? "adam8" : o->decoupled ? "adamw" : "adam";
}

bool fri_optimizer_in_8_bits(const fr_optimizer *o, const fr_tensor *w) {
    return o->eight && w->dtype != FR_F64 && fri_numel(w) >= FRI_8_BITS_MIN;
}

bool fri_optimizer_has_master(const fr_optimizer *o, const fr_tensor *w) {
    return o->masters && (w->dtype == FR_F16 || w->dtype == FR_BF16);
}

static int moment_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]) {
    const fr_dtype wide = w->dtype == FR_F64 ? FR_F64 : FR_F32;
    const bool eight = fri_optimizer_in_8_bits(o, w);
    const fr_shape blocks = {.rank = 1, .dim = {(fri_numel(w) + FRI_SCALE_BLOCK - 1) / FRI_SCALE_BLOCK}};
    int n = 0;
    if (o->kind == FRI_SGD && o->sgd.momentum != 0) {
        const fr_dtype dtype = fri_optimizer_has_master(o, w) ? FR_F32 : w->dtype;
        slots[n++] = (fri_state_slot){"momentum_buffer", dtype, w->shape};
    } else if (o->kind == FRI_RMSPROP) {
        slots[n++] = (fri_state_slot){"square_avg", wide, w->shape};
        if (o->rmsprop.momentum != 0) slots[n++] = (fri_state_slot){"momentum_buffer", wide, w->shape};
        if (o->rmsprop.centered) slots[n++] = (fri_state_slot){"grad_avg", wide, w->shape};
    } else if (o->kind == FRI_ADAM) {
        slots[n++] = (fri_state_slot){"exp_avg", eight ? FR_U8 : wide, w->shape};
        if (eight) slots[n++] = (fri_state_slot){"exp_avg_absmax", FR_F32, blocks};
        slots[n++] = (fri_state_slot){"exp_avg_sq", eight ? FR_U8 : wide, w->shape};
        if (eight) slots[n++] = (fri_state_slot){"exp_avg_sq_absmax", FR_F32, blocks};
    }
    return n;
}

int fri_optimizer_slots(const fr_optimizer *o, const fr_tensor *w, fri_state_slot slots[FRI_STATE_SLOTS]) {
    int n = moment_slots(o, w, slots);
    if (fri_optimizer_has_master(o, w)) slots[n++] = (fri_state_slot){"master", FR_F32, w->shape};
    if (o->ema > 0) slots[n++] = (fri_state_slot){"ema", w->dtype == FR_F64 ? FR_F64 : FR_F32, w->shape};
    return n;
}

int fri_optimizer_ema_slot(const fr_optimizer *o, int n) {
    return o->ema > 0 ? n - 1 : -1;
}

int fri_optimizer_master_slot(const fr_optimizer *o, const fr_tensor *w, int n) {
    return fri_optimizer_has_master(o, w) ? n - 1 - (o->ema > 0) : -1;
}

int fri_optimizer_part_slots(const fr_optimizer *o, const fri_parameter *p, fri_state_slot slots[SLOTS]) {
    const int64_t all = fri_numel(p->parameter);
    const int n = fri_optimizer_slots(o, p->parameter, slots);
    for (int k = 0; k < n && p->count < all; k++) {
        const int64_t of_blocks = (p->count + FRI_SCALE_BLOCK - 1) / FRI_SCALE_BLOCK;
        const bool each = fri_shape_numel(&slots[k].shape) == all;
        slots[k].shape = (fr_shape){.rank = 1, .dim = {each ? p->count : of_blocks}};
    }
    return n;
}

int64_t fri_optimizer_part_first(const fri_parameter *p, const fri_state_slot *whole) {
    return fri_shape_numel(&whole->shape) == fri_numel(p->parameter) ? p->first : p->first / FRI_SCALE_BLOCK;
}

/* A parameter's count of steps, if different from the optimizer's, as "<path>.step" (PyTorch's name). */
static fr_status each_count(fr_optimizer *o, fri_optimizer_state_fn *fn, void *ctx) {
    const fr_shape scalar = {0};
    char name[NAME_BYTES];
    FRI_OWNED(fri_free) float *counts = NULL;
    if (o->kind != FRI_ADAM || o->counts == NULL || fri_device_of(o->counts) == FR_META) return FR_OK;
    FRI_TRY(fri_optimizer_read_counts(o, &counts));
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        const size_t at = 1 + (size_t)i;
        if (!p->made || p->unused || counts[at] == counts[0]) continue;
        if (p->step == NULL)
            FRI_TRY(fri_tensor_on_storage(o->counts->storage, at * sizeof(float), &scalar, FR_F32, &p->step));
        snprintf(name, sizeof name, "%s.step", p->path);
        FRI_TRY(fn(ctx, name, p->step));
    }
    return FR_OK;
}

/* State distributed over ranks appears as a tensor without values. */
static fr_status visit_slot(const fr_optimizer *o, const fri_parameter *p, int k, const fri_state_slot *slot,
                            fri_optimizer_state_fn *fn, void *ctx) {
    char name[NAME_BYTES];
    FRI_OWNED(fr_tensor_release) fr_tensor *whole = NULL;
    snprintf(name, sizeof name, "%s.%s", p->path, slot->name);
    if (o->sharing == NULL) return p->state[k] != NULL ? fn(ctx, name, p->state[k]) : FR_OK;
    FRI_TRY(fri_tensor_new(&slot->shape, slot->dtype, FR_META, FR_MEM_TEMPORARY, &whole));
    return fn(ctx, name, whole);
}

fr_status fri_optimizer_each_state(fr_optimizer *o, fri_optimizer_state_fn *fn, void *ctx) {
    FRI_NOT_NULL(o, fn);
    fri_state_slot slots[SLOTS];
    for (int i = 0; i < o->n; i++) {
        const fri_parameter *p = &o->parameters[i];
        int n = fri_optimizer_slots(o, p->parameter, slots);
        for (int k = 0; k < n && p->made && !p->unused; k++) {
            FRI_TRY(visit_slot(o, p, k, &slots[k], fn, ctx));
        }
    }
    return each_count(o, fn, ctx);
}

/* Finds a state tensor by name: *k of parameter *i; false: none. */
static bool find_state(const fr_optimizer *o, const char *name, int *i, int *k) {
    fri_state_slot slots[SLOTS];
    char own[NAME_BYTES];
    for (*i = 0; *i < o->n; ++*i) {
        int n = fri_optimizer_slots(o, o->parameters[*i].parameter, slots);
        for (*k = 0; *k < n; ++*k) {
            snprintf(own, sizeof own, "%s.%s", o->parameters[*i].path, slots[*k].name);
            if (strcmp(own, name) == 0) return o->parameters[*i].made;
        }
    }
    return false;
}

fr_status fri_optimizer_state_to_host(fr_optimizer *o, const char *name, void *data) {
    FRI_NOT_NULL(o, name, data);
    int i = 0, k = 0;
    if (!find_state(o, name, &i, &k)) return fr_fail(FR_EINVAL, "optimizer: no state is called '%.500s'", name);
    return o->sharing != NULL ? o->sharing->collect(o->sharing->ctx, i, k, data)
                              : fr_tensor_to_host(o->parameters[i].state[k], data);
}

/* *part = the process's elements of the whole. */
static fr_status take_part(const fri_parameter *p, const fri_state_slot *slot, const fri_state_slot *of_part,
                           fr_tensor **whole, fr_tensor **part) {
    const size_t at = (size_t)fri_optimizer_part_first(p, slot) * fr_dtype_size(slot->dtype);
    fr_status s = FR_OK;
    if (p->count == fri_numel(p->parameter)) {
        *part = *whole;
        *whole = NULL;
        return FR_OK;
    }
    if (p->count > 0) {
        FR_TRY(s, fri_tensor_new(&of_part->shape, slot->dtype, fri_device_of(*whole), FR_MEM_OPTIMIZER, part));
        if (fri_data(*whole) != NULL)
            FR_TRY(s, fri_backend_of(*whole)->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_DEVICE, (char *)fri_data(*whole) + at,
                                                   fri_data(*part), fri_nbytes(*part)));
    }
done:
    fr_tensor_release(whole);
    return s;
}

/* The slots of a parameter; NULL without a value from fn. *made: fn had a value. */
static fr_status make_slots(fr_optimizer *o, const fri_parameter *p, fri_optimizer_state_fn *fn, void *ctx,
                            fr_tensor *fresh[SLOTS], bool *made) {
    fri_state_slot slots[SLOTS], parts[SLOTS];
    char name[NAME_BYTES];
    FRI_OWNED(fr_tensor_release) fr_tensor *whole = NULL;
    int n = fri_optimizer_slots(o, p->parameter, slots);
    (void)fri_optimizer_part_slots(o, p, parts);
    for (int k = 0; k < n; k++) {
        FRI_TRY(fri_tensor_new(&slots[k].shape, slots[k].dtype, fri_device_of(p->parameter), FR_MEM_OPTIMIZER, &whole));
        snprintf(name, sizeof name, "%s.%s", p->path, slots[k].name);
        const fr_status s = fn(ctx, name, whole);
        if (s < 0) return s;
        if (s == FR_END) {
            fr_tensor_release(&whole);
            continue;
        }
        *made = true;
        FRI_TRY(take_part(p, &slots[k], &parts[k], &whole, &fresh[k]));
    }
    return FR_OK;
}

/* Number of a parameter's steps; the optimizer's `steps` if fn has no value. */
static fr_status read_count(const fri_parameter *p, int64_t steps, fr_tensor *scalar, fri_optimizer_state_fn *fn,
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

fr_status fri_optimizer_set_state(fr_optimizer *o, int64_t steps, fri_optimizer_state_fn *fn, void *ctx) {
    FRI_NOT_NULL(o, fn);
    fr_status s = FR_OK;
    fr_tensor *(*fresh)[SLOTS] = NULL;
    FRI_OWNED(fr_tensor_release) fr_tensor *scalar = NULL;
    fri_state_slot slots[SLOTS];
    if (steps < 0) return fr_fail(FR_EINVAL, "optimizer: %lld steps; at least 0", (long long)steps);
    fresh = calloc((size_t)o->n, sizeof *fresh);
    FRI_OWNED(fri_free) int64_t *counts = calloc((size_t)o->n, sizeof *counts);
    FRI_OWNED(fri_free) bool *made = calloc((size_t)o->n, sizeof *made);
    if (fresh == NULL || counts == NULL || made == NULL) {
        s = fr_fail(FR_ENOMEM, "optimizer: out of host memory");
        goto done;
    }
    for (int i = 0; i < o->n; i++) {
        if (!o->parameters[i].parameter->requires_grad) continue;
        FR_TRY(s, make_slots(o, &o->parameters[i], fn, ctx, fresh[i], &made[i]));
        if (o->kind != FRI_ADAM || !made[i]) continue;
        if (scalar == NULL)
            FR_TRY(s, fri_tensor_new(&(fr_shape){0}, FR_F32, fri_device_of(o->parameters[i].parameter),
                                     FR_MEM_TEMPORARY, &scalar));
        FR_TRY(s, read_count(&o->parameters[i], steps, scalar, fn, ctx, &counts[i]));
    }
    FR_TRY(s, fri_optimizer_set_counts(o, steps, counts));
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        p->made = made[i];
        p->unused = false;
        for (int k = 0; k < SLOTS; k++) {
            fr_tensor_release(&p->state[k]);
            FRI_MOVE(&p->state[k], fresh[i][k]);
        }
        const int n = fri_optimizer_slots(o, p->parameter, slots), ema = fri_optimizer_ema_slot(o, n);
        p->averaged = ema >= 0 && p->state[ema] != NULL;
    }
    s = fri_optimizer_make_swap_buffer(o); /* as in a first step, so that all evaluations make the same requests */
done:
    for (int i = 0; fresh != NULL && i < o->n; i++)
        for (int k = 0; k < SLOTS; k++) fr_tensor_release(&fresh[i][k]);
    free(fresh);
    return s;
}
