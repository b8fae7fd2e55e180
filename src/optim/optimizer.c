/* optimizer.c - SGD, RMSprop, Adam, AdamW: making, steps, the fused step. A step's work is in update.c. */
#include "optim/optimizer.h"
#include "base/status.h"

#include "autograd/node.h"
#include "autograd/state.h"

#include <frugal/net.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ------------------------------------------------------------------------------------------------ */

typedef struct collection {
    fr_module *m;
    fr_optimizer *o;
} collection;

/* True if the parameter belongs to a norm. */
static bool is_norm(fr_module *m, char *path) {
    char *dot = strrchr(path, '.');
    if (dot != NULL) *dot = '\0';
    const fr_module *layer = dot != NULL ? fr_module_find(m, path) : m;
    if (dot != NULL) *dot = '.';
    return layer != NULL && (fr_module_class_of(layer)->traits & FR_LAYER_KEEPS_F32) != 0;
}

static fr_status collect_parameter(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const collection *c = ctx;
    fr_optimizer *o = c->o;
    if (!is_parameter) return FR_OK;
    FRI_TRY(FRI_ROOM(o->parameters, o->n, "optimizer"));
    char *copy = strdup(path);
    if (copy == NULL) return fr_fail(FR_ENOMEM, "optimizer: out of host memory");
    o->parameters[o->n++] = (fri_parameter){.path = copy,
                                            .norm = is_norm(c->m, copy),
                                            .parameter = fr_tensor_retain(t),
                                            .count = fri_numel(t)};
    return FR_OK;
}

static double weight_decay(const fr_optimizer *o) {
    return o->kind == FRI_SGD       ? o->sgd.weight_decay
           : o->kind == FRI_RMSPROP ? o->rmsprop.weight_decay
                                    : o->adam.weight_decay;
}

static fr_status optimizer_create(fr_module *m, fr_optimizer like, fr_optimizer **out) {
    FRI_OWNED(fr_optimizer_release) fr_optimizer *o = malloc(sizeof *o);
    if (o == NULL) return fr_fail(FR_ENOMEM, "optimizer: out of host memory");
    *o = like;
    o->group[0] = (fri_group){1, weight_decay(o), o->lr};
    o->groups = 1;
    FRI_TRY(fr_module_each_tensor(m, collect_parameter, &(collection){m, o}));
    if (o->n == 0) return fr_fail(FR_EINVAL, "optimizer: the module has no parameters");
    fr_optimizer_release(out);
    FRI_MOVE(out, o);
    return FR_OK;
}

static fr_status check_option(const char *name, const char *option, double value, double min, double end) {
    if (isfinite(value) && value >= min && value < end) return FR_OK;
    return fr_fail(FR_EINVAL, "%s: %s is %g; it must be >= %g and < %g", name, option, value, min, end);
}

fr_status fr_sgd(fr_module *m, const fr_sgd_opts *opts, fr_optimizer **out) {
    FRI_NOT_NULL(m, out);
    const fr_sgd_opts o = opts != NULL ? *opts : *FR_SGD_OPTS();
    FRI_TRY(check_option("SGD", "lr", o.lr, 0, INFINITY));
    FRI_TRY(check_option("SGD", "momentum", o.momentum, 0, INFINITY));
    FRI_TRY(check_option("SGD", "dampening", o.dampening, -INFINITY, INFINITY));
    FRI_TRY(check_option("SGD", "weight_decay", o.weight_decay, 0, INFINITY));
    if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
        return fr_fail(FR_EINVAL, "SGD: Nesterov needs momentum > 0 and dampening 0, not %g and %g", o.momentum,
                       o.dampening);
    return optimizer_create(m, (fr_optimizer){.kind = FRI_SGD, .sgd = o, .lr = o.lr}, out);
}

fr_status fr_rmsprop(fr_module *m, const fr_rmsprop_opts *opts, fr_optimizer **out) {
    FRI_NOT_NULL(m, out);
    const fr_rmsprop_opts o = opts != NULL ? *opts : *FR_RMSPROP_OPTS();
    FRI_TRY(check_option("RMSprop", "lr", o.lr, 0, INFINITY));
    FRI_TRY(check_option("RMSprop", "alpha", o.alpha, 0, INFINITY));
    FRI_TRY(check_option("RMSprop", "eps", o.eps, 0, INFINITY));
    FRI_TRY(check_option("RMSprop", "momentum", o.momentum, 0, INFINITY));
    FRI_TRY(check_option("RMSprop", "weight_decay", o.weight_decay, 0, INFINITY));
    return optimizer_create(m, (fr_optimizer){.kind = FRI_RMSPROP, .rmsprop = o, .lr = o.lr}, out);
}

static fr_status create_adam(const char *name, fr_module *m, fr_adam_opts o, fr_optimizer like, fr_optimizer **out) {
    FRI_TRY(check_option(name, "lr", o.lr, 0, INFINITY));
    FRI_TRY(check_option(name, "eps", o.eps, 0, INFINITY));
    FRI_TRY(check_option(name, "beta1", o.beta1, 0, 1));
    FRI_TRY(check_option(name, "beta2", o.beta2, 0, 1));
    FRI_TRY(check_option(name, "weight_decay", o.weight_decay, 0, INFINITY));
    like.kind = FRI_ADAM;
    like.adam = o;
    like.lr = o.lr;
    return optimizer_create(m, like, out);
}

fr_status fr_adam(fr_module *m, const fr_adam_opts *opts, fr_optimizer **out) {
    FRI_NOT_NULL(m, out);
    return create_adam("Adam", m, opts != NULL ? *opts : *FR_ADAM_OPTS(), (fr_optimizer){.decoupled = false}, out);
}

fr_status fr_adamw(fr_module *m, const fr_adamw_opts *opts, fr_optimizer **out) {
    FRI_NOT_NULL(m, out);
    const fr_adamw_opts o = opts != NULL ? *opts : fr_adamw_opts_default();
    const fr_adam_opts same = {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.maximize};
    return create_adam("AdamW", m, same, (fr_optimizer){.decoupled = true}, out);
}

fr_status fr_adam8(fr_module *m, const fr_adam_opts *opts, fr_optimizer **out) {
    FRI_NOT_NULL(m, out);
    return create_adam("Adam8", m, opts != NULL ? *opts : *FR_ADAM_OPTS(),
                       (fr_optimizer){.decoupled = true, .eight = true}, out);
}

void fr_optimizer_release(fr_optimizer **p) {
    if (p == NULL) return;
    fr_optimizer *o = *p;
    *p = NULL;
    if (o == NULL) return;
    if (o->fused) (void)fr_optimizer_fuse(o, false);
    for (int i = 0; i < o->n; i++) {
        free(o->parameters[i].path);
        fr_tensor_release(&o->parameters[i].parameter);
        fr_tensor_release(&o->parameters[i].step);
        fr_tensor_release(&o->parameters[i].sum);
        for (int k = 0; k < FRI_STATE_SLOTS; k++) fr_tensor_release(&o->parameters[i].state[k]);
    }
    fr_tensor_release(&o->counts);
    fr_tensor_release(&o->maps);
    fr_tensor_release(&o->swap_buffer);
    free(o->parameters);
    free(o->room.items);
    free(o->room.list);
    free(o->room.keys);
    free(o->room.arrays);
    free(o);
}

fr_status fr_optimizer_master_weights(fr_optimizer *o, bool on) {
    FRI_NOT_NULL(o);
    for (int i = 0; i < o->n && on != o->masters; i++)
        if (o->parameters[i].made)
            return fr_fail(FR_EUSAGE, "%s: set master weights before the first step; '%s' has state already",
                           fr_optimizer_name(o), o->parameters[i].path);
    o->masters = on;
    return FR_OK;
}

/* ---- stepping ---------------------------------------------------------------------------------------------- */

static fr_status make_maps(fr_optimizer *o, fr_device device) {
    float maps[2][FRI_MAP_VALUES];
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    fri_dynamic_map(true, maps[0]);
    fri_dynamic_map(false, maps[1]);
    FRI_TRY(fr_tensor_from_host(maps, 2, (const int64_t[]){2, FRI_MAP_VALUES}, FR_F32, device, &t));
    fr_tensor_category_set(t, FR_MEM_OPTIMIZER);
    fri_tensor_put(&t, &o->maps);
    return FR_OK;
}

/* Creates the shared tensors of all parameters: the learning rate, counts, and the 8-bit maps. */
static fr_status make_shared(fr_optimizer *o, const fr_tensor *found) {
    const fr_device device = fri_device_of(o->parameters[0].parameter);
    FRI_TRY(check_option(fr_optimizer_name(o), "lr", o->lr, -INFINITY, INFINITY)); /* set_lr takes any */
    FRI_TRY(fri_optimizer_make_counts(o, device, found != NULL));
    if (o->eight && o->maps == NULL) FRI_TRY(make_maps(o, device));
    return fri_optimizer_make_swap_buffer(o);
}

/* Frozen parameters have no state; Adam's count begins at 0 again, too. */
static fr_status forget_frozen(fr_optimizer *o) {
    FRI_OWNED(fri_free) int64_t *counts = NULL;
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        if (p->parameter->requires_grad || !p->made) continue;
        if (counts == NULL) FRI_TRY(fri_optimizer_learn_counts(o, &counts));
        counts[i] = 0;
        p->made = p->averaged = false;
        fr_tensor_release(&p->step);
        for (int k = 0; k < FRI_STATE_SLOTS; k++) fr_tensor_release(&p->state[k]);
    }
    return counts != NULL ? fri_optimizer_set_counts(o, o->steps, counts) : FR_OK;
}

bool fri_optimizer_can_skip(const fr_optimizer *o) {
    return o->kind != FRI_SGD || o->sgd.momentum == 0 || o->sgd.dampening == 0;
}

fr_status fri_optimizer_skip_one(fr_optimizer *o, fri_parameter *p) {
    if (!fri_parameter_moves(o, p)) return FR_OK;
    const fri_scope scope = fri_scope_begin(fri_scope_op(), fri_intern(p->path));
    bool first = !p->made;
    fr_status s = fri_optimizer_make_state(o, p);
    p->unused = p->unused || (first && p->made);
    fri_scope_end(scope);
    return s;
}

fr_status fri_optimizer_skip(fr_optimizer *o) {
    FRI_OWNED(fri_phase_over) fr_phase was = fr_phase_begin(FR_PHASE_OPTIMIZER);
    const char *op = fri_scope_op_push(fr_optimizer_name(o));
    fr_status s = make_shared(o, NULL);
    for (int i = 0; i < o->n && s == FR_OK; i++) s = fri_optimizer_skip_one(o, &o->parameters[i]);
    fri_scope_op_pop(op);
    return s;
}

fr_status fri_optimizer_step(fr_optimizer *o, const fr_tensor *inv_scale, const fr_tensor *found) {
    FRI_OWNED(fri_phase_over) fr_phase was = fr_phase_begin(FR_PHASE_OPTIMIZER);
    const char *op = fri_scope_op_push(fr_optimizer_name(o));
    fr_status s = forget_frozen(o);
    if (s == FR_OK) s = make_shared(o, found);
    if (s == FR_OK) s = fri_optimizer_update(o, true, o->n, o->parameters, inv_scale, found);
    fri_scope_op_pop(op);
    return s;
}

fr_status fr_optimizer_step(fr_optimizer *o) {
    FRI_NOT_NULL(o);
    if (!o->fused) return fri_optimizer_step(o, NULL, NULL);
    for (int i = 0; i < o->n; i++) /* a hook of the program has kept the gradient from the update in backward */
        if (fr_tensor_get_grad(o->parameters[i].parameter) != NULL)
            FRI_TRY(fri_optimizer_complete(o, &o->parameters[i]));
    return FR_OK;
}

void fr_optimizer_zero_grad(fr_optimizer *o) {
    if (o == NULL) return;
    for (int i = 0; i < o->n; i++) {
        fri_parameter *p = &o->parameters[i];
        if (fr_tensor_get_grad(p->parameter) != NULL) (void)fr_tensor_set_grad(p->parameter, NULL);
        fr_tensor_release(&p->sum);
        p->summed = false;
    }
}

void fr_optimizer_set_lr(fr_optimizer *o, double lr) {
    if (o == NULL) return;
    o->lr = lr;
    fri_optimizer_follow_lr(o);
}

int64_t fr_optimizer_steps(const fr_optimizer *o) {
    if (o == NULL) return 0;
    (void)fri_optimizer_learn_steps((fr_optimizer *)(uintptr_t)o); /* a getter's copy of a remote tensor */
    return o->steps;
}

/* ---- the fused step ---------------------------------------------------------------------------------------- */

static fri_parameter *parameter_of(fr_optimizer *o, const fr_tensor *leaf) {
    for (int i = 0; i < o->n; i++)
        if (o->parameters[i].parameter == leaf) return &o->parameters[i];
    return NULL;
}

fr_status fri_optimizer_kept(const fr_optimizer *o, const fri_parameter *p, const char *call) {
    if (p->fused_step == 0 || p->fused_step != fri_step_number()) return FR_OK;
    return fr_fail(
        FR_EUSAGE,
        "%s: the fused %s has updated '%s' in this step, and its gradient is gone; accumulation, clipping and "
        "a loss scale need fr_optimizer_fuse(optimizer, false)",
        call, fr_optimizer_name(o), p->path);
}

fr_status fri_optimizer_complete(fr_optimizer *o, fri_parameter *p) {
    const fr_tensor *inv_scale = NULL, *found = NULL;
    bool update = true;
    FRI_OWNED(fri_phase_over) fr_phase was = fr_phase_begin(FR_PHASE_OPTIMIZER);
    if (!fri_step_is_open())
        return fr_fail(FR_EUSAGE,
                       "%s: a backward pass with a fused optimizer outside of a training step; call fr_step_begin "
                       "before it and fr_step_end after it, so that steps can be counted",
                       fr_optimizer_name(o));
    if (o->scaler != NULL) FRI_TRY(fri_grad_scaler_complete(o->scaler, o, p, &update, &inv_scale, &found));
    if (!update) return FR_OK;
    FRI_TRY(fri_optimizer_kept(o, p, "backward"));
    const bool new_step = o->fused_step != fri_step_number();
    if (new_step) FRI_TRY(forget_frozen(o));
    FRI_TRY(make_shared(o, found));
    FRI_TRY(fri_optimizer_update(o, new_step, 1, p, inv_scale, found));
    o->fused_step = p->fused_step = fri_step_number();
    return FR_OK;
}

static fr_status on_gradient(void *ctx, fr_tensor *leaf) {
    fri_parameter *p = parameter_of(ctx, leaf);
    fr_status s = p != NULL ? fri_optimizer_complete(ctx, p) : FR_OK;
    return s < 0 ? s : fr_tensor_set_grad(leaf, NULL);
}

fr_status fri_gradient_kept(const fr_tensor *t, const char *call) {
    const fri_leaf *l = fri_leaf_of(t);
    const fri_parameter *p = l != NULL && l->hook == on_gradient ? parameter_of(l->hook_ctx, t) : NULL;
    return p != NULL ? fri_optimizer_kept(l->hook_ctx, p, call) : FR_OK;
}

/* Ranks have separate hooks, called when a gradient is complete on all ranks. Hooks of the program stay. */
fr_status fr_optimizer_fuse(fr_optimizer *o, bool on) {
    FRI_NOT_NULL(o);
    for (int i = 0; i < o->n && o->sharing == NULL; i++) {
        fr_tensor *leaf = o->parameters[i].parameter;
        const fri_leaf *l = fri_leaf_of(leaf);
        if (l == NULL || l->hook == NULL || l->hook == on_gradient)
            FRI_TRY(fri_leaf_set_hook(leaf, on ? on_gradient : NULL, o, true));
    }
    o->fused = on;
    o->scaler = NULL;
    return FR_OK;
}
