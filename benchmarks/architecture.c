/* architecture.c - see architecture.h. VGG-16's convolutions are built here from modules, so that one choice changes at
 * a time: the head, the image's size, and pooling against a stride in the convolution before it. On meta, default
 * switches. */
#include "architecture.h"

#include "peak_run.h"

#include <stdio.h>

enum { POOL = 0, END = -1 };
static const int vgg16[] = {64,  64,  POOL, 128,  128, POOL, 256, 256,  256, POOL,
                            512, 512, 512,  POOL, 512, 512,  512, POOL, END};

/* The choice that build_strided cannot be handed by fr_model_opts. */
static bool strided;

static fr_status add(fr_module *m, fr_status made, fr_module **layer) {
    return made < 0 ? made : fr_nn_append(m, layer);
}

/* With `strided` the last convolution before a pool has stride 2 and the pool is left out. */
static fr_status features(fr_module *m, fr_device device) {
    fr_module *layer = NULL;
    fr_status s = FR_OK;
    int64_t in = 3;
    for (const int *k = vgg16; *k != END; k++) {
        fr_conv2d_module_opts o = *FR_CONV2D_MODULE_OPTS();
        if (*k == POOL) {
            if (!strided) FR_TRY(s, add(m, fr_nn_maxpool2d(2, NULL, &layer), &layer));
            continue;
        }
        o.conv.padding = 1;
        o.conv.stride = strided && k[1] == POOL ? 2 : 1;
        FR_TRY(s, add(m, fr_nn_conv2d(in, *k, 3, &o, device, &layer), &layer));
        FR_TRY(s, add(m, fr_nn_relu(&layer), &layer));
        in = *k;
    }
done:
    return s;
}

static fr_status head(fr_module *m, const fr_model_opts *o) {
    fr_module *layer = NULL;
    fr_status s = FR_OK;
    int64_t side = o->image_size / 32;
    if (o->head == FR_HEAD_GLOBAL) FR_TRY(s, add(m, fr_nn_adaptive_avgpool2d(1, 1, &layer), &layer));
    FR_TRY(s, add(m, fr_nn_flatten(1, &layer), &layer));
    if (o->head != FR_HEAD_GLOBAL) {
        FR_TRY(s, add(m, fr_nn_linear(512 * side * side, 4096, true, o->device, &layer), &layer));
        FR_TRY(s, add(m, fr_nn_relu(&layer), &layer));
        FR_TRY(s, add(m, fr_nn_linear(4096, 4096, true, o->device, &layer), &layer));
        FR_TRY(s, add(m, fr_nn_relu(&layer), &layer));
    }
    FR_TRY(s,
           add(m, fr_nn_linear(o->head == FR_HEAD_GLOBAL ? 512 : 4096, o->classes, true, o->device, &layer), &layer));
done:
    return s;
}

static fr_status build_head(const fr_model_opts *o, fr_head h, fr_module **out) {
    fr_model_opts with = *o;
    fr_module *m = NULL;
    fr_status s = FR_OK;
    with.head = h;
    FR_TRY(s, fr_nn_sequential(&m));
    FR_TRY(s, features(m, o->device));
    FR_TRY(s, head(m, &with));
    *out = m;
    m = NULL;
done:
    fr_module_release(&m);
    return s;
}

static fr_status build_flatten(const fr_model_opts *o, fr_module **out) {
    return build_head(o, FR_HEAD_TORCHVISION, out);
}

static fr_status build_global(const fr_model_opts *o, fr_module **out) {
    return build_head(o, FR_HEAD_GLOBAL, out);
}

static void row(const char *what, const peak_net *net, int64_t batch, int64_t size, bool stride) {
    peak_setting at = {.net = net, .device = FR_META, .batch = batch, .image_size = size};
    peak_case c = {.label = what, .switches = fr_switches_default(), .how = PEAK_PLAIN};
    peak_result r;
    strided = stride;
    peak_measure(&at, &c, &r);
    printf("| %s | %lld | %zu | %zu | %zu | %zu |\n", what, (long long)size, r.by[FR_MEM_PARAMETER], r.saved,
           r.step_memory, r.peak);
}

int architecture_run(int64_t batch) {
    static const peak_net flatten = {"flatten", "flatten", 224, 1000, false, false, NULL, build_flatten};
    static const peak_net global = {"global", "global", 224, 1000, false, false, NULL, build_global};
    printf("VGG-16's convolutions, batch %lld, f32, SGD with momentum, default switches; requested bytes on meta\n\n"
           "| network | image | parameters | saved for backward | step memory | peak |\n|---|---|---|---|---|---|\n",
           (long long)batch);
    row("flatten and three linear layers", &flatten, batch, 224, false);
    row("global pooling and one linear layer", &global, batch, 224, false);
    row("global pooling", &global, batch, 160, false);
    row("global pooling", &global, batch, 112, false);
    row("flatten", &flatten, batch, 112, false);
    row("global pooling, stride 2 in the convolution instead of max pooling", &global, batch, 224, true);
    return 0;
}
