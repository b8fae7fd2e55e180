/* list.h - a network in memory: layers over values. */
#ifndef FRI_NET_LIST_H
#define FRI_NET_LIST_H

#include "net/module.h"

#include <frugal/net.h>

typedef struct fri_net_value {
    fr_dtype dtype; /* dtype and shape in the definition's example */
    fr_shape shape;
    int made_by;     /* layer that makes the value; -1: network input */
    int readers;     /* number of layer inputs and network results */
    int last_layer;  /* last layer that reads the value; -1: none */
    int last_reader; /* as last_layer; for network results, the number of layers */
    fr_channel_piece *piece;
    int pieces;
} fri_net_value;

typedef struct fri_net_layer {
    char *name;        /* NULL: the module itself, not part of a network */
    fr_module *module; /* retained */
    int *in, *out;     /* one allocation, `in` first */
    int n_in, n_out;
} fri_net_layer;

typedef struct fri_list {
    fri_net_layer *layer;
    fri_net_value *value; /* inputs come first */
    int *result;          /* values; taps come last */
    int layers, values, results, inputs;
    int64_t prefix_images; /* images per part of the frozen prefix; 0: all at once */
} fri_list;

/* List of a network. For any other module, fills and returns *one: the module as the only layer, between one input
 * and one result. *one must outlive the use and needs no release. */
typedef struct fri_one_layer {
    fri_list list;
    fri_net_layer layer;
    fri_net_value value[2];
    int number[2], result;
} fri_one_layer;
const fri_list *fri_list_of(fr_module *m, fri_one_layer *one);
bool fri_is_net(const fr_module *m);

/* Creates a network without layers. */
fr_status fri_net_create(fr_module **out);
fri_list *fri_list_edit(fr_module *net);
/* Append a value, a layer or a result. *id, out[]: numbers of new values. fri_list_layer takes *m also on failure. */
fr_status fri_list_value(fri_list *l, fr_dtype dtype, const fr_shape *shape, int *id);
fr_status fri_list_layer(fri_list *l, const char *name, fr_module **m, const int *in, int n_in, int *out, int n_out);
fr_status fri_list_result(fri_list *l, int value);

/* Puts *child (taken also on failure) at a dotted path below m and creates missing scopes on the way. */
fr_status fri_module_place(fr_module *m, const char *path, fr_module **child);
/* Module at the path, or NULL. *parent and *at, if not NULL, receive its position. */
fr_module *fri_module_at(fr_module *m, const char *path, fr_module **parent, int *at);

/* ---- cuts.c ---------------------------------------------------------------------------------------------- */

/* True if the value is alive between layers at - 1 and at, because a later layer reads it. */
bool fri_alive(const fri_list *l, int value, int at);
/* fri_reads_of: values that layers first .. end - 1 read but do not make. fri_makes_of: values made by these layers
 * and needed later. Each array needs room for l->values; returns the count. */
int fri_reads_of(const fri_list *l, int first, int end, int *value);
int fri_makes_of(const fri_list *l, int first, int end, int *value);

/* Ways to cut a list into units. */
typedef enum fri_partition {
    FRI_UNITS,       /* fr_module_units */
    FRI_CHAIN_UNITS, /* cuts at a single value, also before in-place layers, but not between a sum and such a layer */
    FRI_FINE_UNITS   /* also cuts at several values, but not before in-place layers or norms */
} fri_partition;
/* Units of a module, as in fr_module_units. */
int fri_units(fr_module *m, fri_partition how, int *first, int n);

/* Kind of layer i in the table of fused calls. */
static inline fri_layer_kind fri_layer_kind_of(const fri_list *l, int i) {
    const fri_layer_call *c = l->layer[i].module->class_->fri_call;
    return c != NULL ? c->kind : FRI_LAYER_OTHER;
}

/* Activation of a layer of kind RELU or of a later kind in fri_layer_kind. */
static inline fri_activation fri_layer_activation(const fri_list *l, int i) {
    return (fri_activation)(fri_layer_kind_of(l, i) - FRI_LAYER_RELU + FRI_ACTIVATION_RELU);
}

/* ---- define.c: a definition's device and rule ---- */

fr_device fri_net_device(const fr_net *n);
fr_net_init_rule fri_net_rule(const fr_net *n);

/* ---- fuse.c -------------------------------------------------------------------------------------------------- */

typedef struct fri_fused {
    int layers;      /* 1: not fused */
    bool add, joins; /* joins: the first layer is a concatenation */
    fri_activation act;
    int addend, add_layer; /* number of the value; layer that adds */
} fri_fused;
/* Finds the longest fused call that begins with layer i and ends before `end`. */
fri_fused fri_fuse(const fri_list *l, int i, int end);

/* ---- run.c ----------------------------------------------------------------------------------------------- */

/* One run over a list or a part of the list. */
typedef struct fri_net_pass {
    const fri_list *list;
    fr_tensor **value; /* [values]; NULL: not alive */
} fri_net_pass;
fr_status fri_net_pass_begin(const fri_list *l, fri_net_pass *out);
void fri_net_pass_end(fri_net_pass *p);
/* Runs layers first .. end - 1 and releases values after their last reader. */
fr_status fri_net_pass_run(fri_net_pass *p, int first, int end);
/* prefix.c: runs the frozen prefix in parts. *end: first layer not run; 0: no prefix was run. border: layers at which
 * the prefix may end; NULL: any. */
fr_status fri_net_pass_prefix(fri_net_pass *p, const int *border, int borders, int *end);
/* Bytes of the values that cross the cut before layer `at`. */
size_t fri_net_pass_handed(const fri_net_pass *p, int at);

#endif
