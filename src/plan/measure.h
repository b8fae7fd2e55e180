/* measure.h - what each unit of a chain costs, seen in dry runs. */
#ifndef FRI_PLAN_MEASURE_H
#define FRI_PLAN_MEASURE_H

#include "memory/event.h"
#include "net/module.h"
#include "plan/chain.h"
#include "plan/cost.h"

/* One unit in one training step. Bytes are requested bytes, all that is alive on the device. */
typedef struct fri_unit_trace {
    size_t before, after;                /* at the two ends of its forward */
    size_t output;                       /* of the storage of its result */
    size_t forward_most, backward_most;  /* during them */
    size_t again_before, again_most;     /* when it runs again: at its begin, and at most */
    size_t gradients_before, gradients;  /* of leaves: when its backward begins; what it adds */
    double forward, backward, recompute; /* seconds; recompute: of units that its backward runs again */
} fri_unit_trace;

/* The step that needed most memory. */
typedef struct fri_step_trace {
    int n;
    fri_unit_trace *unit;
    size_t *value; /* bytes of the network's values that were handed on, by number */
    size_t base;   /* alive when the first unit began */
    size_t base_gradients;
    size_t most;
    double seconds; /* of the whole step */
    bool seen;
} fri_step_trace;

typedef struct fri_observer fri_observer;

/* Watches the dry runs of this thread until end: every step in which units run by fr_checkpoint_plan. A run under a
 * plan without ranges, or with each unit a range of its own. */
fr_status fri_observe_begin(fri_cost *cost, int units, fri_observer **out);
/* Ends it; *out takes the trace (free with fri_step_trace_free). seen is false if no step was complete. */
fr_status fri_observe_end(fri_observer **o, fri_step_trace *out);
void fri_step_trace_free(fri_step_trace *t);

/* The chain from traces: by option, traces without a step are not possible; `recompute`: each unit a range. unit [n] is
 * the caller's. */
void fri_chain_of(const fri_step_trace option[FR_UNIT_OPTIONS], const fri_step_trace *recompute, fri_chain_unit *unit);

/* Rebuild's two costs for unit i, from a step in which its neighbours keep their inputs and one in which all units
 * rebuild; and whether it is a source. */
void fri_chain_rebuild_of(const fri_step_trace *apart, const fri_step_trace *all, int i, fri_chain_unit *unit);

#endif
