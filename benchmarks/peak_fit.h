/* peak_fit.h - the plan of a network for the smallest memory budget. */
#ifndef BENCHMARKS_PEAK_FIT_H
#define BENCHMARKS_PEAK_FIT_H

#include "peak_run.h"

#include <frugal/fit.h>

/* Finds the smallest budget for c, and the fastest plan within it; c then runs by the plan. False: there is no plan.
 * The caller releases *fit after the last use of c. */
bool peak_fit_smallest(const peak_setting *at, peak_case *c, fr_fit *fit);

#endif
