/* state.c - modes and switches of a thread. */
#include "autograd/state.h"

#include "autograd/anomaly.h"
#include "autograd/run.h"
#include "base/env.h"
#include "base/status.h"
#include "base/tag.h"
#include "memory/event.h"
#include "tensor/readback.h"

#include <stdatomic.h>

enum { WORKSPACE_LIMIT = 64 << 20 };

fri_autograd_state *fri_autograd(void) {
    return &fri_here.autograd;
}

bool fri_recomputing(void) {
    return fri_here.autograd.recompute != NULL;
}

/* ---- grad mode --------------------------------------------------------------------------------------------- */

bool fr_no_grad_begin(void) {
    bool was = !fri_here.autograd.grad_disabled;
    fri_here.autograd.grad_disabled = true;
    return was;
}

void fr_no_grad_end(bool was) {
    fri_here.autograd.grad_disabled = !was;
}

bool fr_grad_enabled(void) {
    return !fri_here.autograd.grad_disabled;
}

/* ---- autocast ---------------------------------------------------------------------------------------------- */

fr_status fr_autocast_begin(fr_dtype dtype, fr_autocast_state *was) {
    FRI_NOT_NULL(was);
    if (dtype != FR_F16 && dtype != FR_BF16)
        return fr_fail(FR_EDTYPE, "autocast: %s is not a half type; f16 and bf16 are", fr_dtype_name(dtype));
    *was = fri_here.autograd.autocast;
    fri_here.autograd.autocast = (fr_autocast_state){.enabled = true, .dtype = dtype};
    return FR_OK;
}

void fr_autocast_end(fr_autocast_state was) {
    fri_here.autograd.autocast = was;
}

fr_autocast_state fri_autocast_get(void) {
    return fri_here.autograd.autocast;
}

/* ---- switches ---------------------------------------------------------------------------------------------- */

static const fri_switch table[] = {
    {"inplace", offsetof(fr_switches, inplace), true, FRI_SWITCH_FREE},
    {"encode", offsetof(fr_switches, encode), true, FRI_SWITCH_FREE},
    {"early-release", offsetof(fr_switches, early_release), true, FRI_SWITCH_FREE},
    {"cache-casts", offsetof(fr_switches, cache_casts), false, FRI_SWITCH_FREE},
    {"half-gradients", offsetof(fr_switches, half_gradients), true, FRI_SWITCH_FREE},
    {"rebuild", offsetof(fr_switches, rebuild), true, FRI_SWITCH_COMPUTE},
    {"offload", offsetof(fr_switches, offload), true, FRI_SWITCH_MOVE},
};
enum { SWITCHES = sizeof table / sizeof *table };

const fri_switch *fri_switch_at(int i) {
    return i >= 0 && i < SWITCHES ? &table[i] : NULL;
}

static fr_switches all_switches(bool in_memory) {
    fr_switches s = {.pool_index = FR_I64, .workspace_limit = WORKSPACE_LIMIT};
    for (int i = 0; i < SWITCHES; i++)
        *fri_switch_field(&table[i], &s) = table[i].saves == (in_memory && table[i].cost != FRI_SWITCH_MOVE);
    return s;
}

fr_switches fr_switches_default(void) {
    fr_switches s = all_switches(true);
    s.half_gradients = false; /* a program reads gradients in the type of the leaf unless it asks for another */
    return s;
}

fr_switches fr_switches_all_off(void) {
    return all_switches(false);
}

const fr_switches *fri_switches(void) {
    if (!fri_here.autograd.switches_set) fr_switches_set(fr_switches_default());
    return &fri_here.autograd.switches;
}

fr_switches fr_switches_get(void) {
    return *fri_switches();
}

void fr_switches_set(fr_switches s) {
    fri_here.autograd.switches = s;
    fri_here.autograd.switches_set = true;
}

bool fri_fusion_permitted(void) {
    return (fri_switches()->inplace || fri_switches()->rebuild) && !fri_results_examined();
}

/* ---- statistics -------------------------------------------------------------------------------------------- */

bool fri_statistics_freeze(bool frozen) {
    bool was = fri_here.autograd.statistics_frozen;
    fri_here.autograd.statistics_frozen = frozen;
    return was;
}

void fri_statistics_sync_set(const struct fri_statistics_sync *sync) {
    fri_here.autograd.sync = sync;
}

const struct fri_statistics_sync *fri_statistics_sync_get(void) {
    return fri_here.autograd.sync;
}

bool fri_statistics_move(void) {
    return !fri_recomputing() && !fri_here.autograd.statistics_frozen;
}

/* ---- step -------------------------------------------------------------------------------------------------- */

fr_status fr_step_begin(fr_step_scope *scope) {
    static atomic_uint_fast64_t begun; /* by all threads: optimizers change hands */
    FRI_NOT_NULL(scope);
    FRI_TRY(fri_readback_check_all());
    *scope = (fr_step_scope){.grad_enabled = fr_grad_enabled(),
                             .autocast = fri_here.autograd.autocast,
                             .switches = *fri_switches(),
                             .statistics_frozen = fri_here.autograd.statistics_frozen,
                             .phase = fr_phase_begin(FR_PHASE_FORWARD),
                             .op = fri_scope_op(),
                             .module = fri_scope_module()};
    fri_here.autograd.steps = atomic_fetch_add(&begun, 1) + 1;
    fri_here.autograd.open_steps++;
    fri_event_mark(FR_EVENT_STEP_BEGIN);
    return FR_OK;
}

fr_status fr_step_end(fr_step_scope *scope) {
    FRI_NOT_NULL(scope);
    fri_autograd_state *a = &fri_here.autograd;
    fri_event_mark(FR_EVENT_STEP_END);
    if (a->open_steps > 0) a->open_steps--;
    a->grad_disabled = !scope->grad_enabled;
    a->autocast = scope->autocast;
    a->switches = scope->switches;
    a->recording = NULL;
    a->recompute = NULL;
    a->pass = NULL; /* left by an exception thrown from a hook */
    a->statistics_frozen = scope->statistics_frozen;
    fr_phase_end(scope->phase);
    fri_scope_end((fri_scope){scope->op, scope->module});
    a->stats.growing_steps = a->stats.nodes > a->nodes_at_step_end ? a->stats.growing_steps + 1 : 0;
    a->nodes_at_step_end = a->stats.nodes;
    return FR_OK;
}

uint64_t fri_step_number(void) {
    return fri_here.autograd.steps;
}

bool fri_step_is_open(void) {
    return fri_here.autograd.open_steps > 0;
}

fr_graph_stats fr_graph_stats_get(void) {
    return fri_here.autograd.stats;
}
