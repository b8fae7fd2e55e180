/* define_layers.c - a call per kind of layer (net.h): makes the module for its input and adds it. */
#include "net/define.h"

#include "base/status.h"

/* Adds *m, which the caller made with the status s, as a layer of one input and result. */
static fr_value one(fr_net *n, const char *name, fr_status s, fr_module **m, fr_value x) {
    fr_value y = {-1};
    fr_net_try(n, s);
    fr_net_module(n, name, m, &x, 1, &y, 1);
    return y;
}

/* A failed definition makes no modules, so that it draws no random numbers. */
static bool ready(const fr_net *n) {
    return fr_net_status(n) == FR_OK;
}

/* The channels or features of x. */
static int64_t width(const fr_net *n, fr_value x) {
    return fr_net_dim(n, x, -1);
}

static fr_status begin_weights(fr_module *m, fr_net_init_rule rule) {
    fr_tensor *bias = fr_module_tensor(m, "bias");
    if (rule == FR_NET_INIT_DEFAULT) return FR_OK;
    fr_status s = fr_init_kaiming_normal(fr_module_tensor(m, "weight"), rule == FR_NET_INIT_FAN_OUT);
    return s == FR_OK && bias != NULL ? fr_tensor_fill(bias, 0) : s;
}

fr_value fr_net_conv2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, const fr_conv2d_opts *opts,
                       bool bias) {
    fr_conv2d_module_opts o = *FR_CONV2D_MODULE_OPTS();
    fr_module *m = NULL;
    fr_status s = FR_OK;
    if (opts != NULL) o.conv = *opts;
    o.bias = bias;
    if (ready(n)) s = fr_nn_conv2d(width(n, x), out, kernel, &o, fri_net_device(n), &m);
    if (m != NULL) s = begin_weights(m, fri_net_rule(n));
    return one(n, name, s, &m, x);
}

fr_value fr_net_conv_transpose2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel,
                                 const fr_conv_transpose2d_opts *opts, bool bias) {
    fr_module *m = NULL;
    fr_status s = FR_OK;
    if (ready(n)) s = fr_nn_conv_transpose2d(width(n, x), out, kernel, opts, bias, fri_net_device(n), &m);
    return one(n, name, s, &m, x);
}

fr_value fr_net_linear(fr_net *n, const char *name, fr_value x, int64_t out, bool bias) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_linear(width(n, x), out, bias, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

fr_value fr_net_embedding(fr_net *n, const char *name, fr_value index, int64_t rows, int64_t dim) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_embedding(rows, dim, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, index);
}

fr_value fr_net_batchnorm2d(fr_net *n, const char *name, fr_value x, const fr_batchnorm2d_opts *opts) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fri_nn_batchnorm2d(width(n, x), opts, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

#define PARAMETERS(...) __VA_ARGS__
#define CHANNEL_LAYER(word, parameters, ...)                                                         \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, parameters) {                    \
        fr_module *m = NULL;                                                                         \
        const int64_t channels = width(n, x);                                                        \
        fr_status s = ready(n) ? fr_nn_##word(channels, __VA_ARGS__, fri_net_device(n), &m) : FR_OK; \
        return one(n, name, s, &m, x);                                                               \
    }
CHANNEL_LAYER(inplace_abn, PARAMETERS(double slope), slope)
CHANNEL_LAYER(group_norm, PARAMETERS(int64_t groups, double eps), groups, eps)
CHANNEL_LAYER(layer_norm, PARAMETERS(double eps), eps)
CHANNEL_LAYER(layer_scale, PARAMETERS(double init), init)

/* ---- without parameters ---------------------------------------------------------------------------------- */

#define PLAIN(word)                                                   \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x) { \
        fr_module *m = NULL;                                          \
        return one(n, name, fr_nn_##word(&m), &m, x);                 \
    }
PLAIN(relu)
PLAIN(relu6)
PLAIN(sigmoid)
PLAIN(tanh)
PLAIN(silu)
PLAIN(hardsigmoid)
PLAIN(hardswish)
PLAIN(gelu)
PLAIN(gelu_tanh)
PLAIN(softmax)
PLAIN(log_softmax)
PLAIN(identity)

#define LAYER(word, parameters, ...)                                              \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, parameters) { \
        fr_module *m = NULL;                                                      \
        return one(n, name, fr_nn_##word(__VA_ARGS__, &m), &m, x);                \
    }
LAYER(leaky_relu, PARAMETERS(double slope), slope)
LAYER(clamp, PARAMETERS(double low, double high), low, high)
LAYER(maxpool2d, PARAMETERS(int64_t kernel, const fr_pool2d_opts *opts), kernel, opts)
LAYER(avgpool2d, PARAMETERS(int64_t kernel, const fr_pool2d_opts *opts), kernel, opts)
LAYER(adaptive_avgpool2d, PARAMETERS(int64_t p, int64_t q), p, q)
LAYER(dropout, PARAMETERS(double p), p)
LAYER(dropout2d, PARAMETERS(double p), p)
LAYER(stochastic_depth, PARAMETERS(double p), p)
LAYER(flatten, PARAMETERS(int start_dim), start_dim)
LAYER(upsample, PARAMETERS(int64_t factor, fr_upsample_mode mode), factor, mode)
LAYER(zero_pad2d, PARAMETERS(const int64_t pad[4]), pad)
LAYER(pixel_shuffle, PARAMETERS(int64_t r), r)
LAYER(pixel_unshuffle, PARAMETERS(int64_t r), r)

/* ---- several inputs -------------------------------------------------------------------------------------- */

fr_value fr_net_upsample_to(fr_net *n, const char *name, fr_value x, fr_value like, fr_upsample_mode mode) {
    fr_value y = {-1};
    fr_net_op(n, name, &fri_upsample_to_class, &mode, sizeof mode, (fr_value[]){x, like}, 2, &y, 1);
    return y;
}

#define BINARY(word)                                                                    \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value a, fr_value b) {       \
        fr_value y = {-1};                                                              \
        fr_net_op(n, name, &fri_##word##_class, NULL, 0, (fr_value[]){a, b}, 2, &y, 1); \
        return y;                                                                       \
    }
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)

fr_value fr_net_concat(fr_net *n, const char *name, const fr_value *x, int count) {
    fr_value y = {-1};
    fr_net_op(n, name, &fri_concat_class, NULL, 0, x, count, &y, 1);
    return y;
}
