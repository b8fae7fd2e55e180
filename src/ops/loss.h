/* loss.h - shared by classification losses: targets, the call, and backward. */
#ifndef FRI_OPS_LOSS_H
#define FRI_OPS_LOSS_H

#include "ops/op.h"

/* Arguments of a loss kernel (kernels.h); NULL if unused by the loss. */
typedef struct fri_loss_data {
    const void *x, *target, *weight;
    void *lse, *factors;
    void *loss, *dx; /* forward: loss; backward: dx, and the gradient in `loss` */
    int64_t *bad;
} fri_loss_data;

/* A loss and its kernels. `op` comes first, so a node's op can be cast back. */
typedef struct fri_loss {
    fr_op op;
    bool lse;          /* saves one value per row */
    int64_t per_class; /* factors per class; 0: a single factor */
    size_t (*workspace)(const fri_backend *be, const fri_loss_desc *d);
    fr_status (*forward)(const fri_backend *be, const fri_exec *e, const fri_loss_desc *d, const fri_loss_data *v);
    fr_status (*backward)(const fri_backend *be, const fri_loss_desc *d, const fri_loss_data *v);
} fri_loss;

/* Defines the three functions through the kernels NAME_workspace, NAME_forward and NAME_backward. */
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

/* Fills sizes, types and kind of target; all else in *d is 0. Probabilities as targets are refused unless allowed. */
fr_status fri_loss_describe(const fr_op *op, const fr_tensor *x, const fr_tensor *target, bool shares_allowed,
                            fri_loss_desc *d);
/* `options` has the members that describe leaves 0; weight NULL: none. */
fr_status fri_loss_call(const fri_loss *l, fr_tensor *x, fr_tensor *target, fr_tensor *weight, bool shares_allowed,
                        const fri_loss_desc *options, fr_tensor **loss);
fr_status fri_loss_backward(fr_node *node, fr_tensor **dy);

#endif
