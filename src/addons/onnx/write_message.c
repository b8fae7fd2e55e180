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

static void fail(fri_onnx_writer *w, fr_status s) {
    if (w->status == FR_OK) w->status = s;
}

void *fri_onnx_block(fri_onnx_writer *w, size_t bytes) {
    if (w->status < 0) return NULL;
    fr_status s = FRI_ROOM(w->block, w->blocks, "ONNX blocks");
    void *b = s == FR_OK ? calloc(1, bytes + 1) : NULL;
    if (b == NULL) fail(w, fr_fail(FR_ENOMEM, "no host memory for %zu bytes", bytes));
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
    const char *what = out != l->out ? strrchr(out, '/') : NULL; /* nodes of a type within a layer have different
                                                                  * names */
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
    fr_status s = FRI_ROOM(w->node, w->nodes, "ONNX nodes");
    if (s < 0) fail(w, s);
    if (s == FR_OK) w->node[w->nodes++] = n;
    return n;
}

static Onnx__AttributeProto *attribute(fri_onnx_writer *w, node *n, const char *name, int type) {
    enum { MOST = 8 };
    if (n != NULL && n->attribute == NULL) n->attribute = fri_onnx_block(w, MOST * sizeof *n->attribute);
    Onnx__AttributeProto *a = fri_onnx_block(w, sizeof *a);
    if (a == NULL || n == NULL || n->attribute == NULL || n->n_attribute == MOST) return NULL;
    *a = (Onnx__AttributeProto)ONNX__ATTRIBUTE_PROTO__INIT;
    a->name = (char *)name;
    a->has_type = 1;
    a->type = (Onnx__AttributeProto__AttributeType)type;
    n->attribute[n->n_attribute++] = a;
    return a;
}

void fri_onnx_set_int(fri_onnx_writer *w, node *n, const char *name, int64_t v) {
    Onnx__AttributeProto *a = attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    if (a == NULL) return;
    a->has_i = 1;
    a->i = v;
}

void fri_onnx_set_ints(fri_onnx_writer *w, node *n, const char *name, const int64_t *v, size_t count) {
    Onnx__AttributeProto *a = attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    if (a == NULL || (a->ints = fri_onnx_block(w, count * sizeof *v)) == NULL) return;
    memcpy(a->ints, v, count * sizeof *v);
    a->n_ints = count;
}

void fri_onnx_set_float(fri_onnx_writer *w, node *n, const char *name, double v) {
    Onnx__AttributeProto *a = attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    if (a == NULL) return;
    a->has_f = 1;
    a->f = (float)v;
}

void fri_onnx_set_text(fri_onnx_writer *w, node *n, const char *name, const char *v) {
    Onnx__AttributeProto *a = attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (a == NULL) return;
    a->has_s = 1;
    a->s.data = (uint8_t *)v;
    a->s.len = strlen(v);
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
    fr_status s = FRI_ROOM(w->constant, w->constants, "ONNX constants");
    if (s < 0) fail(w, s);
    if (s < 0) return NULL;
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

const char *fri_onnx_floats(const fri_onnx_writing *l, const char *name, int rank, const int64_t *dim, const float *v) {
    size_t n = 1;
    bool fresh = false;
    for (int i = 0; i < rank; i++) n *= (size_t)dim[i];
    const char *full = fri_onnx_text(l->w, "%s.%s", l->layer->name, name);
    tensor *t = constant(l->w, full, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, rank, dim, n * sizeof *v, &fresh);
    if (fresh) memcpy(t->raw_data.data, v, n * sizeof *v);
    return full;
}

const char *fri_onnx_integers_of(const fri_onnx_writing *l, const char *name, int64_t count, const int64_t *v) {
    bool fresh = false;
    const char *full = fri_onnx_text(l->w, "%s.%s", l->layer->name, name);
    tensor *t =
        constant(l->w, full, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, &count, (size_t)count * sizeof *v, &fresh);
    if (fresh) memcpy(t->raw_data.data, v, (size_t)count * sizeof *v);
    return full;
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
    if (fr_tensor_rank(t) == 4)
        e = (fr_entry){NULL,
                       t,
                       true,
                       fr_tensor_dim(t, 0),
                       fr_tensor_dim(t, 1) * fr_tensor_dim(t, 2),
                       fr_tensor_dim(t, 3)};
    for (size_t i = 0; i < w->entries.n; i++)
        if (w->entries.entry[i].tensor == t) e = w->entries.entry[i];
    const fr_shape as = fr_entry_torch_shape(&e);
    const char *full =
        e.name != NULL ? fri_onnx_text(w, "%s", e.name) : fri_onnx_text(w, "%s.%s", l->layer->name, name);
    bool fresh = false;
    tensor *to = constant(w, full, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, as.rank, as.dim,
                          (size_t)fr_tensor_numel(t) * sizeof(float), &fresh);
    if (fresh && !w->dry) {
        const fr_status s = values(&e, (float *)(void *)to->raw_data.data);
        if (s < 0) fail(w, s);
    }
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
    const fr_net_value v = fri_onnx_written_value(w, value);
    const int at[4] = {0, v.shape.rank == 4 ? 3 : 1, 1, 2}, rank = v.shape.rank;
    Onnx__ValueInfoProto *p = fri_onnx_block(w, sizeof *p);
    Onnx__TypeProto *type = fri_onnx_block(w, sizeof *type);
    Onnx__TypeProto__Tensor *t = fri_onnx_block(w, sizeof *t);
    Onnx__TensorShapeProto *shape = fri_onnx_block(w, sizeof *shape);
    Onnx__TensorShapeProto__Dimension **dims = fri_onnx_block(w, 4 * sizeof *dims);
    Onnx__TensorShapeProto__Dimension *d = fri_onnx_block(w, 4 * sizeof *d);
    if (d == NULL) return NULL;
    *p = (Onnx__ValueInfoProto)ONNX__VALUE_INFO_PROTO__INIT;
    *type = (Onnx__TypeProto)ONNX__TYPE_PROTO__INIT;
    *t = (Onnx__TypeProto__Tensor)ONNX__TYPE_PROTO__TENSOR__INIT;
    *shape = (Onnx__TensorShapeProto)ONNX__TENSOR_SHAPE_PROTO__INIT;
    for (int i = 0; i < rank; i++) {
        d[i] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        d[i].value_case = i == 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                                 : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (i == 0) d[i].dim_param = (char *)"batch";
        if (i > 0) d[i].dim_value = v.shape.dim[at[i]];
        dims[i] = &d[i];
    }
    shape->dim = dims;
    shape->n_dim = (size_t)rank;
    t->has_elem_type = 1;
    t->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->shape = shape;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = t;
    p->name = w->name[value];
    p->type = type;
    return p;
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
