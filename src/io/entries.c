/* entries.c - see entries.h. */
#include "io/entries.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static fr_status collect(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    fri_entries *e = ctx;
    fr_status s = FRI_ROOM(e->entry, e->n, "names of tensors");
    if (s < 0) return s;
    char *name = strdup(path);
    if (name == NULL) return fri_fail(FR_ENOMEM, "no host memory for a name");
    e->entry[e->n++] = (fri_entry){name, t, is_parameter, fri_numel(t), 1, 1};
    return FR_OK;
}

fr_status fri_entries_collect(fr_module *m, fri_entries *out) {
    *out = (fri_entries){0};
    fr_status s = fr_module_each_tensor(m, collect, out);
    if (s < 0) fri_entries_free(out);
    return s;
}

void fri_entries_free(fri_entries *e) {
    for (size_t i = 0; i < e->n; i++) free(e->entry[i].name);
    free(e->entry);
    *e = (fri_entries){0};
}

/* ---- what lies behind a Flatten ---------------------------------------------------------------------------- */

/* The walk over the layers: the size of the images so far (0: unknown), and whether they were just flattened. */
typedef struct walk {
    const fr_weights_opts *opts;
    fri_entries *entries;
    int64_t height, width;
    bool flattened;
} walk;

static bool is(const fr_module *m, const char *name) {
    return strcmp(fr_module_class_of(m)->name, name) == 0;
}

static bool keeps_size(const fr_module *m) {
    static const char *const names[] = {"ReLU",     "LeakyReLU",   "Dropout",   "Dropout2d",
                                        "Identity", "BatchNorm2d", "InPlaceABN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(m, names[i])) return true;
    return false;
}

/* What an adaptive pooling makes of an image, told by the layer itself: it runs once on meta. */
static fr_status pooled_size(fr_module *m, walk *w) {
    enum { SIDE = 64 };
    fr_tensor *x = NULL, *y = NULL;
    fr_status s = FR_OK;
    bool grad = fr_no_grad_begin();
    FRI_TRY(s, fr_tensor_empty(4, (int64_t[]){1, SIDE, SIDE, 1}, FR_F32, FR_META, &x));
    FRI_TRY(s, fr_module_forward(m, x, &y));
    w->height = fr_tensor_dim(y, 1);
    w->width = fr_tensor_dim(y, 2);
done:
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_no_grad_end(grad);
    return s;
}

static fri_entry *entry_of(const fri_entries *e, const fr_tensor *t) {
    for (size_t i = 0; i < e->n; i++)
        if (e->entry[i].tensor == t) return &e->entry[i];
    return NULL;
}

static fr_status linear_behind_flatten(fr_module *m, const walk *w) {
    fri_entry *e = entry_of(w->entries, fr_module_tensor(m, "weight"));
    if (e == NULL || e->tensor->shape.rank != 2) return FR_OK;
    int64_t columns = e->tensor->shape.dim[1], height = w->height, width = w->width;
    if (w->opts->flatten_height > 0 && w->opts->flatten_width > 0) {
        height = w->opts->flatten_height;
        width = w->opts->flatten_width;
    }
    if (height == 0 || width == 0)
        return fri_fail(FR_EINVAL,
                        "the %lld columns of '%s' lie behind a Flatten whose height and width the module does not "
                        "tell; give flatten_height and flatten_width",
                        (long long)columns, e->name);
    int64_t spatial = 0;
    if (!fri_mul_i64(height, width, &spatial) || columns % spatial != 0)
        return fri_fail(FR_EINVAL, "the %lld columns of '%s' are not made of %lld x %lld pixels", (long long)columns,
                        e->name, (long long)height, (long long)width);
    e->outer = e->tensor->shape.dim[0];
    e->spatial = spatial;
    e->channels = columns / spatial;
    return FR_OK;
}

static fr_status visit(fr_module *m, walk *w) {
    fr_status s = FR_OK;
    if (fr_module_children(m) > 0) {
        for (int i = 0; i < fr_module_children(m); i++) FRI_TRY(s, visit(fr_module_child(m, i), w));
    } else if (is(m, "AdaptiveAvgPool2d")) {
        FRI_TRY(s, pooled_size(m, w));
    } else if (is(m, "Flatten")) {
        w->flattened = true;
    } else if (is(m, "Linear")) {
        if (w->flattened) FRI_TRY(s, linear_behind_flatten(m, w));
        w->flattened = false;
        w->height = w->width = 0;
    } else if (!keeps_size(m)) {
        w->height = w->width = 0;
    }
done:
    return s;
}

/* ---- layouts ----------------------------------------------------------------------------------------------- */

fr_status fri_entries_torch_layout(fr_module *m, const fr_weights_opts *opts, fri_entries *e) {
    for (size_t i = 0; i < e->n; i++) {
        const fri_shape *shape = &e->entry[i].tensor->shape;
        if (shape->rank != 4) continue;
        e->entry[i].outer = shape->dim[0];
        e->entry[i].spatial = shape->dim[1] * shape->dim[2];
        e->entry[i].channels = shape->dim[3];
    }
    walk w = {.opts = opts, .entries = e};
    return visit(m, &w);
}

fri_shape fri_entry_torch_shape(const fri_entry *e) {
    const fri_shape *s = &e->tensor->shape;
    return s->rank == 4 ? FRI_SHAPE(s->dim[0], s->dim[3], s->dim[1], s->dim[2]) : *s;
}

fr_status fri_upload(const void *bytes, fr_tensor *t) {
    if (fri_device_of(t) == FR_META || fri_nbytes(t) == 0) return FR_OK;
    fri_bump_version(t);
    return fri_backend_of(t)->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, bytes, fri_data(t), fri_nbytes(t));
}

fr_status fri_scratch(void **buffer, size_t *capacity, size_t bytes) {
    if (*buffer != NULL && bytes <= *capacity) return FR_OK;
    void *fresh = malloc(bytes > 0 ? bytes : 1);
    if (fresh == NULL) return fri_fail(FR_ENOMEM, "no host memory for a tensor of %zu bytes", bytes);
    free(*buffer);
    *buffer = fresh;
    *capacity = bytes;
    return FR_OK;
}
