/* list.h - a network as it is kept and run: layers over values. */
#ifndef FRI_NET_LIST_H
#define FRI_NET_LIST_H

#include "net/module.h"

#include <frugal/net.h>

typedef struct fri_net_value {
    fr_dtype dtype; /* of the example, as the shape */
    fr_shape shape;
    int made_by;     /* layer; -1: an input of the network */
    int readers;     /* inputs of layers, and results */
    int last_layer;  /* that reads it; -1: none */
    int last_reader; /* the same; where it is a result of the network, the number of layers */
    fr_channel_piece *piece;
    int pieces;
} fri_net_value;

typedef struct fri_net_layer {
    char *name;        /* NULL: m itself, a module that is no network */
    fr_module *module; /* a reference */
    int *in, *out;     /* one block, `in` first */
    int n_in, n_out;
} fri_net_layer;

typedef struct fri_list {
    fri_net_layer *layer;
    fri_net_value *value; /* those of the inputs come first */
    int *result;          /* values; taps are the last of them */
    int layers, values, results, inputs;
    int64_t prefix_images; /* in a part of the frozen prefix; 0: all at once */
} fri_list;

/* The list of a network; *one is filled and returned for any other module: that module as the only layer, between as
 * many values as it is run with. `one` needs no release and must outlive the use. */
typedef struct fri_one_layer {
    fri_list list;
    fri_net_layer layer;
    fri_net_value value[2];
    int number[2], result;
} fri_one_layer;
const fri_list *fri_list_of(fr_module *m, fri_one_layer *one);
bool fri_is_net(const fr_module *m);

/* A network without layers. */
fr_status fri_net_create(fr_module **out);
fri_list *fri_list_edit(fr_module *net);
/* Values and layers of a definition; ids in *id. A layer takes *m also on failure, and makes n_out new values. */
fr_status fri_list_value(fri_list *l, fr_dtype dtype, const fr_shape *shape, int *id);
fr_status fri_list_layer(fri_list *l, const char *name, fr_module **m, const int *in, int n_in, int *out, int n_out);
fr_status fri_list_result(fri_list *l, int value);

/* Puts *child (taken also on failure) at a dotted path below m; the modules on the way are made where they are
 * missing. */
fr_status fri_module_place(fr_module *m, const char *path, fr_module **child);
/* The module at the path, or NULL; *parent and *at, if not NULL, say where it is. */
fr_module *fri_module_at(fr_module *m, const char *path, fr_module **parent, int *at);

/* ---- cuts.c ---------------------------------------------------------------------------------------------- */

/* Is the value alive between layer at - 1 and layer `at`, for a layer behind to read? */
bool fri_alive(const fri_list *l, int value, int at);
/* Values that layers first .. end - 1 read but do not make, and those they make that are needed behind. Each array has
 * room for l->values; returns how many. */
int fri_reads_of(const fri_list *l, int first, int end, int *value);
int fri_makes_of(const fri_list *l, int first, int end, int *value);

/* Ways to cut a list into units. */
typedef enum fri_partition {
    FRI_UNITS,       /* fr_module_units */
    FRI_CHAIN_UNITS, /* where one value is handed on: before a layer that may run in place, too, but not behind a sum */
    FRI_FINE_UNITS   /* also where several are: not before a layer that may run in place, nor before a norm */
} fri_partition;
/* Units of a module, as fr_module_units. */
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

/* ---- fuse.c: which layers one call can do ---------------------------------------------------------------- */

typedef struct fri_fused {
    int layers; /* 1: nothing is fused */
    bool add, over;
    fri_activation act;
    int addend; /* value */
    int add_layer, act_layer;
} fri_fused;
/* The call that begins with layer i and ends before `end`. */
fri_fused fri_fuse(const fri_list *l, int i, int end);

/* ---- run.c ----------------------------------------------------------------------------------------------- */

/* One pass over a list, or a part of it. */
typedef struct fri_net_pass {
    const fri_list *list;
    fr_tensor **value; /* [values]: what is alive */
} fri_net_pass;
fr_status fri_net_pass_begin(const fri_list *l, fri_net_pass *out);
void fri_net_pass_end(fri_net_pass *p);
/* Layers first .. end - 1; what nobody reads any more is gone afterwards. */
fr_status fri_net_pass_run(fri_net_pass *p, int first, int end);
/* prefix.c: the frozen prefix, where it runs in parts. Layers in front of *end have run; 0: none. border: the layers
 * where it may end; NULL: any. */
fr_status fri_net_pass_prefix(fri_net_pass *p, const int *border, int borders, int *end);
/* Bytes of what is handed on at a cut. */
size_t fri_net_pass_handed(const fri_net_pass *p, int at);

#endif
