/* batchnorm2d.h - what batch norm and in-place activated batch norm share. */
#ifndef FRI_OPS_BATCHNORM2D_H
#define FRI_OPS_BATCHNORM2D_H

#include "ops/op.h"

/* Operands of batch norm beside x. */
typedef struct fri_norm {
    fr_tensor *gamma, *beta, *running_mean, *running_var;
    fr_tensor *batches;              /* i64 [], counted up where the running values move; or NULL */
    const fr_batchnorm2d_opts *opts; /* NULL: the defaults */
} fri_norm;

/* Checks every tensor against x and fills the descriptor. */
fr_status fri_batchnorm2d_describe(const fr_op *op, const fr_tensor *x, const fri_norm *norm,
                                   fri_batchnorm2d_desc *desc);

/* Mean and inverse std of the batch, and the running values and their counter moved along. In a checkpoint's
 * recomputation they come from the slots saved_mean and saved_mean + 1 of the first forward's node, and running values
 * are left alone. */
fr_status fri_batch_statistics(const fr_op *op, int saved_mean, const fri_batchnorm2d_desc *d, const fr_tensor *x,
                               const fri_norm *norm, fr_tensor **mean, fr_tensor **invstd);

/* Statistics from the running values (eval mode). */
fr_status fri_running_statistics(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_norm *norm,
                                 fr_tensor **mean, fr_tensor **invstd);

/* Tail of a fused call: relu?(batch_norm(x) + addend), or act(batch_norm(x)). */
typedef struct fri_norm_tail {
    fr_tensor **addend; /* its reference is taken; NULL: nothing is added */
    /* The sum goes over the addend, as fr_add(*addend, norm, addend) would put it; else over norm, or over an addend
     * that nobody else holds. */
    bool over;
    fri_activation act;              /* with an addend NONE or RELU */
    const char *module, *act_module; /* paths of the nodes of add and activation, interned; NULL: the current one */
} fri_norm_tail;

/* *y = tail(batch_norm(x)): the nodes, saved tensors and bits of the separate calls, and at most their bytes. Where
 * fri_fusion_permitted, the pass that normalizes reads the addend and activates, too (Note [Tail] in op.h); where the
 * addend has another type or shape, or cannot be written over, add and relu are one pass. The sum over the addend
 * leaves no bytes to batch norm's own result. tail NULL: none. */
fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, const fri_norm_tail *tail, fr_tensor **y);
/* True in the backward of the following activation if the norm will apply the activation's gradient. Else the norm can
 * make its result again. */
bool fri_norm_bends(fr_node *norm, fri_activation act);

/* How the reader of next(norm(x)) finds it: x, and the vectors. norm: a batch norm's node that keeps x; else *x stays
 * NULL. next: an activation's op, or NULL. */
typedef struct fri_norm_read {
    fr_tensor *x, *mean, *invstd, *gamma, *beta;
    fri_conv2d_norm norm;
} fri_norm_read;
fr_status fri_norm_read_of(fr_node *norm, const fr_op *next, fri_norm_read *r);
void fri_norm_read_end(fri_norm_read *r);

/* fr_inplace_abn of what batch norm reads. */
fr_status fri_inplace_abn(fr_tensor *x, const fri_norm *norm, double slope, fr_tensor **y);

#endif
