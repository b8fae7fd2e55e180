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

/* True if fri_norm_act may normalize x, add the addend (NULL: none) and activate in one pass, as one node: the addend
 * has x's type, shape and device, and no reader looks at inner results (fri_fusion_permitted). A recomputation fuses if
 * the forward did. */
bool fri_norm_fuses(const fr_tensor *x, const fr_tensor *addend);

/* *y = act(batch_norm(x) + *addend), with the bits of separate calls and at most their bytes, as one node. addend NULL:
 * no sum; else act is NONE or RELU, *addend's reference is taken, and the result may be written over *addend. */
fr_status fri_norm_act(fr_tensor *x, const fri_norm *norm, fr_tensor **addend, fri_activation act, fr_tensor **y);

/* Data of the tensors, of which gamma and beta may be NULL. */
fri_conv2d_norm fri_norm_vectors(const fr_tensor *mean, const fr_tensor *invstd, const fr_tensor *gamma,
                                 const fr_tensor *beta, fri_activation act);
/* The kernels of batch norm on tensors. addend, dx, dgamma, dbeta: may be NULL. */
fr_status fri_norm_apply(const fri_batchnorm2d_desc *d, const fr_tensor *x, const fri_conv2d_norm *v,
                         const fr_tensor *addend, fr_tensor *y);
fr_status fri_norm_backward(const fri_batchnorm2d_desc *d, bool train, const fr_tensor *x, const fri_conv2d_norm *v,
                            const fr_tensor *dy, fr_tensor *dx, fr_tensor *dgamma, fr_tensor *dbeta);

enum { FRI_NORM_PARTS = FRI_REBUILD_INPUTS - 2 }; /* the other inputs are gamma and beta */
/* True if fri_norm_parts may normalize the concatenation of x[0 .. n - 1] without making it: the parts fit each other,
 * the backend's kernels read parts, no reader looks at inner results, and rebuild is on. keeps: the norm's backward,
 * if there is one, reads x. A recomputation fuses if the forward did. */
bool fri_norm_joins(fr_tensor *const *x, int n, bool keeps);
/* *y = act(batch_norm(concatenation of x)) as one node that saves the parts; bits are those of the separate calls. */
fr_status fri_norm_parts(fr_tensor *const *x, int n, const fri_norm *norm, fri_activation act, fr_tensor **y);

/* Operands with which a reader of c channels recomputes act(norm(x)). norm: node of a batch norm over c channels that
 * keeps x and adds nothing; otherwise n stays 0. */
typedef struct fri_norm_read {
    int n;
    fr_tensor *x[FRI_NORM_PARTS], *dx[FRI_NORM_PARTS]; /* n of each */
    fr_tensor *mean, *invstd, *gamma, *beta;
    fri_conv2d_norm norm; /* data of the tensors */
    fri_batchnorm2d_part part[FRI_NORM_PARTS];
    fri_batchnorm2d_desc desc;
} fri_norm_read;
fr_status fri_norm_read_of(fr_node *norm, int64_t c, fri_norm_read *r);
void fri_norm_read_end(fri_norm_read *r);

/* fr_inplace_abn with batch norm's operands. */
fr_status fri_inplace_abn(fr_tensor *x, const fri_norm *norm, double slope, fr_tensor **y);

#endif
