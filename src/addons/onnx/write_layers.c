/* write_layers.c - ONNX nodes of each layer. */
#include "addons/onnx/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef fri_onnx_writing writing;
typedef Onnx__NodeProto node;
#define NODE FRI_ONNX_NODE

/* The layer's tensor of the name; NULL: none. */
static const char *parameter(const writing *l, const char *name) {
    fr_tensor *t = fr_module_tensor(l->layer->module, name);
    return t != NULL ? fri_onnx_tensor(l, name, t) : NULL;
}

/* A value between two nodes of the layer. */
static const char *between(const writing *l, const char *what) {
    return fri_onnx_text(l->w, "%s/%s", l->out, what);
}

static const char *number(const writing *l, const char *name, double v) {
    const float f = (float)v;
    return fri_onnx_floats(l, name, 0, NULL, &f);
}

static int rank_in(const writing *l) {
    return fri_onnx_written_value(l->w, l->layer->in[0]).shape.rank;
}

static int64_t or_same(int64_t v, int64_t other) {
    return v >= 0 ? v : other;
}

/* ---- with parameters ------------------------------------------------------------------------------------- */

static void conv_node(const writing *l, const fr_conv2d_opts *o, const fr_tensor *weight, const char *w, const char *b,
                      const char *out) {
    const int64_t kernel[2] = {fr_tensor_dim(weight, 1), fr_tensor_dim(weight, 2)};
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    fri_onnx_writer *to = l->w;
    node *n = NODE(l, "Conv", out, l->in[0], w, b);
    fri_onnx_set_ints(to, n, "dilations", (int64_t[]){o->dilation, or_same(o->dilation_w, o->dilation)}, 2);
    fri_onnx_set_int(to, n, "group", o->groups);
    fri_onnx_set_ints(to, n, "kernel_shape", kernel, 2);
    fri_onnx_set_ints(to, n, "pads", (int64_t[]){pad[0], pad[1], pad[0], pad[1]}, 4);
    fri_onnx_set_ints(to, n, "strides", (int64_t[]){o->stride, or_same(o->stride_w, o->stride)}, 2);
}

static fr_status conv(const writing *l) {
    conv_node(l, fr_module_state(l->layer->module), fr_module_tensor(l->layer->module, "weight"),
              parameter(l, "weight"), parameter(l, "bias"), l->out);
    return FR_OK;
}

static void clip(const writing *l, const char *in, const char *out) {
    (void)NODE(l, "Clip", out, in, number(l, "low", 0), number(l, "high", 6));
}

static fr_status folded(const writing *l) {
    fr_folded_conv2d k;
    const bool adds = l->layer->n_in > 1;
    FRI_TRY(fr_folded_conv2d_get(l->layer->module, &k));
    const bool bends = k.relu || k.relu6;
    const char *y = adds || bends ? between(l, "conv") : l->out;
    conv_node(l, &k.opts, k.w, fri_onnx_tensor(l, "weight", k.w), fri_onnx_tensor(l, "bias", k.b), y);
    if (adds) {
        const char *sum = bends ? between(l, "sum") : l->out;
        (void)NODE(l, "Add", sum, y, l->in[1]);
        y = sum;
    }
    if (k.relu) (void)NODE(l, "Relu", l->out, y);
    if (k.relu6) clip(l, y, l->out);
    return FR_OK;
}

/* x with channels last: in[0], if of rank 2. */
static const char *turned_in(const writing *l) {
    if (rank_in(l) != 4) return l->in[0];
    const char *x = between(l, "last");
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", x, l->in[0]), "perm", (int64_t[]){0, 2, 3, 1}, 4);
    return x;
}

/* Name of the last node's result, before turn_out takes the channels back to the front. */
static const char *before_turn(const writing *l) {
    return rank_in(l) == 4 ? between(l, "back") : l->out;
}

static void turn_out(const writing *l, const char *y) {
    if (y == l->out) return;
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", l->out, y), "perm", (int64_t[]){0, 3, 1, 2}, 4);
}

static fr_status linear(const writing *l) {
    if (rank_in(l) == 4) {
        const char *b = parameter(l, "bias"), *y = before_turn(l), *w = between(l, "weight"), *x = turned_in(l);
        const char *product = b != NULL ? between(l, "product") : y;
        fri_onnx_set_ints(l->w, NODE(l, "Transpose", w, parameter(l, "weight")), "perm", (int64_t[]){1, 0}, 2);
        (void)NODE(l, "MatMul", product, x, w);
        if (b != NULL) (void)NODE(l, "Add", y, product, b);
        turn_out(l, y);
        return FR_OK;
    }
    node *n = NODE(l, "Gemm", l->out, l->in[0], parameter(l, "weight"), parameter(l, "bias"));
    fri_onnx_set_int(l->w, n, "transB", 1);
    return FR_OK;
}

/* Nodes of the parts before opset 17. */
static fr_status layer_norm(const writing *l) {
    static const char *const part[] = {"mean", "centred", "square", "variance", "sum", "root", "quotient", "product"};
    const double eps = ((const fr_group_norm_state *)fr_module_state(l->layer->module))->eps;
    const char *x = turned_in(l), *w = parameter(l, "weight"), *b = parameter(l, "bias"), *y = before_turn(l), *v[8];
    if (l->w->opset >= 17) {
        node *n = NODE(l, "LayerNormalization", y, x, w, b);
        fri_onnx_set_float(l->w, n, "epsilon", eps);
        turn_out(l, y);
        return FR_OK;
    }
    for (int i = 0; i < 8; i++) v[i] = between(l, part[i]);
    fri_onnx_set_ints(l->w, NODE(l, "ReduceMean", v[0], x), "axes", (int64_t[]){-1}, 1);
    (void)NODE(l, "Sub", v[1], x, v[0]);
    (void)NODE(l, "Pow", v[2], v[1], number(l, "two", 2));
    fri_onnx_set_ints(l->w, NODE(l, "ReduceMean", v[3], v[2]), "axes", (int64_t[]){-1}, 1);
    (void)NODE(l, "Add", v[4], v[3], number(l, "eps", eps));
    (void)NODE(l, "Sqrt", v[5], v[4]);
    (void)NODE(l, "Div", v[6], v[1], v[5]);
    (void)NODE(l, "Mul", v[7], v[6], w);
    (void)NODE(l, "Add", y, v[7], b);
    turn_out(l, y);
    return FR_OK;
}

/* Groups as the channels of an InstanceNormalization, then a factor and a summand per channel. */
static fr_status group_norm(const writing *l) {
    const fr_group_norm_state *state = fr_module_state(l->layer->module);
    const fr_net_value in = fri_onnx_written_value(l->w, l->layer->in[0]);
    const int64_t *d = in.shape.dim, groups = state->groups, apart[3] = {0, groups, -1};
    const char *axes = fri_onnx_integers_of(l, "axes", 2, (int64_t[]){1, 2}), *c[2] = {"weight", "bias"}, *unit[2];
    const char *v[4] = {between(l, "groups"), between(l, "normal"), between(l, "images"), between(l, "scaled")};
    FRI_OWNED(fri_free) float *ones = calloc((size_t)groups * 2, sizeof *ones);
    if (ones == NULL) return fr_fail(FR_ENOMEM, "no host memory for %lld groups", (long long)groups);
    for (int64_t i = 0; i < groups; i++) ones[i] = 1;
    for (int i = 0; i < 2; i++) {
        const char *column = between(l, c[i]);
        unit[i] = fri_onnx_floats(l, i == 0 ? "one" : "zero", 1, &groups, ones + i * groups);
        (void)NODE(l, "Unsqueeze", column, parameter(l, c[i]), axes);
        c[i] = column;
    }
    (void)NODE(l, "Reshape", v[0], l->in[0], fri_onnx_integers_of(l, "apart", 3, apart));
    fri_onnx_set_float(l->w, NODE(l, "InstanceNormalization", v[1], v[0], unit[0], unit[1]), "epsilon", state->eps);
    (void)NODE(l, "Reshape", v[2], v[1], fri_onnx_integers_of(l, "shape", 4, (int64_t[]){0, d[3], d[1], d[2]}));
    (void)NODE(l, "Mul", v[3], v[2], c[0]);
    (void)NODE(l, "Add", l->out, v[3], c[1]);
    return FR_OK;
}

static fr_status per_channel(const writing *l) {
    const bool product = strcmp(fr_module_class_of(l->layer->module)->name, "LayerScale") == 0;
    const char *scale = parameter(l, ""), *row = between(l, "row");
    if (rank_in(l) != 4) {
        (void)NODE(l, "Reshape", row, scale, fri_onnx_integers_of(l, "shape", 1, (int64_t[]){-1}));
        scale = row;
    }
    (void)NODE(l, product ? "Mul" : "Add", l->out, l->in[0], scale);
    return FR_OK;
}

static fr_status prelu(const writing *l) {
    const char *slope = parameter(l, "weight"), *column = between(l, "slope");
    const bool turns = rank_in(l) == 4;
    if (turns) (void)NODE(l, "Reshape", column, slope, fri_onnx_integers_of(l, "shape", 3, (int64_t[]){-1, 1, 1}));
    (void)NODE(l, "PRelu", l->out, l->in[0], turns ? column : slope);
    return FR_OK;
}

static fr_status conv_transpose(const writing *l) {
    const fr_conv_transpose2d_opts *o = fr_module_state(l->layer->module);
    const fr_tensor *weight = fr_module_tensor(l->layer->module, "weight");
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    const int64_t more[2] = {o->output_padding, or_same(o->output_padding_w, o->output_padding)};
    node *n = NODE(l, "ConvTranspose", l->out, l->in[0], parameter(l, "weight"), parameter(l, "bias"));
    fri_onnx_set_ints(l->w, n, "dilations", (int64_t[]){o->dilation, or_same(o->dilation_w, o->dilation)}, 2);
    fri_onnx_set_int(l->w, n, "group", o->groups);
    fri_onnx_set_ints(l->w, n, "kernel_shape", (int64_t[]){fr_tensor_dim(weight, 1), fr_tensor_dim(weight, 2)}, 2);
    fri_onnx_set_ints(l->w, n, "output_padding", more, 2);
    fri_onnx_set_ints(l->w, n, "pads", (int64_t[]){pad[0], pad[1], pad[0], pad[1]}, 4);
    fri_onnx_set_ints(l->w, n, "strides", (int64_t[]){o->stride, or_same(o->stride_w, o->stride)}, 2);
    return FR_OK;
}

static void norm_node(const writing *l, const char *weight, const char *out) {
    const fr_norm_state *state = fr_module_state(l->layer->module);
    node *n = NODE(l, "BatchNormalization", out, l->in[0], weight, parameter(l, "bias"), parameter(l, "running_mean"),
                   parameter(l, "running_var"));
    fri_onnx_set_float(l->w, n, "epsilon", state->eps);
    fri_onnx_set_float(l->w, n, "momentum", 1 - state->momentum);
}

static fr_status norm(const writing *l) {
    norm_node(l, parameter(l, "weight"), l->out);
    return FR_OK;
}

/* The layer multiplies by |gamma| + eps (ops.h). */
static fr_status inplace_norm(const writing *l) {
    const fr_norm_state *state = fr_module_state(l->layer->module);
    fr_tensor *gamma = fr_module_tensor(l->layer->module, "weight");
    const int64_t channels = fr_tensor_dim(gamma, 0);
    FRI_OWNED(fri_free) float *v = calloc((size_t)channels, sizeof *v);
    if (v == NULL) return fr_fail(FR_ENOMEM, "no host memory for %lld values", (long long)channels);
    if (!l->w->dry) FRI_TRY(fr_tensor_to_host(gamma, v));
    for (int64_t i = 0; i < channels; i++) v[i] = fabsf(v[i]) + (float)state->eps;
    const bool identity = state->slope == FR_ABN_IDENTITY;
    const char *y = identity ? l->out : between(l, "norm");
    norm_node(l, fri_onnx_floats(l, "weight", 1, &channels, v), y);
    if (state->slope == FR_ABN_ELU)
        (void)NODE(l, "Elu", l->out, y);
    else if (!identity)
        fri_onnx_set_float(l->w, NODE(l, "LeakyRelu", l->out, y), "alpha", state->slope);
    return FR_OK;
}

/* ---- activations ----------------------------------------------------------------------------------------- */

static fr_status relu6(const writing *l) {
    clip(l, l->in[0], l->out);
    return FR_OK;
}

static fr_status clamp(const writing *l) {
    const double *bounds = fr_module_state(l->layer->module);
    (void)NODE(l, "Clip", l->out, l->in[0], isinf(bounds[0]) ? "" : number(l, "low", bounds[0]),
               isinf(bounds[1]) ? "" : number(l, "high", bounds[1]));
    return FR_OK;
}

static fr_status softmax(const writing *l) {
    const bool log_ = strcmp(fr_module_class_of(l->layer->module)->name, "LogSoftmax") == 0;
    fri_onnx_set_int(l->w, NODE(l, log_ ? "LogSoftmax" : "Softmax", l->out, l->in[0]), "axis", 1);
    return FR_OK;
}

static fr_status leaky_relu(const writing *l) {
    fri_onnx_set_float(l->w, NODE(l, "LeakyRelu", l->out, l->in[0]), "alpha",
                       *(double *)fr_module_state(l->layer->module));
    return FR_OK;
}

static fr_status silu(const writing *l) {
    const char *gate = between(l, "gate");
    (void)NODE(l, "Sigmoid", gate, l->in[0]);
    (void)NODE(l, "Mul", l->out, l->in[0], gate);
    return FR_OK;
}

static fr_status hardsigmoid(const writing *l) {
    fri_onnx_set_float(l->w, NODE(l, "HardSigmoid", l->out, l->in[0]), "alpha", 1.0 / 6);
    return FR_OK;
}

static fr_status hardswish(const writing *l) {
    const char *gate = between(l, "gate");
    if (l->w->opset >= 14) {
        (void)NODE(l, "HardSwish", l->out, l->in[0]);
        return FR_OK;
    }
    fri_onnx_set_float(l->w, NODE(l, "HardSigmoid", gate, l->in[0]), "alpha", 1.0 / 6);
    (void)NODE(l, "Mul", l->out, l->in[0], gate);
    return FR_OK;
}

static fr_status gelu(const writing *l) {
    const char *v[4] = {between(l, "scaled"), between(l, "erf"), between(l, "one"), between(l, "product")};
    (void)NODE(l, "Div", v[0], l->in[0], number(l, "root", sqrt(2)));
    (void)NODE(l, "Erf", v[1], v[0]);
    (void)NODE(l, "Add", v[2], v[1], number(l, "one", 1));
    (void)NODE(l, "Mul", v[3], l->in[0], v[2]);
    (void)NODE(l, "Mul", l->out, v[3], number(l, "half", 0.5));
    return FR_OK;
}

/* The nodes of PyTorch's exporter. */
static fr_status gelu_tanh(const writing *l) {
    static const char *const part[] = {"square", "cube", "small", "sum", "scaled", "tanh", "one", "product"};
    const char *x = l->in[0], *v[8];
    for (int i = 0; i < 8; i++) v[i] = between(l, part[i]);
    (void)NODE(l, "Mul", v[0], x, x);
    (void)NODE(l, "Mul", v[1], x, v[0]);
    (void)NODE(l, "Mul", v[2], v[1], number(l, "cubic", 0.044715));
    (void)NODE(l, "Add", v[3], x, v[2]);
    (void)NODE(l, "Mul", v[4], v[3], number(l, "root", 0.79788456080286535588));
    (void)NODE(l, "Tanh", v[5], v[4]);
    (void)NODE(l, "Add", v[6], v[5], number(l, "one", 1));
    (void)NODE(l, "Mul", v[7], x, v[6]);
    (void)NODE(l, "Mul", l->out, v[7], number(l, "half", 0.5));
    return FR_OK;
}

/* ---- windows --------------------------------------------------------------------------------------------- */

static fr_status pool(const writing *l) {
    const fr_pool2d_state *p = fr_module_state(l->layer->module);
    const fr_pool2d_opts *o = &p->opts;
    const bool average = strcmp(fr_module_class_of(l->layer->module)->name, "AvgPool2d") == 0;
    const int64_t kernel[2] = {p->kernel, or_same(o->kernel_w, p->kernel)};
    const int64_t pad[2] = {o->padding, or_same(o->padding_w, o->padding)};
    const int64_t stride = or_same(o->stride, kernel[0]);
    const int64_t stride_w = or_same(o->stride_w, o->stride >= 0 ? o->stride : kernel[1]);
    node *n = NODE(l, average ? "AveragePool" : "MaxPool", l->out, l->in[0]);
    fri_onnx_set_ints(l->w, n, "kernel_shape", kernel, 2);
    fri_onnx_set_ints(l->w, n, "strides", (int64_t[]){stride, stride_w}, 2);
    fri_onnx_set_ints(l->w, n, "pads", (int64_t[]){pad[0], pad[1], pad[0], pad[1]}, 4);
    fri_onnx_set_int(l->w, n, "ceil_mode", o->ceil_mode);
    if (average) fri_onnx_set_int(l->w, n, "count_include_pad", o->count_include_pad);
    if (!average)
        fri_onnx_set_ints(l->w, n, "dilations", (int64_t[]){o->dilation, or_same(o->dilation_w, o->dilation)}, 2);
    return FR_OK;
}

static fr_status adaptive_pool(const writing *l) {
    const int64_t *to = fr_module_state(l->layer->module);
    const fr_net_value in = fri_onnx_written_value(l->w, l->layer->in[0]);
    const fr_shape *x = &in.shape;
    const int64_t kernel[2] = {x->dim[1] / to[0], x->dim[2] / to[1]};
    if (to[0] == 1 && to[1] == 1) {
        (void)NODE(l, "GlobalAveragePool", l->out, l->in[0]);
        return FR_OK;
    }
    if (kernel[0] * to[0] != x->dim[1] || kernel[1] * to[1] != x->dim[2])
        return fr_fail(FR_EUNSUPPORTED, "%lld x %lld is no multiple of %lld x %lld; ONNX has windows of one size",
                       (long long)x->dim[1], (long long)x->dim[2], (long long)to[0], (long long)to[1]);
    node *n = NODE(l, "AveragePool", l->out, l->in[0]);
    fri_onnx_set_ints(l->w, n, "kernel_shape", kernel, 2);
    fri_onnx_set_ints(l->w, n, "strides", kernel, 2);
    return FR_OK;
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

/* Resize by a factor, to a size, or to the size of a second value. */
static fr_status upsample(const writing *l) {
    const fr_upsample_state *state = fr_module_state(l->layer->module);
    const bool sized = strcmp(fr_module_class_of(l->layer->module)->name, "Resize") == 0;
    if (l->layer->n_in == 1 && !sized) {
        const float factor = (float)state->factor, scales[4] = {1, 1, factor, factor};
        node *n = NODE(l, "Resize", l->out, l->in[0], "", fri_onnx_floats(l, "scales", 1, (int64_t[]){4}, scales));
        resize_mode(l, n, state->mode, false);
        return FR_OK;
    }
    const char *zero = fri_onnx_integers_of(l, "from0", 1, (int64_t[]){0});
    const char *two = fri_onnx_integers_of(l, "from2", 1, (int64_t[]){2});
    const char *four = fri_onnx_integers_of(l, "from4", 1, (int64_t[]){4});
    const char *v[5] = {between(l, "shape"), between(l, "like"), between(l, "front"), between(l, "back"),
                        between(l, "size")};
    (void)NODE(l, "Shape", v[0], l->in[0]);
    (void)NODE(l, "Slice", v[2], v[0], zero, two);
    if (sized) {
        v[3] = fri_onnx_integers_of(l, "to", 2, &((const fr_resize_state *)fr_module_state(l->layer->module))->h);
    } else {
        (void)NODE(l, "Shape", v[1], l->in[1]);
        (void)NODE(l, "Slice", v[3], v[1], two, four);
    }
    fri_onnx_set_int(l->w, NODE(l, "Concat", v[4], v[2], v[3]), "axis", 0);
    const fr_resize_state *to = fr_module_state(l->layer->module);
    resize_mode(l, NODE(l, "Resize", l->out, l->in[0], "", "", v[4]),
                sized ? to->mode : *(const fr_upsample_mode *)fr_module_state(l->layer->module),
                sized && to->align_corners);
    return FR_OK;
}

/* ---- shape and sums -------------------------------------------------------------------------------------- */

static fr_status flatten(const writing *l) {
    if (*(int *)fr_module_state(l->layer->module) != 1)
        return fr_fail(FR_EUNSUPPORTED, "it begins at dimension %d; 1 is written",
                       *(int *)fr_module_state(l->layer->module));
    fri_onnx_set_int(l->w, NODE(l, "Flatten", l->out, l->in[0]), "axis", 1);
    return FR_OK;
}

static fr_status pad(const writing *l) {
    const fr_pad2d_state *s = fr_module_state(l->layer->module);
    const int64_t *p = s->pad, pads[8] = {0, 0, p[2], p[0], 0, 0, p[3], p[1]};
    (void)NODE(l, "Pad", l->out, l->in[0], fri_onnx_integers_of(l, "pads", 8, pads),
               s->value != 0 ? number(l, "value", s->value) : NULL);
    return FR_OK;
}

static fr_status by_number(const writing *l) {
    const bool scale = strcmp(fr_module_class_of(l->layer->module)->name, "Scale") == 0;
    (void)NODE(l, scale ? "Mul" : "Add", l->out, l->in[0],
               number(l, "alpha", *(double *)fr_module_state(l->layer->module)));
    return FR_OK;
}

static fr_status slice(const writing *l) {
    const fr_slice_state *s = fr_module_state(l->layer->module);
    (void)NODE(l, "Slice", l->out, l->in[0], fri_onnx_integers_of(l, "start", 1, &s->start),
               fri_onnx_integers_of(l, "end", 1, &s->end), fri_onnx_integers_of(l, "axis", 1, (int64_t[]){s->dim + 1}),
               fri_onnx_integers_of(l, "step", 1, &s->step));
    return FR_OK;
}

static fr_status unflatten(const writing *l) {
    const int64_t *size = fr_module_state(l->layer->module);
    const fr_net_value in = fri_onnx_written_value(l->w, l->layer->in[0]);
    const int64_t h = size[0], w = size[1], c = in.shape.dim[1] / (h * w);
    if (h * w == 1 || c == 1 || (in.pieces == 1 && in.piece[0].spatial == h * w)) { /* in PyTorch's order */
        (void)NODE(l, "Reshape", l->out, l->in[0], fri_onnx_integers_of(l, "shape", 4, (int64_t[]){0, c, h, w}));
        return FR_OK;
    }
    const char *last = between(l, "last");
    (void)NODE(l, "Reshape", last, l->in[0], fri_onnx_integers_of(l, "shape", 4, (int64_t[]){0, h, w, c}));
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", l->out, last), "perm", (int64_t[]){0, 3, 1, 2}, 4);
    return FR_OK;
}

/* Channels [C, r, r] of the pixels, as PyTorch exports the layer. */
static fr_status pixel_unshuffle(const writing *l) {
    const int64_t r = *(int64_t *)fr_module_state(l->layer->module);
    const fr_net_value in = fri_onnx_written_value(l->w, l->layer->in[0]);
    const int64_t *d = in.shape.dim, apart[6] = {0, d[3], d[1] / r, r, d[2] / r, r};
    const char *v[2] = {between(l, "blocks"), between(l, "turned")};
    (void)NODE(l, "Reshape", v[0], l->in[0], fri_onnx_integers_of(l, "blocks", 6, apart));
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", v[1], v[0]), "perm", (int64_t[]){0, 1, 3, 5, 2, 4}, 6);
    (void)NODE(l, "Reshape", l->out, v[1],
               fri_onnx_integers_of(l, "channels", 4, (int64_t[]){0, d[3] * r * r, d[1] / r, d[2] / r}));
    return FR_OK;
}

static fr_status pixel_shuffle(const writing *l) {
    node *n = NODE(l, "DepthToSpace", l->out, l->in[0]);
    fri_onnx_set_int(l->w, n, "blocksize", *(int64_t *)fr_module_state(l->layer->module));
    fri_onnx_set_text(l->w, n, "mode", "CRD");
    return FR_OK;
}

/* Groups and their channels change places. ONNX's own Flatten has the order of a shuffle after a Flatten. */
static fr_status channel_shuffle(const writing *l) {
    const fr_net_value in = fri_onnx_written_value(l->w, l->layer->in[0]);
    const int64_t g = *(int64_t *)fr_module_state(l->layer->module), *d = in.shape.dim;
    const int64_t c = d[in.shape.rank - 1], apart[5] = {0, g, c / g, d[1], d[2]}, back[4] = {0, c, d[1], d[2]};
    const char *v[2] = {between(l, "groups"), between(l, "turned")};
    if (fr_channels_turned(in.piece, in.pieces)) {
        (void)NODE(l, "Identity", l->out, l->in[0]);
        return FR_OK;
    }
    (void)NODE(l, "Reshape", v[0], l->in[0], fri_onnx_integers_of(l, "groups", in.shape.rank + 1, apart));
    fri_onnx_set_ints(l->w, NODE(l, "Transpose", v[1], v[0]), "perm", (int64_t[]){0, 2, 1, 3, 4},
                      (size_t)in.shape.rank + 1);
    (void)NODE(l, "Reshape", l->out, v[1], fri_onnx_integers_of(l, "channels", in.shape.rank, back));
    return FR_OK;
}

static fr_status narrow(const writing *l) {
    const int64_t *s = fr_module_state(l->layer->module);
    (void)NODE(l, "Slice", l->out, l->in[0], fri_onnx_integers_of(l, "start", 1, s),
               fri_onnx_integers_of(l, "end", 1, (int64_t[]){s[0] + s[1]}),
               fri_onnx_integers_of(l, "axis", 1, (int64_t[]){1}));
    return FR_OK;
}

/* ONNX aligns a row with the width of images, not with the channels. */
static fr_status binary(const writing *l) {
    const int a = rank_in(l), b = fri_onnx_written_value(l->w, l->layer->in[1]).shape.rank;
    if (a != b) return fr_fail(FR_EUNSUPPORTED, "its inputs have rank %d and %d; equal ranks are written", a, b);
    (void)NODE(l, fr_module_class_of(l->layer->module)->name, l->out, l->in[0], l->in[1]);
    return FR_OK;
}

static fr_status concat(const writing *l) {
    const size_t n = (size_t)l->layer->n_in;
    const char **in = fri_onnx_block(l->w, (n + 1) * sizeof *in);
    if (in == NULL) return l->w->status;
    for (size_t i = 0; i < n; i++) in[i] = l->w->name[l->layer->in[i]];
    fri_onnx_set_int(l->w, fri_onnx_node(l, "Concat", in, l->out), "axis", 1);
    return FR_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------- */

/* Classes: the function, or the node with equal inputs. */
static const struct kind {
    const char *name;
    fr_status (*write)(const writing *l);
    const char *type;
} kinds[] = {
    {"AddScalar", by_number, NULL},
    {"AdaptiveAvgPool2d", adaptive_pool, NULL},
    {"Add", binary, "Add"},
    {"AvgPool2d", pool, NULL},
    {"BatchNorm2d", norm, NULL},
    {"ChannelShuffle", channel_shuffle, NULL},
    {"Clamp", clamp, NULL},
    {"Concat", concat, NULL},
    {"ConstantPad2d", pad, NULL},
    {"Conv2d", conv, NULL},
    {"ConvTranspose2d", conv_transpose, NULL},
    {"Div", binary, "Div"},
    {"Dropout", NULL, "Identity"},
    {"Dropout2d", NULL, "Identity"},
    {"ELU", NULL, "Elu"},
    {"Flatten", flatten, NULL},
    {"FoldedConv2d", folded, NULL},
    {"GELU", gelu, NULL},
    {"GELUTanh", gelu_tanh, NULL},
    {"GroupNorm", group_norm, NULL},
    {"Hardsigmoid", hardsigmoid, NULL},
    {"Hardswish", hardswish, NULL},
    {"Identity", NULL, "Identity"},
    {"InPlaceABN", inplace_norm, NULL},
    {"LayerNorm", layer_norm, NULL},
    {"LayerScale", per_channel, NULL},
    {"LayerShift", per_channel, NULL},
    {"LeakyReLU", leaky_relu, NULL},
    {"Linear", linear, NULL},
    {"LogSoftmax", softmax, NULL},
    {"MaxPool2d", pool, NULL},
    {"Mul", binary, "Mul"},
    {"Narrow", narrow, NULL},
    {"PReLU", prelu, NULL},
    {"PixelShuffle", pixel_shuffle, NULL},
    {"PixelUnshuffle", pixel_unshuffle, NULL},
    {"ReLU", NULL, "Relu"},
    {"ReLU6", relu6, NULL},
    {"Resize", upsample, NULL},
    {"Scale", by_number, NULL},
    {"SiLU", silu, NULL},
    {"Sigmoid", NULL, "Sigmoid"},
    {"Slice", slice, NULL},
    {"Softmax", softmax, NULL},
    {"Softplus", NULL, "Softplus"},
    {"StochasticDepth", NULL, "Identity"},
    {"Sub", binary, "Sub"},
    {"Tanh", NULL, "Tanh"},
    {"Unflatten", unflatten, NULL},
    {"Upsample", upsample, NULL},
    {"ZeroPad2d", pad, NULL},
};

fr_status fri_onnx_write_layer(const writing *l) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, fr_module_class_of(l->layer->module)->name) != 0) continue;
        if (kinds[i].write != NULL) return kinds[i].write(l);
        (void)NODE(l, kinds[i].type, l->out, l->in[0], l->in[1]);
        return FR_OK;
    }
    return fr_fail(FR_EUNSUPPORTED, "frugal writes no node for it");
}
