/* measure.c - see measure.h.
 *
 * In forward the executor names the running unit. In backward the module path of an op's node does: paths are interned,
 * so paths of a unit's forward belong to the unit. Work between the last unit's forward and backward (the loss) counts
 * as the last unit's backward. */
#include "plan/measure.h"

#include "autograd/state.h"
#include "base/status.h"
#include "net/list.h"

#include <stdlib.h>
#include <string.h>

typedef enum stage { OUTSIDE_STEP, IN_FORWARD, IN_BACKWARD } stage;

typedef struct owner {
    const char *module;
    int unit;
} owner;

struct fri_observer {
    fri_cost *cost;
    stage stage;
    int unit;  /* running unit */
    int again; /* unit in recomputation, or -1 */
    size_t live, gradients;
    fri_step_trace now, best;
    owner *owners; /* open addressing by pointer; module NULL: free */
    size_t owners_count, owners_capacity;
    size_t *value; /* see fri_step_trace */
    bool failed;   /* host memory ran out */
    fri_unit_watch was_watch;
    fri_call_listener was_listener;
};

/* ---- owner of the module path --------------------------------------------------------------------------------- */

static owner *owner_of(const fri_observer *o, const char *module) {
    for (size_t i = ((uintptr_t)module >> 4) % o->owners_capacity;; i = (i + 1) % o->owners_capacity)
        if (o->owners[i].module == NULL || o->owners[i].module == module) return &o->owners[i];
}

static void remember_owner(fri_observer *o, const char *module) {
    if (2 * (o->owners_count + 1) > o->owners_capacity) {
        size_t n = o->owners_capacity;
        owner *old = o->owners, *items = calloc(n > 0 ? 2 * n : 256, sizeof *items);
        if (items == NULL) {
            o->failed = true;
            return;
        }
        o->owners = items;
        o->owners_capacity = n > 0 ? 2 * n : 256;
        for (size_t i = 0; i < n; i++)
            if (old[i].module != NULL) *owner_of(o, old[i].module) = old[i];
        free(old);
    }
    owner *w = owner_of(o, module);
    if (w->module != NULL) return;
    *w = (owner){module, o->unit};
    o->owners_count++;
}

static int unit_of_module(const fri_observer *o, const char *module) {
    if (o->owners_capacity == 0) return -1;
    const owner *w = owner_of(o, module);
    return w->module != NULL ? w->unit : -1;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

static fri_unit_trace *current_unit(fri_observer *o) {
    return &o->now.unit[o->unit];
}

static void update_peaks(fri_observer *o) {
    if (o->live > o->now.max) o->now.max = o->live;
    if (o->stage == IN_FORWARD && o->live > current_unit(o)->forward_most) current_unit(o)->forward_most = o->live;
    if (o->stage != IN_BACKWARD || fr_phase_get() == FR_PHASE_OPTIMIZER) return;
    if (o->again >= 0 && o->live > o->now.unit[o->again].again_most) o->now.unit[o->again].again_most = o->live;
    if (o->live > current_unit(o)->backward_most) current_unit(o)->backward_most = o->live;
}

static void enter_backward(fri_observer *o, int unit) {
    o->unit = unit;
    current_unit(o)->gradients_before = o->gradients;
    current_unit(o)->backward_most = o->live;
}

static void leave_backward(fri_observer *o) {
    fri_unit_trace *u = current_unit(o);
    u->gradients = o->gradients > u->gradients_before ? o->gradients - u->gradients_before : 0;
}

/* Skips units without ops (flatten, for example). */
static void go_back_to(fri_observer *o, int unit) {
    while (o->unit > unit) {
        leave_backward(o);
        enter_backward(o, o->unit - 1);
    }
}

static void end_step(fri_observer *o) {
    if (o->stage == IN_BACKWARD) {
        go_back_to(o, 0);
        leave_backward(o);
    }
    if (o->stage == IN_BACKWARD && (!o->best.seen || o->now.max >= o->best.max)) {
        fri_unit_trace *unit = o->best.unit;
        memcpy(unit, o->now.unit, (size_t)o->now.n * sizeof *unit);
        o->best = o->now;
        o->best.unit = unit;
        o->best.seen = true;
    }
    o->stage = OUTSIDE_STEP;
}

static void measure_event(void *ctx, const fr_event *e) {
    fri_observer *o = ctx;
    switch (e->kind) {
    case FR_EVENT_ALLOC:
        if (e->device != FR_META) return;
        o->live += e->requested;
        if (e->tag.category == FR_MEM_GRADIENT) o->gradients += e->requested;
        update_peaks(o);
        break;
    case FR_EVENT_FREE:
        if (e->device != FR_META) return;
        o->live -= e->requested;
        if (e->tag.category == FR_MEM_GRADIENT) o->gradients -= e->requested;
        break;
    case FR_EVENT_RELABEL:
        if (e->device != FR_META) return;
        if (e->tag.category == FR_MEM_GRADIENT) o->gradients += e->requested;
        if (e->from == FR_MEM_GRADIENT) o->gradients -= e->requested;
        break;
    case FR_EVENT_OP_BEGIN:
        if (fri_recomputing()) return;
        if (o->stage == IN_FORWARD) remember_owner(o, e->tag.module);
        if (o->stage == IN_BACKWARD && e->tag.phase == FR_PHASE_BACKWARD) {
            int unit = unit_of_module(o, e->tag.module);
            if (unit >= 0 && unit < o->unit) go_back_to(o, unit);
        }
        break;
    case FR_EVENT_STEP_BEGIN:
        o->stage = OUTSIDE_STEP;
        o->now.seconds = 0;
        break;
    case FR_EVENT_STEP_END: end_step(o); break;
    default: break;
    }
}

/* ---- units and time ---------------------------------------------------------------------------------------- */

/* Bytes of the unit's output values; notes each new value. */
static size_t hand_on(fri_observer *o, const fri_net_pass *p, int at) {
    if (o->value == NULL && (o->value = calloc((size_t)p->list->values + 1, sizeof *o->value)) == NULL)
        o->failed = true;
    for (int v = 0; o->value != NULL && v < p->list->values; v++)
        if (p->value[v] != NULL && fri_alive(p->list, v, at)) o->value[v] = p->value[v]->storage->block->requested;
    return fri_net_pass_handed(p, at);
}

static void on_unit(void *ctx, int unit, bool done, const fri_net_pass *p, int at) {
    fri_observer *o = ctx;
    if (unit >= o->now.n) return;
    if (fri_recomputing()) {
        o->again = done ? -1 : unit;
        if (!done) o->now.unit[unit].again_before = o->now.unit[unit].again_most = o->live;
        return;
    }
    if (!done && unit == 0) {
        memset(o->now.unit, 0, (size_t)o->now.n * sizeof *o->now.unit);
        o->now.base = o->now.max = o->live;
        o->now.base_gradients = o->gradients;
        o->stage = IN_FORWARD;
    }
    if (o->stage != IN_FORWARD) return;
    o->unit = unit;
    fri_unit_trace *u = current_unit(o);
    if (!done) {
        u->before = u->forward_most = o->live;
        return;
    }
    u->after = o->live;
    u->output = p != NULL ? hand_on(o, p, at) : 0;
    if (unit + 1 == o->now.n) {
        o->stage = IN_BACKWARD;
        enter_backward(o, unit);
    }
}

static void measure_call(void *ctx, const fri_kernel_call *call) {
    fri_observer *o = ctx;
    double t = fri_cost_seconds(o->cost, call);
    o->now.seconds += t;
    if (o->stage == IN_BACKWARD && fr_phase_get() == FR_PHASE_OPTIMIZER) return;
    if (o->stage == IN_FORWARD) current_unit(o)->forward += t;
    if (o->stage == IN_BACKWARD) *(fri_recomputing() ? &current_unit(o)->recompute : &current_unit(o)->backward) += t;
}

/* ---- begin, end -------------------------------------------------------------------------------------------- */

fr_status fri_observe_begin(fri_cost *cost, int units, fri_observer **out) {
    fri_observer *o = calloc(1, sizeof *o);
    fr_status s = FR_OK;
    if (o == NULL) return fr_fail(FR_ENOMEM, "fit: out of host memory");
    o->cost = cost;
    o->again = -1;
    o->now = (fri_step_trace){.n = units, .unit = calloc((size_t)units, sizeof *o->now.unit)};
    o->best = (fri_step_trace){.n = units, .unit = calloc((size_t)units, sizeof *o->best.unit)};
    if (o->now.unit == NULL || o->best.unit == NULL) {
        s = fr_fail(FR_ENOMEM, "fit: out of host memory");
        goto done;
    }
    FR_TRY(s, fr_event_subscribe(measure_event, o));
    o->was_watch = fri_unit_watch_set((fri_unit_watch){on_unit, o});
    o->was_listener = fri_meta_listen((fri_call_listener){measure_call, o});
    FRI_MOVE(out, o);
done:
    if (o != NULL) {
        fri_step_trace_free(&o->now);
        fri_step_trace_free(&o->best);
        free(o);
    }
    return s;
}

fr_status fri_observe_end(fri_observer **p, fri_step_trace *out) {
    fri_observer *o = *p;
    *p = NULL;
    *out = (fri_step_trace){0};
    if (o == NULL) return FR_OK;
    fr_event_unsubscribe(measure_event, o);
    (void)fri_unit_watch_set(o->was_watch);
    (void)fri_meta_listen(o->was_listener);
    *out = o->best;
    out->value = o->value;
    bool failed = o->failed;
    fri_step_trace_free(&o->now);
    free(o->owners);
    free(o);
    return failed ? fr_fail(FR_ENOMEM, "fit: out of host memory") : FR_OK;
}

void fri_step_trace_free(fri_step_trace *t) {
    free(t->unit);
    free(t->value);
    *t = (fri_step_trace){0};
}

/* ---- the chain --------------------------------------------------------------------------------------------- */

static size_t minus(size_t a, size_t b) {
    return a > b ? a - b : 0;
}

static fri_unit_cost cost_of(const fri_step_trace *t, int i) {
    const fri_unit_trace *u = &t->unit[i];
    /* Bytes alive because of units up to i, without the next unit's input. */
    size_t held = minus(minus(u->after, t->base), u->output), earlier = 0;
    if (i > 0) earlier = minus(minus(u[-1].after, t->base), u[-1].output);
    return (fri_unit_cost){
        .possible = true,
        .forward = u->forward,
        .backward = u->backward,
        .saved = minus(held, earlier),
        .forward_peak = minus(u->forward_most, t->base + earlier),
        .backward_peak = minus(u->backward_most, t->base + earlier + minus(u->gradients_before, t->base_gradients)),
    };
}

void fri_chain_of(const fri_step_trace option[FR_UNIT_OPTIONS], const fri_step_trace *recompute, fri_chain_unit *unit) {
    for (int i = 0; i < recompute->n; i++) {
        const fri_unit_trace *u = &recompute->unit[i];
        size_t input = i > 0 ? u[-1].output : 0;
        unit[i] = (fri_chain_unit){.input = input,
                                   .gradient = u->gradients,
                                   .plain = u->forward,
                                   .tail = u->forward > u->recompute ? u->forward - u->recompute : 0,
                                   .plain_peak = minus(u->forward_most, u->before) + input,
                                   .tail_peak = minus(u->again_most, u->again_before) + input};
        for (int o = 0; o < FR_UNIT_OPTIONS; o++)
            if (option[o].seen) unit[i].option[o] = cost_of(&option[o], i);
    }
}

void fri_chain_rebuild_of(const fri_step_trace *apart, const fri_step_trace *all, int i, fri_chain_unit *unit) {
    unit->option[FR_UNIT_REBUILD] = cost_of(apart, i);
    unit->chained = cost_of(all, i);
    /* Bits and codes are no source for rebuilding: at least half the input's bytes must be whole tensors. */
    unit->source = 2 * unit->chained.saved >= unit->input && unit->chained.saved > 0;
}
