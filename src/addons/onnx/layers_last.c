/* layers_last.c - ONNX nodes over channels that the file puts last: Transpose, and layer norms.
 *
 * Memory has the channels last anyway, so a Transpose of images makes no layer: its result is the same value, marked
 * (fri_onnx_value.last) because the file counts its dimensions otherwise. */
#include "addons/onnx/reader.h"

#include <string.h>

typedef Onnx__NodeProto node;

bool fri_onnx_turns(fri_onnx_reader *r, int at, bool to_first) {
    static const int64_t perms[2][4] = {{0, 2, 3, 1}, {0, 3, 1, 2}};
    int64_t perm[4] = {0};
    int count = 0;
    return fri_onnx_integers(r, r->graph->node[at], SIZE_MAX, "perm", perm, 4, &count) == FR_OK && count == 4 &&
           memcmp(perm, perms[to_first], sizeof perm) == 0;
}

fr_status fri_onnx_transpose(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    if (fri_onnx_rank(r, x->x) != 4 || !fri_onnx_turns(r, at, x->last))
        return fr_fail(FR_EUNSUPPORTED, "frugal takes the channels to the end, perm 0 2 3 1, and back, perm 0 3 1 2");
    return fri_onnx_put_like(r, n, x->x, &(fri_onnx_value){.last = !x->last});
}

/* ---- layer norm ------------------------------------------------------------------------------------------ */

/* The layer of node `at` on x, with the result of node `result`. */
static fr_status norm(fri_onnx_reader *r, int at, int result, const fri_onnx_value *x, double eps,
                      const char *const *in) {
    static const char *const name[] = {"weight", "bias"};
    const fri_onnx_constant *c[2] = {NULL};
    const int64_t channels = fr_net_dim(r->net, x->x, -1);
    fr_value y = {-1};
    for (int i = 0; i < 2; i++) {
        const fri_onnx_value *v = fri_onnx_value_find(r, in[i]);
        c[i] = v != NULL ? v->constant : NULL;
        if (c[i] == NULL || c[i]->dtype != FR_F32 || c[i]->rank != 1 || c[i]->n != channels)
            return fr_fail(FR_EUNSUPPORTED, "its %s is no constant of %lld numbers in f32", name[i],
                           (long long)channels);
    }
    if (!x->last && fri_onnx_rank(r, x->x) != 2)
        return fr_fail(FR_EUNSUPPORTED, "it normalizes over another dimension than the channels");
    if (r->again[at])
        fr_net_again(r->net, r->name[at], &x->x, 1, &y, 1);
    else
        y = fr_net_layer_norm(r->net, r->name[at], x->x, eps);
    FRI_TRY(fri_onnx_put_like(r, r->graph->node[result], y, x));
    for (int i = 0; i < 2 && !r->again[at]; i++) FRI_TRY(fri_onnx_fill_later(r, r->name[at], name[i], c[i]));
    return FR_OK;
}

fr_status fri_onnx_layer_norm(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const int64_t axis = fri_onnx_attribute_int(n, "axis", -1);
    const double eps = fri_onnx_attribute_float(n, "epsilon", 1e-5);
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, FRI_ONNX_LAST, &x));
    if ((axis != -1 && axis != fri_onnx_rank(r, x->x) - 1) || !(eps >= 0) || n->n_input < 3)
        return fr_fail(FR_EUNSUPPORTED,
                       "axis %lld, epsilon %g, %zu inputs; frugal normalizes over the last dimension, "
                       "with weight and bias",
                       (long long)axis, eps, n->n_input);
    return norm(r, at, at, x, eps, (const char *const[]){n->input[1], n->input[2]});
}

/* The other input's name of a node that reads the result of node `from`; "" if it has not two. */
static const char *other(const fri_onnx_reader *r, int from, int at) {
    const node *n = r->graph->node[at];
    if (n->n_input != 2) return "";
    return n->input[strcmp(n->input[0], r->graph->node[from]->output[0]) == 0 ? 1 : 0];
}

static bool is_mean(fri_onnx_reader *r, int at, int rank) {
    const node *n = r->graph->node[at];
    int64_t axis[4];
    int count = 0;
    return fri_onnx_integers(r, n, 1, "axes", axis, 4, &count) == FR_OK && count == 1 &&
           (axis[0] == -1 || axis[0] == rank - 1) && fri_onnx_attribute_int(n, "keepdims", 1) != 0;
}

/* (x - mean) / sqrt(mean((x - mean)^2) + eps) weight + bias, as exporters write it before opset 17: ReduceMean, Sub,
 * Pow, ReduceMean, Add, Sqrt, Div, Mul, Add. FR_END: no such pattern at the ReduceMean `at`. */
fr_status fri_onnx_written_norm(fri_onnx_reader *r, int at) {
    enum { MEAN, SUB, POW, VARIANCE, ADD, SQRT, DIV, MUL, BIAS, PARTS };
    static const char *const chain[PARTS] = {"", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"};
    fri_onnx_value *x = fri_onnx_input(r, r->graph->node[at], 0);
    int part[PARTS] = {at};
    if (x == NULL || x->x.id < 0 || !is_mean(r, at, fri_onnx_rank(r, x->x))) return FR_END;
    part[SUB] = fri_onnx_next(r, at, chain[SUB]);
    if (part[SUB] < 0 || r->graph->node[part[SUB]]->n_output == 0) return FR_END;
    const char *centred = r->graph->node[part[SUB]]->output[0];
    for (int i = at; i < (int)r->graph->n_node && part[POW] == 0; i++)
        if (strcmp(r->graph->node[i]->op_type, "Pow") == 0 && r->graph->node[i]->n_input == 2 &&
            strcmp(r->graph->node[i]->input[0], centred) == 0)
            part[POW] = i;
    if (part[POW] == 0) return FR_END;
    for (int i = VARIANCE; i < PARTS; i++)
        if ((part[i] = fri_onnx_next(r, part[i - 1], chain[i])) < 0) return FR_END;
    const node *sub = r->graph->node[part[SUB]], *div = r->graph->node[part[DIV]];
    const fri_onnx_value *eps = fri_onnx_value_find(r, other(r, part[VARIANCE], part[ADD]));
    if (fri_onnx_input(r, sub, 0) != x || fri_onnx_number(r, r->graph->node[part[POW]], 1) != 2 ||
        !is_mean(r, part[VARIANCE], fri_onnx_rank(r, x->x)) || div->n_input != 2 ||
        strcmp(div->input[0], centred) != 0 || eps == NULL || eps->constant == NULL || eps->constant->n != 1 ||
        eps->constant->rank > 2)
        return FR_END;
    for (int i = SUB; i < PARTS; i++) r->done[part[i]] = true;
    return norm(r, at, part[BIAS], x, fri_onnx_decimal((float)fri_onnx_float(eps->constant, 0)),
                (const char *const[]){other(r, part[DIV], part[MUL]), other(r, part[MUL], part[BIAS])});
}

/* ---- group norm ------------------------------------------------------------------------------------------ */

/* The layer of node `at`, with the result of node `result`; c holds a number per channel or group, in any shape. */
static fr_status grouped(fri_onnx_reader *r, int at, int result, const fri_onnx_value *x, int64_t groups, double eps,
                         const fri_onnx_constant *const c[2]) {
    static const char *const name[] = {"weight", "bias"};
    const int64_t channels = fr_net_dim(r->net, x->x, -1);
    fri_onnx_constant *own[2] = {NULL};
    if (fri_onnx_rank(r, x->x) != 4 || groups < 1 || channels % groups != 0)
        return fr_fail(FR_EUNSUPPORTED, "rank %d, %lld channels in %lld groups; frugal normalizes images by groups",
                       fri_onnx_rank(r, x->x), (long long)channels, (long long)groups);
    for (int i = 0; i < 2; i++) {
        if (c[i]->dtype != FR_F32 || (c[i]->n != channels && c[i]->n != groups))
            return fr_fail(FR_EUNSUPPORTED, "its %s has %lld numbers; one per channel, %lld, is needed", name[i],
                           (long long)c[i]->n, (long long)channels);
        FRI_TRY(fri_onnx_constant_new(r, FR_F32, channels, &own[i]));
        for (int64_t k = 0; k < channels; k++)
            ((float *)own[i]->own)[k] = (float)fri_onnx_float(c[i], c[i]->n == channels ? k : k * groups / channels);
    }
    FRI_TRY(fri_onnx_put(r, r->graph->node[result], fr_net_group_norm(r->net, r->name[at], x->x, groups, eps)));
    for (int i = 0; i < 2; i++) FRI_TRY(fri_onnx_fill_later(r, r->name[at], name[i], own[i]));
    return FR_OK;
}

/* GroupNormalization, or InstanceNormalization: a group per channel. */
fr_status fri_onnx_group_norm(fri_onnx_reader *r, int at) {
    const node *n = r->graph->node[at];
    const fri_onnx_constant *c[2] = {NULL};
    fri_onnx_value *x = NULL;
    FRI_TRY(fri_onnx_activation(r, n, 0, 0, &x));
    for (size_t i = 0; i < 2; i++) FRI_TRY(fri_onnx_constant_input(r, n, 1 + i, &c[i]));
    return grouped(r, at, at, x, fri_onnx_attribute_int(n, "num_groups", fr_net_dim(r->net, x->x, -1)),
                   fri_onnx_attribute_float(n, "epsilon", 1e-5), c);
}

/* Reshape, InstanceNormalization by 1 and 0, Reshape, Mul, Add: PyTorch's GroupNorm before opset 21. */
fr_status fri_onnx_written_group_norm(fri_onnx_reader *r, int at, const fri_onnx_value *x, int64_t groups) {
    static const char *const chain[] = {"InstanceNormalization", "Reshape", "Mul", "Add"};
    const fri_onnx_constant *c[2] = {NULL}, *back = NULL;
    int part[4], end = at;
    for (int i = 0; i < 4; i++) part[i] = end = end >= 0 ? fri_onnx_next(r, end, chain[i]) : -1;
    if (end < 0) return FR_END;
    FRI_TRY(fri_onnx_constants_before(r, at, end));
    for (int i = 0; i < 2; i++) {
        const fri_onnx_value *v = fri_onnx_value_find(r, other(r, part[1 + i], part[2 + i]));
        const fri_onnx_value *one = fri_onnx_input(r, r->graph->node[part[0]], (size_t)i + 1);
        if (v == NULL || v->constant == NULL || v->constant->rank < 3 || v->constant->rank > 4 ||
            v->constant->dim[v->constant->rank - 3] != v->constant->n || one == NULL || one->constant == NULL)
            return FR_END;
        for (int64_t k = 0; k < one->constant->n; k++)
            if (fri_onnx_float(one->constant, k) != 1 - i) return FR_END;
        c[i] = v->constant;
    }
    FRI_TRY(fri_onnx_constant_input(r, r->graph->node[part[1]], 1, &back));
    bool same = back->n == 4;
    for (int i = 0; i < 4 && same; i++) {
        const int64_t to = fri_onnx_int(back, i);
        same = to == fri_onnx_dim(r, x->x, i) || to == 0 || to == -1;
    }
    if (!same) return FR_END;
    for (int i = 0; i < 4; i++) r->done[part[i]] = true;
    return grouped(r, at, end, x, groups, fri_onnx_attribute_float(r->graph->node[part[0]], "epsilon", 1e-5), c);
}
