/* unet.c - a small U-Net with batch norm (Ronneberger et al., 2015).
 *
 *   down_i   (conv 3x3, batch norm, relu) twice, 32 * 2^i channels; its result is the skip; then max pooling
 *   bottom   the same without pooling
 *   up_i     nearest upsampling, concat with skip_i, (conv 3x3, batch norm, relu) twice
 *   head     1x1 convolution: classes per pixel, [N, H, W, classes] */
#include "models/build.h"

#include <stdio.h>

enum { MAX_DEPTH = 5, TOP_CHANNELS = 32 };

static fr_status unet_forward(fr_module *m, fr_tensor **x) {
    const int *depth = m->state;
    fr_tensor *skip[MAX_DEPTH] = {0};
    fr_tensor *both[2];
    char name[24];
    fr_status s = FR_OK;
    for (int i = 0; i < *depth; i++) {
        snprintf(name, sizeof name, "down%d", i);
        FRI_TRY(s, fri_run(m, name, x));
        skip[i] = fr_tensor_retain(*x);
        FRI_TRY(s, fr_maxpool2d(*x, 2, NULL, x));
    }
    FRI_TRY(s, fri_run(m, "bottom", x));
    for (int i = *depth - 1; i >= 0; i--) {
        FRI_TRY(s,
                fr_upsample(*x, fr_tensor_dim(skip[i], 1), fr_tensor_dim(skip[i], 2), FR_UPSAMPLE_NEAREST, false, x));
        both[0] = skip[i];
        both[1] = *x;
        FRI_TRY(s, fr_concat(both, 2, x));
        fr_tensor_release(&skip[i]);
        snprintf(name, sizeof name, "up%d", i);
        FRI_TRY(s, fri_run(m, name, x));
    }
    FRI_TRY(s, fri_run(m, "head", x));
done:
    for (int i = 0; i < MAX_DEPTH; i++) fr_tensor_release(&skip[i]);
    return s;
}

/* The skips tie the parts together: the whole net is one unit. */
static int unet_units(fr_module *m, fr_module **out, int n) {
    if (n > 0) out[0] = m;
    return 1;
}

static const fr_module_class unet_class = {.name = "UNet", .forward = unet_forward, .units = unet_units};

static fr_status add_double(fr_module *m, const char *name, int64_t in, int64_t out, const fr_model_opts *o) {
    fr_module *d = NULL;
    fr_status s = FR_OK;
    FRI_TRY(s, fr_nn_sequential(&d));
    for (int i = 0; i < 2; i++) {
        FRI_TRY(s, fri_add_conv(d, NULL, i == 0 ? in : out, out, 3, 1, 1, false, FRI_INIT_FAN_OUT, o->device));
        FRI_TRY(s, fri_add_activated_norm(d, NULL, out, o));
        FRI_TRY(s, fri_add_activation(d, NULL, o));
    }
    FRI_TRY(s, fr_module_add_child(m, name, &d));
done:
    fr_module_release(&d);
    return s;
}

fr_status fr_unet(int depth, const fr_model_opts *opts, fr_module **m) {
    FRI_NOT_NULL(m);
    fr_model_opts o;
    fr_module *u = NULL;
    char name[24];
    fr_status s = FR_OK;
    if (depth < 1 || depth > MAX_DEPTH)
        return fri_fail(FR_EINVAL, "U-Net: depth %d is outside 1..%d", depth, MAX_DEPTH);
    FRI_TRY(s, fri_model_opts("U-Net", opts, (int64_t)1 << depth, &o));
    if (o.image_size % ((int64_t)1 << depth) != 0)
        return fri_fail(FR_EINVAL, "U-Net: images of %lld pixels; a multiple of %d is needed for depth %d",
                        (long long)o.image_size, 1 << depth, depth);
    FRI_TRY(s, fr_module_create(&unet_class, sizeof(int), &u));
    *(int *)u->state = depth;
    int64_t in = o.in_channels, width = TOP_CHANNELS;
    for (int i = 0; i < depth; i++, in = width, width *= 2) {
        snprintf(name, sizeof name, "down%d", i);
        FRI_TRY(s, add_double(u, name, in, width, &o));
    }
    FRI_TRY(s, add_double(u, "bottom", in, width, &o));
    for (int i = depth - 1; i >= 0; i--) {
        int64_t skip = (int64_t)TOP_CHANNELS << i;
        snprintf(name, sizeof name, "up%d", i);
        FRI_TRY(s, add_double(u, name, width + skip, skip, &o));
        width = skip;
    }
    FRI_TRY(s, fri_add_conv(u, "head", TOP_CHANNELS, o.classes, 1, 1, 0, true, FRI_INIT_DEFAULT, o.device));
    fr_module_release(m);
    *m = u;
    u = NULL;
done:
    fr_module_release(&u);
    return s;
}
