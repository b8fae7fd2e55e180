/* vgg.c - VGG-11/13/16/19, with and without batch norm (torchvision.models.vgg).
 *
 *   features     (conv 3x3 [batch norm] relu)* maxpool, five times, 64 to 512 channels
 *   classifier   torchvision: 7x7 average pooling, Linear 25088-4096, relu, dropout, Linear 4096-4096, relu, dropout,
 *                Linear 4096-classes; small images: global average pooling, Linear 512-classes */
#include "models/build.h"

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

/* The layers of features, then pooling, flatten and the classifier's layers. */
static int vgg_units(fr_module *m, fr_module **out, int n) {
    int count = 0;
    for (int i = 0; i < m->n_children; i++) {
        fr_module *c = m->children[i];
        bool leaf = c->n_children == 0;
        for (int k = 0; k < (leaf ? 1 : c->n_children); k++, count++)
            if (count < n) out[count] = leaf ? c : c->children[k];
    }
    return count;
}

static const fr_module_class vgg_class = {.name = "VGG", .forward = fri_module_run_children, .units = vgg_units};

static fr_status add_features(fr_module *m, const int *layers, const fr_model_opts *o) {
    fr_module *f = NULL;
    fr_status s = FR_OK;
    int64_t in = o->in_channels;
    FRI_TRY(s, fr_nn_sequential(&f));
    for (int i = 0; layers[i] != 0; i++) {
        if (layers[i] == POOL) {
            FRI_TRY(s, fri_add_maxpool(f, NULL, 2, 2, 0));
            continue;
        }
        FRI_TRY(s, fri_add_conv(f, NULL, in, layers[i], 3, 1, 1, true, FRI_INIT_FAN_OUT, o->device));
        if (o->batch_norm) {
            FRI_TRY(s, fri_add_activated_norm(f, NULL, layers[i], o));
            FRI_TRY(s, fri_add_activation(f, NULL, o));
        } else {
            FRI_TRY(s, fri_add_relu(f, NULL));
        }
        in = layers[i];
    }
    FRI_TRY(s, fr_module_add_child(m, "features", &f));
done:
    fr_module_release(&f);
    return s;
}

/* torchvision: weights N(0, 0.01), bias 0. */
static fr_status add_dense(fr_module *m, const char *name, int64_t in, int64_t out, const fr_model_opts *o) {
    fr_module *l = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_linear(in, out, true, o->device, &l));
    FRI_TRY(s, fr_init_normal(fr_module_tensor(l, "weight"), 0, 0.01));
    FRI_TRY(s, fr_tensor_fill(fr_module_tensor(l, "bias"), 0));
    FRI_TRY(s, fri_add(m, name, &l));
done:
    fr_module_release(&l);
    return s;
}

static fr_status add_pooling(fr_module *m, int64_t size) {
    fr_module *pool = NULL, *flatten = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_adaptive_avgpool2d(size, size, &pool));
    FRI_TRY(s, fr_module_add_child(m, "avgpool", &pool));
    FRI_TRY(s, fr_nn_flatten(1, &flatten));
    FRI_TRY(s, fr_module_add_child(m, "flatten", &flatten));
done:
    fr_module_release(&pool);
    fr_module_release(&flatten);
    return s;
}

static fr_status add_classifier(fr_module *m, const fr_model_opts *o) {
    fr_module *c = NULL, *dropout = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, add_pooling(m, 7));
    FRI_TRY(s, fr_nn_sequential(&c));
    for (int i = 0; i < 2; i++) {
        FRI_TRY(s, add_dense(c, NULL, i == 0 ? 512 * 7 * 7 : 4096, 4096, o));
        FRI_TRY(s, fri_add_relu(c, NULL));
        FRI_TRY(s, fr_nn_dropout(o->dropout, &dropout));
        FRI_TRY(s, fr_nn_append(c, &dropout));
    }
    FRI_TRY(s, add_dense(c, NULL, 4096, o->classes, o));
    FRI_TRY(s, fr_module_add_child(m, "classifier", &c));
done:
    fr_module_release(&c);
    fr_module_release(&dropout);
    return s;
}

fr_status fr_vgg(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    fr_model_opts o;
    fr_module *v = NULL;
    const int *layers = NULL;
    fr_status s = FR_OK;
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++)
        if (configurations[i].depth == depth) layers = configurations[i].layers;
    if (layers == NULL) return fri_fail(FR_EINVAL, "VGG: depth %d; 11, 13, 16 and 19 exist", depth);
    FRI_TRY(s, fri_model_opts("VGG", opts, 32, &o));
    if (o.abn_slope > 0 && !o.batch_norm)
        return fri_fail(FR_EINVAL, "VGG: abn_slope %g without batch_norm: there is no batch norm to activate in place",
                        o.abn_slope);
    FRI_TRY(s, fr_module_create(&vgg_class, 0, &v));
    FRI_TRY(s, add_features(v, layers, &o));
    if (fri_global_head(&o)) {
        FRI_TRY(s, add_pooling(v, 1));
        FRI_TRY(s, add_dense(v, "classifier", 512, o.classes, &o));
    } else {
        FRI_TRY(s, add_classifier(v, &o));
    }
    fr_module_release(m);
    *m = v;
    v = NULL;
done:
    fr_module_release(&v);
    return s;
}
