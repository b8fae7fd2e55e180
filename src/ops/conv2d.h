/* conv2d.h - internal convolution calls. */
#ifndef FRI_OPS_CONV2D_H
#define FRI_OPS_CONV2D_H

#include "ops/op.h"

/* Checks the tensors against each other and fills the descriptor. */
fr_status fri_conv2d_describe(const fr_tensor *x, const fr_tensor *w, const fr_tensor *b, const fr_conv2d_opts *o,
                              fri_conv2d_desc *d);

/* The three kernels of a convolution, each with its own scratch, on tensors of d's shapes and types: y = conv(x, w),
 * dw and dx. d comes from fri_conv2d_describe. */
fr_status fri_conv2d_forward(const fri_conv2d_desc *d, const fr_tensor *x, const fr_tensor *w, fr_tensor *y);
fr_status fri_conv2d_weight(const fri_conv2d_desc *d, const fr_tensor *x, const fr_tensor *dy, fr_tensor *dw);
fr_status fri_conv2d_input(const fri_conv2d_desc *d, const fr_tensor *w, const fr_tensor *dy, fr_tensor *dx);

/* Convolution of an inference network. */
typedef struct fri_constant_conv2d {
    fr_tensor *w, *b;
    fr_conv2d_opts opts;
    fri_activation relu;
} fri_constant_conv2d;
void fri_constant_conv2d_release(fri_constant_conv2d *k);

/* *y = relu(conv2d(x, w, b) + addend) for f32 tensors; NaN may become 0. addend: its reference is taken; NULL: none.
 * FR_EUSAGE: a gradient is requested. */
fr_status fri_conv2d_constant(const fri_constant_conv2d *k, fr_tensor *x, fr_tensor **addend, fr_tensor **y);

#endif
