/* define_layers.c - one call per kind of layer (net.h): creates the module for its input and adds the layer. */
#include "net/define.h"
#include "net/layers.h"

#include "base/status.h"

/* Adds *m, created by the caller with status s, as a layer of one input and one result. */
static fr_value add_layer(fr_net *n, const char *name, fr_status s, fr_module **m, fr_value x) {
    fr_value y = {-1};
    fr_net_try(n, s);
    fr_net_module(n, name, m, &x, 1, &y, 1);
    return y;
}

/* A failed definition creates no modules, so that no random numbers are drawn. */
static bool is_open(const fr_net *n) {
    return fr_net_status(n) == FR_OK;
}

/* Channels or features of x. */
static int64_t width_of(const fr_net *n, fr_value x) {
    return fr_net_dim(n, x, -1);
}

static fr_status begin_weights(fr_module *m, fr_net_init_rule rule) {
    fr_tensor *bias = fr_module_tensor(m, "bias");
    if (rule == FR_NET_INIT_DEFAULT) return FR_OK;
    fr_status s = fri_init_kaiming_normal(fr_module_tensor(m, "weight"), rule == FR_NET_INIT_FAN_OUT);
    return s == FR_OK && bias != NULL ? fr_tensor_fill(bias, 0) : s;
}

fr_value fr_net_conv2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, const fr_conv2d_opts *opts,
                       bool bias) {
    fr_module *m = NULL;
    fr_status s = is_open(n) ? fri_nn_conv2d(width_of(n, x), out, kernel, opts, bias, fri_net_device(n), &m) : FR_OK;
    if (m != NULL) s = begin_weights(m, fri_net_rule(n));
    return add_layer(n, name, s, &m, x);
}

fr_value fr_net_embedding(fr_net *n, const char *name, fr_value index, int64_t rows, int64_t dim) {
    fr_module *m = NULL;
    fr_status s = is_open(n) ? fri_nn_embedding(rows, dim, fri_net_device(n), &m) : FR_OK;
    return add_layer(n, name, s, &m, index);
}

#define CHANNEL_LAYER(word, parameters, ...)                                                            \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, parameters) {                       \
        fr_module *m = NULL;                                                                            \
        const int64_t channels = width_of(n, x);                                                        \
        fr_status s = is_open(n) ? fri_nn_##word(channels, __VA_ARGS__, fri_net_device(n), &m) : FR_OK; \
        return add_layer(n, name, s, &m, x);                                                            \
    }
FRI_CHANNEL_LAYERS(CHANNEL_LAYER)

#define PLAIN(word)                                                   \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x) { \
        fr_module *m = NULL;                                          \
        return add_layer(n, name, fri_nn_##word(&m), &m, x);          \
    }
FRI_PLAIN_LAYERS(PLAIN)

#define LAYER(word, parameters, ...)                                              \
    fr_value fr_net_##word(fr_net *n, const char *name, fr_value x, parameters) { \
        fr_module *m = NULL;                                                      \
        return add_layer(n, name, fri_nn_##word(__VA_ARGS__, &m), &m, x);         \
    }
FRI_LAYERS(LAYER)

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
