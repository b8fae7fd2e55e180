/* loss.h - what losses of classes share: their targets, the call, and the way back. */
#ifndef FRI_OPS_LOSS_H
#define FRI_OPS_LOSS_H

#include "ops/op.h"

/* Arguments of a kernel of kernels.h; NULL where the loss has none. */
typedef struct fri_loss_data {
    const void *x, *target, *weight;
    void *lse, *factors;
    void *loss, *dx; /* forward; backward, where loss is its gradient */
    int64_t *bad;
} fri_loss_data;

/* `op` comes first: a node's op leads back here. */
typedef struct fri_loss {
    fr_op op;
    bool lse;          /* a value per row is saved */
    int64_t per_class; /* factors: so many per class; 0: one in all */
    size_t (*workspace)(const fri_backend *be, const fri_loss_desc *d);
    fr_status (*forward)(const fri_backend *be, const fri_exec *e, const fri_loss_desc *d, const fri_loss_data *v);
    fr_status (*backward)(const fri_backend *be, const fri_loss_desc *d, const fri_loss_data *v);
} fri_loss;

/* The three functions of the kernels NAME_workspace, NAME_forward and NAME_backward. */
#define FRI_LOSS_KERNELS(name_)                                                                           \
    static size_t workspace(const fri_backend *be, const fri_loss_desc *d) {                              \
        return FRI_KERNEL_BYTES(be, d->dtype, name_##_workspace, (d));                                    \
    }                                                                                                     \
    static fr_status forward(const fri_backend *be, const fri_exec *e, const fri_loss_desc *d,            \
                             const fri_loss_data *v) {                                                    \
        return FRI_KERNEL(be, d->dtype, name_##_forward,                                                  \
                          (e, d, v->x, v->target, v->weight, v->loss, v->lse, v->factors, v->bad));       \
    }                                                                                                     \
    static fr_status backward(const fri_backend *be, const fri_loss_desc *d, const fri_loss_data *v) {    \
        return FRI_KERNEL(be, d->dtype, name_##_backward,                                                 \
                          (FRI_EXEC, d, v->x, v->target, v->weight, v->lse, v->factors, v->loss, v->dx)); \
    }
#define FRI_LOSS(name_)                                                                                        \
    .op = {.name = name_, .autocast = FR_AUTOCAST_F32, .backward = fri_loss_backward}, .workspace = workspace, \
    .forward = forward, .backward = backward

/* Sizes, types and the kind of target; everything else of *d is 0. Shares are refused where they are not `allowed`. */
fr_status fri_loss_describe(const fr_op *op, const fr_tensor *x, const fr_tensor *target, bool shares_allowed,
                            fri_loss_desc *d);
/* `options` has what describe leaves 0; weight NULL: none. */
fr_status fri_loss_call(const fri_loss *l, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        const fri_loss_desc *options, fr_tensor **loss);
fr_status fri_loss_backward(fr_node *node, fr_tensor **dy);

#endif
