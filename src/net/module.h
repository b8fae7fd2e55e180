/* module.h - the module struct. */
#ifndef FRI_NET_MODULE_H
#define FRI_NET_MODULE_H

#include "base/status.h"
#include "ops/batchnorm2d.h"

#include <frugal/nn.h>
#include <frugal/layers.h>

typedef struct fri_named_tensor {
    char *name;
    fr_tensor *tensor;
    bool is_parameter;
} fri_named_tensor;

struct fr_module {
    int references;
    const fr_module_class *class_;
    void *state;
    bool training;
    bool frozen;     /* set by fr_module_freeze: a batch norm uses its running values */
    int evaluations; /* nested evaluations; `trained` saves `training` from before the first */
    bool trained;
    bool inplace_set, inplace; /* if inplace_set, `inplace` overrides the thread's switch while the module runs */
    fr_module **children;
    char **names;
    int n_children;
    fri_named_tensor *tensors;
    int n_tensors;
};

/* True if a batch norm uses the statistics of its batch. */
static inline bool fri_norm_trains(const fr_module *m) {
    return m->training && !m->frozen;
}

/* f32 tensor of category parameter. */
fr_status fri_init_kaiming_normal(fr_tensor *weight, bool fan_out); /* N(0, sqrt(2 / fan)), torch.nn.init */
fr_status fri_parameter_new(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out);

/* Adds a parameter with the path of the module itself, the module's only tensor. Takes *t also on failure. */
fr_status fri_module_add_own(fr_module *m, fr_tensor **t);

/* Additional work of a batch norm in a fused call, as in fri_norm_act, or with parts as in fri_norm_parts. */
typedef struct fri_layer_args {
    fr_tensor **addend;
    fri_activation act;
    fr_tensor *const *part;
    int parts; /* 0: x is whole */
} fri_layer_args;

/* Kinds of layers in the table of fused calls. */
typedef enum fri_layer_kind {
    FRI_LAYER_OTHER,
    FRI_LAYER_CONV2D,
    FRI_LAYER_NORM,
    FRI_LAYER_INPLACE_NORM,
    FRI_LAYER_ADD,
    FRI_LAYER_CONCAT,
    FRI_LAYER_RELU, /* in the order of fri_activation from here on */
    FRI_LAYER_RELU6,
    FRI_LAYER_HARDSWISH,
    FRI_LAYER_SILU
} fri_layer_kind;
typedef struct fri_layer_call {
    fri_layer_kind kind;
    fr_status (*run)(fr_module *m, const fri_layer_args *args, fr_tensor **x); /* NULL: no arguments */
} fri_layer_call;

/* Runs m on *x with "name" (NULL: nothing) appended to the module path. Errors get the path as prefix; FRI_STOP
 * passes unchanged. */
fr_status fri_module_run(fr_module *m, const char *name, fr_tensor **x);
/* Runs a layer with arguments (may be NULL). Classes without a fri_call ignore the arguments. */
fr_status fri_layer_run(fr_module *m, const char *name, const fri_layer_args *args, fr_tensor **x);
/* Runs a layer on any number of slots, like `run` of fr_module_class. */
fr_status fri_layer_run_n(fr_module *m, const char *name, fr_tensor **in, int n_in, fr_tensor **out, int n_out);

/* Sets the thread's unit watch and returns the previous one. fr_checkpoint_plan calls the watch before (done false)
 * and after (done true) each unit, with the values alive before layer `at` (list.h); p is NULL after a failure.
 * Recomputations call the watch too. fn NULL: no watch. */
fri_unit_watch fri_unit_watch_set(fri_unit_watch w);

/* Sets the thread's module watch and returns the previous one. The watch is called when a module's forward ends
 * without error, with the module's path and result x. Recomputations call the watch too. fn NULL: no watch. */
fri_module_watch fri_module_watch_set(fri_module_watch w);
/* Calls the module watch for a layer that ran as part of a fused call. */
void fri_module_ran(fr_module *m, const char *name, const fr_tensor *x);

#endif
