/* convnext.c - ConvNeXt-Tiny (torchvision.models.convnext_tiny).
 *
 *   stem     features.0: 4x4/4 to 96, layer norm
 *   stages   features.1, 3, 5, 7 of 3, 3, 9, 3 blocks: block.0 depthwise 7x7, layer norm, block.3 to four times the
 *            channels, gelu, block.5 back; a learned factor per channel that begins at 1e-6; stochastic depth, whose p
 *            grows from 0 to 0.1 over the blocks; + x. Between them, features.2, 4, 6: layer norm, 2x2/2 to twice the
 *            channels
 *   head     global average pooling, classifier.0 layer norm, classifier.2
 * Layer norm: eps 1e-6, over the channels, which lie last in memory: torchvision's permutations are no layers here. */
#include "addons/zoo/layers.h"

#define EPS 1e-6

static fr_value begin_normal(fr_net *n, fr_value x) {
    fri_zoo_begin_normal(n, x, 0.02);
    return x;
}

static fr_value cn_conv(fr_net *n, const char *name, fr_value x, int64_t out, int64_t size) {
    return begin_normal(n, fr_net_conv2d(n, name, x, out, size, FR_CONV2D_OPTS(.stride = size), FR_BIAS));
}

static fr_value cn_block(fr_net *n, fr_value x, double p) {
    const int64_t c = fr_net_dim(n, x, -1);
    const fr_conv2d_opts *depthwise = FR_CONV2D_OPTS(.padding = 3, .groups = c);
    fr_value y = begin_normal(n, fr_net_conv2d(n, "block.0", x, c, 7, depthwise, FR_BIAS));
    y = fr_net_layer_norm(n, "block.2", y, EPS);
    y = fr_net_gelu(n, "block.4", begin_normal(n, fr_net_linear(n, "block.3", y, 4 * c, FR_BIAS)));
    y = begin_normal(n, fr_net_linear(n, "block.5", y, c, FR_BIAS));
    y = fr_net_layer_scale(n, "layer_scale", y, 1e-6);
    return fr_net_add(n, "add", fr_net_stochastic_depth(n, "stochastic_depth", y, p), x);
}

fr_status fr_convnext_tiny(const fr_model_opts *opts, fr_module **m) {
    FRI_ZOO_SLOT(m);
    enum { STAGES = 4, BLOCKS = 18, CHANNELS = 96 };
    static const int blocks[STAGES] = {3, 3, 9, 3};
    fr_model_opts o;
    fr_value x;
    int block = 0;
    fr_status s = fri_zoo_opts("ConvNeXt", opts, 32, &o);
    if (s < 0) return s;
    fr_net *n = fri_zoo_begin(&o, &x);
    fr_net_scope_begin(n, "features");
    x = fr_net_layer_norm(n, "0.1", cn_conv(n, "0.0", x, fr_model_channels(&o, CHANNELS), 4), EPS);
    for (int i = 0; i < STAGES; i++) {
        for (int k = 0; k < blocks[i]; k++, block++) {
            fr_net_scope_begin(n, "%d.%d", 2 * i + 1, k);
            x = cn_block(n, x, 0.1 * block / (BLOCKS - 1));
            fr_net_scope_end(n);
        }
        if (i == STAGES - 1) break;
        fr_net_scope_begin(n, "%d", 2 * i + 2);
        x = cn_conv(n, "1", fr_net_layer_norm(n, "0", x, EPS), 2 * fr_net_dim(n, x, -1), 2);
        fr_net_scope_end(n);
    }
    fr_net_scope_end(n);
    x = fr_net_layer_norm(n, "classifier.0", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), EPS);
    x = fr_net_linear(n, "classifier.2", fr_net_flatten(n, "classifier.1", x, 1), o.classes, FR_BIAS);
    x = begin_normal(n, x);
    return fr_net_end(&n, &x, 1, m);
}
