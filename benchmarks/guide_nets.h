/* guide_nets.h - example networks of guides to saving memory, as lists of layers. */
#ifndef BENCHMARKS_GUIDE_NETS_H
#define BENCHMARKS_GUIDE_NETS_H

#include <frugal/frugal.h>

enum { HYPER_DEPTH = 4, HYPER_TOP = 32, HYPER_WIDTH = 16 };

static inline fr_value guide_twice(fr_net *n, fr_value x, int64_t channels) {
    for (int i = 0; i < 2; i++) {
        x = fr_net_conv2d(n, NULL, x, channels, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    }
    fr_net_scope_end(n);
    return x;
}

/* A U-Net with a center branch and hypercolumns (Hariharan et al. 2015): every level of the decoder, 16 channels of it,
 * comes back to the image's size. Three outputs: "pixel" from the hypercolumn, "image" from the center, and "fuse" from
 * both. The result is the three beside each other, [N, H, W, 3]; taps return them one by one. `top`: channels at full
 * size, doubled at each level below. */
static inline fr_status guide_hyper_unet(int64_t top, int64_t side, fr_device device, fr_module **m) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, side, side, 3}), skip[HYPER_DEPTH], level[HYPER_DEPTH];
    for (int i = 0; i < HYPER_DEPTH; i++) {
        fr_net_scope_begin(n, "down%d", i);
        skip[i] = guide_twice(n, x, top << i);
        x = fr_net_maxpool2d(n, NULL, skip[i], 2, NULL);
    }
    fr_net_scope_begin(n, "center");
    fr_value center = x = guide_twice(n, x, top << HYPER_DEPTH);
    for (int i = HYPER_DEPTH - 1; i >= 0; i--) {
        x = fr_net_upsample_to(n, NULL, x, skip[i], FR_UPSAMPLE_BILINEAR);
        x = fr_net_concat(n, NULL, (fr_value[]){x, skip[i]}, 2);
        fr_net_scope_begin(n, "up%d", i);
        x = guide_twice(n, x, top << i);
        fr_value thin = fr_net_conv2d(n, NULL, x, HYPER_WIDTH, 1, NULL, FR_BIAS);
        level[i] = i > 0 ? fr_net_upsample_to(n, NULL, thin, skip[0], FR_UPSAMPLE_BILINEAR) : thin;
    }
    fr_value hyper = fr_net_concat(n, "hypercolumn", level, HYPER_DEPTH);
    fr_value pixel = fr_net_conv2d(n, "pixel", hyper, 1, 1, NULL, FR_BIAS);
    fr_value pooled = fr_net_adaptive_avgpool2d(n, "pool", center, 1, 1);
    fr_value image = fr_net_conv2d(n, "image", pooled, 1, 1, NULL, FR_BIAS);
    fr_value wide = fr_net_upsample_to(n, "wide", fr_net_conv2d(n, "project", pooled, HYPER_WIDTH, 1, NULL, FR_BIAS),
                                       skip[0], FR_UPSAMPLE_NEAREST);
    fr_value fuse = fr_net_conv2d(n, "fuse", fr_net_concat(n, NULL, (fr_value[]){hyper, wide}, 2), 1, 1, NULL, FR_BIAS);
    fr_value all[] = {fuse, pixel, fr_net_upsample_to(n, NULL, image, skip[0], FR_UPSAMPLE_NEAREST)};
    x = fr_net_concat(n, "outputs", all, 3);
    return fr_net_end(&n, &x, 1, m);
}

/* VGG-19 up to relu_9, with layers named conv_k and relu_k: for losses on features, at relu_1, 3, 5 and 9. */
static inline fr_status guide_vgg19_features(int64_t side, fr_device device, fr_module **m) {
    static const int64_t channels[] = {64, 64, 128, 128, 256, 256, 256, 256, 512};
    char name[16];
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, side, side, 3});
    for (int k = 1; k <= 9; k++) {
        if (k == 3 || k == 5 || k == 9) x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
        snprintf(name, sizeof name, "conv_%d", k);
        x = fr_net_conv2d(n, name, x, channels[k - 1], 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        snprintf(name, sizeof name, "relu_%d", k);
        x = fr_net_relu(n, name, x);
    }
    fr_status s = fr_net_end(&n, &x, 1, m);
    for (int k = 1; k <= 5 && s == FR_OK; k += 2) {
        snprintf(name, sizeof name, "relu_%d", k);
        s = fr_module_tap(*m, name);
    }
    return s;
}

/* Linear(10, 10), `layers` times. */
static inline fr_status guide_chain(int layers, fr_device device, fr_module **m) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 2, (int64_t[]){1, 10});
    for (int i = 0; i < layers; i++) x = fr_net_linear(n, NULL, x, 10, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}

/* A bag of words: indices [N, words] to classes. */
static inline fr_status guide_words(int64_t vocabulary, int64_t words, fr_device device, fr_module **m) {
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_I64, 2, (int64_t[]){1, words});
    x = fr_net_embedding(n, "embedding", x, vocabulary, 64);
    x = fr_net_relu(n, "relu", fr_net_linear(n, "hidden", fr_net_flatten(n, NULL, x, 1), 32, FR_BIAS));
    x = fr_net_linear(n, "classes", x, 10, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}

#endif
