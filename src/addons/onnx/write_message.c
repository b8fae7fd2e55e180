/* write_message.c - the parts of an output ONNX file. */
#include "addons/onnx/write.h"

#include <frugal/weights.h>

#include <frugal/files.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Onnx__NodeProto node;
typedef Onnx__TensorProto tensor;

void fri_onnx_fail(fri_onnx_writer *w, fr_status s) {
    if (w->status == FR_OK && s < 0) w->status = s;
}

void *fri_onnx_block(fri_onnx_writer *w, size_t bytes) {
    if (w->status < 0) return NULL;
    fr_status s = FRI_ROOM(w->block, w->blocks, "ONNX blocks");
    void *b = s == FR_OK ? calloc(1, bytes + 1) : NULL;
    if (b == NULL) fri_onnx_fail(w, fr_fail(FR_ENOMEM, "no host memory for %zu bytes", bytes));
    if (b != NULL) w->block[w->blocks++] = b;
    return b;
}

char *fri_onnx_text(fri_onnx_writer *w, const char *format, ...) {
    char text[600];
    va_list a;
    va_start(a, format);
    (void)vsnprintf(text, sizeof text, format, a);
    va_end(a);
    char *b = fri_onnx_block(w, strlen(text));
    return b != NULL ? strcpy(b, text) : NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------------------- */

node *fri_onnx_node(const fri_onnx_writing *l, const char *type, const char *const *in, const char *out) {
    fri_onnx_writer *w = l->w;
    size_t n_in = 0;
    while (in[n_in] != NULL) n_in++;
    node *n = fri_onnx_block(w, sizeof *n);
    char **names = fri_onnx_block(w, (n_in + 1) * sizeof *names);
    if (n == NULL || names == NULL) return NULL;
    for (size_t i = 0; i < n_in; i++) names[i] = (char *)in[i];
    names[n_in] = (char *)out;
    *n = (node)ONNX__NODE_PROTO__INIT;
    n->op_type = (char *)type;
    const char *what = out != l->out ? strrchr(out, '/') : NULL; /* nodes of a type in a layer have different names */
    n->name = fri_onnx_text(w, "/%s/%s%s%s", l->layer->name != NULL ? l->layer->name : "layer", type,
                            what != NULL ? "_" : "", what != NULL ? what + 1 : "");
    for (size_t i = 0; i < w->nodes && n->name != NULL; i++) /* of a repeated layer */
        if (strcmp(w->node[i]->name, n->name) == 0) {
            n->name = fri_onnx_text(w, "%s_%zu", n->name, w->nodes);
            break;
        }
    n->input = names;
    n->n_input = n_in;
    n->output = names + n_in;
    n->n_output = 1;
    fri_onnx_fail(w, FRI_ROOM(w->node, w->nodes, "ONNX nodes"));
    if (w->status == FR_OK) w->node[w->nodes++] = n;
    return n;
}

/* Adds the attribute to the node. */
static void attribute(fri_onnx_writer *w, node *n, const char *name, Onnx__AttributeProto v) {
    enum { MOST = 8 };
    if (n != NULL && n->attribute == NULL) n->attribute = fri_onnx_block(w, MOST * sizeof *n->attribute);
    Onnx__AttributeProto *a = fri_onnx_block(w, sizeof *a);
    if (a == NULL || n == NULL || n->attribute == NULL || n->n_attribute == MOST) return;
    *a = (Onnx__AttributeProto)ONNX__ATTRIBUTE_PROTO__INIT;
    v.base = a->base;
    v.name = (char *)name;
    v.has_type = 1;
    *a = v;
    n->attribute[n->n_attribute++] = a;
}

#define ATTRIBUTE(t, ...) \
    attribute(w, n, name, (Onnx__AttributeProto){.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##t, __VA_ARGS__})

void fri_onnx_set_int(fri_onnx_writer *w, node *n, const char *name, int64_t v) {
    ATTRIBUTE(INT, .has_i = 1, .i = v);
}

void fri_onnx_set_ints(fri_onnx_writer *w, node *n, const char *name, const int64_t *v, size_t count) {
    int64_t *ints = fri_onnx_block(w, count * sizeof *v);
    if (ints != NULL) ATTRIBUTE(INTS, .ints = memcpy(ints, v, count * sizeof *v), .n_ints = count);
}

void fri_onnx_set_float(fri_onnx_writer *w, node *n, const char *name, double v) {
    ATTRIBUTE(FLOAT, .has_f = 1, .f = (float)v);
}

void fri_onnx_set_text(fri_onnx_writer *w, node *n, const char *name, const char *v) {
    ATTRIBUTE(STRING, .has_s = 1, .s = {.data = (uint8_t *)v, .len = strlen(v)});
}

/* ---- constants ------------------------------------------------------------------------------------------- */

/* A constant of the name, with uninitialized data; *fresh false: exists already. */
static tensor *constant(fri_onnx_writer *w, const char *name, int type, int rank, const int64_t *dim, size_t bytes,
                        bool *fresh) {
    *fresh = false;
    for (size_t i = 0; i < w->constants && name != NULL; i++)
        if (strcmp(w->constant[i]->name, name) == 0) return w->constant[i];
    tensor *t = fri_onnx_block(w, sizeof *t);
    int64_t *dims = fri_onnx_block(w, (size_t)rank * sizeof *dims);
    void *data = fri_onnx_block(w, bytes);
    if (t == NULL || dims == NULL || data == NULL || name == NULL) return NULL;
    fri_onnx_fail(w, FRI_ROOM(w->constant, w->constants, "ONNX constants"));
    if (w->status < 0) return NULL;
    if (rank > 0) memcpy(dims, dim, (size_t)rank * sizeof *dims); /* a scalar has no dim */
    *t = (tensor)ONNX__TENSOR_PROTO__INIT;
    t->name = (char *)name;
    t->has_data_type = t->has_raw_data = 1;
    t->data_type = type;
    t->dims = dims;
    t->n_dims = (size_t)rank;
    t->raw_data.data = data;
    t->raw_data.len = bytes;
    w->constant[w->constants++] = t;
    *fresh = true;
    return t;
}

/* A constant of the layer; returns the name. */
static const char *constant_of(const fri_onnx_writing *l, const char *name, int type, int rank, const int64_t *dim,
                               size_t bytes, const void *v) {
    bool fresh = false;
    const char *full = fri_onnx_text(l->w, "%s.%s", l->layer->name, name);
    tensor *t = constant(l->w, full, type, rank, dim, bytes, &fresh);
    if (fresh) memcpy(t->raw_data.data, v, bytes);
    return full;
}

const char *fri_onnx_floats(const fri_onnx_writing *l, const char *name, int rank, const int64_t *dim, const float *v) {
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dim[i];
    return constant_of(l, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, rank, dim, n * sizeof *v, v);
}

const char *fri_onnx_integers_of(const fri_onnx_writing *l, const char *name, const int64_t *v, size_t count) {
    return constant_of(l, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, &(int64_t){(int64_t)count}, count * sizeof *v,
                       v);
}

/* The tensor's values as f32, in PyTorch's layout. */
static fr_status values(const fr_entry *e, float *out) {
    const size_t n = (size_t)fr_tensor_numel(e->tensor), size = fr_dtype_size(fr_tensor_dtype(e->tensor));
    FRI_OWNED(fri_free) void *host = malloc(n * size + 1), *turned = malloc(n * size + 1);
    if (host == NULL || turned == NULL) return fr_fail(FR_ENOMEM, "no host memory for %zu values", n);
    FRI_TRY(fr_tensor_to_host(e->tensor, host));
    const bool turn = e->spatial > 1 && e->channels > 1;
    if (turn) fr_host_transpose(host, turned, size, e->outer, e->spatial, e->channels);
    fr_host_convert(turn ? turned : host, fr_tensor_dtype(e->tensor), out, FR_F32, (int64_t)n);
    return FR_OK;
}

const char *fri_onnx_tensor(const fri_onnx_writing *l, const char *name, fr_tensor *t) {
    fri_onnx_writer *w = l->w;
    fr_entry e = {NULL, t, true, 1, 1, 1};
    if (fr_tensor_rank(t) == 4) {
        e.outer = fr_tensor_dim(t, 0);
        e.spatial = fr_tensor_dim(t, 1) * fr_tensor_dim(t, 2);
        e.channels = fr_tensor_dim(t, 3);
    }
    for (size_t i = 0; i < w->entries.n; i++)
        if (w->entries.entry[i].tensor == t) e = w->entries.entry[i];
    const fr_shape as = fr_entry_torch_shape(&e);
    const char *full =
        e.name != NULL ? fri_onnx_text(w, "%s", e.name) : fri_onnx_text(w, "%s.%s", l->layer->name, name);
    bool fresh = false;
    tensor *to = constant(w, full, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, as.rank, as.dim,
                          (size_t)fr_tensor_numel(t) * sizeof(float), &fresh);
    if (fresh && !w->dry) fri_onnx_fail(w, values(&e, (float *)(void *)to->raw_data.data));
    return full;
}

/* ---- the file -------------------------------------------------------------------------------------------- */

/* Writes protobuf's bytes to the file. */
typedef struct sink {
    ProtobufCBuffer base;
    fr_atomic_file *file;
    fr_status status;
} sink;

static void append(ProtobufCBuffer *b, size_t n, const uint8_t *data) {
    sink *s = (sink *)(void *)b;
    if (s->status == FR_OK) s->status = fr_atomic_put(s->file, data, n);
}

static Onnx__ValueInfoProto *info(fri_onnx_writer *w, int value) {
    struct parts {
        Onnx__ValueInfoProto value;
        Onnx__TypeProto type;
        Onnx__TypeProto__Tensor tensor;
        Onnx__TensorShapeProto shape;
        Onnx__TensorShapeProto__Dimension dim[4], *dims[4];
    } *p = fri_onnx_block(w, sizeof *p);
    const fr_net_value v = fri_onnx_written_value(w, value);
    const int at[4] = {0, v.shape.rank == 4 ? 3 : 1, 1, 2}, rank = v.shape.rank;
    if (p == NULL) return NULL;
    *p = (struct parts){.value = ONNX__VALUE_INFO_PROTO__INIT,
                        .type = ONNX__TYPE_PROTO__INIT,
                        .tensor = ONNX__TYPE_PROTO__TENSOR__INIT,
                        .shape = ONNX__TENSOR_SHAPE_PROTO__INIT};
    for (int i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *d = p->dims[i] = &p->dim[i];
        *d = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        d->value_case = i == 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                               : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (i == 0) d->dim_param = (char *)"batch";
        if (i > 0) d->dim_value = v.shape.dim[at[i]];
    }
    p->shape.dim = p->dims;
    p->shape.n_dim = (size_t)rank;
    p->tensor.has_elem_type = 1;
    p->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    p->tensor.shape = &p->shape;
    p->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    p->type.tensor_type = &p->tensor;
    p->value.name = w->name[value];
    p->value.type = &p->type;
    return &p->value;
}

fr_status fri_onnx_pack(fri_onnx_writer *w, const char *path) {
    const fr_net_info *l = &w->net;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets = &opset;
    Onnx__StringStringEntryProto about = ONNX__STRING_STRING_ENTRY_PROTO__INIT, *abouts = &about;
    Onnx__ValueInfoProto **in = fri_onnx_block(w, (size_t)l->inputs * sizeof *in);
    Onnx__ValueInfoProto **out = fri_onnx_block(w, (size_t)l->results * sizeof *out);
    for (int i = 0; i < l->inputs && in != NULL; i++) in[i] = info(w, i);
    for (int i = 0; i < l->results && out != NULL; i++) out[i] = info(w, l->result[i]);
    if (w->status < 0) return w->status;
    opset.domain = (char *)"";
    opset.has_version = model.has_ir_version = 1;
    opset.version = w->opset;
    model.ir_version = w->opset < 15 ? 7 : 8;
    model.producer_name = (char *)"frugal";
    model.n_opset_import = 1;
    model.opset_import = &opsets;
    model.graph = &graph;
    about.key = (char *)FR_WEIGHTS_INFO_KEY;
    about.value = w->info;
    model.metadata_props = &abouts, model.n_metadata_props = w->info != NULL;
    graph.name = (char *)"network";
    graph.node = w->node, graph.n_node = w->nodes;
    graph.initializer = w->constant, graph.n_initializer = w->constants;
    graph.input = in, graph.n_input = (size_t)l->inputs;
    graph.output = out, graph.n_output = (size_t)l->results;
    FRI_OWNED(fr_atomic_abandon) fr_atomic_file file = FR_ATOMIC_FILE_CLOSED;
    sink to = {.base = {append}, .file = &file};
    if (protobuf_c_message_get_packed_size(&model.base) > INT32_MAX)
        return fr_fail(FR_EUNSUPPORTED, "the file would have 2 GiB or more, which protobuf cannot hold");
    FRI_TRY(fr_atomic_open(path, 0666, &file));
    (void)protobuf_c_message_pack_to_buffer(&model.base, &to.base);
    FRI_TRY(to.status);
    return fr_atomic_commit(&file);
}

void fri_onnx_writer_free(fri_onnx_writer *w) {
    for (size_t i = 0; i < w->blocks; i++) free(w->block[i]);
    free(w->block);
    free(w->node);
    free(w->constant);
    free(w->info);
    fr_entries_free(&w->entries);
    *w = (fri_onnx_writer){0};
}
