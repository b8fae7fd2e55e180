/* pool.h - shared by the three pooling ops: options and window arithmetic. */
#ifndef FRI_OPS_POOL_H
#define FRI_OPS_POOL_H

#include "ops/op.h"

/* Fills the descriptor from x, kernel size and PyTorch's options; the size of y follows the floor or ceiling rule. */
fr_status fri_pool2d_describe(const fr_op *op, const fr_tensor *x, int64_t kernel, const fr_pool2d_opts *o,
                              fri_pool2d_desc *d);

#endif
