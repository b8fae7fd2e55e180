/* arith_optim.h - arithmetic of optimizers, written once for the C compiler and nvcc, as arith.h. */
#ifndef FRI_BACKEND_ARITH_OPTIM_H
#define FRI_BACKEND_ARITH_OPTIM_H

#include "backend/arith.h"

typedef struct fri_sgd_coef {
    fri_real lr, momentum, dampening_left; /* dampening_left = 1 - dampening */
    fri_real weight_decay;
    fri_real grad_scale; /* inv_scale, negative under maximize */
    bool decay, nesterov, first;
} fri_sgd_coef;

static inline FRI_HOST_DEVICE fri_sgd_coef fri_sgd_coef_of(const fri_sgd_desc *d, float inv_scale) {
    fri_sgd_coef c;
    c.lr = (fri_real)d->lr;
    c.momentum = (fri_real)d->momentum;
    c.dampening_left = (fri_real)(1 - d->dampening);
    c.weight_decay = (fri_real)d->weight_decay;
    c.grad_scale = d->maximize ? -(fri_real)inv_scale : (fri_real)inv_scale;
    c.decay = d->weight_decay != 0;
    c.nesterov = d->nesterov;
    c.first = d->first;
    return c;
}

/* The gradient with scale, sign and weight decay. */
static inline FRI_HOST_DEVICE fri_real fri_sgd_gradient(fri_sgd_coef c, fri_real p, fri_real g) {
    g *= c.grad_scale;
    return c.decay ? g + c.weight_decay * p : g;
}

/* The new momentum buffer. */
static inline FRI_HOST_DEVICE fri_real fri_sgd_momentum(fri_sgd_coef c, fri_real g, fri_real buf) {
    return c.first ? g : c.momentum * buf + c.dampening_left * g;
}

/* The new parameter, from the new buffer. */
static inline FRI_HOST_DEVICE fri_real fri_sgd_step(fri_sgd_coef c, fri_real p, fri_real g, fri_real buf) {
    return p - c.lr * (c.nesterov ? g + c.momentum * buf : buf);
}

typedef struct fri_rmsprop_coef {
    fri_real lr, alpha, alpha_left, eps, momentum, weight_decay; /* alpha_left = 1 - alpha */
    fri_real grad_scale;                                         /* inv_scale, negative under maximize */
} fri_rmsprop_coef;

static inline FRI_HOST_DEVICE fri_rmsprop_coef fri_rmsprop_coef_of(const fri_rmsprop_desc *d, float inv_scale) {
    fri_rmsprop_coef c;
    c.lr = (fri_real)d->lr;
    c.alpha = (fri_real)d->alpha;
    c.alpha_left = (fri_real)(1 - d->alpha);
    c.eps = (fri_real)d->eps;
    c.momentum = (fri_real)d->momentum;
    c.weight_decay = (fri_real)d->weight_decay;
    c.grad_scale = d->maximize ? -(fri_real)inv_scale : (fri_real)inv_scale;
    return c;
}

/* An element: p and the states are updated in place; buf is NULL without momentum, average if not centered. A variance
 * below 0 by rounding is 0. */
static inline FRI_HOST_DEVICE void fri_rmsprop_update(fri_rmsprop_coef c, fri_real g, fri_real *p, fri_real *square,
                                                      fri_real *buf, fri_real *average) {
    const fri_real x = *p;
    g *= c.grad_scale;
    g = c.weight_decay != 0 ? g + c.weight_decay * x : g;
    fri_real variance = c.alpha * *square + c.alpha_left * g * g;
    *square = variance;
    if (average != NULL) {
        const fri_real mean = *average + c.alpha_left * (g - *average);
        *average = mean;
        variance -= mean * mean;
        variance = variance < 0 ? 0 : variance;
    }
    fri_real move = g / (FRI_SQRT(variance) + c.eps);
    if (buf != NULL) *buf = move = c.momentum * *buf + move;
    *p = x - c.lr * move;
}

typedef struct fri_adam_coef {
    fri_real beta1_left, beta2, beta2_left; /* *_left = 1 - beta */
    fri_real step_size;                     /* lr / (1 - beta1^step) */
    fri_real correction2;                   /* sqrt(1 - beta2^step) */
    fri_real eps;
    fri_real weight_decay; /* joins the gradient; 0 when decoupled */
    fri_real shrink;       /* 1 - lr * weight_decay when decoupled, else 1 */
    fri_real grad_scale;   /* inv_scale, negative under maximize */
} fri_adam_coef;

static inline FRI_HOST_DEVICE fri_adam_coef fri_adam_coef_of(const fri_adam_desc *d, float step, float inv_scale) {
    fri_adam_coef c;
    const double lr = d->lr;
    c.beta1_left = (fri_real)(1 - d->beta1);
    c.beta2 = (fri_real)d->beta2;
    c.beta2_left = (fri_real)(1 - d->beta2);
    c.step_size = (fri_real)(lr / (1 - fri_power64(d->beta1, (double)step)));
    c.correction2 = (fri_real)sqrt(1 - fri_power64(d->beta2, (double)step));
    c.eps = (fri_real)d->eps;
    c.weight_decay = d->decoupled ? 0 : (fri_real)d->weight_decay;
    c.shrink = d->decoupled ? (fri_real)(1 - lr * d->weight_decay) : 1;
    c.grad_scale = d->maximize ? -(fri_real)inv_scale : (fri_real)inv_scale;
    return c;
}

/* An element: p, m and v are updated in place. */
static inline FRI_HOST_DEVICE void fri_adam_update(fri_adam_coef c, fri_real g, fri_real *p, fri_real *m, fri_real *v) {
    fri_real x = *p;
    g *= c.grad_scale;
    g = c.weight_decay != 0 ? g + c.weight_decay * x : g;
    fri_real m1 = *m + c.beta1_left * (g - *m);
    fri_real v1 = c.beta2 * *v + c.beta2_left * g * g;
    *m = m1;
    *v = v1;
    *p = x * c.shrink - c.step_size * (m1 / (FRI_SQRT(v1) / c.correction2 + c.eps));
}

/* Index of the nearest of 256 ascending values to x: the number of the 255 midpoints below x. NaN gives 0. */
static inline FRI_HOST_DEVICE int fri_nearest_code(const fri_real *midpoint, fri_real x) {
    int at = x > midpoint[127] ? 128 : 0;
    at += x > midpoint[at + 63] ? 64 : 0;
    at += x > midpoint[at + 31] ? 32 : 0;
    at += x > midpoint[at + 15] ? 16 : 0;
    at += x > midpoint[at + 7] ? 8 : 0;
    at += x > midpoint[at + 3] ? 4 : 0;
    at += x > midpoint[at + 1] ? 2 : 0;
    return at + (x > midpoint[at] ? 1 : 0);
}

#endif
