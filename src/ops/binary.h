/* binary.h - a vector added by other ops to their results, and its gradient. */
#ifndef FRI_OPS_BINARY_H
#define FRI_OPS_BINARY_H

#include "ops/op.h"

/* y += b, one value for each of the last dimension, of y's type. */
fr_status fri_add_vector(const fr_tensor *b, fr_tensor *y);
/* y = b (or 0 where b is NULL), one value for each of the last dimension; b is of y's type or f32. */
fr_status fri_fill_bias(const fr_tensor *b, fr_tensor *y);
/* *db [C] = the sum of t [..., C] over all but its last dimension. */
fr_status fri_vector_sum(const fr_tensor *t, fr_tensor **db);

#endif
