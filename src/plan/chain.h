/* chain.h - the cheapest way to run a chain of units forward and backward in given memory.
 *
 * The problem of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova ("Optimal checkpointing for heterogeneous chains",
 * 2019), with several ways to save per unit. For units i .. j-1 with the last gradient about to arrive, with m bytes
 * free (the input of i counts among them):
 *
 *   T(i, j, m) = min of
 *     run i and save by option o:    forward(i, o) + T(i + 1, j, m - saved(i, o)) + backward(i, o)
 *     keep only what i .. k-1 read,  forward of i .. k-1 without saving
 *     go on from k, come back later:   + T(k, j, m - input(i, k)) + T(i, k, m)
 *
 * with T once per state before unit i: rebuilding the input costs a whole chain if the input's source is rebuilt, too,
 * and is impossible after the end of a range (fri_before).
 *
 * input(i, k) is what was made before i and is read last within i .. k-1; what is read behind k, too, is charged there:
 * each value once. In a chain that is the input of i.
 *
 * Each step also needs its peak to fit. Leaf gradients accumulate from the end of the chain, so what is free
 * shrinks by those of the units behind j (behind i, in i's backward). Memory is cut into slots; every size is rounded
 * up, so a solution fits by the model. Whether it fits the run is for a dry run to say. */
#ifndef FRI_PLAN_CHAIN_H
#define FRI_PLAN_CHAIN_H

#include <frugal/net.h>

/* A way to save. Sizes are bytes alive beyond earlier units'. */
typedef struct fri_unit_cost {
    bool possible;
    double forward, backward; /* seconds; encoding, rebuilding and moving included */
    size_t saved;             /* kept from forward to backward: saved inputs, without the output */
    size_t forward_peak;      /* maximum of input, output, saved and scratch */
    size_t backward_peak;     /* likewise in backward, without leaf gradients of other units */
} fri_unit_cost;

/* State of the values before a unit. */
typedef enum fri_before {
    FRI_BEFORE_KEPT,    /* values, or sources for rebuilding */
    FRI_BEFORE_REBUILT, /* a unit with rebuilt input: rebuilding from the unit costs `chained` */
    FRI_BEFORE_RANGE,   /* a range, or the start of a recomputation: no source for rebuilding */
    FRI_BEFORE_STATES
} fri_before;

typedef struct fri_chain_unit {
    size_t input;      /* all input values; 0 for the first unit, whose input is always alive */
    size_t gradient;   /* leaf gradients left by the backward */
    double plain;      /* seconds of a forward without saving */
    double tail;       /* seconds of every option's forward that a recomputation ending with the unit leaves out */
    size_t plain_peak; /* maximum of input, output and scratch of the plain forward */
    size_t tail_peak;  /* upper bound of forward_peak if a recomputation ends with the unit */
    fri_unit_cost option[FR_UNIT_OPTIONS];
    fri_unit_cost chained; /* of FR_UNIT_REBUILD after a unit with rebuilt input */
    bool source;           /* keeps sources for rebuilding the results, independent of earlier units */
} fri_chain_unit;

/* A value handed on from a unit to a later last reader. Values alive from the beginning do not count. */
typedef struct fri_crossing {
    int made, last;
    size_t bytes;
} fri_crossing;

typedef struct fri_chain {
    int n;
    fri_chain_unit *unit;
    fri_crossing *crossing; /* NULL: each unit hands only a result to the next */
    int crossings;
} fri_chain;

/* The state before the next unit. The cost of option o here; NULL: impossible. */
fri_before fri_chain_next(const fri_chain_unit *u, fri_before before, fr_unit_option o);
const fri_unit_cost *fri_chain_cost(const fri_chain_unit *u, fri_before before, fr_unit_option o);

/* More units are merged first; where T has more steps, slots are halved. A solution has 6 bytes per step, and at most
 * 2.6 MB besides. */
enum { FRI_CHAIN_MAX = 128, FRI_CHAIN_SLOTS = 1600, FRI_CHAIN_STEPS = 840000 };

typedef struct fri_solution fri_solution;

/* All solutions for 0 .. memory bytes, in `slots` steps. The chain must outlive them. FR_EINVAL: no unit or more than
 * FRI_CHAIN_MAX, or above 65535 slots; FR_ENOMEM. */
fr_status fri_chain_solve(const fri_chain *c, size_t memory, int slots, fri_solution **out);
void fri_solution_release(fri_solution **s);
/* Seconds of the best plan in `slots` slots; INFINITY without a plan. */
double fri_solution_time(const fri_solution *s, int slots);
/* Writes the plan; option [n] and range [n] are the caller's. Returns the number of ranges, -1 without a plan. */
int fri_solution_plan(const fri_solution *s, int slots, fr_unit_option *option, fr_unit_range *range);

/* Merges neighbours until at most `max` are left, pairs with the least saved bytes first; group[u] is unit u's number
 * in the merged chain. Free *out with fri_chain_free. FR_ENOMEM. */
fr_status fri_chain_merge(const fri_chain *c, int max, fri_chain *out, int *group);
void fri_chain_free(fri_chain *c);

#endif
