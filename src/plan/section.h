/* section.h - sections and numbers of a plan (plan.c, arena.c). */
#ifndef FRI_PLAN_SECTION_H
#define FRI_PLAN_SECTION_H

#include <frugal/plan.h>

enum { FRI_PLAN_SECTIONS = 256 }; /* at most */

/* A group of live allocations at the peak that share category, op, module, type and shape. */
typedef struct fri_plan_live {
    fr_category category;
    fr_dtype dtype;
    int rank;
    int64_t shape[6];
    const char *op, *module; /* static storage */
    size_t bytes;            /* allocated, sum over all */
    size_t count;
} fri_plan_live;

int fri_plan_sections(const fr_plan *plan);
/* The section with the largest allocated peak. */
int fri_plan_peak_section(const fr_plan *plan);
/* The largest groups alive at the first instant of the plan's peak, largest first; returns how many were written. */
int fri_plan_live_at_peak(const fr_plan *plan, fri_plan_live *out, int n);
/* Peak minus parameters minus optimizer state at the peak. */
size_t fri_plan_step_memory(const fr_plan *plan);
/* Hash of the allocator's state, free blocks included, of a plan that runs. The allocations of a step depend on this
 * state alone, so after a step that leaves the state in which the step began, all further steps are copies. */
uint64_t fri_plan_state(const fr_plan *plan);
/* True if plans for `target` can ask the libraries for workspaces in this build. */
bool fri_plan_workspaces(fr_device target);
/* True if an allocation departed from the plan since the section began, and was served by the caching allocator. */
bool fri_plan_departed(fr_device device);

/* Device memory for a run's plan: free memory, less the needs of the libraries' code. 0: not known, or the device's
 * memory decides nothing. */
fr_status fri_plan_room(fr_device device, size_t *bytes);

/* Lower bound of all switches: parameters, optimizer state and the minimum of gradients, plus the largest working set
 * of an op: allocated bytes and live operands. Reported as parameters + state + largest op. */
size_t fri_plan_floor(const fr_plan *plan);

/* Bytes of the working set of the plan's largest op. */
size_t fri_plan_largest_op(const fr_plan *plan);

#endif
