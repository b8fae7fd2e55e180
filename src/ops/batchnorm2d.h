/* batchnorm2d.h - shared parts of batch norm and in-place activated batch norm. */
#ifndef FRI_OPS_BATCHNORM2D_H
#define FRI_OPS_BATCHNORM2D_H

#include "ops/op.h"

/* Operands of batch norm besides x. */
typedef struct fri_norm {
    fr_tensor *gamma, *beta, *running_mean, *running_var;
    fr_tensor *batches;              /* i64 [], incremented when running values change; or NULL */
    const fr_batchnorm2d_opts *opts; /* NULL: defaults */
} fri_norm;

/* Checks every tensor against x and fills the descriptor. */
fr_status fri_batchnorm2d_describe(const fr_op *op, const fr_tensor *x, const fri_norm *norm,
                                   fri_batchnorm2d_desc *desc);

/* Computes mean and inverse std of the batch and updates running values and counter. In a checkpoint's recomputation,
 * takes the statistics from slots saved_mean and saved_mean + 1 of the forward's node and leaves running values
 * unchanged. */
fr_status fri_batch_statistics(const fr_op *op, int saved_mean, const fri_batchnorm2d_desc *d, const fr_tensor *x,
                               const fri_norm *norm, fr_tensor **mean, fr_tensor **invstd);

/* Statistics from the running values (eval mode). */
fr_status fri_running_statistics(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_norm *norm,
                                 fr_tensor **mean, fr_tensor **invstd);

/* Tail of a fused call: relu?(batch_norm(x) + addend), or act(batch_norm(x)). */
typedef struct fri_norm_tail {
    fr_tensor **addend; /* its reference is taken; NULL: no addition */
    /* Puts the sum over the addend, as fr_add(*addend, norm, addend) does; else over norm or an unshared addend. */
    bool over;
    fri_activation act;              /* NONE or RELU if there is an addend */
    const char *module, *act_module; /* module paths of add and activation; NULL: the current path */
} fri_norm_tail;

/* *y = tail(batch_norm(x)), with the bits of separate calls and at most their bytes. If fri_fusion_permitted, the
 * normalizing pass also adds and activates. Norm and activation without a sum are one node; with a sum, there are nodes
 * for norm, sum and activation (Note [Tail] in op.h). If the addend has another type or shape or cannot be overwritten,
 * add and relu share a pass. A sum over the addend leaves no storage for batch norm's own result. tail NULL: none. */
fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, const fri_norm_tail *tail, fr_tensor **y);

/* Operands with which a reader recomputes act(norm(x)). norm: node of a batch norm that keeps x; otherwise *x stays
 * NULL. */
typedef struct fri_norm_read {
    fr_tensor *x, *mean, *invstd, *gamma, *beta;
    fri_conv2d_norm norm;
} fri_norm_read;
fr_status fri_norm_read_of(fr_node *norm, fri_norm_read *r);
void fri_norm_read_end(fri_norm_read *r);

/* fr_inplace_abn with batch norm's operands. */
fr_status fri_inplace_abn(fr_tensor *x, const fri_norm *norm, double slope, fr_tensor **y);

#endif
