/* gather.h - shared by gather and scatter: the element of x that a position of index selects. */
#ifndef FRI_OPS_GATHER_H
#define FRI_OPS_GATHER_H

#include "ops/frame.h"

/* Checks dim and the shapes of the first two inputs, x and index. */
fr_status fri_gather_describe(fri_frame *f, int dim, fri_gather_desc *d);

#endif
