/* resnet.c - ResNet-18/34/50/101/152 (torchvision.models.resnet, v1.5: the 3x3 convolution of a bottleneck has the
 * stride).
 *
 *   stem     conv1 7x7/2, bn1, relu, maxpool 3x3/2          (small_stem: conv1 3x3/1, bn1, relu)
 *   layers   layer1..layer4 of blocks; block: x + f(x), relu, with a 1x1 downsample where the shape changes
 *   head     global average pooling, fc */
#include "models/build.h"

#include <stdio.h>

/* ---- blocks ------------------------------------------------------------------------------------------------ */

typedef struct block_state {
    int convs;       /* 2: basic, 3: bottleneck */
    bool downsample; /* the last child */
    bool abn;        /* the norms within the branch are InPlaceABN; the last has no activation of its own */
} block_state;

/* Whichever batch norm runs last, the branch's or the downsample's, adds the other summand and rectifies. */
static fr_status block_forward(fr_module *m, fr_tensor **x) {
    const block_state *b = m->state;
    const char *path = fri_scope_module();
    fr_tensor *identity = fr_tensor_retain(*x);
    const fri_norm_tail relu = {.relu = true}, sum = {.addend = &identity, .relu = true, .module = path};
    fr_status s = FR_OK;
    char conv[24], norm[24];
    for (int i = 1; i <= b->convs; i++) {
        const bool last = i == b->convs;
        snprintf(conv, sizeof conv, "conv%d", i);
        snprintf(norm, sizeof norm, "bn%d", i);
        const fri_norm_tail *tail = !last ? (b->abn ? NULL : &relu) : b->downsample ? NULL : &sum;
        FRI_TRY(s, fri_run_norm(m, conv, norm, tail, x));
    }
    if (b->downsample) {
        const fri_norm_tail over = {.addend = x, .over = true, .relu = true, .module = path};
        FRI_TRY(s, fri_run_chain(m, "downsample", &over, &identity));
        fri_tensor_put(&identity, x);
    }
done:
    fr_tensor_release(&identity);
    return s;
}

static const fr_module_class basic_class = {.name = "BasicBlock", .forward = block_forward};
static const fr_module_class bottleneck_class = {.name = "Bottleneck", .forward = block_forward};

static fr_status add_conv_bn(fr_module *m, int i, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                             const fr_model_opts *o) {
    const block_state *b = m->state;
    char conv[24], bn[24];
    snprintf(conv, sizeof conv, "conv%d", i);
    snprintf(bn, sizeof bn, "bn%d", i);
    fr_status s = fri_add_conv(m, conv, in, out, kernel, stride, kernel / 2, false, FRI_INIT_FAN_OUT, o->device);
    if (s < 0) return s;
    return i < b->convs ? fri_add_activated_norm(m, bn, out, o) : fri_add_batchnorm(m, bn, out, o->device);
}

static fr_status add_block(fr_module *layer, bool bottleneck, int64_t in, int64_t width, int64_t stride,
                           const fr_model_opts *o) {
    int64_t out = bottleneck ? 4 * width : width;
    bool downsample = stride != 1 || in != out;
    fr_module *b = NULL, *d = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_module_create(bottleneck ? &bottleneck_class : &basic_class, sizeof(block_state), &b));
    *(block_state *)b->state =
        (block_state){.convs = bottleneck ? 3 : 2, .downsample = downsample, .abn = o->abn_slope > 0};
    if (bottleneck) {
        FRI_TRY(s, add_conv_bn(b, 1, in, width, 1, 1, o));
        FRI_TRY(s, add_conv_bn(b, 2, width, width, 3, stride, o));
        FRI_TRY(s, add_conv_bn(b, 3, width, out, 1, 1, o));
    } else {
        FRI_TRY(s, add_conv_bn(b, 1, in, width, 3, stride, o));
        FRI_TRY(s, add_conv_bn(b, 2, width, out, 3, 1, o));
    }
    if (downsample) {
        FRI_TRY(s, fr_nn_sequential(&d));
        FRI_TRY(s, fri_add_conv(d, NULL, in, out, 1, stride, 0, false, FRI_INIT_FAN_OUT, o->device));
        FRI_TRY(s, fri_add_batchnorm(d, NULL, out, o->device));
        FRI_TRY(s, fr_module_add_child(b, "downsample", &d));
    }
    FRI_TRY(s, fr_nn_append(layer, &b));
done:
    fr_module_release(&b);
    fr_module_release(&d);
    return s;
}

/* ---- the network ------------------------------------------------------------------------------------------- */

/* Every layer of the stem, every block, the head's parts. */
static int resnet_units(fr_module *m, fr_module **out, int n) {
    int count = 0;
    for (int i = 0; i < m->n_children; i++) {
        fr_module *c = m->children[i];
        for (int k = 0; k < (c->n_children == 0 ? 1 : c->n_children); k++, count++)
            if (count < n) out[count] = c->n_children == 0 ? c : c->children[k];
    }
    return count;
}

static const fr_module_class resnet_class = {.name = "ResNet",
                                             .forward = fri_module_run_children,
                                             .units = resnet_units};

static const struct {
    int depth;
    bool bottleneck;
    int blocks[4];
} configurations[] = {
    {18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},  {50, true, {3, 4, 6, 3}},
    {101, true, {3, 4, 23, 3}}, {152, true, {3, 8, 36, 3}},
};

static fr_status add_layer(fr_module *m, int i, int blocks, bool bottleneck, int64_t *in, const fr_model_opts *o) {
    char name[24];
    fr_module *layer = NULL;
    int64_t width = (int64_t)64 << i;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_sequential(&layer));
    for (int k = 0; k < blocks; k++) {
        FRI_TRY(s, add_block(layer, bottleneck, *in, width, k == 0 && i > 0 ? 2 : 1, o));
        *in = bottleneck ? 4 * width : width;
    }
    snprintf(name, sizeof name, "layer%d", i + 1);
    FRI_TRY(s, fr_module_add_child(m, name, &layer));
done:
    fr_module_release(&layer);
    return s;
}

static fr_status add_stem(fr_module *m, const fr_model_opts *o) {
    fr_status s = FR_OK;
    int64_t kernel = o->small_stem ? 3 : 7, stride = o->small_stem ? 1 : 2;
    FRI_TRY(s, fri_add_conv(m, "conv1", o->in_channels, 64, kernel, stride, kernel / 2, false, FRI_INIT_FAN_OUT,
                            o->device));
    FRI_TRY(s, fri_add_activated_norm(m, "bn1", 64, o));
    FRI_TRY(s, fri_add_activation(m, "relu", o));
    if (!o->small_stem) FRI_TRY(s, fri_add_maxpool(m, "maxpool", 3, 2, 1));
done:
    return s;
}

fr_status fr_resnet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    fr_model_opts o;
    fr_module *r = NULL, *pool = NULL, *flatten = NULL;
    int at = -1;
    int64_t channels = 64;
    fr_status s = FR_OK;
    for (int i = 0; i < (int)(sizeof configurations / sizeof *configurations); i++)
        if (configurations[i].depth == depth) at = i;
    if (at < 0) return fri_fail(FR_EINVAL, "ResNet: depth %d; 18, 34, 50, 101 and 152 exist", depth);
    FRI_TRY(s, fri_model_opts("ResNet", opts, opts != NULL && opts->small_stem ? 8 : 32, &o));
    FRI_TRY(s, fr_module_create(&resnet_class, 0, &r));
    FRI_TRY(s, add_stem(r, &o));
    for (int i = 0; i < 4; i++)
        FRI_TRY(s, add_layer(r, i, configurations[at].blocks[i], configurations[at].bottleneck, &channels, &o));
    FRI_TRY(s, fr_nn_adaptive_avgpool2d(1, 1, &pool));
    FRI_TRY(s, fr_module_add_child(r, "avgpool", &pool));
    FRI_TRY(s, fr_nn_flatten(1, &flatten));
    FRI_TRY(s, fr_module_add_child(r, "flatten", &flatten));
    FRI_TRY(s, fri_add_linear(r, "fc", channels, o.classes, o.device));
    fr_module_release(m);
    *m = r;
    r = NULL;
done:
    fr_module_release(&r);
    fr_module_release(&pool);
    fr_module_release(&flatten);
    return s;
}
