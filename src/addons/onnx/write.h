/* write.h - from a network to an ONNX file: write.c goes through the layers, write_layers.c chooses the nodes of each
 * layer, write_message.c makes nodes and constants. */
#ifndef FRI_ONNX_WRITE_H
#define FRI_ONNX_WRITE_H

#include <frugal/weights.h>

#include "addons/onnx/protobuf.h"

#include <frugal/onnx.h>
#include <frugal/tools.h>

/* Calls do nothing after a failure in `status`. */
typedef struct fri_onnx_writer {
    fr_module *network;
    fr_net_info net;
    fr_entries entries; /* of the module: names and layouts */
    int64_t opset;
    bool dry;   /* no value is read */
    char *info; /* description of the network; NULL: none */
    Onnx__NodeProto **node;
    size_t nodes;
    Onnx__TensorProto **constant;
    size_t constants;
    void **block; /* whatever the messages point to */
    size_t blocks;
    char **name; /* by value */
    fr_status status;
} fri_onnx_writer;

/* A layer: input and output values of the layer's nodes; the table's type, the module's state, and the first input. */
typedef struct fri_onnx_writing {
    fri_onnx_writer *w;
    const fr_layer *layer;
    const char *in[2], *out, *type;
    void *state;
    fr_net_value x;
} fri_onnx_writing;

/* A value of the network. */
fr_net_value fri_onnx_written_value(const fri_onnx_writer *w, int i);

/* ---- write_message.c ------------------------------------------------------------------------------------- */

/* Keeps the first failure. */
void fri_onnx_fail(fri_onnx_writer *w, fr_status s);
/* Zeroed; lives as long as the writer. NULL after a failure. */
void *fri_onnx_block(fri_onnx_writer *w, size_t bytes);
char *fri_onnx_text(fri_onnx_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a node of the type for the layer, with inputs up to the first NULL and at most 8 attributes; NULL after a
 * failure. */
Onnx__NodeProto *fri_onnx_node(const fri_onnx_writing *l, const char *type, const char *const *in, const char *out);
#define FRI_ONNX_NODE(l, type, out, ...) fri_onnx_node((l), (type), (const char *const[]){__VA_ARGS__, NULL}, (out))
void fri_onnx_set_int(fri_onnx_writer *w, Onnx__NodeProto *n, const char *name, int64_t v);
void fri_onnx_set_ints(fri_onnx_writer *w, Onnx__NodeProto *n, const char *name, const int64_t *v, size_t count);
void fri_onnx_set_float(fri_onnx_writer *w, Onnx__NodeProto *n, const char *name, double v);
void fri_onnx_set_text(fri_onnx_writer *w, Onnx__NodeProto *n, const char *name, const char *v);

/* "<layer>.<name>" as a constant, once; returns its name. From a tensor, in the entry's layout or else PyTorch's; or
 * from values. */
const char *fri_onnx_tensor(const fri_onnx_writing *l, const char *name, fr_tensor *t);
const char *fri_onnx_floats(const fri_onnx_writing *l, const char *name, int rank, const int64_t *dim, const float *v);
const char *fri_onnx_integers_of(const fri_onnx_writing *l, const char *name, const int64_t *v, size_t count);

/* Packs the graph with inputs and results into the file. */
fr_status fri_onnx_pack(fri_onnx_writer *w, const char *path);
void fri_onnx_writer_free(fri_onnx_writer *w);

/* ---- write_layers.c -------------------------------------------------------------------------------------- */

/* The layer's nodes. FR_EUNSUPPORTED: none. */
fr_status fri_onnx_write_layer(const fri_onnx_writing *l);

#endif
