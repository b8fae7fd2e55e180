/* finder.h - the search for the fastest plan over the units of a partition. */
#ifndef FRI_PLAN_FINDER_H
#define FRI_PLAN_FINDER_H

#include "net/list.h"
#include "plan/cost.h"

#include <frugal/fit.h>

/* Finds a plan as fr_fit_find, for the model's units by `how`; *out owns the plan, also after a failure. *large: a
 * single unit saves so much that finer units may pay. */
fr_status fri_find_in(fr_fit_run_fn *run, void *ctx, const fr_fit_opts *opts, fri_cost *cost, fri_partition how,
                      fr_fit *out, bool *large);

#endif
