/* pool.h - shared by the pooling ops: options, window arithmetic, work. */
#ifndef FRI_OPS_POOL_H
#define FRI_OPS_POOL_H

#include "ops/frame.h"

/* Fills the descriptor from x's sizes, kernel size and PyTorch's options, and sets the frame's p and q: the size of y
 * follows the floor or ceiling rule. */
fr_status fri_pool2d_describe(fri_frame *f, int64_t kernel, const fr_pool2d_opts *o, fri_pool2d_desc *d);
/* Work of a pooling kernel: an operation per element of each window. */
extern const fri_kernel_more fri_pool2d_more;

#endif
