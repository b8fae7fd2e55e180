/* layers_pool.c - ONNX nodes with windows over images, without parameters: pooling, padding, resizing. */
#include "addons/onnx/reader.h"

#include <math.h>
#include <string.h>

enum { MOST = 1 << 20 }; /* pixels of a window, of padding, or of a result's side */

typedef Onnx__NodeProto node;
typedef fri_onnx_reading reading;

/* Integers of an attribute of `want` numbers, each 0..MOST; `out` stays without an attribute. */
static fr_status window(fri_onnx_reader *r, const node *n, const char *name, int want, int64_t *out) {
    int count = 0;
    if (fri_onnx_attribute(n, name) == NULL) return FR_OK;
    fr_status s = fri_onnx_integers(r, n, SIZE_MAX, name, out, want, &count);
    if (s == FR_OK && count != want) s = fr_fail(FR_EUNSUPPORTED, "'%s' has %d numbers, not %d", name, count, want);
    for (int i = 0; i < want && s == FR_OK; i++)
        if (out[i] < 0 || out[i] > MOST) s = fr_fail(FR_EFORMAT, "'%s' holds %lld", name, (long long)out[i]);
    return s;
}

fr_status fri_onnx_pads(const reading *l, const int64_t kernel[2], const int64_t stride[2], const int64_t dilation[2],
                        int64_t pad[4]) {
    char how[64];
    fri_onnx_attribute_text(l->n, "auto_pad", "NOTSET", how);
    memset(pad, 0, 4 * sizeof *pad);
    for (int i = 0; i < 2; i++)
        if (kernel[i] < 1 || stride[i] < 1 || dilation[i] < 1 || kernel[i] > MOST || stride[i] > MOST ||
            dilation[i] > MOST)
            return fr_fail(FR_EFORMAT, "kernel %lld, stride %lld and dilation %lld are impossible; 1 to %d",
                           (long long)kernel[i], (long long)stride[i], (long long)dilation[i], MOST);
    if (strcmp(how, "NOTSET") == 0) return window(l->r, l->n, "pads", 4, pad);
    if (strcmp(how, "VALID") == 0) return FR_OK;
    if (strcmp(how, "SAME_UPPER") != 0 && strcmp(how, "SAME_LOWER") != 0)
        return fr_fail(FR_EFORMAT, "auto_pad %s is none of ONNX's", how);
    for (int i = 0; i < 2; i++) { /* pads for a result of ceil(size / stride) pixels */
        const int64_t size = l->dim[2 + i], s = stride[i];
        const int64_t all = ((size + s - 1) / s - 1) * s + (kernel[i] - 1) * dilation[i] + 1 - size, less = all / 2;
        pad[i] = all > 0 ? (strcmp(how, "SAME_UPPER") == 0 ? less : all - less) : 0;
        pad[i + 2] = all > 0 ? all - pad[i] : 0;
    }
    return FR_OK;
}

/* Padding beyond half the kernel, and a larger pad on a side, become a layer; values for maxima are -inf. */
static fr_status pad_a_side(const reading *l, bool average, bool counts, const int64_t kernel[2], int64_t pad[4],
                            fr_value *x) {
    int64_t sides[4];
    for (int i = 0; i < 2; i++) {
        const int64_t least = pad[i] < pad[i + 2] ? pad[i] : pad[i + 2], half = kernel[i] / 2;
        const int64_t both = least < half ? least : half;
        sides[2 - 2 * i] = pad[i] - both;
        sides[3 - 2 * i] = pad[i + 2] - both;
        pad[i] = both;
    }
    if (sides[0] + sides[1] + sides[2] + sides[3] == 0) return FR_OK;
    if ((average && !counts) || fri_onnx_attribute_int(l->n, "ceil_mode", 0) != 0)
        return fr_fail(FR_EUNSUPPORTED, "pads that differ between begin and end, or above half of the kernel, with "
                                        "ceil_mode or averages over fewer pixels at the border");
    *x = fr_net_constant_pad2d(l->net, fri_onnx_part(l, "pad"), *x, sides, average ? 0 : -INFINITY);
    return FR_OK;
}

/* A MaxPool (padding -inf) must not absorb a Pad node (padding 0). */
fr_status fri_onnx_pool(reading *l) {
    static const char *const name[] = {"kernel_shape", "strides", "dilations"};
    const bool average = l->n->op_type[0] == 'A';
    const int64_t *in = l->in->pad;
    int64_t v[3][2] = {{0}, {1, 1}, {1, 1}}, pad[4] = {0};
    for (int i = 0; i < 3; i++) FRI_TRY(window(l->r, l->n, name[i], 2, v[i]));
    FRI_TRY(fri_onnx_pads(l, v[0], v[1], v[2], pad));
    const bool counts = in[0] > 0 || in[1] > 0 || fri_onnx_attribute_int(l->n, "count_include_pad", 0) != 0;
    for (int i = 0; i < 4 && fri_onnx_attribute(l->n, "pads") != NULL; i++)
        if (pad[i] >= v[0][i % 2]) /* ONNX Runtime refuses it, too */
            return fr_fail(FR_EFORMAT, "its pad %lld is not smaller than its kernel, %lld", (long long)pad[i],
                           (long long)v[0][i % 2]);
    if (average && (v[2][0] != 1 || v[2][1] != 1)) return fr_fail(FR_EUNSUPPORTED, "dilated averages");
    fr_value x = l->x;
    FRI_TRY(pad_a_side(l, average, counts, v[0], pad, &x));
    const fr_pool2d_opts *o =
        FR_POOL2D_OPTS(.stride = v[1][0], .stride_w = v[1][1], .padding = pad[0] + in[0], .padding_w = pad[1] + in[1],
                       .dilation = v[2][0], .dilation_w = v[2][1], .kernel_w = v[0][1],
                       .ceil_mode = fri_onnx_attribute_int(l->n, "ceil_mode", 0) != 0, .count_include_pad = counts);
    return fri_onnx_put(l, (average ? fr_net_avgpool2d : fr_net_maxpool2d)(l->net, l->name, x, v[0][0], o));
}

fr_status fri_onnx_global_pool(reading *l) {
    const fr_pool2d_opts *o = FR_POOL2D_OPTS(.kernel_w = l->dim[3]);
    return fri_onnx_put(l, l->n->op_type[6] == 'M' ? fr_net_maxpool2d(l->net, l->name, l->x, l->dim[2], o)
                                                   : fr_net_adaptive_avgpool2d(l->net, l->name, l->x, 1, 1));
}

fr_status fri_onnx_reduce_mean(reading *l) {
    const fr_status s = fri_onnx_written_norm(l);
    bool seen[4] = {false};
    int count = 0;
    if (s != FR_END) return s;
    FRI_TRY(fri_onnx_fetch(l, l->n, 0, FRI_ONNX_IMAGES));
    FRI_TRY(fri_onnx_axes(l, seen, &count));
    const bool both = count == 2 && seen[2] && seen[3], keeps = fri_onnx_attribute_int(l->n, "keepdims", 1) != 0;
    if (!both && !(count == 1 && (seen[2] || seen[3]) && keeps))
        return fr_fail(FR_EUNSUPPORTED, "frugal averages over height, width or both, axes 2 and 3, and nothing else");
    const fr_pool2d_opts *o = FR_POOL2D_OPTS(.kernel_w = seen[3] ? l->dim[3] : 1);
    fr_value y = both ? fr_net_adaptive_avgpool2d(l->net, l->name, l->x, 1, 1)
                      : fr_net_avgpool2d(l->net, l->name, l->x, seen[2] ? l->dim[2] : 1, o);
    return fri_onnx_put(l, keeps ? y : fr_net_flatten(l->net, fri_onnx_part(l, "flat"), y, 1));
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
fr_status fri_onnx_pad(reading *l) {
    int64_t pad[8];
    int count = 0;
    char mode[64];
    fri_onnx_value *y = fri_onnx_made(l->r, l->n);
    const fri_onnx_value *with = fri_onnx_input(l->r, l->n, 2);
    const bool axes = fri_onnx_input(l->r, l->n, 3) != NULL;
    FRI_TRY(fri_onnx_integers(l->r, l->n, 1, "pads", pad, 8, &count));
    fri_onnx_attribute_text(l->n, "mode", "constant", mode);
    if (strcmp(mode, "constant") != 0 || axes || count != 8)
        return fr_fail(FR_EUNSUPPORTED, "mode '%s', %d pads%s; frugal pads with a constant, by 8 pads without axes",
                       mode, count, axes ? " and axes" : "");
    if (with != NULL && (with->constant == NULL || with->constant->n != 1))
        return fr_fail(FR_EUNSUPPORTED, "it pads with a computed value; frugal needs a constant there");
    const double value = with != NULL ? fri_onnx_float(with->constant, 0) : fri_onnx_attribute_float(l->n, "value", 0);
    for (int i = 0; i < 8; i++)
        if (pad[i] < 0 || pad[i] > (i % 4 < 2 ? 0 : MOST))
            return fr_fail(FR_EUNSUPPORTED, "pads[%d] is %lld; frugal pads height and width", i, (long long)pad[i]);
    const int64_t sides[4] = {pad[3], pad[7], pad[2], pad[6]};
    if (value != 0) return fri_onnx_put(l, fr_net_constant_pad2d(l->net, l->name, l->x, sides, value));
    if (!waits(l->r, l->at, pad)) return fri_onnx_put(l, fr_net_zero_pad2d(l->net, l->name, l->x, sides));
    if (y != NULL) memcpy(y->pad, pad + 2, sizeof y->pad);
    return fri_onnx_put(l, l->x);
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

/* How a Resize finds the source of a pixel. */
typedef struct resizing {
    bool linear, align, half, torch, rounds_up, rounds_down, asymmetric;
    char policy; /* 'l': not larger than the sizes, 's': not smaller, 0: as the sizes say */
} resizing;

/* Does fr_upsample take every pixel from the place of ONNX? Nearest: floor(i from / to). Linear: by the ratio. */
static bool same_sources(const resizing *how, int64_t from, int64_t to, float scale) {
    bool same = true;
    if (how->torch && to == 1 && from > 1) return false; /* the first pixel, not the middle */
    if (how->linear) return fabs((double)from * (double)scale - (double)to) <= 1e-6 * (double)to;
    for (int64_t i = 0; i < to && same; i++) {
        const float at = how->align  ? to > 1 ? (float)i * (float)(from - 1) / (float)(to - 1) : 0
                         : how->half ? ((float)i + 0.5f) / scale - 0.5f
                                     : (float)i / scale;
        const float source = how->rounds_up ? floorf(at + 0.5f) : how->rounds_down ? ceilf(at - 0.5f) : floorf(at);
        const int64_t taken = source < 0 ? 0 : (int64_t)source >= from ? from - 1 : (int64_t)source;
        same = taken == i * from / to;
    }
    return same;
}

/* Height and width of the result; N and C must stay. ONNX computes sizes in f32. Scales are input 1 before opset 11. */
static fr_status resized(const reading *l, const resizing *how, int64_t out[2]) {
    const bool old = l->r->opset < 11;
    const fri_onnx_value *scales = fri_onnx_input(l->r, l->n, old ? 1 : 2);
    const fri_onnx_value *sizes = old ? NULL : fri_onnx_input(l->r, l->n, 3);
    const bool by_scale = scales != NULL && scales->constant != NULL && scales->constant->n > 0;
    const fri_onnx_constant *c = by_scale ? scales->constant : sizes != NULL ? sizes->constant : NULL;
    int64_t axis[4] = {0, 1, 2, 3}, size[4];
    int axes = 4;
    memcpy(size, l->dim, sizeof size);
    if (fri_onnx_attribute(l->n, "axes") != NULL)
        FRI_TRY(fri_onnx_integers(l->r, l->n, SIZE_MAX, "axes", axis, 4, &axes));
    if (c == NULL || c->n != axes) return fr_fail(FR_EUNSUPPORTED, "its scales or sizes are not %d constants", axes);
    float common = 0; /* scale of all axes, bounded by the sizes */
    for (int i = 0; i < axes && how->policy != 0 && !by_scale; i++) {
        const float from = (float)size[axis[i] & 3], scale = (float)fri_onnx_int(c, i) / from;
        if (i == 0 || (how->policy == 'l') == (scale < common)) common = scale;
    }
    for (int i = 0; i < axes; i++) {
        const int64_t k = axis[i] < 0 ? axis[i] + 4 : axis[i], from = k >= 0 && k < 4 ? size[k] : 0;
        const float scale = by_scale      ? (float)fri_onnx_float(c, i)
                            : common != 0 ? common
                                          : (float)fri_onnx_int(c, i) / (float)from;
        const double v = by_scale      ? (double)floorf((float)from * scale)
                         : common != 0 ? (double)floorf((float)from * scale + 0.5f)
                                       : (double)fri_onnx_int(c, i);
        if (!(v >= 1 && v <= MOST) || from < 1) return fr_fail(FR_EFORMAT, "dimension %d becomes %g", i, v);
        size[k] = (int64_t)v;
        if (!same_sources(how, from, size[k], scale))
            return fr_fail(FR_EUNSUPPORTED,
                           "%lld pixels become %lld by the scale %g; frugal resizes by the ratio, and nearest pixels "
                           "are floor(i %lld / %lld)",
                           (long long)from, (long long)size[k], (double)scale, (long long)from, (long long)size[k]);
    }
    if (size[0] != l->dim[0] || size[1] != l->dim[1])
        return fr_fail(FR_EUNSUPPORTED, "it resizes the batch or the channels");
    memcpy(out, size + 2, 2 * sizeof *out);
    return FR_OK;
}

static fr_status resize_mode(const fri_onnx_reader *r, const node *n, resizing *how) {
    char mode[64], place[64], near[64], policy[64];
    const bool old = r->opset < 11;
    fri_onnx_attribute_text(n, "mode", "nearest", mode);
    fri_onnx_attribute_text(n, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel", place);
    fri_onnx_attribute_text(n, "nearest_mode", old ? "floor" : "round_prefer_floor", near);
    fri_onnx_attribute_text(n, "keep_aspect_ratio_policy", "stretch", policy);
    *how = (resizing){.linear = strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0,
                      .align = strcmp(place, "align_corners") == 0,
                      .half = strcmp(place, "half_pixel") == 0 || strcmp(place, "pytorch_half_pixel") == 0,
                      .torch = strcmp(place, "pytorch_half_pixel") == 0,
                      .asymmetric = strcmp(place, "asymmetric") == 0,
                      .rounds_up = strcmp(near, "round_prefer_ceil") == 0,
                      .rounds_down = strcmp(near, "round_prefer_floor") == 0};
    const bool nearest = strcmp(mode, "nearest") == 0 && (how->align || how->half || how->asymmetric) &&
                         (how->rounds_up || how->rounds_down || strcmp(near, "floor") == 0);
    if (fri_onnx_attribute_int(n, "antialias", 0) != 0 || fri_onnx_attribute_int(n, "exclude_outside", 0) != 0)
        return fr_fail(FR_EUNSUPPORTED, "antialias or exclude_outside");
    how->policy = strcmp(policy, "not_larger") == 0 ? 'l' : strcmp(policy, "not_smaller") == 0 ? 's' : '\0';
    if (strcmp(policy, "stretch") != 0 && how->policy == '\0')
        return fr_fail(FR_EFORMAT, "keep_aspect_ratio_policy '%s' is none of ONNX's", policy);
    if (nearest || (how->linear && (how->align || how->half))) return FR_OK;
    return fr_fail(
        FR_EUNSUPPORTED,
        "mode '%s', coordinates '%s', nearest_mode '%s'; frugal has linear with half_pixel or align_corners, "
        "and nearest with floor(i from / to)",
        mode, place, near);
}

/* A whole factor and a further value's size follow the size of later images. */
fr_status fri_onnx_resize(reading *l) {
    resizing how;
    int64_t to[2] = {0};
    FRI_TRY(resize_mode(l->r, l->n, &how));
    FRI_TRY(resized(l, &how, to));
    const fr_upsample_mode mode = how.linear ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST;
    const bool align = how.linear && how.align;
    const int64_t h = l->dim[2], w = l->dim[3], factor = to[0] / h;
    const fr_value like = align ? (fr_value){-1} : of_size(l->r, to[0], to[1]);
    if (to[0] == h && to[1] == w) return fri_onnx_put(l, l->x);
    if (to[0] == factor * h && to[1] == factor * w && !align)
        return fri_onnx_put(l, fr_net_upsample(l->net, l->name, l->x, factor, mode));
    return fri_onnx_put(l, like.id >= 0 ? fr_net_upsample_to(l->net, l->name, l->x, like, mode)
                                        : fr_net_resize(l->net, l->name, l->x, to[0], to[1], mode, align));
}
