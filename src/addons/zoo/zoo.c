/* zoo.c - the table of the zoo's networks, and their layers (layers.h). */
#include "addons/zoo/layers.h"

#include <frugal/addon.h>

/* ---- networks by name ------------------------------------------------------------------------------------------ */

static fr_status v3_small(int number, const fr_model_opts *opts, fr_module **m) {
    (void)number;
    return fr_mobilenet_v3(false, opts, m);
}

static fr_status v3_large(int number, const fr_model_opts *opts, fr_module **m) {
    (void)number;
    return fr_mobilenet_v3(true, opts, m);
}

static fr_status convnext_tiny(int number, const fr_model_opts *opts, fr_module **m) {
    (void)number;
    return fr_convnext_tiny(opts, m);
}

static const fr_model_family families[] = {
    {"mobilenet_v3_small", true, v3_small}, {"mobilenet_v3_large", true, v3_large},
    {"convnext_tiny", true, convnext_tiny}, {"efficientnet_b", false, fr_efficientnet},
    {"squeezenet1_", false, fr_squeezenet}, {0},
};

const fr_addon fr_addon_zoo = {.name = "zoo", .models = families};

/* ---- layers ---------------------------------------------------------------------------------------------------- */

fr_status fri_zoo_opts(const char *name, const fr_model_opts *opts, int64_t stride, fr_model_opts *out) {
    const fr_status s = fr_model_opts_check(name, opts, stride, out);
    if (s == FR_OK && (out->small_stem || out->abn_slope > 0))
        return fr_fail(FR_EINVAL, "%s: %s is not supported", name, out->small_stem ? "small_stem" : "abn_slope");
    return s;
}

fr_net *fri_zoo_begin(const fr_model_opts *o, fr_value *x) {
    fr_net *n = fr_net_begin(o->device);
    *x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->image_size, o->image_width, o->in_channels});
    return n;
}

fr_value fri_zoo_pool(fr_net *n, fr_value x) {
    return fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
}

fr_value fri_zoo_conv_norm(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, int64_t stride,
                           int64_t groups, const fr_batchnorm2d_opts *norm, fri_zoo_activation *bend) {
    fr_net_scope_begin(n, "%s", name);
    x = fr_net_conv2d(n, NULL, x, out, kernel,
                      FR_CONV2D_OPTS(.stride = stride, .padding = kernel / 2, .groups = groups), FR_NO_BIAS);
    x = fr_net_batchnorm2d(n, NULL, x, norm);
    if (bend != NULL) x = bend(n, NULL, x);
    fr_net_scope_end(n);
    return x;
}

fr_value fri_zoo_squeeze_excite(fr_net *n, const char *name, fr_value x, int64_t squeeze, fri_zoo_activation *bend,
                                fri_zoo_activation *gate) {
    const int64_t c = fr_net_dim(n, x, -1);
    fr_net_scope_begin(n, "%s", name);
    fr_value s = fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1);
    s = bend(n, "activation", fr_net_conv2d(n, "fc1", s, squeeze, 1, NULL, FR_BIAS));
    s = gate(n, "scale_activation", fr_net_conv2d(n, "fc2", s, c, 1, NULL, FR_BIAS));
    x = fr_net_mul(n, "scale", x, s);
    fr_net_scope_end(n);
    return x;
}

void fri_zoo_begin_normal(fr_net *n, fr_value x, double std) {
    fr_module *m = fr_net_layer_of(n, x);
    if (m == NULL) return;
    fr_net_try(n, fr_init_normal(fr_module_tensor(m, "weight"), 0, std));
    fr_net_try(n, fr_tensor_fill(fr_module_tensor(m, "bias"), 0));
}

fr_value fri_zoo_dense(fr_net *n, const char *name, fr_value x, int64_t out) {
    x = fr_net_linear(n, name, x, out, FR_BIAS);
    fri_zoo_begin_normal(n, x, 0.01);
    return x;
}
