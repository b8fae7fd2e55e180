/* measure.h - cost of each unit of a chain, from dry runs. */
#ifndef FRI_PLAN_MEASURE_H
#define FRI_PLAN_MEASURE_H

#include "memory/event.h"
#include "net/module.h"
#include "plan/chain.h"
#include "plan/cost.h"

/* A unit in a training step. Bytes are all live requested bytes on the device. */
typedef struct fri_unit_trace {
    size_t before, after;                /* at begin and end of the forward */
    size_t output;                       /* of the result's storage */
    size_t forward_most, backward_most;  /* during forward and backward */
    size_t again_before, again_most;     /* in a recomputation: at begin, and maximum */
    size_t gradients_before, gradients;  /* of leaves: at the backward's begin; added bytes */
    double forward, backward, recompute; /* seconds; recompute: of units rerun by the backward */
} fri_unit_trace;

/* The step with the highest memory. */
typedef struct fri_step_trace {
    int n;
    fri_unit_trace *unit;
    size_t *value; /* bytes of the network's crossing values, by number */
    size_t base;   /* alive when the first unit began */
    size_t base_gradients;
    size_t max;
    double seconds; /* of the whole step */
    bool seen;
} fri_step_trace;

typedef struct fri_observer fri_observer;

/* Watches the thread's dry runs until end: all steps with fr_checkpoint_plan, under a plan without ranges, or with a
 * range for each unit. */
fr_status fri_observe_begin(fri_cost *cost, int units, fri_observer **out);
/* Ends the watch; *out takes the trace (free with fri_step_trace_free). seen is false without a complete step. */
fr_status fri_observe_end(fri_observer **o, fri_step_trace *out);
void fri_step_trace_free(fri_step_trace *t);

/* The chain from traces: by option, traces without a step are not possible; `recompute`: each unit a range. unit [n] is
 * the caller's. */
void fri_chain_of(const fri_step_trace option[FR_UNIT_OPTIONS], const fri_step_trace *recompute, fri_chain_unit *unit);

/* Rebuild's two costs for unit i, from a step with neighbours that keep the input, and a step with all units
 * rebuilding; and whether the unit is a source. */
void fri_chain_rebuild_of(const fri_step_trace *apart, const fri_step_trace *all, int i, fri_chain_unit *unit);

#endif
