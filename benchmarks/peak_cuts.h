/* peak_cuts.h - a good set of checkpoints for a network, by trying. */
#ifndef BENCHMARKS_PEAK_CUTS_H
#define BENCHMARKS_PEAK_CUTS_H

#include "peak_run.h"

enum { PEAK_UNITS = 128 };

typedef struct peak_cuts {
    fr_unit_plan plan; /* over the arrays below */
    fr_unit_option option[PEAK_UNITS];
    fr_unit_range range[PEAK_UNITS];
    int first[PEAK_UNITS];
    int tried; /* dry runs */
} peak_cuts;

/* Starting from none, the range of units is made a checkpoint, also inside another one, that lowers the peak of c the
 * most (where several do, what waits for backward), until none does; ranges that are not needed any more go. False:
 * the network is one unit. */
bool peak_cuts_find(const peak_setting *at, const peak_case *c, peak_cuts *out);

#endif
