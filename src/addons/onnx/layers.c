/* layers.c - the table from ONNX nodes to layers, and the nodes without windows or parameters. */
#include "addons/onnx/reader.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef Onnx__NodeProto node;
typedef fri_onnx_reading reading;
typedef fr_value one_call(fr_net *, const char *, fr_value);

/* ---- helpers --------------------------------------------------------------------------------------------- */

/* Adds a layer with a single input. */
static fr_status one(reading *l, one_call *call) {
    return fri_onnx_put(l, call(l->net, l->name, l->x));
}

/* The value, with padding. */
fr_status fri_onnx_same(reading *l) {
    fri_onnx_value *y = fri_onnx_made(l->r, l->n);
    if (y != NULL) memcpy(y->pad, l->in->pad, sizeof y->pad);
    return fri_onnx_put(l, l->x);
}

double fri_onnx_number(fri_onnx_reader *r, const node *n, size_t i) {
    const fri_onnx_value *v = fri_onnx_input(r, n, i);
    const fri_onnx_constant *c = v != NULL ? v->constant : NULL;
    return c != NULL && c->n == 1 && c->rank <= 2 ? fri_onnx_float(c, 0) : NAN; /* results keep the other rank */
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6;
}

/* ---- chains of nodes ------------------------------------------------------------------------------------- */

enum { STEPS = 9 };
#define X    NAN
#define ROOT 0.70710678118654752440

/* Nodes in a row for a single layer: each is the only reader of the node before; the second operand is a number, or the
 * first node's activation X. */
static const struct chain {
    one_call *layer;
    struct {
        const char *op;
        double with; /* 0: none */
    } step[STEPS];
} chains[] = {
    /* x sigmoid(x), and x clip(x + 3, 0, 6) / 6, as HardSigmoid and in files of Paddle */
    {fr_net_silu, {{"Sigmoid", 0}, {"Mul", X}}},
    {fr_net_hardswish, {{"HardSigmoid", 0}, {"Mul", X}}},
    {fr_net_hardswish, {{"Add", 3}, {"Clip", 0}, {"Mul", X}, {"Div", 6}}},
    /* x (1 + erf(x / sqrt 2)) / 2 in files of exporters */
    {fr_net_gelu, {{"Div", 1 / ROOT}, {"Erf", 0}, {"Add", 1}, {"Mul", X}, {"Mul", 0.5}}},
    {fr_net_gelu, {{"Div", 1 / ROOT}, {"Erf", 0}, {"Add", 1}, {"Mul", 0.5}, {"Mul", X}}},
    {fr_net_gelu, {{"Mul", ROOT}, {"Erf", 0}, {"Add", 1}, {"Mul", X}, {"Mul", 0.5}}},
    {fr_net_gelu, {{"Mul", ROOT}, {"Erf", 0}, {"Add", 1}, {"Mul", 0.5}, {"Mul", X}}},
    /* x (1 + tanh(0.798 (x + 0.0447 x x x))) / 2 in files of PyTorch */
    {fr_net_gelu_tanh,
     {{"Mul", X},
      {"Mul", X},
      {"Mul", 0.044715},
      {"Add", X},
      {"Mul", 0.79788456080286536},
      {"Tanh", 0},
      {"Add", 1},
      {"Mul", X},
      {"Mul", 0.5}}},
};

/* Is `with` the node's second operand, and are the node's bounds and factors a hardswish's? */
static bool fits(fri_onnx_reader *r, const node *n, double with, const fri_onnx_value *x, bool first) {
    double low = 0, high = 6;
    if (strcmp(n->op_type, "Clip") == 0) fri_onnx_bounds(r, n, &low, &high);
    if (strcmp(n->op_type, "HardSigmoid") == 0)
        return near(fri_onnx_attribute_float(n, "alpha", 0.2), 1.0 / 6) &&
               fri_onnx_attribute_float(n, "beta", 0.5) == 0.5;
    if (with == 0) return low == 0 && high == 6;
    if (isnan(with)) return fri_onnx_input(r, n, 1) == x || (!first && fri_onnx_input(r, n, 0) == x);
    return n->n_input == 2 &&
           (near(fri_onnx_number(r, n, 1), with) || (n->op_type[0] != 'D' && near(fri_onnx_number(r, n, 0), with)));
}

/* The layer of a chain with the node at the front; FR_END: no chain. */
static fr_status chained(reading *l) {
    const fri_onnx_value *v = fri_onnx_input(l->r, l->n, 0);
    const size_t i = v != NULL && v->constant != NULL;
    const fri_onnx_value *x = fri_onnx_input(l->r, l->n, i);
    for (size_t c = 0; c < sizeof chains / sizeof *chains && x != NULL && x->x.id >= 0; c++) {
        int part[STEPS], k = 0, at = strcmp(l->n->op_type, chains[c].step[0].op) == 0 ? l->at : -1;
        for (; at >= 0 && fits(l->r, l->r->graph->node[at], chains[c].step[k].with, x, k == 0); k++) {
            part[k] = at;
            if (k + 1 == STEPS || chains[c].step[k + 1].op == NULL) {
                l->end = at;
                for (int done = 0; done < k; done++) l->r->done[part[done]] = true;
                FRI_TRY(fri_onnx_fetch(l, l->n, i, FRI_ONNX_LAST));
                return one(l, chains[c].layer);
            }
            at = fri_onnx_next(l->r, at, chains[c].step[k + 1].op);
        }
    }
    return FR_END;
}

/* ---- activations ----------------------------------------------------------------------------------------- */

static fr_status hardsigmoid(reading *l) {
    const double alpha = fri_onnx_attribute_float(l->n, "alpha", 0.2),
                 beta = fri_onnx_attribute_float(l->n, "beta", 0.5);
    if (near(alpha, 1.0 / 6) && beta == 0.5) return one(l, fr_net_hardsigmoid);
    /* the layer has 1/6 and 0.5 */
    fr_value y = fr_net_scale(l->net, fri_onnx_part(l, "scale"), l->x, 6 * alpha);
    if (beta != 0.5) y = fr_net_add_scalar(l->net, fri_onnx_part(l, "shift"), y, 6 * beta - 3);
    return fri_onnx_put(l, fr_net_hardsigmoid(l->net, l->name, y));
}

/* gamma x where x > 0, else gamma alpha (exp(x) - 1): Elu, Selu. Bounded by a number above 0, the second summand has
 * the gradient of x = 0. */
static fr_status elu(reading *l) {
    const bool scaled = l->n->op_type[0] == 'S';
    const double alpha = fri_onnx_attribute_float(l->n, "alpha", scaled ? 1.67326319217681884765625 : 1);
    const double gamma = fri_onnx_attribute_float(l->n, "gamma", scaled ? 1.05070102214813232421875 : 1);
    if (alpha == 1 && gamma == 1) return one(l, fr_net_elu);
    fr_value y = fr_net_relu(l->net, fri_onnx_part(l, "positive"), l->x);
    fr_value z = fr_net_clamp(l->net, fri_onnx_part(l, "rest"), l->x, -INFINITY, FLT_MIN);
    z = fr_net_elu(l->net, l->name, z);
    z = fr_net_scale(l->net, fri_onnx_part(l, "alpha"), z, gamma * alpha);
    if (gamma != 1) y = fr_net_scale(l->net, fri_onnx_part(l, "gamma"), y, gamma);
    return fri_onnx_put(l, fr_net_add(l->net, fri_onnx_part(l, "sum"), y, z));
}

/* x tanh(log(1 + exp(x))) */
static fr_status mish(reading *l) {
    fr_value y = fr_net_softplus(l->net, fri_onnx_part(l, "softplus"), l->x);
    y = fr_net_tanh(l->net, fri_onnx_part(l, "tanh"), y);
    return fri_onnx_put(l, fr_net_mul(l->net, l->name, y, l->x));
}

static fr_status leaky_relu(reading *l) {
    return fri_onnx_put(l, fr_net_leaky_relu(l->net, l->name, l->x, fri_onnx_attribute_float(l->n, "alpha", 0.01)));
}

/* Bounds of a Clip: attributes before opset 11. */
void fri_onnx_bounds(fri_onnx_reader *r, const node *n, double *low, double *high) {
    *low = fri_onnx_input(r, n, 1) == NULL ? fri_onnx_attribute_float(n, "min", -INFINITY) : fri_onnx_number(r, n, 1);
    *high = fri_onnx_input(r, n, 2) == NULL ? fri_onnx_attribute_float(n, "max", INFINITY) : fri_onnx_number(r, n, 2);
}

static fr_status clip(reading *l) {
    double low, high;
    fri_onnx_bounds(l->r, l->n, &low, &high);
    if (low == 0 && high == 6) return one(l, fr_net_relu6);
    if (low == 0 && high >= FLT_MAX) return one(l, fr_net_relu);
    return fri_onnx_put(l, fr_net_clamp(l->net, l->name, l->x, low, high));
}

static fr_status gelu(reading *l) {
    char text[64];
    fri_onnx_attribute_text(l->n, "approximate", "none", text);
    return one(l, strcmp(text, "tanh") == 0 ? fr_net_gelu_tanh : fr_net_gelu);
}

/* Softmax over the channels; as the network's only result, part of the loss. */
static fr_status softmax(reading *l) {
    const bool flattens = l->r->opset < 13; /* over axis and all dimensions after it */
    const int64_t axis = fri_onnx_attribute_int(l->n, "axis", flattens ? 1 : -1);
    const fri_onnx_value *y = fri_onnx_made(l->r, l->n);
    bool result = false;
    for (int i = 0; i < fri_onnx_results(l->r) && y != NULL; i++)
        result = result || fri_onnx_value_find(l->r, fri_onnx_result(l->r, i)) == y;
    const int channels = l->last ? l->rank - 1 : 1;
    const bool pixels = l->rank == 4 && l->dim[2] * l->dim[3] > 1;
    if ((axis != channels && axis != channels - l->rank) || (flattens && pixels && channels == 1))
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal's runs over the channels", (long long)axis);
    if (!result || y->readers != 1) return one(l, l->n->op_type[0] == 'L' ? fr_net_log_softmax : fr_net_softmax);
    if (!l->r->opts.drop_softmax)
        return fr_fail(FR_EINVAL, "the network ends with it, and losses here take logits; drop_softmax leaves it out");
    return fri_onnx_same(l);
}

/* ---- several inputs -------------------------------------------------------------------------------------- */

/* Add, Sub, Mul, Div. ONNX aligns the last dimensions of operands: features of rows, but the width of images. The
 * smaller operand of a sum or product comes second (ops.h). */
static fr_status binary(reading *l) {
    const char op = l->n->op_type[0];
    for (size_t i = 0; i < 2 && l->n->n_input == 2; i++) {
        const fri_onnx_value *v = fri_onnx_input(l->r, l->n, i);
        if (v != NULL && v->constant != NULL) return fri_onnx_by_constant(l, i);
    }
    FRI_TRY(fri_onnx_fetch(l, l->n, 0, FRI_ONNX_LAST));
    const reading a = *l;
    FRI_TRY(fri_onnx_fetch(l, l->n, 1, FRI_ONNX_LAST));
    if (a.rank != l->rank)
        return fr_fail(FR_EUNSUPPORTED, "its inputs have rank %d and %d; frugal needs equal ranks", a.rank, l->rank);
    if (a.last != l->last)
        return fr_fail(FR_EUNSUPPORTED, "one of its inputs has its channels last, the other has not");
    const bool turn = (op == 'A' || op == 'M') && a.numel < l->numel;
    return fri_onnx_put(l, (op == 'A'   ? fr_net_add
                            : op == 'S' ? fr_net_sub
                            : op == 'M' ? fr_net_mul
                                        : fr_net_div)(l->net, l->name, turn ? l->x : a.x, turn ? a.x : l->x));
}

static fr_status concat(reading *l) {
    enum { MOST = 128 };
    const int64_t axis = fri_onnx_attribute_int(l->n, "axis", 1);
    const size_t n = l->n->n_input;
    fr_value x[MOST];
    if (n > MOST) return fr_fail(FR_EUNSUPPORTED, "%zu inputs; %d at most", n, MOST);
    for (size_t i = 0; i < n; i++) {
        FRI_TRY(fri_onnx_fetch(l, l->n, i, 0));
        x[i] = l->x;
    }
    if (axis != 1 && axis != 1 - fri_onnx_rank(l->r, x[0]))
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal concatenates channels, axis 1", (long long)axis);
    return fri_onnx_put(l, fr_net_concat(l->net, l->name, x, (int)n));
}

/* Sum, Mean of values of one shape. */
static fr_status sum(reading *l) {
    const size_t n = l->n->n_input;
    fr_value y = l->x;
    for (size_t i = 1; i < n; i++) {
        reading more = *l;
        FRI_TRY(fri_onnx_fetch(&more, l->n, i, FRI_ONNX_LAST));
        if (more.rank != l->rank || more.numel != l->numel || more.last != l->last)
            return fr_fail(FR_EUNSUPPORTED, "input %zu has another shape than input 0", i);
        y = fr_net_add(l->net, i + 1 < n ? fri_onnx_part(l, "%zu", i) : l->name, y, more.x);
    }
    if (l->n->op_type[0] == 'M') y = fr_net_scale(l->net, fri_onnx_part(l, "mean"), y, 1 / (double)n);
    return fri_onnx_put(l, y);
}

/* ---- shape ----------------------------------------------------------------------------------------------- */

/* Does a single Linear read the result of the node, after pointwise layers without parameters? */
static bool ends_in_linear(fri_onnx_reader *r, int at) {
    static const char *const way[] = {"Cast", "Clip", "Dropout", "HardSwish", "Identity", "LeakyRelu", "Relu", "Tanh"};
    for (int next = at; next >= 0; at = next >= 0 ? next : at) {
        const int gemm = fri_onnx_next(r, at, "Gemm"), end = gemm >= 0 ? gemm : fri_onnx_next(r, at, "MatMul");
        const node *n = end >= 0 ? r->graph->node[end] : NULL;
        if (n != NULL && n->n_input > 1 && strcmp(n->input[0], r->graph->node[at]->output[0]) == 0)
            return !fri_onnx_shared(r, end);
        next = -1;
        for (size_t i = 0; i < sizeof way / sizeof *way && next < 0; i++) next = fri_onnx_next(r, at, way[i]);
    }
    return false;
}

/* Flattened images lie as H, W, C in memory. The columns of a Linear are turned accordingly; other readers get ONNX's
 * order. */
fr_status fri_onnx_flat(reading *l) {
    const int64_t spatial = l->dim[2] * l->dim[3];
    if (l->rank == 2) return fri_onnx_same(l);
    fr_value y = fr_net_flatten(l->net, l->name, l->x, 1);
    if (spatial > 1 && l->channels > 1 && !ends_in_linear(l->r, l->at))
        y = fr_net_channel_shuffle(l->net, fri_onnx_part(l, "order"), y, spatial);
    l->last = false;
    return fri_onnx_put(l, y);
}

static fr_status flatten(reading *l) {
    const int64_t axis = fri_onnx_attribute_int(l->n, "axis", 1);
    if (axis == 1 || axis == 1 - l->rank) return fri_onnx_flat(l);
    return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal keeps the batch alone, axis 1", (long long)axis);
}

fr_status fri_onnx_axes(const reading *l, bool seen[4], int *count) {
    int64_t axis[4];
    FRI_TRY(fri_onnx_integers(l->r, l->n, 1, "axes", axis, 4, count));
    for (int i = 0; i < *count; i++)
        if (axis[i] >= -4 && axis[i] < 4) seen[axis[i] & 3] = true;
    return FR_OK;
}

static fr_status squeeze(reading *l) {
    bool seen[4] = {false};
    int count = 0;
    FRI_TRY(fri_onnx_axes(l, seen, &count));
    if (l->rank == 4 && count == 2 && seen[2] && seen[3] && l->dim[2] == 1 && l->dim[3] == 1) return fri_onnx_flat(l);
    return fr_fail(FR_EUNSUPPORTED, "frugal takes height and width of 1 away, axes 2 and 3, and nothing else");
}

/* DepthToSpace, SpaceToDepth */
static fr_status depth(reading *l) {
    char mode[64];
    fri_onnx_attribute_text(l->n, "mode", "DCR", mode);
    if (strcmp(mode, "CRD") != 0 && strcmp(mode, "DCR") != 0)
        return fr_fail(FR_EFORMAT, "mode '%s' is none of ONNX's", mode);
    const int64_t factor = fri_onnx_attribute_int(l->n, "blocksize", 0);
    return fri_onnx_put(l, fri_onnx_depth(l, factor, l->n->op_type[0] == 'D', mode[0] == 'D'));
}

static fr_status negative(reading *l) {
    return fri_onnx_put(l, fr_net_scale(l->net, l->name, l->x, -1));
}

static fr_status reciprocal(reading *l) {
    const fr_value one_ = fr_net_clamp(l->net, fri_onnx_part(l, "one"), l->x, 1, 1);
    return fri_onnx_put(l, fr_net_div(l->net, l->name, one_, l->x));
}

static fr_status cast(reading *l) {
    const int64_t to = fri_onnx_attribute_int(l->n, "to", 0);
    if (to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) return fri_onnx_same(l);
    return fr_fail(FR_EUNSUPPORTED, "to type %lld; activations are f32 here, to_dtype comes after loading",
                   (long long)to);
}

static fr_status dropout(reading *l) {
    const double p = fri_onnx_input(l->r, l->n, 1) != NULL ? fri_onnx_decimal((float)fri_onnx_number(l->r, l->n, 1))
                                                           : fri_onnx_attribute_float(l->n, "ratio", 0.5);
    return fri_onnx_put(l, fr_net_dropout(l->net, l->name, l->x, p));
}

/* torchvision's stochastic depth, exported in training mode: a random number per image, kept if below 1 - p, divided by
 * 1 - p, times the branch. */
static fr_status stochastic_depth(reading *l) {
    const Onnx__NodeProto *const *nodes = (const Onnx__NodeProto *const *)l->r->graph->node;
    const fri_onnx_value *like = fri_onnx_input(l->r, l->n, 0);
    const fri_onnx_constant *c = like != NULL ? like->constant : NULL;
    int part[4], end = fri_onnx_chain(l->r, l->at, (const char *[]){"Less", "Cast", "Div", "Mul", NULL}, part);
    const double keep = end >= 0 ? fri_onnx_decimal((float)fri_onnx_number(l->r, nodes[part[0]], 1)) : NAN;
    if (!(keep > 0 && keep <= 1) || !near(fri_onnx_number(l->r, nodes[part[2]], 1), keep) || c == NULL ||
        c->rank != 4 || c->dim[1] != 1 || c->dim[2] != 1 || c->dim[3] != 1 ||
        fri_onnx_attribute_float(l->n, "low", 0) != 0 || fri_onnx_attribute_float(l->n, "high", 1) != 1)
        return fr_fail(FR_EUNSUPPORTED, "random numbers but in torchvision's stochastic depth");
    const char *scaled = nodes[part[2]]->output[0];
    FRI_TRY(fri_onnx_fetch(l, nodes[end], strcmp(nodes[end]->input[0], scaled) == 0, FRI_ONNX_LAST));
    if (l->rank != 4) return fr_fail(FR_EUNSUPPORTED, "random numbers of rank 4 for values of rank %d", l->rank);
    for (int i = 0; i < 3; i++) l->r->done[part[i]] = true;
    l->end = end;
    return fri_onnx_put(l, fr_net_stochastic_depth(l->net, l->name, l->x, 1 - keep));
}

/* ---- the table ------------------------------------------------------------------------------------------- */

enum { PADS = FRI_ONNX_PADS, LAST = FRI_ONNX_LAST, IMAGES = FRI_ONNX_IMAGES, OTHER = 8 };

/* `attributes` lists the known and the harmless attributes; unknown attributes are refused. */
static const struct op {
    const char *type, *attributes;
    unsigned takes; /* input 0, an activation (fri_onnx_fetch); OTHER: the function asks for inputs */
    fri_onnx_make *make;
    one_call *layer; /* of a single input, instead of make */
} ops[] = {
    {"Add", "", OTHER, binary},
    {"AveragePool", " auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides ", PADS | IMAGES,
     fri_onnx_pool},
    {"BatchNormalization", " epsilon momentum training_mode ", 0, fri_onnx_norm},
    {"Cast", " to saturate ", PADS | LAST, cast},
    {"Clip", " max min ", LAST, clip},
    {"Concat", " axis ", OTHER, concat},
    {"Conv", " auto_pad dilations group kernel_shape pads strides ", PADS, fri_onnx_conv},
    {"ConvTranspose", " auto_pad dilations group kernel_shape output_padding output_shape pads strides ", 0,
     fri_onnx_conv_transpose},
    {"DepthToSpace", " blocksize mode ", 0, depth},
    {"Div", "", OTHER, binary},
    {"Dropout", " ratio seed ", LAST, dropout},
    {"Elu", " alpha ", LAST, elu},
    {"Flatten", " axis ", 0, flatten},
    {"Gelu", " approximate ", LAST, gelu},
    {"Gather", " axis ", LAST, fri_onnx_gather},
    {"Gemm", " alpha beta transA transB ", OTHER, fri_onnx_gemm},
    {"GlobalAveragePool", "", IMAGES, fri_onnx_global_pool},
    {"GlobalMaxPool", "", IMAGES, fri_onnx_global_pool},
    {"GroupNormalization", " epsilon num_groups stash_type ", 0, fri_onnx_group_norm},
    {"HardSigmoid", " alpha beta ", LAST, hardsigmoid},
    {"HardSwish", "", LAST, NULL, fr_net_hardswish},
    {"Identity", "", PADS | LAST, fri_onnx_same},
    {"InstanceNormalization", " epsilon ", 0, fri_onnx_group_norm},
    {"LayerNormalization", " axis epsilon stash_type ", LAST, fri_onnx_layer_norm},
    {"LeakyRelu", " alpha ", LAST, leaky_relu},
    {"LogSoftmax", " axis ", LAST, softmax},
    {"MatMul", "", OTHER, fri_onnx_matmul},
    {"MaxPool", " auto_pad ceil_mode dilations kernel_shape pads storage_order strides ", IMAGES, fri_onnx_pool},
    {"Mean", "", LAST, sum},
    {"Mish", "", LAST, mish},
    {"Mul", "", OTHER, binary},
    {"Neg", "", LAST, negative},
    {"PRelu", "", LAST, fri_onnx_prelu},
    {"Pad", " mode pads value ", IMAGES, fri_onnx_pad},
    {"RandomUniformLike", " dtype high low seed ", OTHER, stochastic_depth},
    {"Reciprocal", "", LAST, reciprocal},
    {"ReduceMean", " axes keepdims noop_with_empty_axes ", OTHER, fri_onnx_reduce_mean},
    {"Relu", "", LAST, NULL, fr_net_relu},
    {"Reshape", " allowzero shape ", LAST, fri_onnx_reshape},
    {"Resize",
     " antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode ",
     IMAGES, fri_onnx_resize},
    {"Selu", " alpha gamma ", LAST, elu},
    {"Sigmoid", "", LAST, NULL, fr_net_sigmoid},
    {"Slice", " axes ends starts ", LAST, fri_onnx_slice},
    {"Softmax", " axis ", LAST, softmax},
    {"Softplus", "", LAST, NULL, fr_net_softplus},
    {"SpaceToDepth", " blocksize mode ", 0, depth},
    {"Split", " axis num_outputs split ", LAST, fri_onnx_split},
    {"Squeeze", " axes ", 0, squeeze},
    {"Sub", "", OTHER, binary},
    {"Sum", "", LAST, sum},
    {"Tanh", "", LAST, NULL, fr_net_tanh},
    {"Transpose", " perm ", LAST, fri_onnx_transpose},
    {"Unsqueeze", " axes ", 0, fri_onnx_unsqueeze},
    {"Upsample", " mode scales ", IMAGES, fri_onnx_resize},
};

fr_status fri_onnx_layer(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    reading l = {.r = r, .net = r->net, .n = n, .name = r->name[at], .at = at, .end = at, .again = r->again[at]};
    const struct op *op = NULL;
    const bool ours = n->domain == NULL || n->domain[0] == '\0' || strcmp(n->domain, "ai.onnx") == 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && ours; i++)
        if (strcmp(ops[i].type, n->op_type) == 0) op = &ops[i];
    if (op == NULL)
        return fr_fail(FR_EUNSUPPORTED, "frugal has no layer for %s%.60s%s%.60s", ours ? "" : "domain ",
                       ours ? "" : n->domain, ours ? "" : ", type ", n->op_type);
    for (size_t i = 0; i < n->n_attribute; i++) {
        const char *name = n->attribute[i]->name != NULL ? n->attribute[i]->name : "";
        if (!fri_onnx_in_words(op->attributes, name))
            return fr_fail(FR_EUNSUPPORTED, "frugal does not know its attribute '%.100s'", name);
    }
    FRI_TRY(fri_onnx_check_attributes(n));
    const fr_status s = chained(&l);
    if (s != FR_END) return s;
    if (op->takes != OTHER) FRI_TRY(fri_onnx_fetch(&l, n, 0, op->takes));
    return op->layer != NULL ? one(&l, op->layer) : op->make(&l);
}
