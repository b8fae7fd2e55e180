/* layers_last.c - ONNX nodes over channels that the file puts last: Transpose, and layer norms.
 *
 * Memory has the channels last anyway, so a Transpose of images makes no layer: its result is the same value, marked
 * (fri_onnx_value.last) because the file counts its dimensions otherwise. */
#include "addons/onnx/reader.h"

#include <string.h>

typedef Onnx__NodeProto node;
typedef fri_onnx_reading reading;

bool fri_onnx_turns(fri_onnx_reader *r, int at, bool to_first) {
    static const int64_t perms[2][4] = {{0, 2, 3, 1}, {0, 3, 1, 2}};
    int64_t perm[4] = {0};
    int count = 0;
    return fri_onnx_integers(r, r->graph->node[at], SIZE_MAX, "perm", perm, 4, &count) == FR_OK && count == 4 &&
           memcmp(perm, perms[to_first], sizeof perm) == 0;
}

fr_status fri_onnx_transpose(reading *l) {
    if (l->rank != 4 || !fri_onnx_turns(l->r, l->at, l->last))
        return fr_fail(FR_EUNSUPPORTED, "frugal takes the channels to the end, perm 0 2 3 1, and back, perm 0 3 1 2");
    l->last = !l->last;
    return fri_onnx_put(l, l->x);
}

/* ---- layer norm ------------------------------------------------------------------------------------------ */

/* The layer, with weight and bias by name. */
static fr_status norm(reading *l, double eps, const char *weight, const char *bias) {
    const fri_onnx_constant *c[4] = {NULL};
    for (int i = 0; i < 2; i++) {
        const fri_onnx_value *v = fri_onnx_value_find(l->r, i == 0 ? weight : bias);
        c[i] = v != NULL ? v->constant : NULL;
        if (c[i] == NULL || c[i]->dtype != FR_F32 || c[i]->rank != 1 || c[i]->n != l->channels)
            return fr_fail(FR_EUNSUPPORTED, "its %s is no constant of %lld numbers in f32", i == 0 ? "weight" : "bias",
                           (long long)l->channels);
    }
    if (!l->last && l->rank != 2)
        return fr_fail(FR_EUNSUPPORTED, "it normalizes over another dimension than the channels");
    return fri_onnx_filled(l, l->again ? fri_onnx_again(l, l->x) : fr_net_layer_norm(l->net, l->name, l->x, eps), c);
}

fr_status fri_onnx_layer_norm(reading *l) {
    const int64_t axis = fri_onnx_attribute_int(l->n, "axis", -1);
    const double eps = fri_onnx_attribute_float(l->n, "epsilon", 1e-5);
    if ((axis != -1 && axis != l->rank - 1) || !(eps >= 0) || l->n->n_input < 3)
        return fr_fail(FR_EUNSUPPORTED,
                       "axis %lld, epsilon %g, %zu inputs; frugal normalizes over the last dimension, "
                       "with weight and bias",
                       (long long)axis, eps, l->n->n_input);
    return norm(l, eps, l->n->input[1], l->n->input[2]);
}

/* Name of the input of `at` that is not the result of `from`; "" unless `at` has two inputs. */
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
 * Pow, ReduceMean, Add, Sqrt, Div, Mul, Add. FR_END: no such pattern at the ReduceMean. */
fr_status fri_onnx_written_norm(reading *l) {
    enum { SUB, POW, VARIANCE, ADD, SQRT, DIV, MUL, BIAS, PARTS };
    node **nodes = l->r->graph->node;
    fri_onnx_value *x = fri_onnx_input(l->r, l->n, 0);
    int part[PARTS] = {fri_onnx_next(l->r, l->at, "Sub")};
    if (x == NULL || x->x.id < 0 || !is_mean(l->r, l->at, fri_onnx_rank(l->r, x->x)) || part[SUB] < 0 ||
        nodes[part[SUB]]->n_output == 0)
        return FR_END;
    const char *centred = nodes[part[SUB]]->output[0];
    for (int i = l->at; i < (int)l->r->graph->n_node && part[POW] == 0; i++)
        if (strcmp(nodes[i]->op_type, "Pow") == 0 && nodes[i]->n_input == 2 && strcmp(nodes[i]->input[0], centred) == 0)
            part[POW] = i;
    static const char *const after[] = {"ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add", NULL};
    if (part[POW] == 0 || fri_onnx_chain(l->r, part[POW], after, part + VARIANCE) < 0) return FR_END;
    const node *div = nodes[part[DIV]];
    const fri_onnx_value *v = fri_onnx_value_find(l->r, other(l->r, part[VARIANCE], part[ADD]));
    const fri_onnx_constant *eps = v != NULL ? v->constant : NULL;
    if (fri_onnx_input(l->r, nodes[part[SUB]], 0) != x || fri_onnx_number(l->r, nodes[part[POW]], 1) != 2 ||
        !is_mean(l->r, part[VARIANCE], fri_onnx_rank(l->r, x->x)) || div->n_input != 2 ||
        strcmp(div->input[0], centred) != 0 || eps == NULL || eps->n != 1 || eps->rank > 2)
        return FR_END;
    for (int i = SUB; i < BIAS; i++) l->r->done[part[i]] = true;
    l->end = part[BIAS];
    FRI_TRY(fri_onnx_fetch(l, l->n, 0, FRI_ONNX_PADS | FRI_ONNX_LAST));
    return norm(l, fri_onnx_decimal((float)fri_onnx_float(eps, 0)), other(l->r, part[DIV], part[MUL]),
                other(l->r, part[MUL], part[BIAS]));
}

/* ---- group norm ------------------------------------------------------------------------------------------ */

/* The layer; c holds a number per channel or group, in any shape. */
static fr_status grouped(reading *l, int64_t groups, double eps, const fri_onnx_constant *const c[2]) {
    fri_onnx_constant *own[4] = {NULL};
    if (l->rank != 4 || groups < 1 || l->channels % groups != 0)
        return fr_fail(FR_EUNSUPPORTED, "rank %d, %lld channels in %lld groups; frugal normalizes images by groups",
                       l->rank, (long long)l->channels, (long long)groups);
    for (int i = 0; i < 2; i++) {
        if (c[i]->dtype != FR_F32 || (c[i]->n != l->channels && c[i]->n != groups))
            return fr_fail(FR_EUNSUPPORTED, "its %s has %lld numbers; one per channel, %lld, is needed",
                           i == 0 ? "weight" : "bias", (long long)c[i]->n, (long long)l->channels);
        FRI_TRY(fri_onnx_constant_new(l->r, FR_F32, l->channels, &own[i]));
        for (int64_t k = 0; k < l->channels; k++)
            ((float *)own[i]->own)[k] =
                (float)fri_onnx_float(c[i], c[i]->n == l->channels ? k : k * groups / l->channels);
    }
    return fri_onnx_filled(l, fr_net_group_norm(l->net, l->name, l->x, groups, eps),
                           (const fri_onnx_constant *const[]){own[0], own[1], NULL, NULL});
}

/* GroupNormalization, or InstanceNormalization: a group per channel. */
fr_status fri_onnx_group_norm(reading *l) {
    const fri_onnx_constant *c[2] = {NULL};
    for (size_t i = 0; i < 2; i++) FRI_TRY(fri_onnx_constant_input(l->r, l->n, 1 + i, &c[i]));
    return grouped(l, fri_onnx_attribute_int(l->n, "num_groups", l->channels),
                   fri_onnx_attribute_float(l->n, "epsilon", 1e-5), c);
}

/* Reshape, InstanceNormalization by 1 and 0, Reshape, Mul, Add: PyTorch's GroupNorm before opset 21. */
fr_status fri_onnx_written_group_norm(reading *l, int64_t groups) {
    static const char *const chain[] = {"InstanceNormalization", "Reshape", "Mul", "Add", NULL};
    const fri_onnx_constant *c[2] = {NULL}, *back = NULL;
    int part[4];
    const int end = fri_onnx_chain(l->r, l->at, chain, part);
    if (end < 0) return FR_END;
    const node *instance = l->r->graph->node[part[0]];
    FRI_TRY(fri_onnx_constants_before(l->r, l->at, end));
    for (int i = 0; i < 2; i++) {
        const fri_onnx_value *v = fri_onnx_value_find(l->r, other(l->r, part[1 + i], part[2 + i]));
        const fri_onnx_value *one = fri_onnx_input(l->r, instance, (size_t)i + 1);
        c[i] = v != NULL ? v->constant : NULL;
        if (c[i] == NULL || c[i]->rank < 3 || c[i]->rank > 4 || c[i]->dim[c[i]->rank - 3] != c[i]->n || one == NULL ||
            one->constant == NULL)
            return FR_END;
        for (int64_t k = 0; k < one->constant->n; k++)
            if (fri_onnx_float(one->constant, k) != 1 - i) return FR_END;
    }
    FRI_TRY(fri_onnx_constant_input(l->r, l->r->graph->node[part[1]], 1, &back));
    bool same = back->n == 4;
    for (int i = 0; i < 4 && same; i++) {
        const int64_t to = fri_onnx_int(back, i);
        same = to == l->dim[i] || to == 0 || to == -1;
    }
    if (!same) return FR_END;
    for (int i = 0; i < 3; i++) l->r->done[part[i]] = true;
    l->end = end;
    return grouped(l, groups, fri_onnx_attribute_float(instance, "epsilon", 1e-5), c);
}
