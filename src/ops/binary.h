/* binary.h - a vector added to the rows of a matrix, and its gradient, for the kernels of other ops. */
#ifndef FRI_OPS_BINARY_H
#define FRI_OPS_BINARY_H

#include "ops/frame.h"

extern const fr_kernel fri_add_row;  /* "b > y": each row of y += b, of y's type */
extern const fr_kernel fri_sum_rows; /* "dy > db": the sum of dy's rows */
/* Each row of y = b, of any type, or 0 if b is NULL: for calls inside of a kernel. */
fr_status fri_fill_rows(const fr_kernel_call *c, const fr_tensor *b, const fr_tensor *y);

#endif
