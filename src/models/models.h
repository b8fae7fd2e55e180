/* models.h - what the models share. */
#ifndef FRI_MODELS_MODELS_H
#define FRI_MODELS_MODELS_H

#include <frugal/models.h>

#define FRI_MODEL_SLOT(m) \
    if ((m) == NULL) return fr_fail(FR_EINVAL, "%s: m is NULL", __func__)

/* Options or the defaults; checks what all models need: images of at least `stride` pixels. */
fr_status fri_model_opts(const char *model, const fr_model_opts *opts, int64_t stride, fr_model_opts *out);
bool fri_global_head(const fr_model_opts *o);
/* The multiple of 8 next to x > 0, at least 0.9 x and so at least 8 (torchvision.models._utils._make_divisible; Sandler
 * et al. 2018). */
int64_t fri_divisible(double x);
/* Channels at the options' width; at width 1 any number stays as it is. */
int64_t fri_channels(const fr_model_opts *o, int64_t channels);

/* The definition of a model, with the images as *x. */
fr_net *fri_model_begin(const fr_model_opts *o, fr_value *x);
/* Batch norm and the relu behind it, or an InPlaceABN and an Identity (fr_model_opts.abn_slope); names may be NULL. */
fr_value fri_norm(fr_net *n, const char *name, fr_value x, const fr_model_opts *o);
fr_value fri_relu(fr_net *n, const char *name, fr_value x, const fr_model_opts *o);
fr_value fri_norm_relu(fr_net *n, const char *norm, const char *relu, fr_value x, const fr_model_opts *o);
/* Global or size x size average pooling, and the flatten behind it. */
fr_value fri_pool_flatten(fr_net *n, fr_value x, int64_t size);
/* Convolution without bias, batch norm, and `bend` unless that is NULL, as <name>.0, <name>.1 and <name>.2
 * (torchvision.ops.Conv2dNormActivation). */
typedef fr_value fri_net_activation(fr_net *n, const char *name, fr_value x);
fr_value fri_conv_norm(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, int64_t stride,
                       int64_t groups, const fr_batchnorm2d_opts *norm, fri_net_activation *bend);
/* Squeeze and excitation (Hu et al. 2017; torchvision.ops.SqueezeExcitation): x times gate(fc2(bend(fc1(mean of x)))),
 * with `squeeze` channels between. */
fr_value fri_squeeze_excite(fr_net *n, const char *name, fr_value x, int64_t squeeze, fri_net_activation *bend,
                            fri_net_activation *gate);
/* The layer that makes x begins with weights N(0, std) and bias 0. */
void fri_begin_normal(fr_net *n, fr_value x, double std);
/* A Linear as torchvision's classifiers begin: weights N(0, 0.01), bias 0. */
fr_value fri_dense(fr_net *n, const char *name, fr_value x, int64_t out);

#endif
