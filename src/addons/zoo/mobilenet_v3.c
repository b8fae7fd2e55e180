/* mobilenet_v3.c - MobileNetV3 (torchvision.models.mobilenet_v3_small and _large).
 *
 *   stem     features.0: 3x3/2 to 16, batch norm, hardswish
 *   blocks   features.1..: block.0 1x1 to `inner`, depthwise k x k, each with batch norm and its activation; squeeze
 *            and excitation by a quarter of `inner`; 1x1 back and batch norm; + x where the shape stays
 *   head     1x1 to 6 times the channels, batch norm, hardswish; global average pooling; classifier.0 with hardswish,
 *            dropout 0.2, classifier.3
 * Batch norm: eps 0.001, momentum 0.01. */
#include "addons/zoo/layers.h"

typedef struct bottleneck {
    int kernel, inner, channels;
    bool squeeze;
    int stride;
    bool hard; /* hardswish, else relu */
} bottleneck;

static const bottleneck small_blocks[] = {{3, 16, 16, true, 2, false},  {3, 72, 24, false, 2, false},
                                          {3, 88, 24, false, 1, false}, {5, 96, 40, true, 2, true},
                                          {5, 240, 40, true, 1, true},  {5, 240, 40, true, 1, true},
                                          {5, 120, 48, true, 1, true},  {5, 144, 48, true, 1, true},
                                          {5, 288, 96, true, 2, true},  {5, 576, 96, true, 1, true},
                                          {5, 576, 96, true, 1, true}};
static const bottleneck large_blocks[] = {{3, 16, 16, false, 1, false}, {3, 64, 24, false, 2, false},
                                          {3, 72, 24, false, 1, false}, {5, 72, 40, true, 2, false},
                                          {5, 120, 40, true, 1, false}, {5, 120, 40, true, 1, false},
                                          {3, 240, 80, false, 2, true}, {3, 200, 80, false, 1, true},
                                          {3, 184, 80, false, 1, true}, {3, 184, 80, false, 1, true},
                                          {3, 480, 112, true, 1, true}, {3, 672, 112, true, 1, true},
                                          {5, 672, 160, true, 2, true}, {5, 960, 160, true, 1, true},
                                          {5, 960, 160, true, 1, true}};

static fr_value v3_block(fr_net *n, fr_value x, const bottleneck *b, const fr_batchnorm2d_opts *norm,
                         const fr_model_opts *o) {
    static const char *const names[] = {"0", "1", "2", "3"};
    const int64_t in = fr_net_dim(n, x, -1), inner = fr_model_channels(o, b->inner),
                  out = fr_model_channels(o, b->channels);
    fri_zoo_activation *bend = b->hard ? fr_net_hardswish : fr_net_relu;
    fr_value y = x;
    int at = 0;
    fr_net_scope_begin(n, "block");
    if (inner != in) y = fri_zoo_conv_norm(n, names[at++], y, inner, 1, 1, 1, norm, bend);
    y = fri_zoo_conv_norm(n, names[at++], y, inner, b->kernel, b->stride, inner, norm, bend);
    if (b->squeeze)
        y = fri_zoo_squeeze_excite(n, names[at++], y, fr_model_divisible((double)(inner / 4)), fr_net_relu,
                                   fr_net_hardsigmoid);
    y = fri_zoo_conv_norm(n, names[at], y, out, 1, 1, 1, norm, NULL);
    fr_net_scope_end(n);
    return b->stride == 1 && in == out ? fr_net_add(n, "add", y, x) : y;
}

fr_status fr_mobilenet_v3(bool large, const fr_model_opts *opts, fr_module **m) {
    FRI_ZOO_SLOT(m);
    fr_model_opts o;
    fr_value x;
    const bottleneck *b = large ? large_blocks : small_blocks;
    const int blocks = (int)(large ? sizeof large_blocks : sizeof small_blocks) / (int)sizeof *b;
    fr_status s = fri_zoo_opts("MobileNetV3", opts, 32, &o);
    if (s < 0) return s;
    const fr_batchnorm2d_opts *norm = FR_BATCHNORM2D_OPTS(.eps = 0.001, .momentum = 0.01);
    fr_net *n = fri_zoo_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    fr_net_scope_begin(n, "features");
    x = fri_zoo_conv_norm(n, "0", x, fr_model_channels(&o, 16), 3, 2, 1, norm, fr_net_hardswish);
    for (int i = 0; i < blocks; i++) {
        fr_net_scope_begin(n, "%d", i + 1);
        x = v3_block(n, x, &b[i], norm, &o);
        fr_net_scope_end(n);
    }
    x = fri_zoo_conv_norm(n, large ? "16" : "12", x, 6 * fr_net_dim(n, x, -1), 1, 1, 1, norm, fr_net_hardswish);
    fr_net_scope_end(n);
    x = fri_zoo_dense(n, "classifier.0", fri_zoo_pool(n, x), fr_model_channels(&o, large ? 1280 : 1024));
    x = fr_net_dropout(n, "classifier.2", fr_net_hardswish(n, "classifier.1", x), 0.2);
    x = fri_zoo_dense(n, "classifier.3", x, o.classes);
    return fr_net_end(&n, &x, 1, m);
}
