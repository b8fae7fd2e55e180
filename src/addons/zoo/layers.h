/* layers.h - groups of layers that the networks of the zoo share. */
#ifndef FRI_ZOO_LAYERS_H
#define FRI_ZOO_LAYERS_H

#include <frugal/zoo.h>

#define FRI_ZOO_SLOT(m) \
    if ((m) == NULL) return fr_fail(FR_EINVAL, "%s: m is NULL", __func__)

/* Options or the defaults, checked for a network of this name that takes images of at least `stride` pixels. */
fr_status fri_zoo_opts(const char *name, const fr_model_opts *opts, int64_t stride, fr_model_opts *out);
/* The definition of a network, with the images as *x. */
fr_net *fri_zoo_begin(const fr_model_opts *o, fr_value *x);
/* Global average pooling, and the flatten after it. */
fr_value fri_zoo_pool(fr_net *n, fr_value x);
/* Convolution without bias, batch norm, and `bend` unless that is NULL, as <name>.0, <name>.1 and <name>.2
 * (torchvision.ops.Conv2dNormActivation). */
typedef fr_value fri_zoo_activation(fr_net *n, const char *name, fr_value x);
fr_value fri_zoo_conv_norm(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, int64_t stride,
                           int64_t groups, const fr_batchnorm2d_opts *norm, fri_zoo_activation *bend);
/* Squeeze and excitation (Hu et al. 2017; torchvision.ops.SqueezeExcitation): x times gate(fc2(bend(fc1(mean of x)))),
 * with `squeeze` channels between. */
fr_value fri_zoo_squeeze_excite(fr_net *n, const char *name, fr_value x, int64_t squeeze, fri_zoo_activation *bend,
                                fri_zoo_activation *gate);
/* The layer that makes x begins with weights N(0, std) and bias 0. */
void fri_zoo_begin_normal(fr_net *n, fr_value x, double std);
/* A Linear as torchvision's classifiers begin: weights N(0, 0.01), bias 0. */
fr_value fri_zoo_dense(fr_net *n, const char *name, fr_value x, int64_t out);

#endif
