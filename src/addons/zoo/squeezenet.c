/* squeezenet.c - SqueezeNet 1.1 (torchvision.models.squeezenet1_1).
 *
 *   stem     features.0: 3x3/2 to 64, relu, 3x3/2 max pooling
 *   fires    features.3 ..: squeeze 1x1 to s channels, relu; expand1x1 and expand3x3 of that, relu, side by side; max
 *            pooling behind the second and the fourth
 *   head     dropout 0.5, classifier.1: 1x1 to the classes, relu, global average pooling */
#include "addons/zoo/layers.h"

#include <math.h>

static const struct {
    int at, squeeze, expand; /* features.<at>; channels, and of each of the two */
    bool pool;               /* in front of it */
} fires[] = {{3, 16, 64, false}, {4, 16, 64, false},   {6, 32, 128, true},   {7, 32, 128, false},
             {9, 48, 192, true}, {10, 48, 192, false}, {11, 64, 256, false}, {12, 64, 256, false}};

/* Weights U(-b, b) with b = sqrt(6 / fan in), bias 0. */
static void begin_as_torchvision(fr_net *n, fr_value x) {
    fr_module *m = fr_net_layer_of(n, x);
    if (m == NULL) return;
    fr_tensor *w = fr_module_tensor(m, "weight");
    const double bound = sqrt(6 * (double)fr_tensor_dim(w, 0) / (double)fr_tensor_numel(w));
    fr_net_try(n, fr_init_uniform(w, -bound, bound));
    fr_net_try(n, fr_tensor_fill(fr_module_tensor(m, "bias"), 0));
}

static fr_value conv_relu(fr_net *n, const char *conv, const char *relu, fr_value x, int64_t out, int64_t kernel) {
    x = fr_net_conv2d(n, conv, x, out, kernel, FR_CONV2D_OPTS(.padding = kernel / 2), FR_BIAS);
    begin_as_torchvision(n, x);
    return fr_net_relu(n, relu, x);
}

static fr_value add_fire(fr_net *n, fr_value x, int64_t squeeze, int64_t expand) {
    x = conv_relu(n, "squeeze", "squeeze_activation", x, squeeze, 1);
    const fr_value sides[] = {conv_relu(n, "expand1x1", "expand1x1_activation", x, expand, 1),
                              conv_relu(n, "expand3x3", "expand3x3_activation", x, expand, 3)};
    return fr_net_concat(n, "cat", sides, 2);
}

static fr_value add_pooling(fr_net *n, int at, fr_value x) {
    fr_net_scope_begin(n, "%d", at);
    x = fr_net_maxpool2d(n, NULL, x, 3, FR_POOL2D_OPTS(.stride = 2, .ceil_mode = true));
    fr_net_scope_end(n);
    return x;
}

fr_status fr_squeezenet(int version, const fr_model_opts *opts, fr_module **m) {
    FRI_ZOO_SLOT(m);
    fr_model_opts o;
    fr_value x;
    if (version != 1) return fr_fail(FR_EINVAL, "SqueezeNet: 1.%d; only 1.1 exists", version);
    fr_status s = fri_zoo_opts("SqueezeNet", opts, 17, &o);
    if (s < 0) return s;
    fr_net *n = fri_zoo_begin(&o, &x);
    fr_net_scope_begin(n, "features");
    x = fr_net_conv2d(n, "0", x, fr_model_channels(&o, 64), 3, FR_CONV2D_OPTS(.stride = 2), FR_BIAS);
    begin_as_torchvision(n, x);
    x = add_pooling(n, 2, fr_net_relu(n, "1", x));
    for (size_t i = 0; i < sizeof fires / sizeof *fires; i++) {
        if (fires[i].pool) x = add_pooling(n, fires[i].at - 1, x);
        fr_net_scope_begin(n, "%d", fires[i].at);
        x = add_fire(n, x, fr_model_channels(&o, fires[i].squeeze), fr_model_channels(&o, fires[i].expand));
        fr_net_scope_end(n);
    }
    fr_net_scope_end(n);
    x = fr_net_dropout(n, "classifier.0", x, 0.5);
    x = fr_net_conv2d(n, "classifier.1", x, o.classes, 1, NULL, FR_BIAS);
    begin_as_torchvision(n, x);
    fri_zoo_begin_normal(n, x, 0.01);
    x = fri_zoo_pool(n, fr_net_relu(n, "classifier.2", x));
    return fr_net_end(&n, &x, 1, m);
}
