/* architecture.c - see architecture.h. VGG-16's convolutions are built here from modules, so a single choice changes at
 * a time: the head, the image's size, and pooling against a stride in the convolution before it. On meta, default
 * switches. */
#include "architecture.h"

#include "peak_run.h"

#include <stdio.h>

enum { POOL = 0, END = -1 };
static const int vgg16[] = {64,  64,  POOL, 128,  128, POOL, 256, 256,  256, POOL,
                            512, 512, 512,  POOL, 512, 512,  512, POOL, END};

/* Parameter of build_strided, outside fr_model_opts. */
static bool strided;

/* `strided`: the last convolution before a pool has stride 2, and the pool is left out. */
static fr_value features(fr_net *n, fr_value x) {
    for (const int *k = vgg16; *k != END; k++) {
        if (*k == POOL) {
            if (!strided) x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
            continue;
        }
        const int64_t stride = strided && k[1] == POOL ? 2 : 1;
        x = fr_net_conv2d(n, NULL, x, *k, 3, FR_CONV2D_OPTS(.stride = stride, .padding = 1), FR_BIAS);
        x = fr_net_relu(n, NULL, x);
    }
    return x;
}

static fr_status build_head(const fr_model_opts *o, fr_head head, fr_module **out) {
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->image_size, o->image_size, 3});
    x = features(n, x);
    if (head == FR_HEAD_GLOBAL) x = fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1);
    x = fr_net_flatten(n, NULL, x, 1);
    for (int i = 0; head != FR_HEAD_GLOBAL && i < 2; i++)
        x = fr_net_relu(n, NULL, fr_net_linear(n, NULL, x, 4096, FR_BIAS));
    x = fr_net_linear(n, NULL, x, o->classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status build_flatten(const fr_model_opts *o, fr_module **out) {
    return build_head(o, FR_HEAD_TORCHVISION, out);
}

static fr_status build_global(const fr_model_opts *o, fr_module **out) {
    return build_head(o, FR_HEAD_GLOBAL, out);
}

static const peak_net flatten = {"flatten", "flatten", 224, 1000, false, NULL, build_flatten};
static const peak_net global = {"global", "global", 224, 1000, false, NULL, build_global};

static peak_result measure(const peak_net *net, int64_t batch, int64_t size, bool stride) {
    peak_setting at = {.net = net, .device = FR_META, .batch = batch, .image_size = size};
    peak_case c = {.switches = fr_switches_default(), .how = PEAK_PLAIN};
    peak_result r;
    strided = stride;
    peak_measure(&at, &c, &r);
    return r;
}

size_t architecture_peak(int64_t batch, bool stride) {
    return measure(&global, batch, 224, stride).peak;
}

static void row(const char *what, const peak_net *net, int64_t batch, int64_t size, bool stride) {
    peak_result r = measure(net, batch, size, stride);
    printf("| %s | %lld | %zu | %zu | %zu | %zu |\n", what, (long long)size, r.by[FR_MEM_PARAMETER], r.saved,
           r.step_memory, r.peak);
}

int architecture_run(int64_t batch) {
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
