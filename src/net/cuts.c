/* cuts.c - cuts a list of layers into units, and finds the values that cross a cut. */
#include "net/list.h"

#include "base/status.h"

#include <stdlib.h>

bool fri_alive(const fri_list *l, int value, int at) {
    return l->value[value].made_by < at && l->value[value].last_layer >= at;
}

static bool contains_value(const int *value, int n, int v) {
    for (int i = 0; i < n; i++)
        if (value[i] == v) return true;
    return false;
}

int fri_reads_of(const fri_list *l, int first, int end, int *value) {
    int n = 0;
    for (int i = first; i < end; i++)
        for (int k = 0; k < l->layer[i].n_in; k++) {
            int v = l->layer[i].in[k];
            if (l->value[v].made_by < first && !contains_value(value, n, v)) value[n++] = v;
        }
    return n;
}

int fri_makes_of(const fri_list *l, int first, int end, int *value) {
    int n = 0;
    for (int i = first; i < end; i++)
        for (int k = 0; k < l->layer[i].n_out; k++)
            if (l->value[l->layer[i].out[k]].last_reader >= end) value[n++] = l->layer[i].out[k];
    return n;
}

/* ---- units ----------------------------------------------------------------------------------------------- */

/* alive[at]: number of values alive between layers at - 1 and at. */
static void count_alive(const fri_list *l, int *alive) {
    for (int v = 0; v < l->values; v++)
        for (int at = l->value[v].made_by + 1; at <= l->value[v].last_layer; at++) alive[at]++;
}

static bool runs_in_place(const fri_list *l, int i) {
    return (l->layer[i].module->class_->traits & FR_LAYER_POINTWISE) != 0;
}

static bool is_border(const fri_list *l, const int *alive, int at, int max, fri_partition how) {
    const bool norm = (l->layer[at].module->class_->traits & FR_LAYER_KEEPS_F32) != 0;
    const bool sum = l->layer[at - 1].n_in > 1; /* a fused call runs the sum and the layers after it */
    if (how == FRI_UNITS) return alive[at] <= max && !runs_in_place(l, at);
    if (alive[at] == 1) return !runs_in_place(l, at) || !sum;
    return how == FRI_FINE_UNITS && !runs_in_place(l, at) && !norm;
}

static int find_borders(const fri_list *l, const int *alive, int max, fri_partition how, int *first, int n) {
    int count = 1;
    if (n > 0) first[0] = 0;
    for (int at = 1; at < l->layers; at++) {
        if (!is_border(l, alive, at, max, how)) continue;
        if (count < n) first[count] = at;
        count++;
    }
    return count;
}

int fri_units(fr_module *m, fri_partition how, int *first, int n) {
    fri_one_layer one;
    if (m == NULL || (first == NULL && n > 0)) return 0;
    const fri_list *l = fri_list_of(m, &one);
    if (l->layers == 0) return 0;
    int *alive = calloc((size_t)l->layers + 1, sizeof *alive), max = 1, narrowest = 0;
    if (alive == NULL) return 0;
    count_alive(l, alive);
    for (int at = 1; at < l->layers; at++)
        if (alive[at] > 1 && !runs_in_place(l, at) && (narrowest == 0 || alive[at] < narrowest)) narrowest = alive[at];
    if (find_borders(l, alive, max, FRI_UNITS, NULL, 0) < 3 && narrowest > 0) max = narrowest;
    const int count = find_borders(l, alive, max, how, first, n);
    free(alive);
    return count;
}

int fr_module_units(fr_module *m, int *first, int n) {
    return fri_units(m, FRI_UNITS, first, n);
}
