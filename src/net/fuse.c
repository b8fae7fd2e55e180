/* fuse.c - the table of layers that one call can do.
 *
 * A row's layers stand one behind the other in the list, and each inner result has one reader, the next layer; a tap is
 * a reader. The call records the nodes of the separate layers and gives their bits; whether it may leave results out
 * (the in-place switch, CHECK_NAN, anomaly detection) it decides itself, see fri_norm_act. All layers of a row have the
 * same permission to run in place. */
#include "net/list.h"

enum { MOST_FUSED = 3 };

/* Values that each fused call does not store, and the way in which backward makes them again:
 *   norm relu6        the norm's result; rebuilt from x and the statistics
 *   norm hardswish    the same; backward makes it again in registers
 *   norm silu         the same
 *   norm [add] relu   the norm's result and the sum; rebuilt from x and the statistics, and from the addend */
static const struct {
    int layers;
    fri_layer_kind kind[MOST_FUSED];
} table[] = {
    {3, {FRI_LAYER_NORM, FRI_LAYER_ADD, FRI_LAYER_RELU}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_ADD}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_RELU}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_RELU6}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_HARDSWISH}},
    {2, {FRI_LAYER_NORM, FRI_LAYER_SILU}},
};

/* Is layer i + 1 the only reader of layer i's result? */
static bool feeds_next(const fri_list *l, int i) {
    const fri_net_layer *a = &l->layer[i];
    const fri_net_value *y = &l->value[a->out[0]];
    return i + 1 < l->layers && a->n_out == 1 && y->readers == 1 && y->last_reader == i + 1;
}

static bool may_run_in_place(const fri_list *l, int i) {
    const fr_module *m = l->layer[i].module;
    return m->inplace_set ? m->inplace : fr_switches_get().inplace;
}

static bool matches(const fri_list *l, int i, int row) {
    for (int k = 0; k < table[row].layers; k++) {
        if (fri_layer_kind_of(l, i + k) != table[row].kind[k]) return false;
        if (k > 0 && (!feeds_next(l, i + k - 1) || may_run_in_place(l, i + k) != may_run_in_place(l, i))) return false;
    }
    return true;
}

fri_fused fri_fuse(const fri_list *l, int i, int end) {
    fri_fused f = {.layers = 1};
    for (int row = 0; row < (int)(sizeof table / sizeof *table) && f.layers == 1; row++)
        if (i + table[row].layers <= end && matches(l, i, row)) f.layers = table[row].layers;
    for (int k = i + 1; k < i + f.layers; k++) {
        if (fri_layer_kind_of(l, k) >= FRI_LAYER_RELU) {
            f.act = fri_layer_activation(l, k);
            f.act_layer = k;
        } else {
            f.add = true;
            f.add_layer = k;
            f.over = l->layer[k].in[1] == l->layer[i].out[0];
            f.addend = l->layer[k].in[f.over ? 0 : 1];
        }
    }
    return f;
}
