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

fr_value fr_net_inplace_abn(fr_net *n, const char *name, fr_value x, double slope) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_inplace_abn(width(n, x), slope, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

fr_value fr_net_group_norm(fr_net *n, const char *name, fr_value x, int64_t groups, double eps) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_group_norm(width(n, x), groups, eps, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

fr_value fr_net_layer_norm(fr_net *n, const char *name, fr_value x, double eps) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_layer_norm(width(n, x), eps, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

fr_value fr_net_layer_scale(fr_net *n, const char *name, fr_value x, double init) {
    fr_module *m = NULL;
    fr_status s = ready(n) ? fr_nn_layer_scale(width(n, x), init, fri_net_device(n), &m) : FR_OK;
    return one(n, name, s, &m, x);
}

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

fr_value fr_net_leaky_relu(fr_net *n, const char *name, fr_value x, double slope) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_leaky_relu(slope, &m), &m, x);
}

fr_value fr_net_clamp(fr_net *n, const char *name, fr_value x, double low, double high) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_clamp(low, high, &m), &m, x);
}

fr_value fr_net_maxpool2d(fr_net *n, const char *name, fr_value x, int64_t kernel, const fr_pool2d_opts *opts) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_maxpool2d(kernel, opts, &m), &m, x);
}

fr_value fr_net_avgpool2d(fr_net *n, const char *name, fr_value x, int64_t kernel, const fr_pool2d_opts *opts) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_avgpool2d(kernel, opts, &m), &m, x);
}

fr_value fr_net_adaptive_avgpool2d(fr_net *n, const char *name, fr_value x, int64_t p, int64_t q) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_adaptive_avgpool2d(p, q, &m), &m, x);
}

fr_value fr_net_dropout(fr_net *n, const char *name, fr_value x, double p) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_dropout(p, &m), &m, x);
}

fr_value fr_net_dropout2d(fr_net *n, const char *name, fr_value x, double p) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_dropout2d(p, &m), &m, x);
}

fr_value fr_net_stochastic_depth(fr_net *n, const char *name, fr_value x, double p) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_stochastic_depth(p, &m), &m, x);
}

fr_value fr_net_flatten(fr_net *n, const char *name, fr_value x, int start_dim) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_flatten(start_dim, &m), &m, x);
}

fr_value fr_net_upsample(fr_net *n, const char *name, fr_value x, int64_t factor, fr_upsample_mode mode) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_upsample(factor, mode, &m), &m, x);
}

fr_value fr_net_zero_pad2d(fr_net *n, const char *name, fr_value x, const int64_t pad[4]) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_zero_pad2d(pad, &m), &m, x);
}

fr_value fr_net_pixel_shuffle(fr_net *n, const char *name, fr_value x, int64_t r) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_pixel_shuffle(r, &m), &m, x);
}

fr_value fr_net_pixel_unshuffle(fr_net *n, const char *name, fr_value x, int64_t r) {
    fr_module *m = NULL;
    return one(n, name, fr_nn_pixel_unshuffle(r, &m), &m, x);
}

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
