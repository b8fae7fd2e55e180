/* vgg.c - VGG-11/13/16/19, with and without batch norm (torchvision.models.vgg).
 *
 *   features     (conv 3x3 [batch norm] relu)* maxpool, five times, 64 to 512 channels
 *   classifier   torchvision: 7x7 average pooling, Linear 25088-4096, relu, dropout, Linear 4096-4096, relu, dropout,
 *                Linear 4096-classes; small images: global average pooling, Linear 512-classes */
#include "models/models.h"

enum { POOL = -1, LAYERS = 22 };

static const struct {
    int depth;
    int layers[LAYERS]; /* channels, POOL, 0 at the end */
} configurations[] = {
    {11, {64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL}},
    {13, {64, 64, POOL, 128, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL}},
    {16, {64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL, 512, 512, 512, POOL}},
    {19, {64, 64, POOL, 128, 128, POOL, 256, 256, 256, 256, POOL, 512, 512, 512, 512, POOL, 512, 512, 512, 512, POOL}},
};

static fr_value features(fr_net *n, fr_value x, const int *layers, const fr_model_opts *o) {
    fr_net_scope_begin(n, "features");
    for (int i = 0; layers[i] != 0; i++) {
        if (layers[i] == POOL) {
            x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
            continue;
        }
        x = fr_net_conv2d(n, NULL, x, fr_model_channels(o, layers[i]), 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        x = o->batch_norm ? fri_model_norm_relu(n, NULL, NULL, x, o) : fr_net_relu(n, NULL, x);
    }
    fr_net_scope_end(n);
    return x;
}

static fr_value classifier(fr_net *n, fr_value x, const fr_model_opts *o) {
    x = fri_pool_flatten(n, x, 7);
    fr_net_scope_begin(n, "classifier");
    for (int i = 0; i < 2; i++) {
        x = fr_net_relu(n, NULL, fri_dense(n, NULL, x, fr_model_channels(o, 4096)));
        x = fr_net_dropout(n, NULL, x, o->dropout);
    }
    x = fri_dense(n, NULL, x, o->classes);
    fr_net_scope_end(n);
    return x;
}

fr_status fr_vgg(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_MODEL_SLOT(m);
    fr_model_opts o;
    fr_value x;
    const int *layers = NULL;
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++)
        if (configurations[i].depth == depth) layers = configurations[i].layers;
    if (layers == NULL) return fr_fail(FR_EINVAL, "VGG: depth is %d; 11, 13, 16 and 19 exist", depth);
    fr_status s = fr_model_opts_check("VGG", opts, 32, &o);
    if (s < 0) return s;
    if (o.abn_slope > 0 && !o.batch_norm)
        return fr_fail(FR_EINVAL, "VGG: abn_slope is %g but batch_norm is off; set batch_norm, or abn_slope 0",
                       o.abn_slope);
    fr_net *n = fri_model_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    x = features(n, x, layers, &o);
    x = fri_global_head(&o) ? fri_dense(n, "classifier", fri_pool_flatten(n, x, 1), o.classes) : classifier(n, x, &o);
    return fr_net_end(&n, &x, 1, m);
}
