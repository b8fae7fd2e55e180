/* conv2d.h - internal convolution calls. */
#ifndef FRI_OPS_CONV2D_H
#define FRI_OPS_CONV2D_H

#include "ops/frame.h"

/* Checks the inputs x, w and b of the frame's call against each other and the options, and fills the descriptor. */
fr_status fri_conv2d_describe(fri_frame *f, const fr_conv2d_opts *o, fri_conv2d_desc *d);

/* Kernels of a convolution. Options: fri_conv2d_desc. */
extern const fr_kernel fri_conv2d_forward; /* "x w b > y"; b may be absent */
extern const fr_kernel fri_conv2d_weight;  /* "x dy > dw" */
extern const fr_kernel fri_conv2d_input;   /* "w dy > dx" */

/* Members of a kernel "x w b > y" with the scratch limit of the descriptor. */
extern const fri_kernel_more fri_conv2d_own_limit;

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
