/* resnet.c - ResNet-18/34/50/101/152 (torchvision.models.resnet, v1.5: the 3x3 convolution of a bottleneck has the
 * stride).
 *
 *   stem     conv1 7x7/2, bn1, relu, maxpool 3x3/2          (small_stem: conv1 3x3/1, bn1, relu)
 *   layers   layer1..layer4 of blocks; block: f(x) + x, relu, with a 1x1 downsample where the shape changes
 *   head     global average pooling, fc */
#include "models/models.h"

#include <stdio.h>

static const struct {
    int depth;
    bool bottleneck;
    int blocks[4];
} variants[] = {
    {18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},  {50, true, {3, 4, 6, 3}},
    {101, true, {3, 4, 23, 3}}, {152, true, {3, 8, 36, 3}},
};

/* convK and bnK, and a relu unless they are the branch's last. */
static fr_value conv_bn(fr_net *n, int k, bool last, fr_value x, int64_t out, int64_t kernel, int64_t stride,
                        const fr_model_opts *o) {
    char conv[16], norm[16], relu[16];
    snprintf(conv, sizeof conv, "conv%d", k);
    snprintf(norm, sizeof norm, "bn%d", k);
    snprintf(relu, sizeof relu, "relu%d", k);
    x = fr_net_conv2d(n, conv, x, out, kernel, FR_CONV2D_OPTS(.stride = stride, .padding = kernel / 2), FR_NO_BIAS);
    return last ? fr_net_batchnorm2d(n, norm, x, NULL) : fri_model_norm_relu(n, norm, relu, x, o);
}

static fr_value residual(fr_net *n, bool bottleneck, fr_value x, int64_t width, int64_t stride,
                         const fr_model_opts *o) {
    const int64_t out = bottleneck ? 4 * width : width;
    fr_value y = x, identity = x;
    if (bottleneck) {
        y = conv_bn(n, 1, false, y, width, 1, 1, o);
        y = conv_bn(n, 2, false, y, width, 3, stride, o);
        y = conv_bn(n, 3, true, y, out, 1, 1, o);
    } else {
        y = conv_bn(n, 1, false, y, width, 3, stride, o);
        y = conv_bn(n, 2, true, y, out, 3, 1, o);
    }
    if (stride != 1 || fr_net_dim(n, x, -1) != out) {
        identity = fr_net_conv2d(n, "downsample.0", x, out, 1, FR_CONV2D_OPTS(.stride = stride), FR_NO_BIAS);
        identity = fr_net_batchnorm2d(n, "downsample.1", identity, NULL);
    }
    return fr_net_relu(n, "relu", fr_net_add(n, "add", y, identity));
}

static fr_value residual_stem(fr_net *n, fr_value x, const fr_model_opts *o) {
    const int64_t kernel = o->small_stem ? 3 : 7, stride = o->small_stem ? 1 : 2;
    x = fr_net_conv2d(n, "conv1", x, fr_model_channels(o, 64), kernel,
                      FR_CONV2D_OPTS(.stride = stride, .padding = kernel / 2), FR_NO_BIAS);
    x = fri_model_norm_relu(n, "bn1", "relu", x, o);
    return o->small_stem ? x : fr_net_maxpool2d(n, "maxpool", x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1));
}

fr_status fr_resnet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_MODEL_SLOT(m);
    fr_model_opts o;
    fr_value x;
    int at = -1;
    for (int i = 0; i < (int)(sizeof variants / sizeof *variants); i++)
        if (variants[i].depth == depth) at = i;
    if (at < 0) return fr_fail(FR_EINVAL, "ResNet: depth is %d; 18, 34, 50, 101 and 152 exist", depth);
    fr_status s = fr_model_opts_check("ResNet", opts, opts != NULL && opts->small_stem ? 8 : 32, &o);
    if (s < 0) return s;
    fr_net *n = fri_model_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    x = residual_stem(n, x, &o);
    for (int i = 0; i < 4; i++) {
        const int64_t width = fr_model_channels(&o, (int64_t)64 << i);
        for (int k = 0; k < variants[at].blocks[i]; k++) {
            fr_net_scope_begin(n, "layer%d.%d", i + 1, k);
            x = residual(n, variants[at].bottleneck, x, width, k == 0 && i > 0 ? 2 : 1, &o);
            fr_net_scope_end(n);
        }
    }
    x = fr_net_linear(n, "fc", fri_pool_flatten(n, x, 1), o.classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}
