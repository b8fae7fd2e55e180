/* fuse.c - the table of fused calls. Rows without an addition may begin with a concatenation.
 *
 * The layers of a row must follow each other in the list, each inner result must have one reader, the next layer (a
 * tap counts as a reader), and the in-place permissions of all layers must be equal. A fused call produces the bits of
 * the separate layers and records one node. fri_norm_fuses decides whether inner results may be left out (switches
 * in-place and rebuild, CHECK_NAN, anomaly detection). */
#include "net/list.h"

enum { MAX_FUSED = 3 };

/* Kinds of the layers of each fused call, in the order of the list. The first row that matches is taken, so longer rows
 * come first. */
static const struct {
    int layers;
    fri_layer_kind kind[MAX_FUSED];
} table[] = {
    {3, {FRI_LAYER_NORM, FRI_LAYER_ADD, FRI_LAYER_RELU}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_ADD}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_RELU}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_RELU6}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_HARDSWISH}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_SILU}},
};

/* True if layer i + 1 is the only reader of layer i's result. */
static bool feeds_next(const fri_list *l, int i) {
    const fri_net_layer *a = &l->layer[i];
    const fri_net_value *y = &l->value[a->out[0]];
    return i + 1 < l->layers && a->n_out == 1 && y->readers == 1 && y->last_reader == i + 1;
}

static bool may_run_in_place(const fri_list *l, int i) {
    const fr_module *m = l->layer[i].module;
    return m->inplace_set ? m->inplace : fr_switches_get().inplace;
}

static bool row_matches(const fri_list *l, int i, int row) {
    for (int k = 0; k < table[row].layers; k++) {
        if (fri_layer_kind_of(l, i + k) != table[row].kind[k]) return false;
        if (k > 0 && (!feeds_next(l, i + k - 1) || may_run_in_place(l, i + k) != may_run_in_place(l, i))) return false;
    }
    return true;
}

fri_fused fri_fuse(const fri_list *l, int i, int end) {
    fri_fused f = {.layers = 1};
    if (fri_layer_kind_of(l, i) == FRI_LAYER_CONCAT) { /* before a norm and its activation */
        if (i + 1 >= end || !feeds_next(l, i) || fri_layer_kind_of(l, i + 1) != FRI_LAYER_NORM) return f;
        const fri_fused norm = fri_fuse(l, i + 1, end);
        return norm.add ? f : (fri_fused){.layers = norm.layers + 1, .joins = true, .act = norm.act};
    }
    for (int row = 0; row < (int)(sizeof table / sizeof *table) && f.layers == 1; row++)
        if (i + table[row].layers <= end && row_matches(l, i, row)) f.layers = table[row].layers;
    for (int k = i + 1; k < i + f.layers; k++) {
        if (fri_layer_kind_of(l, k) >= FRI_LAYER_RELU) {
            f.act = fri_layer_activation(l, k);
        } else {
            f.add = true;
            f.add_layer = k;
            f.addend = l->layer[k].in[l->layer[k].in[1] == l->layer[i].out[0] ? 0 : 1];
        }
    }
    return f;
}
