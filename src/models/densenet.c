/* densenet.c - DenseNet-121/169/201 (torchvision.models.densenet) and the CIFAR form DenseNet-BC (Huang et al., 2016).
 *
 *   features     conv0 [norm0 relu0 pool0], denseblock1, transition1, denseblock2, ..., norm5
 *   dense layer  f_j = conv2(relu(norm2(conv1(relu(norm1(concat(f_0 .. f_j-1)))))))
 *   head         relu, global average pooling, classifier
 *
 * Each layer concatenates the list of features anew, as torchvision does: with rebuild on, a block keeps every feature
 * once, and memory grows linearly with depth. */
#include "models/models.h"

enum { MAX_LAYERS = 64, BOTTLENECK = 4, MOST_GROWTH = 4096 };

static fr_value dense_layer(fr_net *n, fr_value x, int64_t growth, const fr_model_opts *o) {
    x = fri_model_norm_relu(n, "norm1", "relu1", x, o);
    x = fr_net_conv2d(n, "conv1", x, BOTTLENECK * growth, 1, NULL, FR_NO_BIAS);
    x = fri_model_norm_relu(n, "norm2", "relu2", x, o);
    return fr_net_conv2d(n, "conv2", x, growth, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
}

static fr_value dense_block(fr_net *n, int b, int layers, fr_value x, int64_t growth, const fr_model_opts *o) {
    fr_value feature[MAX_LAYERS + 1] = {x};
    fr_net_scope_begin(n, "denseblock%d", b + 1);
    for (int i = 0; i < layers; i++) {
        fr_net_scope_begin(n, "denselayer%d", i + 1);
        x = fr_net_concat(n, "concat", feature, i + 1);
        feature[i + 1] = dense_layer(n, x, growth, o);
        fr_net_scope_end(n);
    }
    x = fr_net_concat(n, "concat", feature, layers + 1);
    fr_net_scope_end(n);
    return x;
}

/* norm, relu, 1x1 convolution to half the channels, 2x2 average pooling. */
static fr_value transition(fr_net *n, int b, fr_value x, const fr_model_opts *o) {
    fr_net_scope_begin(n, "transition%d", b + 1);
    x = fri_model_norm_relu(n, "norm", "relu", x, o);
    x = fr_net_conv2d(n, "conv", x, fr_net_dim(n, x, -1) / 2, 1, NULL, FR_NO_BIAS);
    x = fr_net_avgpool2d(n, "pool", x, 2, NULL);
    fr_net_scope_end(n);
    return x;
}

typedef struct plan {
    int blocks, layers[4];
    int64_t growth, stem;
    bool imagenet;
} plan;

static fr_status configure(int depth, const fr_model_opts *o, plan *p) {
    static const struct {
        int depth, layers[4];
    } imagenet[] = {{121, {6, 12, 24, 16}}, {169, {6, 12, 32, 32}}, {201, {6, 12, 48, 32}}};
    for (size_t i = 0; i < sizeof imagenet / sizeof *imagenet; i++) {
        if (imagenet[i].depth != depth) continue;
        *p =
            (plan){.blocks = 4, .growth = fr_model_channels(o, 32), .stem = fr_model_channels(o, 64), .imagenet = true};
        for (int b = 0; b < 4; b++) p->layers[b] = imagenet[i].layers[b];
        return FR_OK;
    }
    int per_block = (depth - 4) / 6; /* two convolutions a layer, three blocks */
    if (depth < 10 || (depth - 4) % 6 != 0 || per_block > MAX_LAYERS)
        return fr_fail(FR_EINVAL, "DenseNet: depth is %d; 121, 169, 201, or 6 n + 4 (22, 40, 100, ...) up to %d exist",
                       depth, 6 * MAX_LAYERS + 4);
    if (o->growth < 1 || o->growth > MOST_GROWTH)
        return fr_fail(FR_EINVAL, "DenseNet: growth is %lld; it must be in 1..%d", (long long)o->growth, MOST_GROWTH);
    const int64_t growth = fr_model_channels(o, o->growth);
    *p = (plan){.blocks = 3, .layers = {per_block, per_block, per_block}, .growth = growth, .stem = 2 * growth};
    return FR_OK;
}

static fr_value dense_stem(fr_net *n, fr_value x, const plan *p, const fr_model_opts *o) {
    if (!p->imagenet) return fr_net_conv2d(n, "conv0", x, p->stem, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_conv2d(n, "conv0", x, p->stem, 7, FR_CONV2D_OPTS(.stride = 2, .padding = 3), FR_NO_BIAS);
    x = fri_model_norm_relu(n, "norm0", "relu0", x, o);
    return fr_net_maxpool2d(n, "pool0", x, 3, FR_POOL2D_OPTS(.stride = 2, .padding = 1));
}

fr_status fr_densenet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_MODEL_SLOT(m);
    fr_model_opts o;
    fr_value x;
    plan p = {0};
    fr_status s = FR_OK;
    FR_TRY(s, fr_model_opts_check("DenseNet", opts, 4, &o));
    FR_TRY(s, configure(depth, &o, &p));
    FR_TRY(s, fr_model_opts_check("DenseNet", opts, p.imagenet ? 32 : 4, &o));
    fr_net *n = fri_model_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_IN);
    fr_net_scope_begin(n, "features");
    x = dense_stem(n, x, &p, &o);
    for (int b = 0; b < p.blocks; b++) {
        x = dense_block(n, b, p.layers[b], x, p.growth, &o);
        if (b + 1 < p.blocks) x = transition(n, b, x, &o);
    }
    x = fri_model_norm(n, "norm5", x, &o);
    fr_net_scope_end(n);
    x = fri_model_relu(n, "relu", x, &o);
    x = fr_net_linear(n, "classifier", fri_pool_flatten(n, x, 1), o.classes, FR_BIAS);
    if (fr_net_layer_of(n, x) != NULL)
        fr_net_try(n, fr_tensor_fill(fr_module_tensor(fr_net_layer_of(n, x), "bias"), 0));
    s = fr_net_end(&n, &x, 1, m);
done:
    return s;
}
