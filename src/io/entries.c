/* entries.c - tensors and their names, in PyTorch's layout (frugal/weights.h). */
#include "io/scratch.h"

#include "base/status.h"
#include "tensor/tensor.h"

#include <frugal/layers.h>
#include <frugal/weights.h>

#include <frugal/net.h>

#include <stdlib.h>
#include <string.h>

static fr_status collect_entry(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    fr_entries *e = ctx;
    FRI_TRY(FRI_ROOM(e->entry, e->n, "names of tensors"));
    char *name = strdup(path);
    if (name == NULL) return fr_fail(FR_ENOMEM, "no host memory for a name");
    e->entry[e->n++] = (fr_entry){name, t, is_parameter, fri_numel(t), 1, 1};
    return FR_OK;
}

fr_status fr_entries_collect(fr_module *m, fr_entries *out) {
    *out = (fr_entries){0};
    fr_status s = fr_module_each_tensor(m, collect_entry, out);
    if (s < 0) fr_entries_free(out);
    return s;
}

void fr_entries_free(fr_entries *e) {
    for (size_t i = 0; i < e->n; i++) free(e->entry[i].name);
    free(e->entry);
    *e = (fr_entries){0};
}

/* ---- layers after a Flatten ----------------------------------------------------------------------------
 *
 * Flattened images lie as H, W, C in memory and as C, H, W in PyTorch. The columns of a Linear and the values of a norm
 * or a scale are turned on the way to and from files. */

static fr_entry *entry_of(const fr_entries *e, const fr_tensor *t) {
    for (size_t i = 0; i < e->n; i++)
        if (e->entry[i].tensor == t) return &e->entry[i];
    return NULL;
}

/* The features are rows of spatial x channels; `given` by the caller, or from the network. */
static fr_status set_features(fr_entry *e, const fr_weights_opts *given, int64_t spatial) {
    const int64_t rows = e->tensor->shape.rank == 2 ? e->tensor->shape.dim[0] : 1;
    const int64_t columns = rows > 0 ? fri_numel(e->tensor) / rows : 0;
    if (given != NULL && given->flatten_height > 0 && given->flatten_width > 0 &&
        !fri_mul_i64(given->flatten_height, given->flatten_width, &spatial))
        spatial = columns + 1;
    if (spatial == 0)
        return fr_fail(FR_EINVAL,
                       "the %lld features of '%s' come from a Flatten of unknown height and width; give flatten_height "
                       "and flatten_width",
                       (long long)columns, e->name);
    if (columns % spatial != 0)
        return fr_fail(FR_EINVAL, "the %lld features of '%s' are not made of %lld pixels (%lld x %lld given)",
                       (long long)columns, e->name, (long long)spatial,
                       given != NULL ? (long long)given->flatten_height : 0,
                       given != NULL ? (long long)given->flatten_width : 0);
    if (e->channels * e->spatial == columns && e->spatial != spatial)
        return fr_fail(FR_EUNSUPPORTED,
                       "'%s' is used on flattened images of %lld and of %lld pixels, whose features have two orders",
                       e->name, (long long)e->spatial, (long long)spatial);
    e->outer = rows;
    e->spatial = spatial;
    e->channels = columns / spatial;
    return FR_OK;
}

/* Sets all tensors of m with a value per feature. */
static fr_status set_all(fr_module *m, const fr_weights_opts *given, fr_entries *e, int64_t spatial) {
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var", ""};
    const bool columns = (fr_module_class_of(m)->traits & FR_LAYER_COLUMNS) != 0;
    for (size_t i = 0; i < (columns ? 1 : sizeof names / sizeof *names); i++) {
        fr_entry *t = entry_of(e, fr_module_tensor(m, names[i]));
        if (t != NULL && fri_numel(t->tensor) > 1 && (t->tensor->shape.rank == 2) == columns)
            FRI_TRY(set_features(t, given, spatial));
    }
    return FR_OK;
}

static bool has(const fr_module *m, unsigned trait) {
    return (fr_module_class_of(m)->traits & trait) != 0;
}

/* A module without a list has no image size: the caller gives the features of a layer after a Flatten. */
static fr_status visit_box(fr_module *m, const fr_weights_opts *opts, fr_entries *e, bool *flattened) {
    for (int i = 0; fr_module_child(m, i) != NULL; i++) FRI_TRY(visit_box(fr_module_child(m, i), opts, e, flattened));
    if (*flattened && has(m, FR_LAYER_COLUMNS | FR_LAYER_KEEPS_LAYOUT)) FRI_TRY(set_all(m, opts, e, 0));
    *flattened = (*flattened && !has(m, FR_LAYER_COLUMNS)) || has(m, FR_LAYER_FLATTENS);
    return FR_OK;
}

/* Refuses inputs with features in two orders, and moved features. */
static fr_status check_order(fr_module *m, const fr_layer *l) {
    fr_net_value a, b;
    const char *cure = "give both PyTorch's with fr_net_channel_shuffle(H W) after the Flatten";
    const int64_t *groups = fr_module_state(l->module);
    const bool shuffled = l->pieces == 1 && strcmp(fr_module_class_of(l->module)->name, "ChannelShuffle") == 0 &&
                          *groups == l->piece[0].spatial;
    if (has(l->module, FR_LAYER_MOVES) && fr_channels_turned(l->piece, l->pieces) && !shuffled)
        return fr_fail(FR_EUNSUPPORTED, "layer '%s' moves features of a Flatten, which have another order in files; %s",
                       l->name, cure);
    for (int i = 1; i < l->n_in && has(l->module, FR_LAYER_KEEPS_LAYOUT); i++) {
        FRI_TRY(fr_net_value_get(m, l->in[0], &a));
        FRI_TRY(fr_net_value_get(m, l->in[i], &b));
        const bool equal = a.pieces == b.pieces &&
                           (a.pieces == 0 || memcmp(a.piece, b.piece, (size_t)a.pieces * sizeof *a.piece) == 0);
        const bool one = b.shape.rank > 0 && b.shape.dim[b.shape.rank - 1] == 1;
        if (!equal && !one && (fr_channels_turned(a.piece, a.pieces) || fr_channels_turned(b.piece, b.pieces)))
            return fr_fail(FR_EUNSUPPORTED,
                           "inputs of layer '%s' have their features in two orders, because one comes from a Flatten; "
                           "%s",
                           l->name, cure);
    }
    return FR_OK;
}

static fr_status visit_layer(fr_module *m, const fr_layer *l, const fr_weights_opts *opts, fr_entries *e) {
    bool flattened = false;
    FRI_TRY(check_order(m, l));
    if (!has(l->module, FR_LAYER_COLUMNS | FR_LAYER_KEEPS_LAYOUT)) return visit_box(l->module, opts, e, &flattened);
    if (l->pieces == 1) return set_all(l->module, opts, e, l->piece[0].spatial);
    if (!fr_channels_turned(l->piece, l->pieces))
        return has(l->module, FR_LAYER_COLUMNS) ? set_all(l->module, NULL, e, 1) : FR_OK;
    if (fr_module_tensor(l->module, "weight") == NULL && fr_module_tensor(l->module, "") == NULL) return FR_OK;
    return fr_fail(FR_EUNSUPPORTED, "the features of layer '%s' come from %d images side by side", l->name, l->pieces);
}

/* ---- layouts ----------------------------------------------------------------------------------------------- */

fr_status fr_entries_torch_layout(fr_module *m, const fr_weights_opts *opts, fr_entries *e) {
    for (size_t i = 0; i < e->n; i++) {
        const fr_shape *shape = &e->entry[i].tensor->shape;
        if (shape->rank != 4) continue;
        e->entry[i].outer = shape->dim[0];
        e->entry[i].spatial = shape->dim[1] * shape->dim[2];
        e->entry[i].channels = shape->dim[3];
    }
    fr_status s = FR_OK;
    fr_layer l;
    for (int i = 0; i < fr_module_layers(m) && s == FR_OK; i++) {
        s = fr_module_layer_get(m, i, &l);
        if (s == FR_OK) s = visit_layer(m, &l, opts, e);
    }
    return s;
}

fr_shape fr_entry_torch_shape(const fr_entry *e) {
    const fr_shape *s = &e->tensor->shape;
    return s->rank == 4 ? FRI_SHAPE(s->dim[0], s->dim[3], s->dim[1], s->dim[2]) : *s;
}

fr_status fr_tensor_upload(const void *bytes, fr_tensor *t) {
    if (fri_device_of(t) == FR_META || fri_nbytes(t) == 0) return FR_OK;
    fri_bump_version(t);
    return fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, bytes, fri_data(t), fri_nbytes(t));
}

fr_status fri_scratch(void **buffer, size_t *capacity, size_t bytes) {
    if (*buffer != NULL && bytes <= *capacity) return FR_OK;
    void *fresh = malloc(bytes > 0 ? bytes : 1);
    if (fresh == NULL) return fr_fail(FR_ENOMEM, "no host memory for a tensor of %zu bytes", bytes);
    free(*buffer);
    *buffer = fresh;
    *capacity = bytes;
    return FR_OK;
}
