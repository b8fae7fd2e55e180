/* mobilenet.c - MobileNetV2 (torchvision.models.mobilenet_v2).
 *
 *   stem     features.0: 3x3/2, batch norm, relu6        (small_stem: stride 1, and 1 in the first block of stage 2)
 *   blocks   features.1..17: 1x1 to `expansion` times the channels, 3x3 depthwise, each with batch norm and relu6; 1x1
 *            back and batch norm; + x where the shape stays
 *   head     features.18: 1x1 to 1280, batch norm, relu6; global average pooling, dropout 0.2, classifier.1 */
#include "models/models.h"

static const struct {
    int expansion, channels, blocks, stride;
} stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

/* Convolution, batch norm and relu6 as <name>.0, <name>.1 and <name>.2. */
static fr_value conv_norm_relu6(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel, int64_t stride,
                                int64_t groups, const fr_model_opts *o) {
    fr_net_scope_begin(n, "%s", name);
    x = fr_net_conv2d(n, NULL, x, out, kernel,
                      FR_CONV2D_OPTS(.stride = stride, .padding = kernel / 2, .groups = groups), FR_NO_BIAS);
    x = fri_model_norm(n, NULL, x, o);
    x = o->abn_slope > 0 ? fr_net_identity(n, NULL, x) : fr_net_relu6(n, NULL, x);
    fr_net_scope_end(n);
    return x;
}

static fr_value inverted_residual(fr_net *n, fr_value x, int expansion, int64_t out, int64_t stride,
                                  const fr_model_opts *o) {
    const int64_t in = fr_net_dim(n, x, -1), inner = in * expansion;
    fr_value y = x;
    if (expansion > 1) y = conv_norm_relu6(n, "conv.0", y, inner, 1, 1, 1, o);
    y = conv_norm_relu6(n, expansion > 1 ? "conv.1" : "conv.0", y, inner, 3, stride, inner, o);
    y = fr_net_conv2d(n, expansion > 1 ? "conv.2" : "conv.1", y, out, 1, NULL, FR_NO_BIAS);
    y = fr_net_batchnorm2d(n, expansion > 1 ? "conv.3" : "conv.2", y, NULL);
    return stride == 1 && in == out ? fr_net_add(n, "add", y, x) : y;
}

fr_status fr_mobilenet(int version, const fr_model_opts *opts, fr_module **m) {
    FRI_MODEL_SLOT(m);
    fr_model_opts o;
    fr_value x;
    int at = 1;
    if (version != 2) return fr_fail(FR_EINVAL, "MobileNet: version is %d; only 2 exists", version);
    const bool small = opts != NULL && opts->small_stem;
    fr_status s = fr_model_opts_check("MobileNet", opts, small ? 8 : 32, &o);
    if (s < 0) return s;
    fr_net *n = fri_model_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    fr_net_scope_begin(n, "features");
    x = conv_norm_relu6(n, "0", x, fr_model_channels(&o, 32), 3, small ? 1 : 2, 1, &o);
    for (int i = 0; i < (int)(sizeof stages / sizeof *stages); i++)
        for (int k = 0; k < stages[i].blocks; k++) {
            fr_net_scope_begin(n, "%d", at++);
            x = inverted_residual(n, x, stages[i].expansion, fr_model_channels(&o, stages[i].channels),
                                  k > 0 || (small && i == 1) ? 1 : stages[i].stride, &o);
            fr_net_scope_end(n);
        }
    x = conv_norm_relu6(n, "18", x, o.width > 1 ? fr_model_channels(&o, 1280) : 1280, 1, 1, 1, &o);
    fr_net_scope_end(n);
    x = fr_net_dropout(n, "classifier.0", fri_pool_flatten(n, x, 1), 0.2);
    x = fri_dense(n, "classifier.1", x, o.classes);
    return fr_net_end(&n, &x, 1, m);
}
