/* entries.c - tensors and their names, in PyTorch's layout (unstable/weights.h). */
#include "io/scratch.h"

#include "base/status.h"
#include "tensor/tensor.h"

#include <frugal/unstable/weights.h>

#include <frugal/net.h>

#include <stdlib.h>
#include <string.h>

static fr_status collect(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    fr_entries *e = ctx;
    FRI_TRY(FRI_ROOM(e->entry, e->n, "names of tensors"));
    char *name = strdup(path);
    if (name == NULL) return fr_fail(FR_ENOMEM, "no host memory for a name");
    e->entry[e->n++] = (fr_entry){name, t, is_parameter, fri_numel(t), 1, 1};
    return FR_OK;
}

fr_status fr_entries_collect(fr_module *m, fr_entries *out) {
    *out = (fr_entries){0};
    fr_status s = fr_module_each_tensor(m, collect, out);
    if (s < 0) fr_entries_free(out);
    return s;
}

void fr_entries_free(fr_entries *e) {
    for (size_t i = 0; i < e->n; i++) free(e->entry[i].name);
    free(e->entry);
    *e = (fr_entries){0};
}

/* ---- layers after a Flatten ---------------------------------------------------------------------------- */

static fr_entry *entry_of(const fr_entries *e, const fr_tensor *t) {
    for (size_t i = 0; i < e->n; i++)
        if (e->entry[i].tensor == t) return &e->entry[i];
    return NULL;
}

/* The columns of the weight are rows of spatial x channels; `given` by the caller, or from the network. */
static fr_status set_columns(fr_entry *e, const fr_weights_opts *given, int64_t spatial) {
    const int64_t columns = e->tensor->shape.dim[1];
    if (given->flatten_height > 0 && given->flatten_width > 0 &&
        !fri_mul_i64(given->flatten_height, given->flatten_width, &spatial))
        spatial = columns + 1;
    if (spatial == 0)
        return fr_fail(FR_EINVAL,
                       "the %lld columns of '%s' lie behind a Flatten whose height and width the module does not "
                       "tell; give flatten_height and flatten_width",
                       (long long)columns, e->name);
    if (columns % spatial != 0)
        return fr_fail(FR_EINVAL, "the %lld columns of '%s' are not made of %lld pixels (%lld x %lld given)",
                       (long long)columns, e->name, (long long)spatial, (long long)given->flatten_height,
                       (long long)given->flatten_width);
    e->outer = e->tensor->shape.dim[0];
    e->spatial = spatial;
    e->channels = columns / spatial;
    return FR_OK;
}

static bool has(const fr_module *m, unsigned trait) {
    return (fr_module_class_of(m)->traits & trait) != 0;
}

/* A module without a list has no image size: the caller gives the columns of a Linear after a Flatten. */
static fr_status visit_box(fr_module *m, const fr_weights_opts *opts, fr_entries *e, bool *flattened) {
    fr_entry *weight = entry_of(e, fr_module_tensor(m, "weight"));
    for (int i = 0; i < fr_module_children(m); i++) FRI_TRY(visit_box(fr_module_child(m, i), opts, e, flattened));
    if (has(m, FR_LAYER_COLUMNS)) {
        if (*flattened && weight != NULL && weight->tensor->shape.rank == 2) FRI_TRY(set_columns(weight, opts, 0));
        *flattened = false;
    }
    *flattened = *flattened || has(m, FR_LAYER_FLATTENS);
    return FR_OK;
}

static fr_status visit_layer(const fr_layer *l, const fr_weights_opts *opts, fr_entries *e) {
    fr_entry *weight = entry_of(e, fr_module_tensor(l->module, "weight"));
    bool flattened = false;
    if (!has(l->module, FR_LAYER_COLUMNS)) return visit_box(l->module, opts, e, &flattened);
    if (l->pieces == 0 || weight == NULL || weight->tensor->shape.rank != 2) return FR_OK;
    if (l->pieces == 1) return set_columns(weight, opts, l->piece[0].spatial);
    for (int i = 0; i < l->pieces; i++)
        if (l->piece[i].spatial > 1)
            return fr_fail(FR_EUNSUPPORTED, "the %lld columns of '%s' lie behind %d images side by side",
                           (long long)weight->tensor->shape.dim[1], weight->name, l->pieces);
    return FR_OK;
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
        if (s == FR_OK) s = visit_layer(&l, opts, e);
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
