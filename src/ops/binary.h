/* binary.h - adds a vector to an op's result, and computes its gradient. */
#ifndef FRI_OPS_BINARY_H
#define FRI_OPS_BINARY_H

#include "ops/op.h"

/* y += b, broadcast along the last dimension; b has y's type. */
fr_status fri_add_vector(const fr_tensor *b, fr_tensor *y);
/* y = b (or 0 if b is NULL), broadcast along the last dimension; b has y's type or f32. */
fr_status fri_fill_bias(const fr_tensor *b, fr_tensor *y);
/* *db [C] = sum of t [..., C] over all dimensions but the last. */
fr_status fri_vector_sum(const fr_tensor *t, fr_tensor **db);

#endif
