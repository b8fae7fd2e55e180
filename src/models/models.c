/* models.c - see models.h. */
#include "models/models.h"

static int64_t smaller_side(const fr_model_opts *o) {
    return o->image_size < o->image_width ? o->image_size : o->image_width;
}

fr_status fr_model_opts_check(const char *model, const fr_model_opts *opts, int64_t stride, fr_model_opts *out) {
    if (model == NULL || out == NULL)
        return fr_fail(FR_EINVAL, "fr_model_opts_check: %s is NULL", model == NULL ? "model" : "out");
    *out = opts != NULL ? *opts : *FR_MODEL_OPTS();
    if (out->classes < 1 || out->in_channels < 1)
        return fr_fail(FR_EINVAL, "%s: %lld classes, %lld input channels; both must be >= 1", model,
                       (long long)out->classes, (long long)out->in_channels);
    if (!(out->abn_slope >= 0))
        return fr_fail(FR_EINVAL, "%s: abn_slope is %g; it must be > 0, or 0 for batch norm and relu", model,
                       out->abn_slope);
    if (!(out->width >= 0.01 && out->width <= 16))
        return fr_fail(FR_EINVAL, "%s: width is %g; it must be in 0.01..16", model, out->width);
    if (out->image_width == 0) out->image_width = out->image_size;
    if (smaller_side(out) < stride)
        return fr_fail(FR_EINVAL, "%s: images of %lld pixels are smaller than the network's stride of %lld", model,
                       (long long)smaller_side(out), (long long)stride);
    return FR_OK;
}

bool fri_global_head(const fr_model_opts *o) {
    enum { SMALL_IMAGE = 64 };
    return o->head == FR_HEAD_GLOBAL || (o->head == FR_HEAD_AUTO && smaller_side(o) < SMALL_IMAGE);
}

int64_t fr_model_divisible(double x) {
    enum { DIVISOR = 8 };
    const int64_t n = (int64_t)(x + DIVISOR / 2.0) / DIVISOR * DIVISOR;
    return (double)n < 0.9 * x ? n + DIVISOR : n;
}

int64_t fr_model_channels(const fr_model_opts *o, int64_t channels) {
    if (o == NULL) return 0;
    return o->width == 1 ? channels : fr_model_divisible((double)channels * o->width);
}

fr_net *fri_model_begin(const fr_model_opts *o, fr_value *x) {
    fr_net *n = fr_net_begin(o->device);
    *x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->image_size, o->image_width, o->in_channels});
    return n;
}

fr_value fri_model_norm(fr_net *n, const char *name, fr_value x, const fr_model_opts *o) {
    return o->abn_slope > 0 ? fr_net_inplace_abn(n, name, x, o->abn_slope) : fr_net_batchnorm2d(n, name, x, NULL);
}

fr_value fri_model_relu(fr_net *n, const char *name, fr_value x, const fr_model_opts *o) {
    return o->abn_slope > 0 ? fr_net_identity(n, name, x) : fr_net_relu(n, name, x);
}

fr_value fri_model_norm_relu(fr_net *n, const char *norm, const char *relu, fr_value x, const fr_model_opts *o) {
    return fri_model_relu(n, relu, fri_model_norm(n, norm, x, o), o);
}

fr_value fri_pool_flatten(fr_net *n, fr_value x, int64_t size) {
    return fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, size, size), 1);
}

fr_value fri_dense(fr_net *n, const char *name, fr_value x, int64_t out) {
    x = fr_net_linear(n, name, x, out, FR_BIAS);
    fr_module *m = fr_net_layer_of(n, x);
    if (m == NULL) return x;
    fr_net_try(n, fr_init_normal(fr_module_tensor(m, "weight"), 0, 0.01));
    fr_net_try(n, fr_tensor_fill(fr_module_tensor(m, "bias"), 0));
    return x;
}
