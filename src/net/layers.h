/* layers.h - the table of layers. A row holds the op's name, the parameters of the layer's fr_net call (net.h) after
 * the input, and the arguments passed on. It generates the fr_net call (define_layers.c) and the prototype of a
 * constructor, which creates a module with torch's names, defaults and initialization (layers.c, stateless.c).
 * Constructors replace *m; FR_EINVAL names class and option. */
#ifndef FRI_NET_LAYERS_H
#define FRI_NET_LAYERS_H

#include "backend/kernel_map.h"

#include <frugal/net.h>
#include <frugal/nn.h>

#define FRI_PARAMETERS(...) __VA_ARGS__

#define FRI_ACTIVATION_LAYER(word, saves, class_name, kind, X) X(word)
#define FRI_PLAIN_LAYERS(X) \
    X(relu) X(relu6) X(softmax) X(log_softmax) X(identity) FRI_ACTIVATIONS(FRI_ACTIVATION_LAYER, X)

#define FRI_LAYERS(X)                                                                                      \
    X(leaky_relu, FRI_PARAMETERS(double slope), slope)                                                     \
    X(clamp, FRI_PARAMETERS(double low, double high), low, high)                                           \
    X(maxpool2d, FRI_PARAMETERS(int64_t kernel, const fr_pool2d_opts *opts), kernel, opts)                 \
    X(avgpool2d, FRI_PARAMETERS(int64_t kernel, const fr_pool2d_opts *opts), kernel, opts)                 \
    X(adaptive_avgpool2d, FRI_PARAMETERS(int64_t p, int64_t q), p, q)                                      \
    X(dropout, FRI_PARAMETERS(double p), p)                                                                \
    X(dropout2d, FRI_PARAMETERS(double p), p)                                                              \
    X(stochastic_depth, FRI_PARAMETERS(double p), p)                                                       \
    X(flatten, FRI_PARAMETERS(int start_dim), start_dim)                                                   \
    X(upsample, FRI_PARAMETERS(int64_t factor, fr_upsample_mode mode), factor, mode)                       \
    X(zero_pad2d, FRI_PARAMETERS(const int64_t pad[4]), pad)                                               \
    X(pixel_shuffle, FRI_PARAMETERS(int64_t r), r)                                                         \
    X(pixel_unshuffle, FRI_PARAMETERS(int64_t r), r)                                                       \
    X(slice, FRI_PARAMETERS(int dim, int64_t start, int64_t end, int64_t step), dim, start, end, step)     \
    X(unflatten, FRI_PARAMETERS(int64_t h, int64_t w), h, w)                                               \
    X(resize, FRI_PARAMETERS(int64_t h, int64_t w, fr_upsample_mode mode, bool align_corners), h, w, mode, \
      align_corners)                                                                                       \
    X(constant_pad2d, FRI_PARAMETERS(const int64_t pad[4], double value), pad, value)                      \
    X(scale, FRI_PARAMETERS(double alpha), alpha)                                                          \
    X(add_scalar, FRI_PARAMETERS(double alpha), alpha)                                                     \
    X(channel_shuffle, FRI_PARAMETERS(int64_t groups), groups)                                             \
    X(narrow, FRI_PARAMETERS(int64_t start, int64_t length), start, length)

/* Layers with parameters on a device. The first argument is the number of input channels. */
#define FRI_CHANNEL_LAYERS(X)                                                                                         \
    X(linear, FRI_PARAMETERS(int64_t out, bool bias), out, bias)                                                      \
    X(conv_transpose2d, FRI_PARAMETERS(int64_t out, int64_t kernel, const fr_conv_transpose2d_opts *opts, bool bias), \
      out, kernel, opts, bias)                                                                                        \
    X(batchnorm2d, FRI_PARAMETERS(const fr_batchnorm2d_opts *opts), opts)                                             \
    X(inplace_abn, FRI_PARAMETERS(double slope), slope)                                                               \
    X(group_norm, FRI_PARAMETERS(int64_t groups, double eps), groups, eps)                                            \
    X(layer_norm, FRI_PARAMETERS(double eps), eps)                                                                    \
    X(layer_scale, FRI_PARAMETERS(double init), init)                                                                 \
    X(layer_shift, FRI_PARAMETERS(double init), init)                                                                 \
    X(prelu, FRI_PARAMETERS(int64_t slopes, double init), slopes, init)

#define FRI_PROTOTYPE(word, ...)                   fr_status fri_nn_##word(fr_module **m);
#define FRI_LAYER_PROTOTYPE(word, parameters, ...) fr_status fri_nn_##word(parameters, fr_module **m);
#define FRI_CHANNEL_PROTOTYPE(word, parameters, ...) \
    fr_status fri_nn_##word(int64_t in, parameters, fr_device device, fr_module **m);
FRI_PLAIN_LAYERS(FRI_PROTOTYPE)
FRI_LAYERS(FRI_LAYER_PROTOTYPE)
FRI_CHANNEL_LAYERS(FRI_CHANNEL_PROTOTYPE)

fr_status fri_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const fr_conv2d_opts *opts, bool bias,
                        fr_device device, fr_module **m);
fr_status fri_nn_embedding(int64_t rows, int64_t dim, fr_device device, fr_module **m);

/* Layers of ONNX files, not exported. PReLU trains a single slope or a slope per channel. */
fr_value fr_net_prelu(fr_net *n, const char *name, fr_value x, int64_t slopes, double init);
fr_value fr_net_elu(fr_net *n, const char *name, fr_value x);
fr_value fr_net_softplus(fr_net *n, const char *name, fr_value x);

#endif
