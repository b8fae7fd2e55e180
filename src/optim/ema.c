/* ema.c - moving averages of the parameters.
 *
 * ema += (1 - decay) (p - ema) is the update of SGD with learning rate 1 - decay, weight decay 1 and the gradient -p
 * (`maximize`), so a single call updates all parameters of a type, also if only the device knows about a skipped
 * step. */
#include "optim/optimizer.h"

enum { EXCHANGE_BYTES = 256 << 10 }; /* at a time */

fr_status fr_optimizer_ema(fr_optimizer *o, double decay) {
    FRI_NOT_NULL(o);
    if (!(decay >= 0 && decay < 1))
        return fr_fail(FR_EINVAL, "%s: the averages' decay is %g; it must be 0 or between 0 and 1",
                       fr_optimizer_name(o), decay);
    for (int i = 0; i < o->n && decay != o->ema; i++)
        if (o->parameters[i].made)
            return fr_fail(FR_EUSAGE, "%s: set averages before the first step; '%s' has state already",
                           fr_optimizer_name(o), o->parameters[i].path);
    o->ema = decay;
    return FR_OK;
}

typedef struct averaging {
    const fr_optimizer *o;
    const fr_tensor *found;
} averaging;

static fr_status average_list(void *ctx, const fri_update_key *key, int count, const fri_step_item *items) {
    const averaging *a = ctx;
    const fri_backend *b = fri_backend_of(a->o->parameters[0].parameter);
    const fri_sgd_desc d = {.dtype = key->dtype,
                            .grad_dtype = key->grad_dtype,
                            .lr = 1 - a->o->ema,
                            .weight_decay = 1,
                            .maximize = true};
    return FRI_KERNEL(b, key->dtype, sgd, (FRI_EXEC, &d, count, items, NULL, fri_data_of(a->found)));
}

/* Source of the average: the master or the parameter. */
static const fr_tensor *averaged_tensor(const fr_optimizer *o, const fri_parameter *p, int n, int64_t *first) {
    const int master = fri_optimizer_master_slot(o, p->parameter, n);
    *first = master >= 0 ? 0 : p->first;
    return master >= 0 ? p->state[master] : p->parameter;
}

fr_status fri_optimizer_average(fr_optimizer *o, int n, fri_parameter *parameters, const fr_tensor *found) {
    averaging a = {o, found};
    fri_state_slot slots[FRI_STATE_SLOTS];
    int left = 0;
    for (int i = 0; i < n; i++) {
        fri_parameter *p = &parameters[i];
        if (!fri_parameter_moves(o, p) || p->count == 0) continue;
        const int have = fri_optimizer_slots(o, p->parameter, slots), ema = fri_optimizer_ema_slot(o, have);
        int64_t first = 0;
        const fr_tensor *from = averaged_tensor(o, p, have, &first);
        if (!p->averaged) {
            FRI_TRY(fri_optimizer_convert(p->count, from, first, p->state[ema], 0));
            p->averaged = true;
            continue;
        }
        char *data = fri_data(from);
        o->room.keys[left] = (fri_update_key){.dtype = p->state[ema]->dtype, .grad_dtype = from->dtype};
        o->room.items[left++] =
            (fri_step_item){.n = p->count,
                            .param = fri_data(p->state[ema]),
                            .grad = data != NULL ? data + (size_t)first * fr_dtype_size(from->dtype) : NULL};
    }
    return fri_optimizer_lists(o, left, average_list, &a);
}

/* ---- exchange ---------------------------------------------------------------------------------------------- */

static fr_status copy_bytes(const fri_backend *b, const char *from, char *to, size_t n) {
    return from != NULL ? b->copy(FRI_EXEC, FRI_COPY_DEVICE_TO_DEVICE, from, to, n) : FR_OK;
}

/* Average and parameter have equal types. */
static fr_status swap_with_average(const fri_parameter *p, const fr_tensor *ema, const fr_tensor *swap_buffer) {
    const fri_backend *b = fri_backend_of(ema);
    const size_t size = fr_dtype_size(ema->dtype), bytes = (size_t)p->count * size;
    char *mine = fri_data(p->parameter), *other = fri_data(ema);
    for (size_t at = 0; mine != NULL && at < bytes; at += EXCHANGE_BYTES) {
        const size_t n = bytes - at < EXCHANGE_BYTES ? bytes - at : EXCHANGE_BYTES;
        char *here = mine + (size_t)p->first * size + at;
        FRI_TRY(copy_bytes(b, here, fri_data(swap_buffer), n));
        FRI_TRY(copy_bytes(b, other + at, here, n));
        FRI_TRY(copy_bytes(b, fri_data(swap_buffer), other + at, n));
    }
    return FR_OK;
}

fr_status fri_optimizer_make_swap_buffer(fr_optimizer *o) {
    size_t max = 1;
    if (o->ema == 0 || o->swap_buffer != NULL) return FR_OK;
    for (int i = 0; i < o->n; i++) {
        const size_t bytes = (size_t)o->parameters[i].count * fr_dtype_size(o->parameters[i].parameter->dtype);
        if (bytes > max) max = bytes;
    }
    const fr_shape shape = FRI_SHAPE((int64_t)(max < EXCHANGE_BYTES ? max : EXCHANGE_BYTES));
    return fri_tensor_new(&shape, FR_U8, fri_device_of(o->parameters[0].parameter), FR_MEM_OPTIMIZER, &o->swap_buffer);
}

static bool loses_precision(const fr_optimizer *o, const fr_tensor *w) {
    return (w->dtype == FR_F16 || w->dtype == FR_BF16) && !fri_optimizer_has_master(o, w);
}

fr_status fr_optimizer_ema_swap(fr_optimizer *o) {
    FRI_NOT_NULL(o);
    fri_state_slot slots[FRI_STATE_SLOTS];
    for (int i = 0; i < o->n && o->ema > 0; i++)
        if (o->parameters[i].made && loses_precision(o, o->parameters[i].parameter))
            return fr_fail(FR_EUSAGE, "%s: '%s' is %s but its average is f32; set master weights to swap them",
                           fr_optimizer_name(o), o->parameters[i].path,
                           fr_dtype_name(o->parameters[i].parameter->dtype));
    FRI_TRY(fri_optimizer_make_swap_buffer(o)); /* a restored state lacks the average */
    for (int i = 0; i < o->n && o->ema > 0; i++) {
        const fri_parameter *p = &o->parameters[i];
        const int n = fri_optimizer_slots(o, p->parameter, slots), ema = fri_optimizer_ema_slot(o, n);
        const int master = fri_optimizer_master_slot(o, p->parameter, n);
        if (!p->made) continue;
        fri_bump_version(p->parameter);
        if (p->state[ema] == NULL) continue; /* on other ranks */
        FRI_TRY(master < 0
                    ? swap_with_average(p, p->state[ema], o->swap_buffer)
                    : fri_optimizer_convert(p->count, p->state[o->swapped ? master : ema], 0, p->parameter, p->first));
    }
    o->swapped = o->ema > 0 && !o->swapped;
    return FR_OK;
}
