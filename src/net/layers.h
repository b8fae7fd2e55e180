/* layers.h - the tables of layers: each row generates the layer's fr_net call (net.h) and a constructor, which makes a
 * module with torch's names, defaults and initialization (stateless.c, layers.c). Constructors replace *m; FR_EINVAL
 * names class and option. Options of layers without parameters are checked by the op, whose first call is the shape run
 * of the definition. */
#ifndef FRI_NET_LAYERS_H
#define FRI_NET_LAYERS_H

#include "backend/kernel_map.h"

#include <frugal/net.h>
#include <frugal/nn.h>

#define FRI_PARAMETERS(...) __VA_ARGS__

/* Layers whose op takes only x. */
#define FRI_PLAIN_LAYERS(X) X(relu, , "ReLU", RELU) X(relu6, , "ReLU6", RELU6) FRI_ACTIVATIONS(X)

/* Layers with options: word, class, traits, parameters of the fr_net call after the input, the call of the op on *x,
 * type and values of the state, to which s points in the call. RANDOM, ACTIVATION, SHAPE and MOVES are traits of
 * stateless.c. */
/* clang-format off */
#define FRI_LAYERS(X)                                                                                                  \
    X(leaky_relu, "LeakyReLU", ACTIVATION, (double slope), fr_leaky_relu(*x, *s, x), double, slope)                    \
    X(clamp, "Clamp", ACTIVATION, (double low, double high), fr_clamp(*x, s[0], s[1], x), double, low, high)           \
    X(scale, "Scale", ACTIVATION, (double alpha), fr_scale(*x, *s, x), double, alpha)                                  \
    X(add_scalar, "AddScalar", ACTIVATION, (double alpha), fr_add_scalar(*x, *s, x), double, alpha)                    \
    X(dropout, "Dropout", RANDOM, (double p), fr_dropout(*x, *s, m->training, x), double, p)                           \
    X(dropout2d, "Dropout2d", RANDOM, (double p), fr_dropout2d(*x, *s, m->training, x), double, p)                     \
    X(stochastic_depth, "StochasticDepth", RANDOM, (double p), fr_stochastic_depth(*x, *s, m->training, x), double, p) \
    X(maxpool2d, "MaxPool2d", SHAPE, (int64_t kernel, const fr_pool2d_opts *opts),                                     \
      fr_maxpool2d(*x, s->kernel, &s->opts, x), fr_pool2d_state, {kernel, POOL_OPTIONS})                               \
    X(avgpool2d, "AvgPool2d", SHAPE, (int64_t kernel, const fr_pool2d_opts *opts),                                     \
      fr_avgpool2d(*x, s->kernel, &s->opts, x), fr_pool2d_state, {kernel, POOL_OPTIONS})                               \
    X(adaptive_avgpool2d, "AdaptiveAvgPool2d", SHAPE, (int64_t p, int64_t q),                                          \
      fr_adaptive_avgpool2d(*x, s[0], s[1], x), int64_t, p, q)                                                         \
    X(flatten, "Flatten", SHAPE | FR_LAYER_FLATTENS, (int start_dim), fr_flatten(*x, *s, x), int, start_dim)           \
    X(unflatten, "Unflatten", SHAPE, (int64_t h, int64_t w), unflatten(s, x), int64_t, h, w)                           \
    X(upsample, "Upsample", SHAPE, (int64_t factor, fr_upsample_mode mode), enlarge(s, x), fr_upsample_state,          \
      {factor, mode})                                                                                                  \
    X(resize, "Resize", SHAPE, (int64_t h, int64_t w, fr_upsample_mode mode, bool align_corners),                      \
      fr_upsample(*x, s->h, s->w, s->mode, s->align_corners, x), fr_resize_state, {h, w, mode, align_corners})         \
    X(zero_pad2d, "ZeroPad2d", SHAPE, (const int64_t pad[4]), pad2d(s, x), fr_pad2d_state, pad_of(pad, 0))             \
    X(constant_pad2d, "ConstantPad2d", SHAPE, (const int64_t pad[4], double value), pad2d(s, x), fr_pad2d_state,       \
      pad_of(pad, value))                                                                                              \
    X(pixel_shuffle, "PixelShuffle", SHAPE, (int64_t r), fr_pixel_shuffle(*x, *s, x), int64_t, r)                      \
    X(pixel_unshuffle, "PixelUnshuffle", SHAPE, (int64_t r), fr_pixel_unshuffle(*x, *s, x), int64_t, r)                \
    X(channel_shuffle, "ChannelShuffle", MOVES, (int64_t groups), shuffle_channels(*s, x), int64_t, groups)            \
    X(narrow, "Narrow", MOVES, (int64_t start, int64_t length), narrow_channels(s, x), int64_t, start, length)         \
    X(slice, "Slice", SHAPE, (int dim, int64_t start, int64_t end, int64_t step), slice_image(s, x), fr_slice_state,   \
      {dim, start, end, step})
/* clang-format on */

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

#define FRI_PROTOTYPE(word, ...) fr_status fri_nn_##word(fr_module **m);
#define FRI_LAYER_PROTOTYPE(word, class_name, traits, parameters, ...) \
    fr_status fri_nn_##word(FRI_PARAMETERS parameters, fr_module **m);
#define FRI_CHANNEL_PROTOTYPE(word, parameters, ...) \
    fr_status fri_nn_##word(int64_t in, parameters, fr_device device, fr_module **m);
FRI_PLAIN_LAYERS(FRI_PROTOTYPE)
FRI_LAYERS(FRI_LAYER_PROTOTYPE)
FRI_CHANNEL_LAYERS(FRI_CHANNEL_PROTOTYPE)

fr_status fri_nn_softmax(fr_module **m);
fr_status fri_nn_log_softmax(fr_module **m);
fr_status fri_nn_identity(fr_module **m);
fr_status fri_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const fr_conv2d_opts *opts, bool bias,
                        fr_device device, fr_module **m);
fr_status fri_nn_embedding(int64_t rows, int64_t dim, fr_device device, fr_module **m);

/* Layers of ONNX files, not exported. PReLU trains a single slope or a slope per channel. */
fr_value fr_net_prelu(fr_net *n, const char *name, fr_value x, int64_t slopes, double init);
fr_value fr_net_elu(fr_net *n, const char *name, fr_value x);
fr_value fr_net_softplus(fr_net *n, const char *name, fr_value x);

#endif
