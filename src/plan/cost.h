/* cost.h - how long a kernel takes, measured or estimated.
 *
 * Times measured on this machine lie in a file, $XDG_CACHE_HOME/frugal/times-<hash>.txt (~/.cache where that is not
 * set), one per device, thread count, library and instruction set; a line is seconds, kernel, element type and
 * dimensions. A call that was never measured is estimated from its operations and bytes, scaled by how far the same
 * kernel was off at the shapes that were. Without any measurement ratios of times still mean something, seconds do
 * not. */
#ifndef FRI_PLAN_COST_H
#define FRI_PLAN_COST_H

#include "meta/calls.h"

typedef struct fri_cost fri_cost;

/* The times known for `target`. A missing or foreign file gives an empty table; FR_ENOMEM. */
fr_status fri_cost_open(fr_device target, fri_cost **out);
void fri_cost_release(fri_cost **c);

double fri_cost_seconds(fri_cost *c, const fri_kernel_call *k);
/* Number of calls with a measured time, and with an estimate. */
void fri_cost_coverage(const fri_cost *c, int64_t *measured, int64_t *estimated);
size_t fri_cost_count(const fri_cost *c); /* entries */

/* A measured time; the shortest of several is kept. */
fr_status fri_cost_add(fri_cost *c, const fri_kernel_call *k, double seconds);
/* Replaces the file. FR_EIO names the file. */
fr_status fri_cost_save(const fri_cost *c);
const char *fri_cost_path(const fri_cost *c); /* "" without a cache folder */

#endif
