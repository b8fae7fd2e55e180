/* update.c - the work of a step: makes missing state, then calls a kernel per list of parameters with equal types and
 * options. The arithmetic is in the kernels. */
#include "optim/optimizer.h"

#include <stdlib.h>

/* ---- state ------------------------------------------------------------------------------------------------- */

/* The address of element i; NULL on meta. */
static void *address(const fr_tensor *t, int64_t i) {
    char *data = fri_data(t);
    return data != NULL ? data + (size_t)i * fr_dtype_size(t->dtype) : NULL;
}

fr_status fri_optimizer_convert(int64_t n, const fr_tensor *from, int64_t first_from, const fr_tensor *to,
                                int64_t first_to) {
    return FRI_KERNEL(fri_backend_of(to), FR_F32, cast,
                      (FRI_EXEC, from->dtype, to->dtype, n, address(from, first_from), address(to, first_to)));
}

/* A scale of 0 makes every code 0. */
fr_status fri_optimizer_make_state(const fr_optimizer *o, fri_parameter *p) {
    fri_state_slot slots[FRI_STATE_SLOTS];
    int n = fri_optimizer_part_slots(o, p, slots);
    const int master = fri_optimizer_master_slot(o, p->parameter, n), ema = fri_optimizer_ema_slot(o, n);
    FRI_OWNED(fr_tensor_release) fr_tensor *t = NULL;
    p->made = n > 0;
    for (int k = 0; k < n; k++) {
        if (p->state[k] != NULL || p->count == 0) continue;
        FRI_TRY(fri_tensor_new(&slots[k].shape, slots[k].dtype, fri_device_of(p->parameter), FR_MEM_OPTIMIZER, &t));
        FRI_TRY(k == master || k == ema ? fri_optimizer_convert(p->count, p->parameter, p->first, t, 0)
                                        : fri_tensor_fill(t, 0));
        fri_tensor_put(&t, &p->state[k]);
    }
    return FR_OK;
}

/* *first: the momentum is written, not read. Without dampening, a zero buffer and the ordinary rule equal PyTorch's
 * first step; with found the step may be skipped, so the buffer must be defined. */
static fr_status make_momentum(const fr_optimizer *o, fri_parameter *p, const fr_tensor *found, bool *first) {
    const fr_tensor *w = p->parameter;
    fri_state_slot slots[FRI_STATE_SLOTS];
    const bool written = o->sgd.momentum != 0 && !p->made && p->count > 0 && found == NULL;
    *first = (!p->made || p->unused) && found == NULL;
    if (written) {
        (void)fri_optimizer_part_slots(o, p, slots);
        FRI_TRY(fri_tensor_new(&slots[0].shape, slots[0].dtype, fri_device_of(w), FR_MEM_OPTIMIZER, &p->state[0]));
    }
    return fri_optimizer_make_state(o, p);
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

static bool same_key(const fri_update_key *a, const fri_update_key *b) {
    return a->dtype == b->dtype && a->grad_dtype == b->grad_dtype && a->group == b->group && a->first == b->first &&
           a->eight == b->eight;
}

/* A parameter with gradient. Marks the parameter as written. */
static fr_status prepare_step(const fr_optimizer *o, fri_parameter *p, const fr_tensor *g, const fr_tensor *found,
                              fri_step_item *item, fri_update_key *key) {
    fri_state_slot slots[FRI_STATE_SLOTS];
    fr_tensor *w = p->parameter;
    const bool has_master = fri_optimizer_has_master(o, w);
    const int states = fri_optimizer_slots(o, w, slots) - has_master - (o->ema > 0);
    const fri_scope scope = fri_scope_begin(fri_scope_op(), fri_intern(p->path));
    *key = (fri_update_key){.dtype = has_master ? FR_F32 : w->dtype,
                            .grad_dtype = g != NULL ? g->dtype : w->dtype,
                            .group = p->group};
    fr_status s = o->kind == FRI_SGD ? make_momentum(o, p, found, &key->first) : fri_optimizer_make_state(o, p);
    fri_scope_end(scope);
    if (s < 0) return s;
    p->unused = false;
    key->eight = fri_optimizer_in_8_bits(o, w);
    fri_bump_version(w);
    if (g == NULL || p->count == 0) return FR_OK; /* other ranks update the parameter, or the parameter is empty */
    *item = (fri_step_item){.n = p->count,
                            .param = has_master ? fri_data(p->state[states]) : address(w, p->first),
                            .grad = fri_data(g),
                            .step = fri_optimizer_count_of(o, p)};
    for (int k = 0; k < states; k++) item->state[k] = fri_data(p->state[k]);
    return FR_OK;
}

typedef struct update {
    const fr_optimizer *o;
    const fr_tensor *inv_scale, *found;
} update;

/* Arguments of a kernel after its descriptor and the 8-bit map. */
#define LIST count, items, fri_data_of(u->inv_scale), fri_data_of(u->found)

static fr_status launch_sgd(const update *u, const fri_backend *b, const fri_update_key *key, int count,
                            const fri_step_item *items) {
    const fr_optimizer *o = u->o;
    const fri_group *group = &o->group[key->group];
    const fri_sgd_desc d = {.dtype = key->dtype,
                            .grad_dtype = key->grad_dtype,
                            .lr = group->lr,
                            .momentum = o->sgd.momentum,
                            .dampening = o->sgd.dampening,
                            .weight_decay = group->weight_decay,
                            .nesterov = o->sgd.nesterov,
                            .maximize = o->sgd.maximize,
                            .first = key->first};
    return FRI_KERNEL(b, key->dtype, sgd, (FRI_EXEC, &d, LIST));
}

static fr_status launch_rmsprop(const update *u, const fri_backend *b, const fri_update_key *key, int count,
                                const fri_step_item *items) {
    const fr_optimizer *o = u->o;
    const fri_group *group = &o->group[key->group];
    const fri_rmsprop_desc d = {.dtype = key->dtype,
                                .grad_dtype = key->grad_dtype,
                                .lr = group->lr,
                                .alpha = o->rmsprop.alpha,
                                .eps = o->rmsprop.eps,
                                .momentum = o->rmsprop.momentum,
                                .weight_decay = group->weight_decay,
                                .centered = o->rmsprop.centered,
                                .maximize = o->rmsprop.maximize};
    return FRI_KERNEL(b, key->dtype, rmsprop, (FRI_EXEC, &d, LIST));
}

static fr_status launch_adam(const update *u, const fri_backend *b, const fri_update_key *key, int count,
                             const fri_step_item *items) {
    const fr_optimizer *o = u->o;
    const fri_group *group = &o->group[key->group];
    const fri_adam_desc d = {.dtype = key->dtype,
                             .grad_dtype = key->grad_dtype,
                             .lr = group->lr,
                             .beta1 = o->adam.beta1,
                             .beta2 = o->adam.beta2,
                             .eps = o->adam.eps,
                             .weight_decay = group->weight_decay,
                             .decoupled = o->decoupled,
                             .maximize = o->adam.maximize};
    return key->eight ? FRI_KERNEL(b, key->dtype, adam8, (FRI_EXEC, &d, fri_data(o->maps), LIST))
                      : FRI_KERNEL(b, key->dtype, adam, (FRI_EXEC, &d, LIST));
}

static fr_status launch_update(void *ctx, const fri_update_key *key, int count, const fri_step_item *items) {
    const update *u = ctx;
    const fri_backend *b = fri_backend_of(u->o->parameters[0].parameter);
    return u->o->kind == FRI_SGD       ? launch_sgd(u, b, key, count, items)
           : u->o->kind == FRI_RMSPROP ? launch_rmsprop(u, b, key, count, items)
                                       : launch_adam(u, b, key, count, items);
}

/* Room for every parameter, taken at the first step. */
static fr_status make_room(fr_optimizer *o) {
    fri_update_room *r = &o->room;
    size_t n = (size_t)o->n;
    if (r->items == NULL) r->items = malloc(n * sizeof *r->items);
    if (r->list == NULL) r->list = malloc(n * sizeof *r->list);
    if (r->keys == NULL) r->keys = malloc(n * sizeof *r->keys);
    if (r->arrays == NULL) r->arrays = malloc((n + 1) * sizeof *r->arrays); /* gradients; counts and the step's own */
    return r->items != NULL && r->list != NULL && r->keys != NULL && r->arrays != NULL
               ? FR_OK
               : fr_fail(FR_ENOMEM, "optimizer: out of host memory");
}

fr_status fri_optimizer_gradients(fr_optimizer *o, fri_gradients_fn *fn, void *ctx) {
    static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16, FR_F64};
    FRI_TRY(make_room(o));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const fr_tensor *like = NULL;
        int count = 0;
        for (int i = 0; i < o->n; i++) {
            const fr_tensor *g = fri_parameter_gradient(o, &o->parameters[i]);
            if (g == NULL || g->dtype != types[t]) continue;
            o->room.arrays[count++] = (fri_array){fri_numel(g), fri_data(g)};
            like = g;
        }
        if (count > 0) FRI_TRY(fn(ctx, like, count, o->room.arrays));
    }
    return FR_OK;
}

/* Copies the master's value to the parameter; harmless after a skipped step. */
static fr_status hand_out(const fr_optimizer *o, const fri_parameter *p) {
    fri_state_slot slots[FRI_STATE_SLOTS];
    const fr_tensor *w = p->parameter;
    if (!fri_parameter_moves(o, p) || p->count == 0 || !fri_optimizer_has_master(o, w)) return FR_OK;
    const int master = fri_optimizer_master_slot(o, w, fri_optimizer_slots(o, w, slots));
    return fri_optimizer_convert(p->count, p->state[master], 0, w, p->first);
}

fr_status fri_optimizer_lists(fr_optimizer *o, int left, fri_list_fn *fn, void *ctx) {
    fri_update_room *r = &o->room;
    while (left > 0) { /* items like the first; the rest move up */
        const fri_update_key key = r->keys[0];
        int count = 0, others = 0;
        for (int i = 0; i < left; i++) {
            if (same_key(&r->keys[i], &key)) {
                r->list[count++] = r->items[i];
            } else {
                r->keys[others] = r->keys[i];
                r->items[others++] = r->items[i];
            }
        }
        FRI_TRY(fn(ctx, &key, count, r->list));
        left = others;
    }
    return FR_OK;
}

fr_status fri_optimizer_update(fr_optimizer *o, bool new_step, int n, fri_parameter *parameters,
                               const fr_tensor *inv_scale, const fr_tensor *found) {
    update u = {o, inv_scale, found};
    int left = 0;
    if (o->swapped)
        return fr_fail(FR_EUSAGE, "%s: the parameters hold their averages; fr_optimizer_ema_swap brings them back",
                       fr_optimizer_name(o));
    FRI_TRY(make_room(o));
    for (int i = 0; i < n; i++) {
        const fr_tensor *g = fri_parameter_gradient(o, &parameters[i]);
        if (!fri_parameter_moves(o, &parameters[i])) continue;
        FRI_TRY(prepare_step(o, &parameters[i], g, found, &o->room.items[left], &o->room.keys[left]));
        left += g != NULL && parameters[i].count > 0;
    }
    FRI_TRY(fri_optimizer_count(o, new_step, n, parameters, found));
    FRI_TRY(fri_optimizer_lists(o, left, launch_update, &u));
    for (int i = 0; i < n; i++) FRI_TRY(hand_out(o, &parameters[i]));
    return o->ema > 0 ? fri_optimizer_average(o, n, parameters, found) : FR_OK;
}
