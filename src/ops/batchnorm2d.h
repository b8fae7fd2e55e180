/* batchnorm2d.h - what batch norm and in-place activated batch norm share. */
#ifndef FRI_OPS_BATCHNORM2D_H
#define FRI_OPS_BATCHNORM2D_H

#include "ops/op.h"

/* Checks every tensor against x and fills the descriptor. */
fr_status fri_batchnorm2d_describe(const fr_op *op, const fr_tensor *x, const fr_tensor *gamma, const fr_tensor *beta,
                                   const fr_tensor *running_mean, const fr_tensor *running_var,
                                   const fr_batchnorm2d_opts *o, fri_batchnorm2d_desc *desc);

/* Mean and inverse std of the batch, and the running values moved along. In a checkpoint's recomputation they come from
 * the slots saved_mean and saved_mean + 1 of the first forward's node, and running values are left alone. */
fr_status fri_batch_statistics(const fr_op *op, int saved_mean, const fri_batchnorm2d_desc *d, const fr_tensor *x,
                               fr_tensor *running_mean, fr_tensor *running_var, fr_tensor **mean, fr_tensor **invstd);

/* The same from the running values (eval mode). */
fr_status fri_running_statistics(const fri_batchnorm2d_desc *d, const fr_tensor *x, fr_tensor *running_mean,
                                 fr_tensor *running_var, fr_tensor **mean, fr_tensor **invstd);

/* For one who normalizes what it reads: if the node is of a batch norm, *x is what this read and *scale_shift [2, c]
 * what makes its result of that (fri_batchnorm2d_fold_fn); else both stay NULL. */
fr_status fri_batchnorm2d_folded(fr_node *node, fr_tensor **x, fr_tensor **scale_shift);

/* Note [Relu's gradient in batch norm's]
 * Which elements of the gradient a relu behind batch norm lets through follows from batch norm's input, which its
 * backward reads anyway. So the relu hands its gradient on as it is, and batch norm's passes make y again in registers,
 * by the forward's arithmetic, and look at its sign: as it would be after rounding to its type. A pass over the
 * gradient less, and the same bits. What is saved, when it is given up and what is allocated are those of two kernels:
 * only where the mask is at hand (a value or bits, not something to be made again) and the gradient would have been
 * written over. Not where gradients are looked at. */

/* t is a batch norm's result, and nobody has written to it since. */
bool fri_made_by_batchnorm2d(const fr_tensor *t);
/* From now on n, a batch norm's node, masks its gradient itself. False: it cannot, another op reads its result or beta
 * has changed. */
bool fri_batchnorm2d_masks(fr_node *n);

#endif
