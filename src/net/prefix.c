/* prefix.c - runs the frozen layers before the first trained one in parts of the batch (fri_module_prefix_parts).
 *
 * Frozen layers build no graph and treat images independently, so parts give the bits of the whole batch. Only the
 * activations of one part are alive, plus the results of all parts. */
#include "net/list.h"

#include "base/status.h"
#include "net/units.h"

#include <stdlib.h>

/* True if the layer currently treats images independently and builds no graph. */
static bool runs_in_parts(const fri_list *l, int layer, bool grad) {
    const fr_module *m = l->layer[layer].module;
    const fri_layer_kind kind = fri_layer_kind_of(l, layer);
    const bool norm = kind == FRI_LAYER_NORM || kind == FRI_LAYER_INPLACE_NORM;
    const bool still = (m->class_->traits & FR_LAYER_POINTWISE) != 0 && !m->training; /* dropout in an evaluation */
    if (((m->class_->traits & FR_LAYER_PER_IMAGE) == 0 && !still) || (norm && fri_norm_trains(m))) return false;
    for (int i = 0; i < m->n_tensors && grad; i++)
        if (m->tensors[i].is_parameter && m->tensors[i].tensor->requires_grad) return false;
    return true;
}

static int prefix_of(const fri_list *l, bool grad) {
    int n = 0;
    while (n < l->layers && runs_in_parts(l, n, grad)) n++;
    return n;
}

bool fri_module_is_per_image(fr_module *m) {
    return fri_is_net(m) && prefix_of(fri_list_edit(m), false) == fri_list_edit(m)->layers;
}

int fri_module_frozen_prefix(fr_module *m) {
    return m != NULL && fri_is_net(m) ? prefix_of(fri_list_edit(m), true) : 0;
}

fr_status fri_module_prefix_parts(fr_module *m, int64_t images) {
    FRI_NOT_NULL(m);
    if (!fri_is_net(m)) return fr_fail(FR_EINVAL, "prefix parts: %s is not a network (net.h)", m->class_->name);
    if (images < 0)
        return fr_fail(FR_EINVAL, "prefix parts: %lld images; at least 1, or 0 for all at once", (long long)images);
    fri_list_edit(m)->prefix_images = images;
    return FR_OK;
}

/* Runs layers 0 .. end - 1 on images first .. first + n - 1. */
static fr_status run_part(fri_net_pass *p, int end, int64_t first, int64_t n) {
    const fri_list *l = p->list;
    const int64_t all = p->value[0]->shape.dim[0];
    FRI_OWNED(fri_net_pass_end) fri_net_pass q = {0};
    FRI_TRY(fri_net_pass_begin(l, &q));
    FRI_TRY(fr_tensor_narrow0(p->value[0], first, n, &q.value[0]));
    FRI_TRY(fri_net_pass_run(&q, 0, end));
    for (int v = 1; v < l->values; v++) {
        if (q.value[v] == NULL || l->value[v].last_reader < end) continue;
        if (q.value[v]->shape.rank < 1 || q.value[v]->shape.dim[0] != n)
            FRI_TRY(fr_fail(FR_ESHAPE, "prefix parts: the result of layer %s has no row per image",
                            l->layer[l->value[v].made_by].name));
        FRI_TRY(fri_tensor_put_rows(q.value[v], first, all, FR_MEM_ACTIVATION, &p->value[v]));
        fr_tensor_release(&q.value[v]);
    }
    return FR_OK;
}

/* Runs layers 0 .. end - 1 in parts of `images` images. */
static fr_status run_parts(fri_net_pass *p, int end, int64_t images) {
    const int64_t all = p->value[0]->shape.dim[0];
    fr_status s = FR_OK;
    for (int64_t first = 0; first < all && s == FR_OK; first += images)
        s = run_part(p, end, first, images < all - first ? images : all - first);
    return s;
}

static bool is_listed_border(const int *border, int borders, int at) {
    for (int i = 0; i < borders; i++)
        if (border[i] == at) return true;
    return border == NULL;
}

fr_status fri_net_pass_prefix(fri_net_pass *p, const int *border, int borders, int *end) {
    const fri_list *l = p->list;
    const fr_tensor *x = p->value[0];
    const bool grad = fr_grad_enabled();
    fr_status s = FR_OK;
    *end = 0;
    const int64_t images = l->prefix_images, all = x->shape.rank > 0 ? x->shape.dim[0] : 0;
    if (images == 0 || images >= all || l->inputs != 1 || (grad && x->requires_grad)) return s;
    int n = prefix_of(l, grad);
    while (n > 0 && !is_listed_border(border, borders, n)) n--;
    const bool was = fr_no_grad_begin();
    if (n > 0) s = run_parts(p, n, images);
    fr_no_grad_end(was);
    *end = n;
    return s;
}
