/* layers_pool.c - ONNX nodes with windows over images, without parameters: pooling, padding, resizing. */
#include "addons/onnx/reader.h"

#include <math.h>
#include <string.h>

typedef Onnx__NodeProto node;

/* Input 0, of images. */
static fr_status images(fri_onnx_reader *r, const node *n, bool pads, fri_onnx_value **x) {
    fr_status s = fri_onnx_activation(r, n, 0, pads ? FRI_ONNX_PADS : 0, x);
    if (s < 0 || fri_onnx_rank(r, (*x)->x) == 4) return s;
    return fr_fail(FR_EUNSUPPORTED, "its input has rank %d; images are needed", fri_onnx_rank(r, (*x)->x));
}

/* Integers of an attribute of `want` numbers, each 0..2^31; `out` stays without an attribute. */
static fr_status window(fri_onnx_reader *r, const node *n, const char *name, int want, int64_t *out) {
    int count = 0;
    if (fri_onnx_attribute(n, name) == NULL) return FR_OK;
    fr_status s = fri_onnx_integers(r, n, SIZE_MAX, name, out, want, &count);
    if (s == FR_OK && count != want) s = fr_fail(FR_EUNSUPPORTED, "'%s' has %d numbers, not %d", name, count, want);
    for (int i = 0; i < want && s == FR_OK; i++)
        if (out[i] < 0 || out[i] > INT32_MAX) s = fr_fail(FR_EFORMAT, "'%s' holds %lld", name, (long long)out[i]);
    return s;
}

/* A MaxPool (padding -inf) must not absorb a Pad node (padding 0). */
fr_status fri_onnx_pool(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const bool average = strcmp(n->op_type, "AveragePool") == 0;
    int64_t kernel[2] = {0}, stride[2] = {1, 1}, dilation[2] = {1, 1}, pad[4] = {0};
    fri_onnx_value *x = NULL;
    char text[64];
    FRI_TRY(images(r, n, average, &x));
    FRI_TRY(window(r, n, "kernel_shape", 2, kernel));
    FRI_TRY(window(r, n, "strides", 2, stride));
    FRI_TRY(window(r, n, "dilations", 2, dilation));
    FRI_TRY(window(r, n, "pads", 4, pad));
    fri_onnx_attribute_text(n, "auto_pad", "NOTSET", text);
    const bool taken = x->pad[0] > 0 || x->pad[1] > 0;
    if (strcmp(text, "NOTSET") != 0 && strcmp(text, "VALID") != 0)
        return fr_fail(FR_EUNSUPPORTED, "auto_pad %s; frugal takes explicit pads", text);
    if (pad[0] != pad[2] || pad[1] != pad[3])
        return fr_fail(FR_EUNSUPPORTED, "pads %lld %lld %lld %lld differ between begin and end; frugal pads both alike",
                       (long long)pad[0], (long long)pad[1], (long long)pad[2], (long long)pad[3]);
    if (average && (dilation[0] != 1 || dilation[1] != 1)) return fr_fail(FR_EUNSUPPORTED, "dilated averages");
    const fr_pool2d_opts *o =
        FR_POOL2D_OPTS(.stride = stride[0], .stride_w = stride[1], .padding = pad[0] + x->pad[0],
                       .padding_w = pad[1] + x->pad[1], .dilation = dilation[0], .dilation_w = dilation[1],
                       .kernel_w = kernel[1], .ceil_mode = fri_onnx_attribute_int(n, "ceil_mode", 0) != 0,
                       .count_include_pad = taken || fri_onnx_attribute_int(n, "count_include_pad", 0) != 0);
    if (kernel[0] < 1 || kernel[1] < 1)
        return fr_fail(FR_EFORMAT, "its kernel is %lld x %lld", (long long)kernel[0], (long long)kernel[1]);
    return fri_onnx_put(r, n,
                        average ? fr_net_avgpool2d(r->net, r->name[at], x->x, kernel[0], o)
                                : fr_net_maxpool2d(r->net, r->name[at], x->x, kernel[0], o));
}

fr_status fri_onnx_global_pool(fri_onnx_reader *r, int at) {
    fri_onnx_value *x = NULL;
    fr_status s = images(r, r->graph->node[at], false, &x);
    return s < 0 ? s : fri_onnx_put(r, r->graph->node[at], fr_net_adaptive_avgpool2d(r->net, r->name[at], x->x, 1, 1));
}

fr_status fri_onnx_reduce_mean(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    int64_t axis[4];
    int count = 0;
    fri_onnx_value *x = NULL;
    fr_status s = fri_onnx_written_norm(r, at);
    if (s != FR_END) return s;
    FR_TRY(s, images(r, n, false, &x));
    FR_TRY(s, fri_onnx_integers(r, n, 1, "axes", axis, 4, &count));
    bool seen[4] = {false};
    for (int i = 0; i < count; i++)
        if (axis[i] >= -4 && axis[i] < 4) seen[axis[i] < 0 ? axis[i] + 4 : axis[i]] = true;
    if (count != 2 || !seen[2] || !seen[3])
        return fr_fail(FR_EUNSUPPORTED, "frugal averages over height and width, axes 2 and 3, and nothing else");
    fr_value y = fr_net_adaptive_avgpool2d(r->net, r->name[at], x->x, 1, 1);
    if (fri_onnx_attribute_int(n, "keepdims", 1) == 0) {
        char name[FRI_ONNX_NAME + 16];
        memcpy(name, r->name[at], FRI_ONNX_NAME);
        strcat(name, "_flat");
        y = fr_net_flatten(r->net, name, y, 1);
    }
    s = fri_onnx_put(r, n, y);
done:
    return s;
}

/* Does the next layer take the zeros in? Padding of a pool is half the kernel at most, and a last window of ceil_mode
 * that begins in the padding is dropped. */
static bool waits(fri_onnx_reader *r, int at, const int64_t pad[8]) {
    const int conv = fri_onnx_next(r, at, "Conv"), pool = fri_onnx_next(r, at, "AveragePool");
    int64_t kernel[2] = {0}, own[4] = {0};
    if (pad[2] != pad[6] || pad[3] != pad[7]) return false;
    if (conv >= 0) return !fri_onnx_shared(r, conv);
    if (pool < 0 || window(r, r->graph->node[pool], "kernel_shape", 2, kernel) < 0 ||
        window(r, r->graph->node[pool], "pads", 4, own) < 0)
        return false;
    return fri_onnx_attribute_int(r->graph->node[pool], "ceil_mode", 0) == 0 && 2 * pad[2] <= kernel[0] &&
           2 * pad[3] <= kernel[1] && own[0] + own[1] + own[2] + own[3] == 0;
}

/* Zeros around images. */
fr_status fri_onnx_pad(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    int64_t pad[8];
    int count = 0;
    char mode[64];
    fri_onnx_value *x = NULL, *y = fri_onnx_value_find(r, n->n_output > 0 ? n->output[0] : "");
    const fri_onnx_value *with = fri_onnx_input(r, n, 2);
    FRI_TRY(images(r, n, false, &x));
    FRI_TRY(fri_onnx_integers(r, n, 1, NULL, pad, 8, &count));
    fri_onnx_attribute_text(n, "mode", "constant", mode);
    if (strcmp(mode, "constant") != 0 || fri_onnx_input(r, n, 3) != NULL || count != 8)
        return fr_fail(FR_EUNSUPPORTED, "mode '%s', %d pads%s; frugal pads with zeros, by 8 pads without axes", mode,
                       count, fri_onnx_input(r, n, 3) != NULL ? " and axes" : "");
    if (with != NULL && (with->constant == NULL || with->constant->n != 1))
        return fr_fail(FR_EUNSUPPORTED, "it pads with a computed value; frugal pads with zeros");
    if (with != NULL && fri_onnx_float(with->constant, 0) != 0)
        return fr_fail(FR_EUNSUPPORTED, "it pads with %g; frugal pads with zeros", fri_onnx_float(with->constant, 0));
    for (int i = 0; i < 8; i++)
        if (pad[i] < 0 || pad[i] > (i % 4 < 2 ? 0 : INT32_MAX))
            return fr_fail(FR_EUNSUPPORTED, "pads[%d] is %lld; frugal pads height and width", i, (long long)pad[i]);
    if (!waits(r, at, pad)) {
        const int64_t sides[4] = {pad[3], pad[7], pad[2], pad[6]};
        return fri_onnx_put(r, n, fr_net_zero_pad2d(r->net, r->name[at], x->x, sides));
    }
    FRI_TRY(fri_onnx_put(r, n, x->x));
    if (y != NULL) y->pad[0] = pad[2];
    if (y != NULL) y->pad[1] = pad[3];
    return FR_OK;
}

/* ---- resizing -------------------------------------------------------------------------------------------- */

/* The last value of the height and width; id -1: none. */
static fr_value of_size(fri_onnx_reader *r, int64_t h, int64_t w) {
    fr_value like = {-1};
    for (size_t i = 0; i < r->values; i++) {
        const fr_value x = r->value[i].x;
        if (x.id > like.id && fri_onnx_rank(r, x) == 4 && fri_onnx_dim(r, x, 2) == h && fri_onnx_dim(r, x, 3) == w)
            like = x;
    }
    return like;
}

/* Does the source of every result pixel stay, if the ratio of sizes replaces the scale? */
static bool like_ratio(int64_t from, int64_t to, double scale, fr_upsample_mode mode) {
    bool same = true;
    if (mode == FR_UPSAMPLE_BILINEAR) return fabs((double)from * scale - (double)to) <= 1e-6 * (double)to;
    for (int64_t i = 0; i < to && same; i++) same = (int64_t)((float)i / (float)scale) == i * from / to;
    return same;
}

/* Height and width of the result; N and C must stay. ONNX computes sizes in f32. */
static fr_status resized(fri_onnx_reader *r, const node *n, fr_value x, fr_upsample_mode mode, int64_t out[2]) {
    const fri_onnx_value *scales = fri_onnx_input(r, n, 2), *sizes = fri_onnx_input(r, n, 3);
    const bool by_scale = scales != NULL && scales->constant != NULL && scales->constant->n > 0;
    const fri_onnx_constant *c = by_scale ? scales->constant : sizes != NULL ? sizes->constant : NULL;
    int64_t size[4];
    if (c == NULL || c->n != 4 || fri_onnx_attribute(n, "axes") != NULL)
        return fr_fail(FR_EUNSUPPORTED, "its scales or sizes are not 4 constants");
    for (int i = 0; i < 4; i++) {
        const int64_t from = fri_onnx_dim(r, x, i);
        const float scale = (float)fri_onnx_float(c, i);
        const double v = by_scale ? (double)floorf((float)from * scale) : (double)fri_onnx_int(c, i);
        if (!(v >= 1 && v <= INT32_MAX)) return fr_fail(FR_EFORMAT, "dimension %d becomes %g", i, v);
        size[i] = (int64_t)v;
        if (by_scale && !like_ratio(from, size[i], (double)scale, mode))
            return fr_fail(FR_EUNSUPPORTED, "its scale %g makes %lld pixels of %lld; frugal resizes by the ratio %g",
                           (double)scale, (long long)size[i], (long long)from, (double)size[i] / (double)from);
    }
    if (size[0] != fri_onnx_dim(r, x, 0) || size[1] != fri_onnx_dim(r, x, 1))
        return fr_fail(FR_EUNSUPPORTED, "it resizes the batch or the channels");
    out[0] = size[2];
    out[1] = size[3];
    return FR_OK;
}

static fr_status resize_mode(const node *n, fr_upsample_mode *mode) {
    char how[64], place[64], near[64], policy[64];
    fri_onnx_attribute_text(n, "mode", "nearest", how);
    fri_onnx_attribute_text(n, "coordinate_transformation_mode", "half_pixel", place);
    fri_onnx_attribute_text(n, "nearest_mode", "round_prefer_floor", near);
    fri_onnx_attribute_text(n, "keep_aspect_ratio_policy", "stretch", policy);
    const bool half = strcmp(place, "half_pixel") == 0 || strcmp(place, "pytorch_half_pixel") == 0;
    if (fri_onnx_attribute_int(n, "antialias", 0) != 0 || fri_onnx_attribute_int(n, "exclude_outside", 0) != 0)
        return fr_fail(FR_EUNSUPPORTED, "antialias or exclude_outside");
    if (strcmp(policy, "stretch") != 0)
        return fr_fail(FR_EUNSUPPORTED, "keep_aspect_ratio_policy '%s'; frugal has 'stretch'", policy);
    *mode = strcmp(how, "linear") == 0 ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST;
    if (*mode == FR_UPSAMPLE_BILINEAR && half) return FR_OK;
    if (strcmp(how, "nearest") == 0 && strcmp(place, "asymmetric") == 0 && strcmp(near, "floor") == 0) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED,
                   "mode '%s', coordinates '%s', nearest_mode '%s'; frugal has linear with half_pixel and nearest with "
                   "asymmetric and floor, PyTorch's without align_corners",
                   how, place, near);
}

fr_status fri_onnx_resize(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    fr_upsample_mode mode = FR_UPSAMPLE_NEAREST;
    fri_onnx_value *x = NULL;
    int64_t to[2] = {0};
    fr_status s = FR_OK;
    FR_TRY(s, images(r, n, false, &x));
    FR_TRY(s, resize_mode(n, &mode));
    FR_TRY(s, resized(r, n, x->x, mode, to));
    const int64_t h = fri_onnx_dim(r, x->x, 2), w = fri_onnx_dim(r, x->x, 3), factor = to[0] / h;
    if (to[0] == factor * h && to[1] == factor * w) {
        s = fri_onnx_put(r, n, fr_net_upsample(r->net, r->name[at], x->x, factor, mode));
    } else {
        const fr_value like = of_size(r, to[0], to[1]);
        if (like.id < 0)
            return fr_fail(FR_EUNSUPPORTED,
                           "to %lld x %lld, which is not %lld x %lld by one whole factor and no other value's size",
                           (long long)to[0], (long long)to[1], (long long)h, (long long)w);
        s = fri_onnx_put(r, n, fr_net_upsample_to(r->net, r->name[at], x->x, like, mode));
    }
done:
    return s;
}
