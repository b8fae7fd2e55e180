/* write_layers.c - ONNX nodes of each layer. */
#include "addons/onnx/write.h"

#include <math.h>
#include <string.h>

typedef fri_onnx_writing writing;
typedef Onnx__NodeProto node;
#define NODE FRI_ONNX_NODE
/* Integers of an attribute of node n; of a constant of the layer, by its name. */
#define LIST(...)           (int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)
#define INTS(n, name, ...)  fri_onnx_set_ints(l->w, n, name, LIST(__VA_ARGS__))
#define WHOLE(l, name, ...) fri_onnx_integers_of(l, name, LIST(__VA_ARGS__))
/* A node with a result within the layer: the name of the value. */
#define VIA(l, type, what, ...) via(l, type, what, (const char *const[]){__VA_ARGS__, NULL})

/* The layer's tensor of the name; NULL: none. */
static const char *parameter(const writing *l, const char *name) {
    fr_tensor *t = fr_module_tensor(l->layer->module, name);
    return t != NULL ? fri_onnx_tensor(l, name, t) : NULL;
}

/* A value between two nodes of the layer. */
static const char *between(const writing *l, const char *what) {
    return fri_onnx_text(l->w, "%s/%s", l->out, what);
}

static const char *via(const writing *l, const char *type, const char *what, const char *const *in) {
    const char *out = between(l, what);
    fri_onnx_node(l, type, in, out);
    return out;
}

static const char *number(const writing *l, const char *name, double v) {
    const float f = (float)v;
    return fri_onnx_floats(l, name, 0, NULL, &f);
}

static int64_t or_same(int64_t v, int64_t other) {
    return v >= 0 ? v : other;
}

/* ---- with parameters ------------------------------------------------------------------------------------- */

static void conv_node(const writing *l, const fr_conv2d_opts *o, const fr_tensor *weight, const char *w, const char *b,
                      const char *out) {
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    node *n = NODE(l, "Conv", out, l->in[0], w, b);
    INTS(n, "dilations", o->dilation, or_same(o->dilation_w, o->dilation));
    fri_onnx_set_int(l->w, n, "group", o->groups);
    INTS(n, "kernel_shape", fr_tensor_dim(weight, 1), fr_tensor_dim(weight, 2));
    INTS(n, "pads", pad[0], pad[1], pad[0], pad[1]);
    INTS(n, "strides", o->stride, or_same(o->stride_w, o->stride));
}

static void conv(const writing *l) {
    conv_node(l, l->state, fr_module_tensor(l->layer->module, "weight"), parameter(l, "weight"), parameter(l, "bias"),
              l->out);
}

static void relu6(const writing *l, const char *in) {
    NODE(l, "Clip", l->out, in, number(l, "low", 0), number(l, "high", 6));
}

static void folded(const writing *l) {
    fr_folded_conv2d k = {0};
    const bool adds = l->layer->n_in > 1;
    fri_onnx_fail(l->w, fr_folded_conv2d_get(l->layer->module, &k));
    if (l->w->status < 0) return;
    const bool bends = k.relu || k.relu6;
    const char *y = adds || bends ? between(l, "conv") : l->out;
    conv_node(l, &k.opts, k.w, fri_onnx_tensor(l, "weight", k.w), fri_onnx_tensor(l, "bias", k.b), y);
    if (adds && !bends) NODE(l, "Add", l->out, y, l->in[1]);
    if (adds && bends) y = VIA(l, "Add", "sum", y, l->in[1]);
    if (k.relu) NODE(l, "Relu", l->out, y);
    if (k.relu6) relu6(l, y);
}

/* x with channels last: in[0], if of rank 2. */
static const char *turned_in(const writing *l) {
    if (l->x.shape.rank != 4) return l->in[0];
    const char *x = between(l, "last");
    INTS(NODE(l, "Transpose", x, l->in[0]), "perm", 0, 2, 3, 1);
    return x;
}

/* Name of the last node's result, before turn_out takes the channels back to the front. */
static const char *before_turn(const writing *l) {
    return l->x.shape.rank == 4 ? between(l, "back") : l->out;
}

static void turn_out(const writing *l, const char *y) {
    if (y != l->out) INTS(NODE(l, "Transpose", l->out, y), "perm", 0, 3, 1, 2);
}

static void linear(const writing *l) {
    if (l->x.shape.rank != 4) {
        node *n = NODE(l, "Gemm", l->out, l->in[0], parameter(l, "weight"), parameter(l, "bias"));
        fri_onnx_set_int(l->w, n, "transB", 1);
        return;
    }
    const char *b = parameter(l, "bias"), *y = before_turn(l), *w = between(l, "weight"), *x = turned_in(l);
    const char *product = b != NULL ? between(l, "product") : y;
    INTS(NODE(l, "Transpose", w, parameter(l, "weight")), "perm", 1, 0);
    NODE(l, "MatMul", product, x, w);
    if (b != NULL) NODE(l, "Add", y, product, b);
    turn_out(l, y);
}

static const char *mean(const writing *l, const char *what, const char *x) {
    const char *y = between(l, what);
    INTS(NODE(l, "ReduceMean", y, x), "axes", -1);
    return y;
}

/* Nodes of the parts before opset 17. */
static void layer_norm(const writing *l) {
    const double eps = ((const fr_group_norm_state *)l->state)->eps;
    const char *x = turned_in(l), *w = parameter(l, "weight"), *b = parameter(l, "bias"), *y = before_turn(l);
    if (l->w->opset >= 17) {
        fri_onnx_set_float(l->w, NODE(l, "LayerNormalization", y, x, w, b), "epsilon", eps);
    } else {
        const char *c = VIA(l, "Sub", "centred", x, mean(l, "mean", x));
        const char *v = mean(l, "variance", VIA(l, "Pow", "square", c, number(l, "two", 2)));
        v = VIA(l, "Sqrt", "root", VIA(l, "Add", "sum", v, number(l, "eps", eps)));
        NODE(l, "Add", y, VIA(l, "Mul", "product", VIA(l, "Div", "quotient", c, v), w), b);
    }
    turn_out(l, y);
}

/* Groups as the channels of an InstanceNormalization, then a factor and a summand per channel. */
static void group_norm(const writing *l) {
    const fr_group_norm_state *state = l->state;
    const int64_t *d = l->x.shape.dim, groups = state->groups;
    const char *axes = WHOLE(l, "axes", 1, 2), *c[2] = {"weight", "bias"}, *unit[2], *y = between(l, "normal");
    float *ones = fri_onnx_block(l->w, (size_t)groups * 2 * sizeof *ones);
    if (ones == NULL) return;
    for (int64_t i = 0; i < groups; i++) ones[i] = 1;
    for (int i = 0; i < 2; i++) {
        unit[i] = fri_onnx_floats(l, i == 0 ? "one" : "zero", 1, &groups, ones + i * groups);
        c[i] = VIA(l, "Unsqueeze", c[i], parameter(l, c[i]), axes);
    }
    const char *apart = VIA(l, "Reshape", "groups", l->in[0], WHOLE(l, "apart", 0, groups, -1));
    fri_onnx_set_float(l->w, NODE(l, "InstanceNormalization", y, apart, unit[0], unit[1]), "epsilon", state->eps);
    y = VIA(l, "Reshape", "images", y, WHOLE(l, "shape", 0, d[3], d[1], d[2]));
    NODE(l, "Add", l->out, VIA(l, "Mul", "scaled", y, c[0]), c[1]);
}

static void per_channel(const writing *l) {
    const char *scale = parameter(l, "");
    if (l->x.shape.rank != 4) scale = VIA(l, "Reshape", "row", scale, WHOLE(l, "shape", -1));
    NODE(l, l->type, l->out, l->in[0], scale);
}

static void prelu(const writing *l) {
    const char *slope = parameter(l, "weight");
    if (l->x.shape.rank == 4) slope = VIA(l, "Reshape", "slope", slope, WHOLE(l, "shape", -1, 1, 1));
    NODE(l, "PRelu", l->out, l->in[0], slope);
}

static void conv_transpose(const writing *l) {
    const fr_conv_transpose2d_opts *o = l->state;
    const fr_tensor *weight = fr_module_tensor(l->layer->module, "weight");
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    node *n = NODE(l, "ConvTranspose", l->out, l->in[0], parameter(l, "weight"), parameter(l, "bias"));
    INTS(n, "dilations", o->dilation, or_same(o->dilation_w, o->dilation));
    fri_onnx_set_int(l->w, n, "group", o->groups);
    INTS(n, "kernel_shape", fr_tensor_dim(weight, 1), fr_tensor_dim(weight, 2));
    INTS(n, "output_padding", o->output_padding, or_same(o->output_padding_w, o->output_padding));
    INTS(n, "pads", pad[0], pad[1], pad[0], pad[1]);
    INTS(n, "strides", o->stride, or_same(o->stride_w, o->stride));
}

static void norm_node(const writing *l, const char *weight, const char *out) {
    const fr_norm_state *state = l->state;
    node *n = NODE(l, "BatchNormalization", out, l->in[0], weight, parameter(l, "bias"), parameter(l, "running_mean"),
                   parameter(l, "running_var"));
    fri_onnx_set_float(l->w, n, "epsilon", state->eps);
    fri_onnx_set_float(l->w, n, "momentum", 1 - state->momentum);
}

static void norm(const writing *l) {
    norm_node(l, parameter(l, "weight"), l->out);
}

/* The layer multiplies by |gamma| + eps (ops.h). */
static void inplace_norm(const writing *l) {
    const fr_norm_state *state = l->state;
    fr_tensor *gamma = fr_module_tensor(l->layer->module, "weight");
    const int64_t channels = fr_tensor_dim(gamma, 0);
    float *v = fri_onnx_block(l->w, (size_t)channels * sizeof *v);
    if (v == NULL) return;
    if (!l->w->dry) fri_onnx_fail(l->w, fr_tensor_to_host(gamma, v));
    for (int64_t i = 0; i < channels; i++) v[i] = fabsf(v[i]) + (float)state->eps;
    const bool identity = state->slope == FR_ABN_IDENTITY;
    const char *y = identity ? l->out : between(l, "norm");
    norm_node(l, fri_onnx_floats(l, "weight", 1, &channels, v), y);
    if (state->slope == FR_ABN_ELU)
        NODE(l, "Elu", l->out, y);
    else if (!identity)
        fri_onnx_set_float(l->w, NODE(l, "LeakyRelu", l->out, y), "alpha", state->slope);
}

/* ---- activations ----------------------------------------------------------------------------------------- */

static void clamp(const writing *l) {
    const double *bounds = l->state;
    const char *low = isinf(bounds[0]) ? "" : number(l, "low", bounds[0]);
    NODE(l, "Clip", l->out, l->in[0], low, isinf(bounds[1]) ? "" : number(l, "high", bounds[1]));
}

static void clamp6(const writing *l) {
    relu6(l, l->in[0]);
}

/* Softmax, LogSoftmax, Flatten. */
static void over_channels(const writing *l) {
    if (l->type[0] == 'F' && *(int *)l->state != 1)
        fri_onnx_fail(l->w, fr_fail(FR_EUNSUPPORTED, "it begins at dimension %d; 1 is written", *(int *)l->state));
    fri_onnx_set_int(l->w, NODE(l, l->type, l->out, l->in[0]), "axis", 1);
}

static void leaky_relu(const writing *l) {
    fri_onnx_set_float(l->w, NODE(l, "LeakyRelu", l->out, l->in[0]), "alpha", *(double *)l->state);
}

static void silu(const writing *l) {
    NODE(l, "Mul", l->out, l->in[0], VIA(l, "Sigmoid", "gate", l->in[0]));
}

static void hardsigmoid(const writing *l) {
    fri_onnx_set_float(l->w, NODE(l, "HardSigmoid", l->out, l->in[0]), "alpha", 1.0 / 6);
}

static void hardswish(const writing *l) {
    const char *gate = between(l, "gate");
    if (l->w->opset >= 14) {
        NODE(l, "HardSwish", l->out, l->in[0]);
    } else {
        fri_onnx_set_float(l->w, NODE(l, "HardSigmoid", gate, l->in[0]), "alpha", 1.0 / 6);
        NODE(l, "Mul", l->out, l->in[0], gate);
    }
}

/* x (1 + bent) / 2 */
static void half_of(const writing *l, const char *bent) {
    const char *one = VIA(l, "Add", "one", bent, number(l, "one", 1));
    NODE(l, "Mul", l->out, VIA(l, "Mul", "product", l->in[0], one), number(l, "half", 0.5));
}

static void gelu(const writing *l) {
    half_of(l, VIA(l, "Erf", "erf", VIA(l, "Div", "scaled", l->in[0], number(l, "root", sqrt(2)))));
}

/* The nodes of PyTorch's exporter. */
static void gelu_tanh(const writing *l) {
    const char *x = l->in[0], *y = VIA(l, "Mul", "cube", x, VIA(l, "Mul", "square", x, x));
    y = VIA(l, "Mul", "small", y, number(l, "cubic", 0.044715));
    y = VIA(l, "Add", "sum", x, y);
    y = VIA(l, "Mul", "scaled", y, number(l, "root", 0.79788456080286535588));
    half_of(l, VIA(l, "Tanh", "tanh", y));
}

/* ---- windows --------------------------------------------------------------------------------------------- */

static void pool(const writing *l) {
    const fr_pool2d_state *p = l->state;
    const fr_pool2d_opts *o = &p->opts;
    const int64_t kernel[2] = {p->kernel, or_same(o->kernel_w, p->kernel)};
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    const int64_t stride_w = or_same(o->stride_w, o->stride >= 0 ? o->stride : kernel[1]);
    node *n = NODE(l, l->type, l->out, l->in[0]);
    INTS(n, "kernel_shape", kernel[0], kernel[1]);
    INTS(n, "strides", or_same(o->stride, kernel[0]), stride_w);
    INTS(n, "pads", pad[0], pad[1], pad[0], pad[1]);
    fri_onnx_set_int(l->w, n, "ceil_mode", o->ceil_mode);
    if (l->type[0] == 'A')
        fri_onnx_set_int(l->w, n, "count_include_pad", o->count_include_pad);
    else
        INTS(n, "dilations", o->dilation, or_same(o->dilation_w, o->dilation));
}

static void adaptive_pool(const writing *l) {
    const int64_t *to = l->state, *x = l->x.shape.dim, kernel[2] = {x[1] / to[0], x[2] / to[1]};
    const bool global = to[0] == 1 && to[1] == 1;
    if (kernel[0] * to[0] != x[1] || kernel[1] * to[1] != x[2])
        fri_onnx_fail(l->w, fr_fail(FR_EUNSUPPORTED,
                                    "%lld x %lld is no multiple of %lld x %lld; ONNX has windows of one size",
                                    (long long)x[1], (long long)x[2], (long long)to[0], (long long)to[1]));
    node *n = NODE(l, global ? "GlobalAveragePool" : "AveragePool", l->out, l->in[0]);
    if (global) return;
    INTS(n, "kernel_shape", kernel[0], kernel[1]);
    INTS(n, "strides", kernel[0], kernel[1]);
}

static void resize_mode(const writing *l, node *n, fr_upsample_mode mode, bool align) {
    const bool nearest = mode == FR_UPSAMPLE_NEAREST;
    fri_onnx_set_text(l->w, n, "mode", nearest ? "nearest" : "linear");
    fri_onnx_set_text(l->w, n, "coordinate_transformation_mode",
                      nearest ? "asymmetric"
                      : align ? "align_corners"
                              : "half_pixel");
    if (nearest) fri_onnx_set_text(l->w, n, "nearest_mode", "floor");
}

/* Resize by a factor, to the size of a second value, or to a size. */
static void upsample(const writing *l) {
    const bool sized = strcmp(fr_module_class_of(l->layer->module)->name, "Resize") == 0;
    const fr_resize_state *to = l->state;
    if (l->layer->n_in == 1 && !sized) {
        const fr_upsample_state *state = l->state;
        const float factor = (float)state->factor, scales[4] = {1, 1, factor, factor};
        node *n = NODE(l, "Resize", l->out, l->in[0], "", fri_onnx_floats(l, "scales", 1, (int64_t[]){4}, scales));
        resize_mode(l, n, state->mode, false);
        return;
    }
    const char *zero = WHOLE(l, "from0", 0), *two = WHOLE(l, "from2", 2), *four = WHOLE(l, "from4", 4);
    const char *back = NULL, *size = between(l, "size");
    const char *front = VIA(l, "Slice", "front", VIA(l, "Shape", "shape", l->in[0]), zero, two);
    if (sized)
        back = WHOLE(l, "to", to->h, to->w);
    else
        back = VIA(l, "Slice", "back", VIA(l, "Shape", "like", l->in[1]), two, four);
    fri_onnx_set_int(l->w, NODE(l, "Concat", size, front, back), "axis", 0);
    resize_mode(l, NODE(l, "Resize", l->out, l->in[0], "", "", size),
                sized ? to->mode : *(const fr_upsample_mode *)l->state, sized && to->align_corners);
}

/* ---- shape and sums -------------------------------------------------------------------------------------- */

static void pad(const writing *l) {
    const fr_pad2d_state *s = l->state;
    const int64_t *p = s->pad;
    const char *pads = WHOLE(l, "pads", 0, 0, p[2], p[0], 0, 0, p[3], p[1]);
    NODE(l, "Pad", l->out, l->in[0], pads, s->value != 0 ? number(l, "value", s->value) : NULL);
}

static void by_number(const writing *l) {
    NODE(l, l->type, l->out, l->in[0], number(l, "alpha", *(double *)l->state));
}

static void slice(const writing *l) {
    const fr_slice_state *s = l->state;
    const char *start = WHOLE(l, "start", s->start), *end = WHOLE(l, "end", s->end);
    const char *axis = WHOLE(l, "axis", s->dim + 1);
    NODE(l, "Slice", l->out, l->in[0], start, end, axis, WHOLE(l, "step", s->step));
}

static void narrow(const writing *l) {
    const int64_t *s = l->state;
    const char *start = WHOLE(l, "start", s[0]), *end = WHOLE(l, "end", s[0] + s[1]);
    NODE(l, "Slice", l->out, l->in[0], start, end, WHOLE(l, "axis", 1));
}

static void unflatten(const writing *l) {
    const int64_t *size = l->state, h = size[0], w = size[1], c = l->x.shape.dim[1] / (h * w);
    if (h * w == 1 || c == 1 || (l->x.pieces == 1 && l->x.piece[0].spatial == h * w)) { /* in PyTorch's order */
        NODE(l, "Reshape", l->out, l->in[0], WHOLE(l, "shape", 0, c, h, w));
    } else {
        const char *last = VIA(l, "Reshape", "last", l->in[0], WHOLE(l, "shape", 0, h, w, c));
        INTS(NODE(l, "Transpose", l->out, last), "perm", 0, 3, 1, 2);
    }
}

/* Channels [C, r, r] of the pixels, as PyTorch exports the layer. */
static void pixel_unshuffle(const writing *l) {
    const int64_t r = *(int64_t *)l->state, *d = l->x.shape.dim, h = d[1] / r, w = d[2] / r;
    const char *blocks = VIA(l, "Reshape", "blocks", l->in[0], WHOLE(l, "blocks", 0, d[3], h, r, w, r));
    const char *turned = between(l, "turned");
    INTS(NODE(l, "Transpose", turned, blocks), "perm", 0, 1, 3, 5, 2, 4);
    NODE(l, "Reshape", l->out, turned, WHOLE(l, "channels", 0, d[3] * r * r, h, w));
}

static void pixel_shuffle(const writing *l) {
    node *n = NODE(l, "DepthToSpace", l->out, l->in[0]);
    fri_onnx_set_int(l->w, n, "blocksize", *(int64_t *)l->state);
    fri_onnx_set_text(l->w, n, "mode", "CRD");
}

/* Groups and their channels change places. ONNX's own Flatten has the order of a shuffle after a Flatten. */
static void channel_shuffle(const writing *l) {
    const int64_t g = *(int64_t *)l->state, *d = l->x.shape.dim, rank = l->x.shape.rank, c = d[rank - 1];
    const int64_t apart[5] = {0, g, c / g, d[1], d[2]}, back[4] = {0, c, d[1], d[2]};
    if (fr_channels_turned(l->x.piece, l->x.pieces)) {
        NODE(l, "Identity", l->out, l->in[0]);
        return;
    }
    const size_t more = (size_t)rank + 1;
    const char *y = VIA(l, "Reshape", "groups", l->in[0], fri_onnx_integers_of(l, "groups", apart, more));
    const char *turned = between(l, "turned");
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", turned, y), "perm", (int64_t[]){0, 2, 1, 3, 4}, more);
    NODE(l, "Reshape", l->out, turned, fri_onnx_integers_of(l, "channels", back, (size_t)rank));
}

/* ONNX aligns a row with the width of images, not with the channels. */
static void binary(const writing *l) {
    const int a = l->x.shape.rank, b = fri_onnx_written_value(l->w, l->layer->in[1]).shape.rank;
    if (a != b)
        fri_onnx_fail(l->w, fr_fail(FR_EUNSUPPORTED, "its inputs have rank %d and %d; equal ranks are written", a, b));
    NODE(l, l->type, l->out, l->in[0], l->in[1]);
}

static void concat(const writing *l) {
    const size_t n = (size_t)l->layer->n_in;
    const char **in = fri_onnx_block(l->w, (n + 1) * sizeof *in);
    if (in == NULL) return;
    for (size_t i = 0; i < n; i++) in[i] = l->w->name[l->layer->in[i]];
    fri_onnx_set_int(l->w, fri_onnx_node(l, "Concat", in, l->out), "axis", 1);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

/* Classes: a node with equal inputs, or the function, to which some say the node's type. */
static const struct kind {
    const char *name, *type;
    void (*write)(const writing *l);
} kinds[] = {
    {"AddScalar", "Add", by_number},
    {"AdaptiveAvgPool2d", NULL, adaptive_pool},
    {"Add", "Add", binary},
    {"AvgPool2d", "AveragePool", pool},
    {"BatchNorm2d", NULL, norm},
    {"ChannelShuffle", NULL, channel_shuffle},
    {"Clamp", NULL, clamp},
    {"Concat", NULL, concat},
    {"ConstantPad2d", NULL, pad},
    {"Conv2d", NULL, conv},
    {"ConvTranspose2d", NULL, conv_transpose},
    {"Div", "Div", binary},
    {"Dropout", "Identity"},
    {"Dropout2d", "Identity"},
    {"ELU", "Elu"},
    {"Flatten", "Flatten", over_channels},
    {"FoldedConv2d", NULL, folded},
    {"GELU", NULL, gelu},
    {"GELUTanh", NULL, gelu_tanh},
    {"GroupNorm", NULL, group_norm},
    {"Hardsigmoid", NULL, hardsigmoid},
    {"Hardswish", NULL, hardswish},
    {"Identity", "Identity"},
    {"InPlaceABN", NULL, inplace_norm},
    {"LayerNorm", NULL, layer_norm},
    {"LayerScale", "Mul", per_channel},
    {"LayerShift", "Add", per_channel},
    {"LeakyReLU", NULL, leaky_relu},
    {"Linear", NULL, linear},
    {"LogSoftmax", "LogSoftmax", over_channels},
    {"MaxPool2d", "MaxPool", pool},
    {"Mul", "Mul", binary},
    {"Narrow", NULL, narrow},
    {"PReLU", NULL, prelu},
    {"PixelShuffle", NULL, pixel_shuffle},
    {"PixelUnshuffle", NULL, pixel_unshuffle},
    {"ReLU", "Relu"},
    {"ReLU6", NULL, clamp6},
    {"Resize", NULL, upsample},
    {"Scale", "Mul", by_number},
    {"SiLU", NULL, silu},
    {"Sigmoid", "Sigmoid"},
    {"Slice", NULL, slice},
    {"Softmax", "Softmax", over_channels},
    {"Softplus", "Softplus"},
    {"StochasticDepth", "Identity"},
    {"Sub", "Sub", binary},
    {"Tanh", "Tanh"},
    {"Unflatten", NULL, unflatten},
    {"Upsample", NULL, upsample},
    {"ZeroPad2d", NULL, pad},
};

fr_status fri_onnx_write_layer(const writing *l) {
    const char *name = fr_module_class_of(l->layer->module)->name;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        writing one = *l;
        one.type = kinds[i].type;
        one.state = fr_module_state(l->layer->module);
        one.x = fri_onnx_written_value(l->w, l->layer->in[0]);
        if (kinds[i].write != NULL)
            kinds[i].write(&one);
        else
            NODE(l, kinds[i].type, l->out, l->in[0], l->in[1]);
        return l->w->status;
    }
    return fr_fail(FR_EUNSUPPORTED, "frugal writes no node for it");
}
