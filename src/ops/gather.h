/* gather.h - shared by gather and scatter: the element of x that a position of index selects. */
#ifndef FRI_OPS_GATHER_H
#define FRI_OPS_GATHER_H

#include "ops/op.h"

/* Checks x, dim and index. */
fr_status fri_gather_describe(const fr_op *op, const fr_tensor *x, int dim, const fr_tensor *index, fri_gather_desc *d);
/* Computes y (may be new) from x. An index out of range is reported at once or by a readback. */
fr_status fri_gather_run(const fr_op *op, const fri_gather_desc *d, const fr_tensor *index, const fr_tensor *x,
                         fr_tensor *y);
/* src NULL: writes zeros. */
fr_status fri_scatter_run(const fr_op *op, const fri_gather_desc *d, const fr_tensor *index, const fr_tensor *src,
                          bool add, fr_tensor *x);

#endif
