/* reader.h - an ONNX file on its way to a network.
 *
 * message.c reads the file, tensor.c its constants, names.c says what layers are called; read.c goes through the nodes:
 * what reads constants only is computed (fold_constants.c), all else becomes layers (layers.c, layers_*.c); the
 * finished network's parameters get their values in weights.c. Activations are [N, H, W, C] in the network and
 * [N, C, H, W] in all comments here. */
#ifndef FRI_ONNX_READER_H
#define FRI_ONNX_READER_H

#include "addons/onnx/protobuf.h"
#include "net/layers.h"

#include <frugal/onnx.h>
#include <frugal/tools.h>

enum {
    FRI_ONNX_RANK = 8,
    FRI_ONNX_NAME = 200,
    FRI_ONNX_MOST_NODES = 10000,
    FRI_ONNX_MOST_FOLDED = 1 << 16,
    FRI_ONNX_MOST_COMPUTED = 1 << 29
};

/* A constant, row-major as in the file; integers are i64, numbers f32. */
typedef struct fri_onnx_constant {
    fr_dtype dtype;
    int rank;
    int64_t dim[FRI_ONNX_RANK], n;
    const void *data; /* may be unaligned */
    void *own;        /* external data */
    const char *name; /* of the initializer; NULL: computed */
} fri_onnx_constant;

/* A value of the graph: a constant, an activation, or (neither) not made yet. */
typedef struct fri_onnx_value {
    const char *name;
    fri_onnx_constant *constant;
    fr_value x;          /* id -1: no activation */
    bool last;           /* channels last in the file: a Transpose's result, equal to x */
    int64_t pad[2];      /* zeros around x's height and width from a Pad node, for the next layer */
    int readers, reader; /* readers of the value; a reading node, -1: none */
} fri_onnx_value;

/* Initial values of a parameter. */
typedef struct fri_onnx_fill {
    char name[FRI_ONNX_NAME + 16];
    const fri_onnx_constant *from;
} fri_onnx_fill;

typedef struct fri_onnx_reader {
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;
    const char *path;
    fr_onnx_opts opts;
    int64_t opset, batch;  /* batch: dimension 0 of the example */
    int64_t computed;      /* elements of constants that nodes computed */
    fri_onnx_value *value; /* sorted by name */
    size_t values;
    fri_onnx_constant **constant;
    size_t constants;
    char (*name)[FRI_ONNX_NAME]; /* of each node's layer */
    bool *again;                 /* by node: repeats an earlier layer */
    bool *done;                  /* by node: fused into an earlier node */
    fr_net *net;
    int inputs; /* the network's first values */
    fri_onnx_fill *fill;
    size_t fills;
    char part[2][FRI_ONNX_NAME + 16]; /* of fri_onnx_part */
    int parts;
} fri_onnx_reader;

/* A node on the way to a layer, and an input of the node. */
typedef struct fri_onnx_reading {
    fri_onnx_reader *r;
    fr_net *net;
    const Onnx__NodeProto *n;
    const char *name;   /* of the layer */
    int at, end;        /* the node; the node with the layer's result, the last of a chain */
    bool again, last;   /* an earlier layer is repeated; the result has channels last in the file */
    fri_onnx_value *in; /* the input, with the activation x */
    fr_value x;
    int rank;
    int64_t dim[FR_MAX_RANK], channels, numel; /* of x, [N, C, H, W] or [N, C] */
} fri_onnx_reading;

/* ---- message.c ------------------------------------------------------------------------------------------- */

/* *model is freed with onnx__model_proto__free_unpacked. FR_EIO, FR_EFORMAT, FR_ENOMEM. */
fr_status fri_onnx_message_read(const char *path, Onnx__ModelProto **model);
/* Reads *model from bytes. */
fr_status fri_onnx_message_parse(const uint8_t *data, size_t n, Onnx__ModelProto **model);

/* ---- load.c ---------------------------------------------------------------------------------------------- */

/* fr_network_file.info: the metadata "frugal.network". */
fr_status fri_onnx_info_text(const char *path, char **text);

/* ---- tensor.c -------------------------------------------------------------------------------------------- */

/* A new constant of the reader for n elements of the type, with shape [n]; *out is borrowed. */
fr_status fri_onnx_constant_new(fri_onnx_reader *r, fr_dtype dtype, int64_t n, fri_onnx_constant **out);
/* A new constant with the shape of a constant. */
fr_status fri_onnx_constant_like(fri_onnx_reader *r, fr_dtype dtype, const fri_onnx_constant *c,
                                 fri_onnx_constant **out);
/* Reads a message's tensor as a constant. External data come from files beside r->path. */
fr_status fri_onnx_tensor_read(fri_onnx_reader *r, const Onnx__TensorProto *t, fri_onnx_constant **out);
int64_t fri_onnx_int(const fri_onnx_constant *c, int64_t i);
double fri_onnx_float(const fri_onnx_constant *c, int64_t i);

/* ---- read.c: nodes --------------------------------------------------------------------------------------- */

/* Is the word among the words between blanks? */
bool fri_onnx_in_words(const char *words, const char *word);
/* FR_EFORMAT: an attribute of a wrong type. */
fr_status fri_onnx_check_attributes(const Onnx__NodeProto *n);
/* The attribute of the name, or NULL. */
const Onnx__AttributeProto *fri_onnx_attribute(const Onnx__NodeProto *n, const char *name);
int64_t fri_onnx_attribute_int(const Onnx__NodeProto *n, const char *name, int64_t otherwise);
/* The intended decimal: 0.9 for 0.899999976. */
double fri_onnx_attribute_float(const Onnx__NodeProto *n, const char *name, double otherwise);
double fri_onnx_decimal(float v);
const char *fri_onnx_attribute_text(const Onnx__NodeProto *n, const char *name, const char *otherwise, char text[64]);
/* Integers of input `at` (a constant) or, in older opsets, of the attribute; *count 0: neither. FR_EUNSUPPORTED: no
 * constant, or more than `most`. */
fr_status fri_onnx_integers(fri_onnx_reader *r, const Onnx__NodeProto *n, size_t at, const char *name, int64_t *out,
                            int most, int *count);

/* Number of results, and the name of result i: the file's, or the program's choice. */
int fri_onnx_results(const fri_onnx_reader *r);
const char *fri_onnx_result(const fri_onnx_reader *r, int i);
/* Input i; NULL: none (or an empty name). */
fri_onnx_value *fri_onnx_input(fri_onnx_reader *r, const Onnx__NodeProto *n, size_t i);
/* The value of the name; NULL: none. */
fri_onnx_value *fri_onnx_value_find(fri_onnx_reader *r, const char *name);
/* The value of result 0; NULL: none. */
fri_onnx_value *fri_onnx_made(fri_onnx_reader *r, const Onnx__NodeProto *n);
/* Fills the input's members with input i of the node, an activation. takes: values with padding, or with channels last,
 * too; images alone. */
enum { FRI_ONNX_PADS = 1, FRI_ONNX_LAST = 2, FRI_ONNX_IMAGES = 4 };
fr_status fri_onnx_fetch(fri_onnx_reading *l, const Onnx__NodeProto *n, size_t i, unsigned takes);
fr_status fri_onnx_constant_input(fri_onnx_reader *r, const Onnx__NodeProto *n, size_t i,
                                  const fri_onnx_constant **out);
/* True for a Transpose that takes the channels to the end of a shape, or back to place 1. */
bool fri_onnx_turns(fri_onnx_reader *r, int at, bool to_first);
/* The number of a constant input i; NaN: none. */
double fri_onnx_number(fri_onnx_reader *r, const Onnx__NodeProto *n, size_t i);
/* The bounds of a Clip; NaN: computed. */
void fri_onnx_bounds(fri_onnx_reader *r, const Onnx__NodeProto *n, double *low, double *high);
/* The shape of a Reshape's result; false: unknown. `have` is the input's in the file's order. */
bool fri_onnx_new_shape(fri_onnx_reader *r, const Onnx__NodeProto *n, int rank, const int64_t *have, int64_t *to,
                        int *to_rank);
/* The rank of an activation, and dimension i in the file's order. */
int fri_onnx_rank(const fri_onnx_reader *r, fr_value x);
int64_t fri_onnx_dim(const fri_onnx_reader *r, fr_value x, int i);
/* Sets result 0 of node l->end to y, in the channel order l->last; returns the failure of a failed definition. */
fr_status fri_onnx_put(fri_onnx_reading *l, fr_value y);
fr_status fri_onnx_put_constant(fri_onnx_reader *r, const Onnx__NodeProto *n, fri_onnx_constant *c);
/* Computes the constants among the nodes after `at` and before `end` that read known values. */
fr_status fri_onnx_constants_before(fri_onnx_reader *r, int at, int end);
/* The only reader of the node's result 0, if of the type; -1: none. */
int fri_onnx_next(fri_onnx_reader *r, int node, const char *op);
/* Follows nodes by type, NULL at the end, each the only reader of the node before, into part[]; returns the last, -1:
 * none. */
int fri_onnx_chain(fri_onnx_reader *r, int node, const char *const *ops, int *part);
/* Is the node's layer a second node's, too? */
bool fri_onnx_shared(const fri_onnx_reader *r, int node);

/* ---- fold_constants.c ------------------------------------------------------------------------------------ */

/* Computes a node with constant inputs (or Shape or Size of an activation). */
fr_status fri_onnx_fold(fri_onnx_reader *r, const Onnx__NodeProto *n);

/* ---- layers.c, layers_*.c -------------------------------------------------------------------------------- */

typedef fr_status fri_onnx_make(fri_onnx_reading *l);
fri_onnx_make fri_onnx_conv, fri_onnx_conv_transpose, fri_onnx_gemm, fri_onnx_matmul, fri_onnx_norm; /* weights.c */
/* layers_last.c */
fri_onnx_make fri_onnx_transpose, fri_onnx_layer_norm, fri_onnx_written_norm, fri_onnx_group_norm;
/* A group norm that begins at the Reshape; FR_END: none. */
fr_status fri_onnx_written_group_norm(fri_onnx_reading *l, int64_t groups);
/* Add, Sub, Mul or Div with a constant, the given input. */
fr_status fri_onnx_by_constant(fri_onnx_reading *l, size_t constant);
fri_onnx_make fri_onnx_prelu, fri_onnx_split, fri_onnx_slice, fri_onnx_gather, fri_onnx_reshape, fri_onnx_unsqueeze;
fri_onnx_make fri_onnx_pool, fri_onnx_global_pool, fri_onnx_reduce_mean, fri_onnx_pad, fri_onnx_resize;
/* Zeros around height and width, begin before end, of explicit pads and of auto_pad. */
fr_status fri_onnx_pads(const fri_onnx_reading *l, const int64_t kernel[2], const int64_t stride[2],
                        const int64_t dilation[2], int64_t pad[4]);
/* seen[i]: input 1 or the attribute "axes" names axis i of 4. */
fr_status fri_onnx_axes(const fri_onnx_reading *l, bool seen[4], int *count);
/* Channels to pixels (up) or back, CRD as in PyTorch's pixel shuffle, or DCR, ONNX's default. */
fr_value fri_onnx_depth(fri_onnx_reading *l, int64_t factor, bool up, bool dcr);
/* Sets result 0 to x, with padding; flattens x to rows. */
fri_onnx_make fri_onnx_same, fri_onnx_flat;
/* The layer for a node; `name` as in fri_onnx_reader. */
fr_status fri_onnx_layer(fri_onnx_reader *r, int node);

/* ---- names.c --------------------------------------------------------------------------------------------- */

/* Fills r->name and r->again. */
fr_status fri_onnx_name_nodes(fri_onnx_reader *r);
/* The node's name with an ending, for several layers of a node. The text lives until the second call after. */
const char *fri_onnx_part(const fri_onnx_reading *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- weights.c ------------------------------------------------------------------------------------------- */

/* "<layer>.<parameter>" gets the constant's values, owned by the reader. */
fr_status fri_onnx_fill_later(fri_onnx_reader *r, const char *layer, const char *parameter,
                              const fri_onnx_constant *from);
/* The layer repeated on x. */
fr_value fri_onnx_again(const fri_onnx_reading *l, fr_value x);
/* Puts y, the result of a layer; a new layer gets weight, bias, running mean and variance. NULL: none. */
fr_status fri_onnx_filled(fri_onnx_reading *l, fr_value y, const fri_onnx_constant *const c[4]);
fr_status fri_onnx_fill_all(const fri_onnx_reader *r, fr_module *m);

/* ---- read.c ---------------------------------------------------------------------------------------------- */

/* The network of r->model. */
fr_status fri_onnx_build(fri_onnx_reader *r, fr_module **m);
void fri_onnx_reader_free(fri_onnx_reader *r);

#endif
