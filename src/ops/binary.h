/* binary.h - a vector added by other ops to their results, and its gradient. */
#ifndef FRI_OPS_BINARY_H
#define FRI_OPS_BINARY_H

#include "ops/op.h"

/* y += b, one value for each of the last dimension, of y's type. */
fr_status fri_add_vector(const fr_tensor *b, fr_tensor *y);
/* *db [C] = the sum of t [..., C] over all but its last dimension. */
fr_status fri_vector_sum(const fr_tensor *t, fr_tensor **db);

#endif
