/* networks.c - see networks.h: a forward pass on meta, with a listener for its kernels. */
#include "cuda/networks.h"

#include <criterion/criterion.h>
#include <frugal/models.h>
#include <frugal/nn.h>
#include <string.h>

#include "meta/calls.h"
#include "support/golden.h"

const char *const network_name[NETWORKS] = {"VGG-16",      "ResNet-50",       "DenseNet-121", "U-Net",
                                            "MobileNetV2", "EfficientNet-B0", "ConvNeXt"};

static void collect(void *ctx, const fri_kernel_call *c) {
    convolutions *l = ctx;
    if (strcmp(c->name, "conv2d_forward") != 0) return;
    const int64_t *v = c->dim;
    fri_conv2d_desc d = {.dtype = FR_F32,
                         .n = v[0],
                         .h = v[1],
                         .w = v[2],
                         .c = v[3],
                         .k = v[4],
                         .r = v[5],
                         .s = v[6],
                         .stride_h = v[7],
                         .stride_w = v[8],
                         .pad_h = v[9],
                         .pad_w = v[10],
                         .dilation_h = v[11],
                         .dilation_w = v[12],
                         .groups = v[13]};
    d.p = (d.h + 2 * d.pad_h - d.dilation_h * (d.r - 1) - 1) / d.stride_h + 1;
    d.q = (d.w + 2 * d.pad_w - d.dilation_w * (d.s - 1) - 1) / d.stride_w + 1;
    for (int i = 0; i < l->n; i++)
        if (memcmp(&l->conv[i], &d, sizeof d) == 0) return;
    cr_assert_lt(l->n, NETWORK_MOST);
    l->conv[l->n++] = d;
}

fr_module *network_make(network which) {
    fr_module *m = NULL;
    const fr_model_opts *o = FR_MODEL_OPTS(.device = FR_META);
    if (which == VGG16) must(fr_vgg(16, o, &m));
    if (which == RESNET50) must(fr_resnet(50, o, &m));
    if (which == DENSENET121) must(fr_densenet(121, o, &m));
    if (which == MOBILENET2) must(fr_mobilenet(2, o, &m));
    if (which == UNET) must(fr_unet(4, FR_MODEL_OPTS(.device = FR_META, .classes = 2), &m));
    return m;
}

/* Channels in and out, the filter's side, stride, the map's side; without depthwise convolutions. Squeeze and
 * excitation convolves a single pixel. */
static const int16_t efficientnet_b0[][5] = {
    {3, 32, 3, 2, 224},  {32, 8, 1, 1, 1},     {8, 32, 1, 1, 1},     {32, 16, 1, 1, 112},  {16, 96, 1, 1, 112},
    {96, 4, 1, 1, 1},    {4, 96, 1, 1, 1},     {96, 24, 1, 1, 56},   {24, 144, 1, 1, 56},  {144, 6, 1, 1, 1},
    {6, 144, 1, 1, 1},   {144, 24, 1, 1, 56},  {144, 40, 1, 1, 28},  {40, 240, 1, 1, 28},  {240, 10, 1, 1, 1},
    {10, 240, 1, 1, 1},  {240, 40, 1, 1, 28},  {240, 80, 1, 1, 14},  {80, 480, 1, 1, 14},  {480, 20, 1, 1, 1},
    {20, 480, 1, 1, 1},  {480, 80, 1, 1, 14},  {480, 112, 1, 1, 14}, {112, 672, 1, 1, 14}, {672, 28, 1, 1, 1},
    {28, 672, 1, 1, 1},  {672, 112, 1, 1, 14}, {672, 192, 1, 1, 7},  {192, 1152, 1, 1, 7}, {1152, 48, 1, 1, 1},
    {48, 1152, 1, 1, 1}, {1152, 192, 1, 1, 7}, {1152, 320, 1, 1, 7}, {320, 1280, 1, 1, 7},
};
static const int16_t convnext[][5] = {{3, 96, 4, 4, 224},
                                      {96, 192, 2, 2, 56},
                                      {192, 384, 2, 2, 28},
                                      {384, 768, 2, 2, 14}};

static void listed(const int16_t (*rows)[5], int n, convolutions *out) {
    for (int i = 0; i < n; i++) {
        const int64_t c = rows[i][0], k = rows[i][1], r = rows[i][2], stride = rows[i][3], h = rows[i][4];
        const int64_t pad = r == 3 ? 1 : 0, p = (h + 2 * pad - r) / stride + 1;
        out->conv[out->n++] = (fri_conv2d_desc){.dtype = FR_F32,
                                                .n = NETWORK_BATCH,
                                                .h = h,
                                                .w = h,
                                                .c = c,
                                                .k = k,
                                                .r = r,
                                                .s = r,
                                                .p = p,
                                                .q = p,
                                                .stride_h = stride,
                                                .stride_w = stride,
                                                .pad_h = pad,
                                                .pad_w = pad,
                                                .dilation_h = 1,
                                                .dilation_w = 1,
                                                .groups = 1};
    }
}

void network_convolutions(network which, convolutions *out) {
    fr_tensor *x = NULL;
    memset(out, 0, sizeof *out);
    if (which == EFFICIENTNET_B0) {
        listed(efficientnet_b0, sizeof efficientnet_b0 / sizeof *efficientnet_b0, out);
        return;
    }
    if (which == CONVNEXT) {
        listed(convnext, sizeof convnext / sizeof *convnext, out);
        return;
    }
    fr_module *m = network_make(which);
    must(fr_tensor_zeros(4, (int64_t[]){NETWORK_BATCH, 224, 224, 3}, FR_F32, FR_META, &x));
    fri_call_listener was = fri_meta_listen((fri_call_listener){collect, out});
    must(fr_module_forward(m, x, &x));
    fri_meta_listen(was);
    fr_tensor_release(&x);
    fr_module_release(&m);
    cr_assert_gt(out->n, 0);
}
