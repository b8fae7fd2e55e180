/* chain.h - the cheapest way to run a chain of units forward and backward in given memory.
 *
 * The problem of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova ("Optimal checkpointing for heterogeneous chains",
 * 2019), with several ways to save per unit. For units i .. j-1 whose last gradient is about to arrive, with m bytes
 * free (the input of i counts among them):
 *
 *   T(i, j, m) = min of
 *     run i and save by option o:    forward(i, o) + T(i + 1, j, m - saved(i, o)) + backward(i, o)
 *     keep only what i .. k-1 read,  forward of i .. k-1 without saving
 *     go on from k, come back later:   + T(k, j, m - input(i, k)) + T(i, k, m)
 *
 * with T once per state of what is before unit i: rebuilding its input pays for a whole chain where that input would be
 * rebuilt from a rebuilt one, and is impossible where a range ends before it (fri_before).
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

/* One way to save. Sizes are what is alive beyond what earlier units hold. */
typedef struct fri_unit_cost {
    bool possible;
    double forward, backward; /* seconds; encoding, rebuilding and moving included */
    size_t saved;             /* from its forward to its backward: its input as far as it is saved, not its output */
    size_t forward_peak;      /* input, output, saved and scratch at their most */
    size_t backward_peak;     /* the same in backward; gradients of other units' leaves left out */
} fri_unit_cost;

/* State of the values before a unit. */
typedef enum fri_before {
    FRI_BEFORE_KEPT,    /* values, or what they can be rebuilt from */
    FRI_BEFORE_REBUILT, /* a unit whose own input is rebuilt: rebuilding from it costs `chained` */
    FRI_BEFORE_RANGE,   /* a range, or this unit begins a recomputation: nothing to rebuild from */
    FRI_BEFORE_STATES
} fri_before;

typedef struct fri_chain_unit {
    size_t input;    /* all that is handed on to it; 0 for the first: that is always alive */
    size_t gradient; /* leaf gradients that its backward leaves behind */
    double plain;    /* seconds of a forward that saves nothing */
    double tail;     /* of it and of every option's forward: what a recomputation that ends with this unit leaves out */
    size_t plain_peak; /* input, output and scratch of that forward at their most */
    size_t tail_peak;  /* the most that forward_peak can be where a recomputation ends with this unit */
    fri_unit_cost option[FR_UNIT_OPTIONS];
    fri_unit_cost chained; /* of FR_UNIT_REBUILD behind a unit that rebuilds its input */
    bool source;           /* keeps what its own results can be rebuilt from, whatever is before it */
} fri_chain_unit;

/* A value that is handed on: made by one unit, read last by a later one. What is alive from the beginning is none. */
typedef struct fri_crossing {
    int made, last;
    size_t bytes;
} fri_crossing;

typedef struct fri_chain {
    int n;
    fri_chain_unit *unit;
    fri_crossing *crossing; /* NULL: each unit hands its result to the next, and nothing else */
    int crossings;
} fri_chain;

/* The state before the next unit. Is option o possible here, and at what cost? NULL: no. */
fri_before fri_chain_next(const fri_chain_unit *u, fri_before before, fr_unit_option o);
const fri_unit_cost *fri_chain_cost(const fri_chain_unit *u, fri_before before, fr_unit_option o);

enum { FRI_CHAIN_MOST = 128, FRI_CHAIN_SLOTS = 1600 }; /* more units are merged first */

typedef struct fri_solution fri_solution;

/* All solutions for 0 .. memory bytes, in `slots` steps. The chain must outlive them. FR_EINVAL: no unit or more than
 * FRI_CHAIN_MOST; FR_ENOMEM. */
fr_status fri_chain_solve(const fri_chain *c, size_t memory, int slots, fri_solution **out);
void fri_solution_release(fri_solution **s);
/* Seconds of the best plan in `slots` slots; INFINITY if there is none. */
double fri_solution_time(const fri_solution *s, int slots);
/* The plan itself; option [n] and range [n] are the caller's. Returns the number of ranges, -1 if there is no plan. */
int fri_solution_plan(const fri_solution *s, int slots, fr_unit_option *option, fr_unit_range *range);

/* Merges neighbours until at most `most` are left, pairs with the least saved bytes first; group[u] is the unit of the
 * merged chain that unit u belongs to. Free *out with fri_chain_free. FR_ENOMEM. */
fr_status fri_chain_merge(const fri_chain *c, int most, fri_chain *out, int *group);
void fri_chain_free(fri_chain *c);

#endif
