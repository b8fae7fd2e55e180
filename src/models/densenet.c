/* densenet.c - DenseNet-121/169/201 (torchvision.models.densenet) and the CIFAR form DenseNet-BC (Huang et al., 2016).
 *
 *   features     conv0 [norm0 relu0 pool0], denseblock1, transition1, denseblock2, ..., norm5
 *   dense layer  f_j = conv2(relu(norm2(conv1(relu(norm1(concat(f_0 .. f_j-1)))))))
 *   head         relu, global average pooling, classifier
 *
 * Each layer concatenates the list of features anew, as torchvision does: with rebuild on, a block keeps every feature
 * once and its memory grows linearly with depth. */
#include "models/build.h"

#include <stdio.h>

enum { MAX_LAYERS = 64 };

/* ---- blocks ------------------------------------------------------------------------------------------------ */

static fr_status layer_forward(fr_module *m, fr_tensor **x) {
    const bool *abn = m->state;
    const fri_norm_tail relu = {.relu = true}, *tail = *abn ? NULL : &relu;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_run_norm(m, NULL, "norm1", tail, x));
    FRI_TRY(s, fri_run_norm(m, "conv1", "norm2", tail, x));
    FRI_TRY(s, fri_run(m, "conv2", x));
done:
    return s;
}

static const fr_module_class layer_class = {.name = "DenseLayer", .forward = layer_forward};

static fr_status block_forward(fr_module *m, fr_tensor **x) {
    fr_tensor *features[MAX_LAYERS + 1] = {0};
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    int n = 1;
    features[0] = *x; /* the slot's reference moves into the list */
    *x = NULL;
    for (int i = 0; i < m->n_children; i++, n++) {
        FRI_TRY(s, fr_concat(features, n, &y));
        FRI_TRY(s, fr_module_run_child(m, i, &y));
        features[n] = y;
        y = NULL;
    }
    FRI_TRY(s, fr_concat(features, n, x));
done:
    if (*x == NULL) *x = fr_tensor_retain(features[0]); /* a failure leaves a tensor in the slot */
    for (int i = 0; i < n; i++) fr_tensor_release(&features[i]);
    fr_tensor_release(&y);
    return s;
}

static const fr_module_class block_class = {.name = "DenseBlock", .forward = block_forward};

static fr_status add_layer(fr_module *block, int i, int64_t in, int64_t growth, const fr_model_opts *o) {
    enum { BOTTLENECK = 4 };
    char name[24];
    fr_module *l = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_module_create(&layer_class, sizeof(bool), &l));
    *(bool *)l->state = o->abn_slope > 0;
    FRI_TRY(s, fri_add_activated_norm(l, "norm1", in, o));
    FRI_TRY(s, fri_add_conv(l, "conv1", in, BOTTLENECK * growth, 1, 1, 0, false, FRI_INIT_FAN_IN, o->device));
    FRI_TRY(s, fri_add_activated_norm(l, "norm2", BOTTLENECK * growth, o));
    FRI_TRY(s, fri_add_conv(l, "conv2", BOTTLENECK * growth, growth, 3, 1, 1, false, FRI_INIT_FAN_IN, o->device));
    snprintf(name, sizeof name, "denselayer%d", i + 1);
    FRI_TRY(s, fr_module_add_child(block, name, &l));
done:
    fr_module_release(&l);
    return s;
}

static fr_status add_block(fr_module *features, int b, int layers, int64_t *channels, int64_t growth,
                           const fr_model_opts *o) {
    char name[24];
    fr_module *block = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_module_create(&block_class, 0, &block));
    for (int i = 0; i < layers; i++, *channels += growth) FRI_TRY(s, add_layer(block, i, *channels, growth, o));
    snprintf(name, sizeof name, "denseblock%d", b + 1);
    FRI_TRY(s, fr_module_add_child(features, name, &block));
done:
    fr_module_release(&block);
    return s;
}

/* norm, relu, 1x1 convolution to half the channels, 2x2 average pooling. */
static fr_status add_transition(fr_module *features, int b, int64_t *channels, const fr_model_opts *o) {
    char name[24];
    fr_module *t = NULL, *pool = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_sequential(&t));
    FRI_TRY(s, fri_add_activated_norm(t, "norm", *channels, o));
    FRI_TRY(s, fri_add_activation(t, "relu", o));
    FRI_TRY(s, fri_add_conv(t, "conv", *channels, *channels / 2, 1, 1, 0, false, FRI_INIT_FAN_IN, o->device));
    FRI_TRY(s, fr_nn_avgpool2d(2, NULL, &pool));
    FRI_TRY(s, fr_module_add_child(t, "pool", &pool));
    *channels /= 2;
    snprintf(name, sizeof name, "transition%d", b + 1);
    FRI_TRY(s, fr_module_add_child(features, name, &t));
done:
    fr_module_release(&t);
    fr_module_release(&pool);
    return s;
}

/* ---- the network ------------------------------------------------------------------------------------------- */

/* The parts of features (a dense block is one unit: its layers share a list), then the head's. */
static int densenet_units(fr_module *m, fr_module **out, int n) {
    int count = 0;
    for (int i = 0; i < m->n_children; i++) {
        fr_module *c = m->children[i];
        bool chain = i == 0; /* features */
        for (int k = 0; k < (chain ? c->n_children : 1); k++, count++)
            if (count < n) out[count] = chain ? c->children[k] : c;
    }
    return count;
}

static const fr_module_class densenet_class = {.name = "DenseNet",
                                               .forward = fri_module_run_children,
                                               .units = densenet_units};

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
        *p = (plan){.blocks = 4, .growth = 32, .stem = 64, .imagenet = true};
        for (int b = 0; b < 4; b++) p->layers[b] = imagenet[i].layers[b];
        return FR_OK;
    }
    int per_block = (depth - 4) / 6; /* two convolutions a layer, three blocks */
    if (depth < 10 || (depth - 4) % 6 != 0 || per_block > MAX_LAYERS)
        return fri_fail(FR_EINVAL, "DenseNet: depth %d; 121, 169, 201, or 6 n + 4 (22, 40, 100, ...) up to %d exist",
                        depth, 6 * MAX_LAYERS + 4);
    if (o->growth < 1) return fri_fail(FR_EINVAL, "DenseNet: growth %lld must be >= 1", (long long)o->growth);
    *p = (plan){.blocks = 3, .layers = {per_block, per_block, per_block}, .growth = o->growth, .stem = 2 * o->growth};
    return FR_OK;
}

static fr_status add_features(fr_module *m, const plan *p, const fr_model_opts *o, int64_t *channels) {
    fr_module *f = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_sequential(&f));
    *channels = p->stem;
    if (p->imagenet) {
        FRI_TRY(s, fri_add_conv(f, "conv0", o->in_channels, p->stem, 7, 2, 3, false, FRI_INIT_FAN_IN, o->device));
        FRI_TRY(s, fri_add_activated_norm(f, "norm0", p->stem, o));
        FRI_TRY(s, fri_add_activation(f, "relu0", o));
        FRI_TRY(s, fri_add_maxpool(f, "pool0", 3, 2, 1));
    } else {
        FRI_TRY(s, fri_add_conv(f, "conv0", o->in_channels, p->stem, 3, 1, 1, false, FRI_INIT_FAN_IN, o->device));
    }
    for (int b = 0; b < p->blocks; b++) {
        FRI_TRY(s, add_block(f, b, p->layers[b], channels, p->growth, o));
        if (b + 1 < p->blocks) FRI_TRY(s, add_transition(f, b, channels, o));
    }
    FRI_TRY(s, fri_add_activated_norm(f, "norm5", *channels, o));
    FRI_TRY(s, fr_module_add_child(m, "features", &f));
done:
    fr_module_release(&f);
    return s;
}

fr_status fr_densenet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    fr_model_opts o;
    plan p = {0};
    int64_t channels = 0;
    fr_module *d = NULL, *pool = NULL, *flatten = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fri_model_opts("DenseNet", opts, 4, &o));
    FRI_TRY(s, configure(depth, &o, &p));
    FRI_TRY(s, fri_model_opts("DenseNet", opts, p.imagenet ? 32 : 4, &o));
    FRI_TRY(s, fr_module_create(&densenet_class, 0, &d));
    FRI_TRY(s, add_features(d, &p, &o, &channels));
    FRI_TRY(s, fri_add_activation(d, "relu", &o));
    FRI_TRY(s, fr_nn_adaptive_avgpool2d(1, 1, &pool));
    FRI_TRY(s, fr_module_add_child(d, "avgpool", &pool));
    FRI_TRY(s, fr_nn_flatten(1, &flatten));
    FRI_TRY(s, fr_module_add_child(d, "flatten", &flatten));
    FRI_TRY(s, fri_add_linear(d, "classifier", channels, o.classes, o.device));
    FRI_TRY(s, fr_tensor_fill(fr_module_tensor(fri_child(d, "classifier"), "bias"), 0));
    fr_module_release(m);
    *m = d;
    d = NULL;
done:
    fr_module_release(&d);
    fr_module_release(&pool);
    fr_module_release(&flatten);
    return s;
}
