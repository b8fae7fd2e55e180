/* layers.c - the table from ONNX nodes to layers, and the nodes without windows or parameters. */
#include "addons/onnx/reader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef Onnx__NodeProto node;
typedef fr_value one_call(fr_net *, const char *, fr_value);

/* ---- helpers --------------------------------------------------------------------------------------------- */

/* Adds a layer with a single input. If `result` != `at`, node `result` is fused into the layer and marked done. */
static fr_status one(fri_onnx_reader *r, int at, int result, one_call *call) {
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, r->graph->node[at], 0, FRI_ONNX_LAST, &x));
    if (result != at) r->done[result] = true;
    return fri_onnx_put_like(r, r->graph->node[result], call(r->net, r->name[at], x->x), x);
}

/* The value, with padding. */
fr_status fri_onnx_same(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    fri_onnx_value *x = NULL, *y = fri_onnx_value_find(r, n->n_output > 0 ? n->output[0] : "");
    fr_status s = fri_onnx_activation(r, n, 0, FRI_ONNX_PADS | FRI_ONNX_LAST, &x);
    if (s < 0 || y == NULL) return s;
    memcpy(y->pad, x->pad, sizeof y->pad);
    return fri_onnx_put_like(r, n, x->x, x);
}

double fri_onnx_number(fri_onnx_reader *r, const node *n, size_t i) {
    const fri_onnx_value *v = fri_onnx_input(r, n, i);
    const fri_onnx_constant *c = v != NULL ? v->constant : NULL;
    return c != NULL && c->n == 1 && c->rank <= 2 ? fri_onnx_float(c, 0) : NAN; /* results keep the other rank */
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6;
}

/* True if an input of the node is the number. */
static bool has_number(fri_onnx_reader *r, int at, double v) {
    const node *n = r->graph->node[at];
    return n->n_input == 2 && (near(fri_onnx_number(r, n, 0), v) || near(fri_onnx_number(r, n, 1), v));
}

/* Is x an input of the node? */
static bool reads(fri_onnx_reader *r, int at, const fri_onnx_value *x) {
    const node *n = r->graph->node[at];
    return fri_onnx_input(r, n, 0) == x || fri_onnx_input(r, n, 1) == x;
}

/* ---- activations ----------------------------------------------------------------------------------------- */

/* The Mul of a gate's result with the gate's input; -1: none. */
static int gate(fri_onnx_reader *r, int at) {
    const int mul = fri_onnx_next(r, at, "Mul");
    return mul >= 0 && reads(r, mul, fri_onnx_input(r, r->graph->node[at], 0)) ? mul : -1;
}

static fr_status sigmoid(fri_onnx_reader *r, int at) {
    const int mul = gate(r, at);
    return mul >= 0 ? one(r, at, mul, fr_net_silu) : one(r, at, at, fr_net_sigmoid);
}

static fr_status hardsigmoid(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const double alpha = fri_onnx_attribute_float(n, "alpha", 0.2), beta = fri_onnx_attribute_float(n, "beta", 0.5);
    const int mul = gate(r, at);
    char name[FRI_ONNX_NAME + 16];
    fri_onnx_value *x = NULL;
    if (near(alpha, 1.0 / 6) && beta == 0.5)
        return mul >= 0 ? one(r, at, mul, fr_net_hardswish) : one(r, at, at, fr_net_hardsigmoid);
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    /* the layer has 1/6 and 0.5 */
    fr_value y = fr_net_scale(r->net, fri_onnx_part(r, at, "scale", name), x->x, 6 * alpha);
    if (beta != 0.5) y = fr_net_add_scalar(r->net, fri_onnx_part(r, at, "shift", name), y, 6 * beta - 3);
    return fri_onnx_put_like(r, n, fr_net_hardsigmoid(r->net, r->name[at], y), x);
}

/* gamma x where x > 0, else gamma alpha (exp(x) - 1): Elu, Selu. Bounded by a number above 0, the second summand has
 * the gradient of x = 0. */
static fr_status elu(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const bool scaled = n->op_type[0] == 'S';
    const double alpha = fri_onnx_attribute_float(n, "alpha", scaled ? 1.67326319217681884765625 : 1);
    const double gamma = fri_onnx_attribute_float(n, "gamma", scaled ? 1.05070102214813232421875 : 1);
    char name[FRI_ONNX_NAME + 16];
    fri_onnx_value *x = NULL;
    if (alpha == 1 && gamma == 1) return one(r, at, at, fr_net_elu);
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    fr_value y = fr_net_relu(r->net, fri_onnx_part(r, at, "positive", name), x->x);
    fr_value z = fr_net_clamp(r->net, fri_onnx_part(r, at, "rest", name), x->x, -INFINITY, FLT_MIN);
    z = fr_net_elu(r->net, r->name[at], z);
    z = fr_net_scale(r->net, fri_onnx_part(r, at, "alpha", name), z, gamma * alpha);
    if (gamma != 1) y = fr_net_scale(r->net, fri_onnx_part(r, at, "gamma", name), y, gamma);
    return fri_onnx_put_like(r, n, fr_net_add(r->net, fri_onnx_part(r, at, "sum", name), y, z), x);
}

/* x tanh(log(1 + exp(x))) */
static fr_status mish(fri_onnx_reader *r, int at) {
    char name[FRI_ONNX_NAME + 16];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, r->graph->node[at], 0, FRI_ONNX_LAST, &x));
    fr_value y = fr_net_softplus(r->net, fri_onnx_part(r, at, "softplus", name), x->x);
    y = fr_net_tanh(r->net, fri_onnx_part(r, at, "tanh", name), y);
    return fri_onnx_put_like(r, r->graph->node[at], fr_net_mul(r->net, r->name[at], y, x->x), x);
}

static fr_status leaky_relu(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    fri_onnx_value *x = NULL;
    fr_status s = fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x);
    const double slope = fri_onnx_attribute_float(n, "alpha", 0.01);
    return s < 0 ? s : fri_onnx_put_like(r, n, fr_net_leaky_relu(r->net, r->name[at], x->x, slope), x);
}

/* Bounds of a Clip: attributes before opset 11. */
void fri_onnx_bounds(fri_onnx_reader *r, const node *n, double *low, double *high) {
    *low = fri_onnx_input(r, n, 1) == NULL ? fri_onnx_attribute_float(n, "min", -INFINITY) : fri_onnx_number(r, n, 1);
    *high = fri_onnx_input(r, n, 2) == NULL ? fri_onnx_attribute_float(n, "max", INFINITY) : fri_onnx_number(r, n, 2);
}

static fr_status clip(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    double low, high;
    fri_onnx_value *x = NULL;
    fri_onnx_bounds(r, n, &low, &high);
    if (low == 0 && high == 6) return one(r, at, at, fr_net_relu6);
    if (low == 0 && high >= FLT_MAX) return one(r, at, at, fr_net_relu);
    fr_status s = fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x);
    return s < 0 ? s : fri_onnx_put_like(r, n, fr_net_clamp(r->net, r->name[at], x->x, low, high), x);
}

static fr_status gelu(fri_onnx_reader *r, int at) {
    char text[64];
    fri_onnx_attribute_text(r->graph->node[at], "approximate", "none", text);
    return one(r, at, at, strcmp(text, "tanh") == 0 ? fr_net_gelu_tanh : fr_net_gelu);
}

/* x (1 + erf(x / sqrt 2)) / 2 in files of exporters: Div, Erf, Add, and Mul by x and by 0.5 in either order.
 * Returns the last node; -1: no match. */
static int gelu_end(fri_onnx_reader *r, int at) {
    const fri_onnx_value *x = fri_onnx_input(r, r->graph->node[at], 0);
    const int erf_ = fri_onnx_next(r, at, "Erf"), add = erf_ >= 0 ? fri_onnx_next(r, erf_, "Add") : -1;
    const int mul = add >= 0 ? fri_onnx_next(r, add, "Mul") : -1, end = mul >= 0 ? fri_onnx_next(r, mul, "Mul") : -1;
    if (end < 0 || !has_number(r, add, 1)) return -1;
    if (!(reads(r, mul, x) && has_number(r, end, 0.5)) && !(has_number(r, mul, 0.5) && reads(r, end, x))) return -1;
    r->done[erf_] = r->done[add] = r->done[mul] = true;
    return end;
}

/* Softmax over the channels; as the network's only result, part of the loss. */
static fr_status softmax(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const bool log_ = strcmp(n->op_type, "LogSoftmax") == 0;
    const bool flattens = r->opset < 13; /* over axis and all dimensions after it */
    const int64_t axis = fri_onnx_attribute_int(n, "axis", flattens ? 1 : -1);
    const fri_onnx_value *y = fri_onnx_value_find(r, n->n_output > 0 ? n->output[0] : "");
    fri_onnx_value *x = NULL;
    bool result = false;
    for (int i = 0; i < (r->opts.n_results > 0 ? r->opts.n_results : (int)r->graph->n_output) && y != NULL; i++)
        result = result || fri_onnx_value_find(r, fri_onnx_result(r, i)) == y;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    const int rank = fri_onnx_rank(r, x->x), channels = x->last ? rank - 1 : 1;
    const bool pixels = rank == 4 && fr_net_dim(r->net, x->x, 1) * fr_net_dim(r->net, x->x, 2) > 1;
    if ((axis != channels && axis != channels - rank) || (flattens && pixels && channels == 1))
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal's runs over the channels", (long long)axis);
    if (!result || y->readers != 1) return one(r, at, at, log_ ? fr_net_log_softmax : fr_net_softmax);
    if (!r->opts.drop_softmax)
        return fr_fail(FR_EINVAL, "the network ends with it, and losses here take logits; drop_softmax leaves it out");
    return fri_onnx_same(r, at);
}

/* ---- several inputs -------------------------------------------------------------------------------------- */

/* ONNX aligns the last dimensions of operands: features of rows, but the width of images. */
static fr_status two(fri_onnx_reader *r, int at, fri_onnx_value **a, fri_onnx_value **b) {
    const node *n = r->graph->node[at];
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, a));
    FRI_TRY(fri_onnx_activation(r, n, 1, FRI_ONNX_LAST, b));
    const int ranks[2] = {fri_onnx_rank(r, (*a)->x), fri_onnx_rank(r, (*b)->x)};
    if (ranks[0] != ranks[1])
        return fr_fail(FR_EUNSUPPORTED, "its inputs have rank %d and %d; frugal needs equal ranks", ranks[0], ranks[1]);
    if ((*a)->last != (*b)->last)
        return fr_fail(FR_EUNSUPPORTED, "one of its inputs has its channels last, the other has not");
    return FR_OK;
}

/* Elements of an activation. */
static int64_t numel(const fri_onnx_reader *r, const fri_onnx_value *v) {
    int64_t n = 1;
    for (int i = 0; i < fri_onnx_rank(r, v->x); i++) n *= fr_net_dim(r->net, v->x, i);
    return n;
}

/* x (1 + tanh(0.798 (x + 0.0447 x x x))) / 2 in files of PyTorch. Returns the last node; -1: no match. */
static int gelu_tanh_end(fri_onnx_reader *r, int at) {
    static const struct {
        const char *op;
        double number; /* NaN: the other operand is x */
    } chain[] = {{"Mul", NAN}, {"Mul", 0.044715}, {"Add", NAN}, {"Mul", 0.79788456080286536},
                 {"Tanh", 0},  {"Add", 1},        {"Mul", NAN}, {"Mul", 0.5}};
    enum { PARTS = sizeof chain / sizeof *chain };
    const fri_onnx_value *x = fri_onnx_input(r, r->graph->node[at], 0);
    int part[PARTS], end = fri_onnx_input(r, r->graph->node[at], 1) == x && x != NULL && x->x.id >= 0 ? at : -1;
    for (int i = 0; i < PARTS && end >= 0; i++) {
        part[i] = end = fri_onnx_next(r, end, chain[i].op);
        if (end >= 0 && i != 4 && !(isnan(chain[i].number) ? reads(r, end, x) : has_number(r, end, chain[i].number)))
            end = -1;
    }
    for (int i = 0; i < PARTS && end >= 0; i++) r->done[part[i]] = true;
    return end;
}

typedef fr_value two_call(fr_net *, const char *, fr_value, fr_value);

/* The smaller operand of a sum or product comes second (ops.h). */
static fr_status binary(fri_onnx_reader *r, int at, two_call *call, bool commutes) {
    const node *n = r->graph->node[at];
    fri_onnx_value *a = NULL, *b = NULL;
    for (size_t i = 0; i < 2 && n->n_input == 2; i++) {
        const fri_onnx_value *v = fri_onnx_input(r, n, i);
        if (v != NULL && v->constant != NULL) return fri_onnx_by_constant(r, at, i);
    }
    FRI_TRY(two(r, at, &a, &b));
    const bool turn = commutes && numel(r, a) < numel(r, b);
    return fri_onnx_put_like(r, n, call(r->net, r->name[at], turn ? b->x : a->x, turn ? a->x : b->x), a);
}

/* x clip(x + 3, 0, 6) / 6 in files of Paddle: Add, Clip, Mul by x, Div. Returns the last node; -1: no match. */
static int hardswish_end(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const fri_onnx_value *a = fri_onnx_input(r, n, 0),
                         *x = a != NULL && a->constant != NULL ? fri_onnx_input(r, n, 1) : a;
    const int cut = has_number(r, at, 3) ? fri_onnx_next(r, at, "Clip") : -1;
    const int mul = cut >= 0 ? fri_onnx_next(r, cut, "Mul") : -1, end = mul >= 0 ? fri_onnx_next(r, mul, "Div") : -1;
    double low = 1, high = 0;
    if (end < 0 || !reads(r, mul, x) || !near(fri_onnx_number(r, r->graph->node[end], 1), 6)) return -1;
    fri_onnx_bounds(r, r->graph->node[cut], &low, &high);
    if (low != 0 || high != 6) return -1;
    r->done[cut] = r->done[mul] = r->done[end] = true;
    return end;
}

static fr_status add(fri_onnx_reader *r, int at) {
    const int end = hardswish_end(r, at);
    fri_onnx_value *x = fri_onnx_input(r, r->graph->node[at], 0);
    if (end < 0) return binary(r, at, fr_net_add, true);
    FRI_TRY(fri_onnx_activation(r, r->graph->node[at], x->constant != NULL, FRI_ONNX_LAST, &x));
    return fri_onnx_put_like(r, r->graph->node[end], fr_net_hardswish(r->net, r->name[at], x->x), x);
}

static fr_status subtract(fri_onnx_reader *r, int at) {
    return binary(r, at, fr_net_sub, false);
}

static fr_status divide(fri_onnx_reader *r, int at) {
    const int end = near(fri_onnx_number(r, r->graph->node[at], 1), sqrt(2)) ? gelu_end(r, at) : -1;
    return end >= 0 ? one(r, at, end, fr_net_gelu) : binary(r, at, fr_net_div, false);
}

static fr_status mul(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const int end = near(fri_onnx_number(r, n, 1), sqrt(0.5)) ? gelu_end(r, at) : -1, bent = gelu_tanh_end(r, at);
    if (bent >= 0) return one(r, at, bent, fr_net_gelu_tanh);
    return end >= 0 ? one(r, at, end, fr_net_gelu) : binary(r, at, fr_net_mul, true);
}

static fr_status concat(fri_onnx_reader *r, int at) {
    enum { MOST = 128 };
    const node *n = r->graph->node[at];
    const int64_t axis = fri_onnx_attribute_int(n, "axis", 1);
    fr_value x[MOST];
    if (n->n_input > MOST) return fr_fail(FR_EUNSUPPORTED, "%zu inputs; %d at most", n->n_input, MOST);
    for (size_t i = 0; i < n->n_input; i++) {
        fri_onnx_value *v = NULL;
        FRI_TRY(fri_onnx_activation(r, n, i, 0, &v));
        x[i] = v->x;
    }
    if (axis != 1 && axis != 1 - fri_onnx_rank(r, x[0]))
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal concatenates channels, axis 1", (long long)axis);
    return fri_onnx_put(r, n, fr_net_concat(r->net, r->name[at], x, (int)n->n_input));
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
fr_status fri_onnx_flat(fri_onnx_reader *r, int at, const fri_onnx_value *x) {
    const int64_t spatial = fr_net_dim(r->net, x->x, 1) * fr_net_dim(r->net, x->x, 2);
    char name[FRI_ONNX_NAME + 16];
    if (fri_onnx_rank(r, x->x) == 2) return fri_onnx_same(r, at);
    fr_value y = fr_net_flatten(r->net, r->name[at], x->x, 1);
    if (spatial > 1 && fri_onnx_dim(r, x->x, 1) > 1 && !ends_in_linear(r, at))
        y = fr_net_channel_shuffle(r->net, fri_onnx_part(r, at, "order", name), y, spatial);
    return fri_onnx_put(r, r->graph->node[at], y);
}

static fr_status flatten(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const int64_t axis = fri_onnx_attribute_int(n, "axis", 1);
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, 0, &x));
    if (axis != 1 && axis != 1 - fri_onnx_rank(r, x->x))
        return fr_fail(FR_EUNSUPPORTED, "axis %lld; frugal keeps the batch alone, axis 1", (long long)axis);
    return fri_onnx_flat(r, at, x);
}

static fr_status squeeze(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    int64_t axis[4];
    int count = 0;
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, 0, &x));
    FRI_TRY(fri_onnx_integers(r, n, 1, "axes", axis, 4, &count));
    bool seen[4] = {false};
    for (int i = 0; i < count; i++)
        if (axis[i] >= -4 && axis[i] < 4) seen[axis[i] < 0 ? axis[i] + 4 : axis[i]] = true;
    if (fri_onnx_rank(r, x->x) == 4 && count == 2 && seen[2] && seen[3] && fri_onnx_dim(r, x->x, 2) == 1 &&
        fri_onnx_dim(r, x->x, 3) == 1)
        return fri_onnx_flat(r, at, x);
    return fr_fail(FR_EUNSUPPORTED, "frugal takes height and width of 1 away, axes 2 and 3, and nothing else");
}

/* DepthToSpace, SpaceToDepth */
static fr_status depth(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    char mode[64];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, 0, &x));
    fri_onnx_attribute_text(n, "mode", "DCR", mode);
    if (strcmp(mode, "CRD") != 0 && strcmp(mode, "DCR") != 0)
        return fr_fail(FR_EFORMAT, "mode '%s' is none of ONNX's", mode);
    return fri_onnx_put(r, n,
                        fri_onnx_depth(r, at, x->x, fri_onnx_attribute_int(n, "blocksize", 0), n->op_type[0] == 'D',
                                       mode[0] == 'D'));
}

static fr_status negative(fri_onnx_reader *r, int at) {
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, r->graph->node[at], 0, FRI_ONNX_LAST, &x));
    return fri_onnx_put_like(r, r->graph->node[at], fr_net_scale(r->net, r->name[at], x->x, -1), x);
}

static fr_status reciprocal(fri_onnx_reader *r, int at) {
    char name[FRI_ONNX_NAME + 16];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, r->graph->node[at], 0, FRI_ONNX_LAST, &x));
    const fr_value one_ = fr_net_clamp(r->net, fri_onnx_part(r, at, "one", name), x->x, 1, 1);
    return fri_onnx_put_like(r, r->graph->node[at], fr_net_div(r->net, r->name[at], one_, x->x), x);
}

/* Sum, Mean of values of one shape. */
static fr_status sum(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    char name[FRI_ONNX_NAME + 16], number[24];
    fri_onnx_value *x = NULL, *more = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    fr_value y = x->x;
    for (size_t i = 1; i < n->n_input; i++) {
        FRI_TRY(fri_onnx_activation(r, n, i, FRI_ONNX_LAST, &more));
        if (fri_onnx_rank(r, more->x) != fri_onnx_rank(r, y) || numel(r, more) != numel(r, x) || more->last != x->last)
            return fr_fail(FR_EUNSUPPORTED, "input %zu has another shape than input 0", i);
        snprintf(number, sizeof number, "%zu", i);
        y = fr_net_add(r->net, i + 1 < n->n_input ? fri_onnx_part(r, at, number, name) : r->name[at], y, more->x);
    }
    if (n->op_type[0] == 'M') y = fr_net_scale(r->net, fri_onnx_part(r, at, "mean", name), y, 1 / (double)n->n_input);
    return fri_onnx_put_like(r, n, y, x);
}

static fr_status cast(fri_onnx_reader *r, int at) {
    const int64_t to = fri_onnx_attribute_int(r->graph->node[at], "to", 0);
    if (to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) return fri_onnx_same(r, at);
    return fr_fail(FR_EUNSUPPORTED, "to type %lld; activations are f32 here, to_dtype comes after loading",
                   (long long)to);
}

static fr_status dropout(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const bool given = fri_onnx_input(r, n, 1) != NULL;
    const double p =
        given ? fri_onnx_decimal((float)fri_onnx_number(r, n, 1)) : fri_onnx_attribute_float(n, "ratio", 0.5);
    fri_onnx_value *x = NULL;
    fr_status s = fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x);
    return s < 0 ? s : fri_onnx_put_like(r, n, fr_net_dropout(r->net, r->name[at], x->x, p), x);
}

/* torchvision's stochastic depth, exported in training mode: a random number per image, kept if below 1 - p, divided by
 * 1 - p, times the branch. */
static fr_status stochastic_depth(fri_onnx_reader *r, int at) {
    static const char *const chain[] = {"Less", "Cast", "Div", "Mul"};
    const node *n = r->graph->node[at];
    const fri_onnx_value *like = fri_onnx_input(r, n, 0);
    const fri_onnx_constant *c = like != NULL ? like->constant : NULL;
    int next[4], end = at;
    for (int i = 0; i < 4; i++) next[i] = end = end >= 0 ? fri_onnx_next(r, end, chain[i]) : -1;
    const double keep = end >= 0 ? fri_onnx_decimal((float)fri_onnx_number(r, r->graph->node[next[0]], 1)) : NAN;
    if (!(keep > 0 && keep <= 1) || !near(fri_onnx_number(r, r->graph->node[next[2]], 1), keep) || c == NULL ||
        c->rank != 4 || c->dim[1] != 1 || c->dim[2] != 1 || c->dim[3] != 1 ||
        fri_onnx_attribute_float(n, "low", 0) != 0 || fri_onnx_attribute_float(n, "high", 1) != 1)
        return fr_fail(FR_EUNSUPPORTED, "random numbers but in torchvision's stochastic depth");
    const node *mul = r->graph->node[end];
    const char *scaled = r->graph->node[next[2]]->output[0];
    fri_onnx_value *x = NULL;
    fr_status s = fri_onnx_activation(r, mul, strcmp(mul->input[0], scaled) == 0, FRI_ONNX_LAST, &x);
    if (s == FR_OK && fri_onnx_rank(r, x->x) != 4)
        return fr_fail(FR_EUNSUPPORTED, "random numbers of rank 4 for values of rank %d", fri_onnx_rank(r, x->x));
    for (int i = 0; i < 4; i++) r->done[next[i]] = true;
    return s < 0 ? s : fri_onnx_put_like(r, mul, fr_net_stochastic_depth(r->net, r->name[at], x->x, 1 - keep), x);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

/* `attributes` lists the known and the harmless attributes; unknown attributes are refused. */
static const struct op {
    const char *type;
    fri_onnx_make *make;
    const char *attributes;
    one_call *layer; /* of a single input, instead of make */
} ops[] = {
    {"Add", add, ""},
    {"AveragePool", fri_onnx_pool, " auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides "},
    {"BatchNormalization", fri_onnx_norm, " epsilon momentum training_mode "},
    {"Cast", cast, " to saturate "},
    {"Clip", clip, " max min "},
    {"Concat", concat, " axis "},
    {"Conv", fri_onnx_conv, " auto_pad dilations group kernel_shape pads strides "},
    {"ConvTranspose", fri_onnx_conv_transpose,
     " auto_pad dilations group kernel_shape output_padding output_shape pads strides "},
    {"DepthToSpace", depth, " blocksize mode "},
    {"Div", divide, ""},
    {"Dropout", dropout, " ratio seed "},
    {"Elu", elu, " alpha "},
    {"Flatten", flatten, " axis "},
    {"Gelu", gelu, " approximate "},
    {"Gather", fri_onnx_gather, " axis "},
    {"Gemm", fri_onnx_gemm, " alpha beta transA transB "},
    {"GlobalAveragePool", fri_onnx_global_pool, ""},
    {"GlobalMaxPool", fri_onnx_global_pool, ""},
    {"GroupNormalization", fri_onnx_group_norm, " epsilon num_groups stash_type "},
    {"HardSigmoid", hardsigmoid, " alpha beta "},
    {"HardSwish", NULL, "", fr_net_hardswish},
    {"Identity", fri_onnx_same, ""},
    {"InstanceNormalization", fri_onnx_group_norm, " epsilon "},
    {"LayerNormalization", fri_onnx_layer_norm, " axis epsilon stash_type "},
    {"LeakyRelu", leaky_relu, " alpha "},
    {"LogSoftmax", softmax, " axis "},
    {"MatMul", fri_onnx_matmul, ""},
    {"MaxPool", fri_onnx_pool, " auto_pad ceil_mode dilations kernel_shape pads storage_order strides "},
    {"Mean", sum, ""},
    {"Mish", mish, ""},
    {"Mul", mul, ""},
    {"Neg", negative, ""},
    {"PRelu", fri_onnx_prelu, ""},
    {"Pad", fri_onnx_pad, " mode pads value "},
    {"RandomUniformLike", stochastic_depth, " dtype high low seed "},
    {"Reciprocal", reciprocal, ""},
    {"ReduceMean", fri_onnx_reduce_mean, " axes keepdims noop_with_empty_axes "},
    {"Relu", NULL, "", fr_net_relu},
    {"Reshape", fri_onnx_reshape, " allowzero shape "},
    {"Resize", fri_onnx_resize,
     " antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode "},
    {"Selu", elu, " alpha gamma "},
    {"Sigmoid", sigmoid, ""},
    {"Slice", fri_onnx_slice, " axes ends starts "},
    {"Softmax", softmax, " axis "},
    {"Softplus", NULL, "", fr_net_softplus},
    {"SpaceToDepth", depth, " blocksize mode "},
    {"Split", fri_onnx_split, " axis num_outputs split "},
    {"Squeeze", squeeze, " axes "},
    {"Sub", subtract, ""},
    {"Sum", sum, ""},
    {"Tanh", NULL, "", fr_net_tanh},
    {"Transpose", fri_onnx_transpose, " perm "},
    {"Unsqueeze", fri_onnx_unsqueeze, " axes "},
    {"Upsample", fri_onnx_resize, " mode scales "},
};

fr_status fri_onnx_layer(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
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
    return op->layer != NULL ? one(r, at, at, op->layer) : op->make(r, at);
}
