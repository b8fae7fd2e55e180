/* networks.c - see networks.h: a forward pass on meta, and who listens to its kernels. */
#include "cuda/networks.h"

#include <criterion/criterion.h>
#include <frugal/models.h>
#include <frugal/nn.h>
#include <string.h>

#include "meta/calls.h"
#include "support/golden.h"

const char *const network_name[NETWORKS] = {"VGG-16", "ResNet-50", "DenseNet-121", "U-Net", "MobileNetV2"};

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

void network_convolutions(network which, convolutions *out) {
    fr_module *m = network_make(which);
    fr_tensor *x = NULL;
    memset(out, 0, sizeof *out);
    must(fr_tensor_zeros(4, (int64_t[]){NETWORK_BATCH, 224, 224, 3}, FR_F32, FR_META, &x));
    fri_call_listener was = fri_meta_listen((fri_call_listener){collect, out});
    must(fr_module_forward(m, x, &x));
    fri_meta_listen(was);
    fr_tensor_release(&x);
    fr_module_release(&m);
    cr_assert_gt(out->n, 0);
}
