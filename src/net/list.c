/* list.c - storage of a network (list.h); finds, replaces and taps layers. */
#include "net/layers.h"
#include "net/list.h"

#include "base/status.h"
#include "base/text.h"
#include "net/units.h"

#include <stdlib.h>
#include <string.h>

/* ---- the module of a network ----------------------------------------------------------------------------- */

static fr_status run_list(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out) {
    const fri_list *l = m->state;
    FRI_OWNED(fri_net_pass_end) fri_net_pass p = {0};
    int first = 0;
    if (n_in != l->inputs || n_out > l->results)
        return fr_fail(FR_EINVAL, "network: %d inputs for %d results; it has %d inputs and %d results", n_in, n_out,
                       l->inputs, l->results);
    FRI_TRY(fri_net_pass_begin(l, &p));
    for (int i = 0; i < n_in; i++) {
        FRI_MOVE(&p.value[i], in[i]);
    }
    FRI_TRY(fri_net_pass_prefix(&p, NULL, 0, &first));
    FRI_TRY(fri_net_pass_run(&p, first, l->layers));
    for (int i = 0; i < n_out; i++) out[i] = fr_tensor_retain(p.value[l->result[i]]);
    return FR_OK;
}

static void free_list(void *state) {
    fri_list *l = state;
    for (int i = 0; i < l->layers; i++) {
        free(l->layer[i].name);
        fr_module_release(&l->layer[i].module);
        free(l->layer[i].in);
    }
    for (int i = 0; i < l->values; i++) free(l->value[i].piece);
    free(l->layer);
    free(l->value);
    free(l->result);
}

static const fr_module_class net_class = {.name = "Net", .run = run_list, .free_state = free_list};
static const fr_module_class scope_class = {.name = "Scope"};

bool fri_is_net(const fr_module *m) {
    return m->class_ == &net_class;
}

fr_status fri_net_create(fr_module **out) {
    return fr_module_create(&net_class, sizeof(fri_list), out);
}

fri_list *fri_list_edit(fr_module *net) {
    return net->state;
}

const fri_list *fri_list_of(fr_module *m, fri_one_layer *one) {
    if (fri_is_net(m)) return m->state;
    *one = (fri_one_layer){.layer = {.module = m, .in = one->number, .out = one->number + 1, .n_in = 1, .n_out = 1},
                           .value = {{.made_by = -1, .readers = 1}, {.readers = 1, .last_layer = -1, .last_reader = 1}},
                           .number = {0, 1},
                           .result = 1};
    one->list = (fri_list){.layer = &one->layer,
                           .value = one->value,
                           .result = &one->result,
                           .layers = 1,
                           .values = 2,
                           .results = 1,
                           .inputs = 1};
    return &one->list;
}

/* ---- growing --------------------------------------------------------------------------------------------- */

static fr_status no_memory_for_list(void) {
    return fr_fail(FR_ENOMEM, "network: out of host memory");
}

fr_status fri_list_value(fri_list *l, fr_dtype dtype, const fr_shape *shape, int *id) {
    FRI_TRY(FRI_ROOM(l->value, l->values, "network"));
    *id = l->values;
    l->value[l->values++] =
        (fri_net_value){.dtype = dtype, .shape = *shape, .made_by = -1, .last_layer = -1, .last_reader = -1};
    return FR_OK;
}

fr_status fri_list_layer(fri_list *l, const char *name, fr_module **m, const int *in, int n_in, int *out, int n_out) {
    fri_net_layer a = {.name = strdup(name), .module = *m, .n_in = n_in, .n_out = n_out};
    const fr_shape none = {0};
    *m = NULL;
    a.in = malloc((size_t)(n_in + n_out) * sizeof *a.in);
    fr_status s = a.name != NULL && a.in != NULL ? FRI_ROOM(l->layer, l->layers, "network") : no_memory_for_list();
    for (int i = 0; s == FR_OK && i < n_out; i++) s = fri_list_value(l, FR_F32, &none, &out[i]);
    if (s < 0) {
        free(a.name);
        free(a.in);
        fr_module_release(&a.module);
        return s;
    }
    a.out = a.in + n_in;
    for (int i = 0; i < n_in; i++) {
        a.in[i] = in[i];
        l->value[in[i]].readers++;
        l->value[in[i]].last_layer = l->value[in[i]].last_reader = l->layers;
    }
    for (int i = 0; i < n_out; i++) l->value[a.out[i] = out[i]].made_by = l->layers;
    l->layer[l->layers++] = a;
    return FR_OK;
}

fr_status fri_list_result(fri_list *l, int value) {
    FRI_TRY(FRI_ROOM(l->result, l->results, "network"));
    l->result[l->results++] = value;
    l->value[value].readers++;
    l->value[value].last_reader = l->layers;
    return FR_OK;
}

/* ---- positions in the tree ----------------------------------------------------------------------------------- */

static int child_of(const fr_module *m, const char *name, size_t length) {
    for (int i = 0; i < m->n_children; i++)
        if (strncmp(m->names[i], name, length) == 0 && m->names[i][length] == '\0') return i;
    return -1;
}

fr_module *fri_module_at(fr_module *m, const char *path, fr_module **parent, int *at) {
    while (m != NULL && path[0] != '\0') {
        size_t n = strcspn(path, ".");
        int i = child_of(m, path, n);
        if (i < 0) return NULL;
        if (parent != NULL) *parent = m;
        if (at != NULL) *at = i;
        m = m->children[i];
        path += n + (path[n] == '.');
    }
    return m;
}

fr_status fri_module_place(fr_module *m, const char *path, fr_module **child) {
    fr_status s = FR_OK;
    char *copy = strdup(path), *rest = copy;
    fr_module *scope = NULL;
    if (copy == NULL) s = no_memory_for_list();
    for (char *dot = NULL; s == FR_OK && (dot = strchr(rest, '.')) != NULL; rest = dot + 1) {
        *dot = '\0';
        int i = child_of(m, rest, strlen(rest));
        if (i < 0) {
            i = m->n_children;
            FR_TRY(s, fr_module_create(&scope_class, 0, &scope));
            FR_TRY(s, fr_module_add_child(m, rest, &scope));
        }
        m = m->children[i];
    }
    if (s == FR_OK) s = fr_module_add_child(m, rest, child);
done:
    fr_module_release(child);
    free(copy);
    return s;
}

/* ---- public ---------------------------------------------------------------------------------------------- */

int fr_module_layers(fr_module *m) {
    fri_one_layer one;
    return m != NULL ? fri_list_of(m, &one)->layers : 0;
}

fr_status fr_module_layer_get(fr_module *m, int i, fr_layer *out) {
    FRI_NOT_NULL(m, out);
    if (!fri_is_net(m) && i == 0) {
        static const int number[] = {0, 1};
        *out = (fr_layer){.name = "", .module = m, .in = number, .out = number + 1, .n_in = 1, .n_out = 1};
        return FR_OK;
    }
    if (i < 0 || i >= fr_module_layers(m))
        return fr_fail(FR_EINVAL, "layer %d: the module has %d layers", i, fr_module_layers(m));
    const fri_list *l = m->state;
    const fri_net_layer *a = &l->layer[i];
    const fri_net_value *x = a->n_in > 0 ? &l->value[a->in[0]] : NULL;
    *out = (fr_layer){.name = a->name,
                      .module = a->module,
                      .in = a->in,
                      .out = a->out,
                      .n_in = a->n_in,
                      .n_out = a->n_out,
                      .piece = x != NULL ? x->piece : NULL,
                      .pieces = x != NULL ? x->pieces : 0};
    return FR_OK;
}

fr_status fr_net_info_get(fr_module *m, fr_net_info *out) {
    FRI_NOT_NULL(m, out);
    if (!fri_is_net(m)) return fr_fail(FR_EINVAL, "%s is not a network (net.h)", m->class_->name);
    const fri_list *l = m->state;
    *out = (fr_net_info){l->layers, l->values, l->inputs, l->results, l->result};
    return FR_OK;
}

fr_status fr_net_value_get(fr_module *m, int i, fr_net_value *out) {
    fr_net_info net;
    FRI_NOT_NULL(out);
    FRI_TRY(fr_net_info_get(m, &net));
    if (i < 0 || i >= net.values) return fr_fail(FR_EINVAL, "value %d is outside 0..%d", i, net.values - 1);
    const fri_net_value *v = &((const fri_list *)m->state)->value[i];
    *out = (fr_net_value){v->dtype, v->shape, v->made_by, v->readers, v->last_layer, v->piece, v->pieces};
    return FR_OK;
}

bool fr_channels_turned(const fr_channel_piece *piece, int pieces) {
    bool permuted = false;
    for (int i = 0; i < pieces; i++) permuted = permuted || (piece[i].spatial > 1 && piece[i].channels > 1);
    return permuted;
}

static const fri_net_layer *head_of(fr_module *m) {
    const fri_list *l = m != NULL && fri_is_net(m) ? m->state : NULL;
    for (int i = l != NULL ? l->layers - 1 : -1; i >= 0; i--)
        if (fr_module_parameter_count(l->layer[i].module) > 0) return &l->layer[i];
    return NULL;
}

const char *fri_module_head(fr_module *m) {
    const fri_net_layer *head = head_of(m);
    return head != NULL ? head->name : NULL;
}

int64_t fri_module_results(fr_module *m) {
    const fri_list *l = m != NULL && fri_is_net(m) ? m->state : NULL;
    const fr_shape *y = l != NULL ? &l->value[l->result[0]].shape : NULL;
    return y != NULL && y->rank > 0 ? y->dim[y->rank - 1] : 0;
}

/* Creates a fresh layer with another number of results. *out stays NULL for all but Linear and Conv2d. */
static fr_status layer_like(const fr_module *m, int64_t results, fr_module **out) {
    const fr_tensor *w = m->tensors[0].tensor;
    const fr_conv2d_opts *o = m->state;
    const bool bias = m->n_tensors > 1;
    if (strcmp(m->class_->name, "Linear") == 0)
        return fri_nn_linear(w->shape.dim[1], results, bias, fri_device_of(w), out);
    if (strcmp(m->class_->name, "Conv2d") != 0 || o->groups != 1) return FR_OK;
    return fri_nn_conv2d(w->shape.dim[3], results, w->shape.dim[1], o, bias, fri_device_of(w), out);
}

fr_status fri_module_head_renew(fr_module *m, int64_t results, fr_module **old) {
    const fri_net_layer *head = head_of(m);
    const int64_t had = fri_module_results(m);
    FRI_OWNED(fr_module_release) fr_module *new = NULL;
    const fr_tensor *w = head != NULL && head->module->n_tensors > 0 ? head->module->tensors[0].tensor : NULL;
    if (w != NULL && w->shape.dim[0] == had) FRI_TRY(layer_like(head->module, results, &new));
    if (new == NULL)
        return fr_fail(FR_EINVAL, "its last layer with parameters, %s (%s), is no layer for another number of results",
                       head != NULL ? head->name : "-", head != NULL ? head->module->class_->name : "none");
    fri_list *l = m->state;
    for (int i = 0; i < l->values; i++) { /* examples of the results */
        fri_net_value *v = &l->value[i];
        if (v->made_by < head - l->layer || v->shape.rank == 0 || v->shape.dim[v->shape.rank - 1] != had) continue;
        v->shape.dim[v->shape.rank - 1] = results;
        for (int k = 0; k < v->pieces; k++)
            if (v->piece[k].channels == had) v->piece[k].channels = results;
    }
    *old = fr_module_retain(head->module);
    return fr_module_replace(m, head->name, &new);
}

fr_module *fr_module_find(fr_module *m, const char *path) {
    return m != NULL && path != NULL ? fri_module_at(m, path, NULL, NULL) : NULL;
}

/* Replaces module `old` by `new` in every list at or below m. */
static void exchange_layer(fr_module *m, const fr_module *old, fr_module *new) {
    fri_list *l = fri_is_net(m) ? m->state : NULL;
    for (int i = 0; l != NULL && i < l->layers; i++)
        if (l->layer[i].module == old) {
            fr_module_release(&l->layer[i].module);
            l->layer[i].module = fr_module_retain(new);
        }
    for (int i = 0; i < m->n_children; i++) exchange_layer(m->children[i], old, new);
}

fr_status fr_module_replace(fr_module *m, const char *path, fr_module **layer) {
    fr_module *parent = NULL, *old = NULL;
    int at = 0;
    fr_status s = FRI_CHECK_NULL(m, path, layer);
    if (s == FR_OK && *layer == NULL) s = fr_fail(FR_EINVAL, "replace '%s': the new layer is NULL", path);
    if (s == FR_OK && ((old = fri_module_at(m, path, &parent, &at)) == NULL || old == m))
        s = fr_fail(FR_EINVAL, "replace: no layer is called '%s'", path);
    if (s == FR_OK && old->n_children > 0 && !fri_is_net(old) && old->class_->forward == NULL)
        s = fr_fail(FR_EINVAL, "replace: '%s' is not a layer but a group of %d; name one", path, old->n_children);
    if (s == FR_OK && fr_graph_stats_get().nodes > 0)
        s = fr_fail(FR_EUSAGE, "replace '%s': a graph of %llu nodes is alive; run backward or release its tensors",
                    path, (unsigned long long)fr_graph_stats_get().nodes);
    if (s == FR_OK) {
        fr_module_retain(old);
        exchange_layer(m, old, *layer);
        fr_module_release(&parent->children[at]);
        parent->children[at] = fr_module_retain(*layer);
        fr_module_release(&old);
    }
    if (layer != NULL) fr_module_release(layer);
    return s;
}

fr_status fr_module_tap(fr_module *m, const char *name) {
    FRI_NOT_NULL(m, name);
    int found = -1;
    const fri_list *l = fri_is_net(m) ? m->state : NULL;
    for (int i = 0; l != NULL && i < l->layers; i++)
        if (fri_path_is_below(l->layer[i].name, name) && l->layer[i].n_out > 0) found = i;
    if (found < 0) return fr_fail(FR_EINVAL, "tap: no layer is called '%s'", name);
    return fri_list_result(m->state, l->layer[found].out[l->layer[found].n_out - 1]);
}
