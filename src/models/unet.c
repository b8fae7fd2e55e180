/* unet.c - a small U-Net with batch norm (Ronneberger et al., 2015).
 *
 *   down_i   (conv 3x3, batch norm, relu) twice, 32 * 2^i channels; its result is the skip; then max pooling
 *   bottom   the same without pooling
 *   up_i     nearest upsampling, concat with skip_i, (conv 3x3, batch norm, relu) twice
 *   head     1x1 convolution: classes per pixel, [N, H, W, classes] */
#include "models/models.h"

#include <stdio.h>

enum { MAX_DEPTH = 5, TOP_CHANNELS = 32 };

/* Pooling after the double convolution i on the way down. */
static fr_value add_pooling(fr_net *n, int i, fr_value x) {
    char name[16];
    snprintf(name, sizeof name, "pool%d", i);
    return fr_net_maxpool2d(n, name, x, 2, NULL);
}

static fr_value join_skip(fr_net *n, int i, fr_value x, fr_value skip) {
    char upsample[24], concat[24];
    snprintf(upsample, sizeof upsample, "upsample%d", i);
    snprintf(concat, sizeof concat, "concat%d", i);
    x = fr_net_upsample_to(n, upsample, x, skip, FR_UPSAMPLE_NEAREST);
    return fr_net_concat(n, concat, (fr_value[]){skip, x}, 2);
}

/* Ends the current scope. */
static fr_value double_conv(fr_net *n, fr_value x, int64_t out, const fr_model_opts *o) {
    for (int i = 0; i < 2; i++) {
        x = fr_net_conv2d(n, NULL, x, out, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        x = fri_model_norm_relu(n, NULL, NULL, x, o);
    }
    fr_net_scope_end(n);
    return x;
}

fr_status fr_unet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_MODEL_SLOT(m);
    fr_model_opts o;
    fr_value x, skip[MAX_DEPTH];
    if (depth < 1 || depth > MAX_DEPTH) return fr_fail(FR_EINVAL, "U-Net: depth %d is outside 1..%d", depth, MAX_DEPTH);
    fr_status s = fr_model_opts_check("U-Net", opts, (int64_t)1 << depth, &o);
    if (s < 0) return s;
    if ((o.image_size | o.image_width) % ((int64_t)1 << depth) != 0)
        return fr_fail(FR_EINVAL, "U-Net: images of %lld x %lld pixels; multiples of %d are needed for depth %d",
                       (long long)o.image_size, (long long)o.image_width, 1 << depth, depth);
    const int64_t top = fr_model_channels(&o, TOP_CHANNELS);
    fr_net *n = fri_model_begin(&o, &x);
    fr_net_init(n, FR_NET_INIT_FAN_OUT);
    for (int i = 0; i < depth; i++) {
        fr_net_scope_begin(n, "down%d", i);
        skip[i] = double_conv(n, x, top << i, &o);
        x = add_pooling(n, i, skip[i]);
    }
    fr_net_scope_begin(n, "bottom");
    x = double_conv(n, x, top << depth, &o);
    for (int i = depth - 1; i >= 0; i--) {
        x = join_skip(n, i, x, skip[i]);
        fr_net_scope_begin(n, "up%d", i);
        x = double_conv(n, x, top << i, &o);
    }
    fr_net_init(n, FR_NET_INIT_DEFAULT);
    x = fr_net_conv2d(n, "head", x, o.classes, 1, NULL, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}
