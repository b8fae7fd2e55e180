/* module.h - the module struct. */
#ifndef FRI_NN_MODULE_H
#define FRI_NN_MODULE_H

#include "base/status.h"
#include "ops/batchnorm2d.h"

#include <frugal/nn.h>

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
    int evaluations; /* begun and not ended; `trained` is what training was before the first of them */
    bool trained;
    bool inplace_set, inplace; /* set: the second holds while it runs, not the thread's switch */
    fr_module **children;
    char **names;
    int n_children, child_capacity;
    fri_named_tensor *tensors;
    int n_tensors, tensor_capacity;
};

/* f32 tensor of category parameter. */
fr_status fri_parameter_new(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out);

/* Runs m on *x with "name" appended to the module path; errors get the path in front, the checkpoint's stop does
 * not. */
fr_status fri_module_run(fr_module *m, const char *name, fr_tensor **x);

/* What a layer is told beside its input; every field may be NULL. */
typedef struct fri_layer_args {
    const fr_module *next;     /* the only reader of its result */
    fr_tensor **sums;          /* a convolution leaves its sums here for a norm that is next; a norm takes them */
    const fri_norm_tail *tail; /* of a batch norm */
} fri_layer_args;

/* fri_module_run with arguments: a convolution and the norms use them, everything else ignores them. */
fr_status fri_layer_run(fr_module *m, const char *name, const fri_layer_args *args, fr_tensor **x);
/* A layer's class: does it take a tail, is it a relu? */
bool fri_layer_takes_tail(const fr_module *m);
bool fri_layer_is_relu(const fr_module *m);

/* The forward of convolution or norm with arguments; *ran is false, and nothing was done, for other classes. */
fr_status fri_layer_forward(fr_module *m, const fri_layer_args *args, fr_tensor **x, bool *ran);

/* Runs all children, one on the result of the other: a convolution hands its sums to a norm behind it, batch norm and a
 * relu behind it are one call. The tail, or NULL, is that of the last child, a batch norm. */
fr_status fri_module_run_chain(fr_module *m, const fri_norm_tail *tail, fr_tensor **x);
fr_status fri_module_run_children(fr_module *m, fr_tensor **x); /* without a tail: the forward of chains */

/* Runs a unit of `whole` (fr_module_units) under its path. */
fr_status fri_unit_run(fr_module *whole, fr_module *unit, const fri_layer_args *args, fr_tensor **x);

/* Between them m and all below it are in eval mode; then each is in the mode it was in. */
void fri_module_evaluation_begin(fr_module *m);
void fri_module_evaluation_end(fr_module *m);

enum { FRI_MAX_UNITS = 4096 };

/* Who is told when fr_checkpoint_plan runs a unit, on this thread: before it (done false, x its input) and after it
 * (done true, x its result, NULL after a failure), also in recomputations. */
typedef struct fri_unit_watch {
    void (*fn)(void *ctx, int unit, bool done, const fr_tensor *x);
    void *ctx;
} fri_unit_watch;
/* Returns the one before, to be put back; fn NULL: nobody. */
fri_unit_watch fri_unit_watch_set(fri_unit_watch w);

/* Who is told when a module's forward is over, on this thread: under the module's path, x its result; not after a
 * failure. Recomputations too. */
typedef struct fri_module_watch {
    void (*fn)(void *ctx, const fr_module *m, const fr_tensor *x);
    void *ctx;
} fri_module_watch;
/* Returns the one before, to be put back; fn NULL: nobody. */
fri_module_watch fri_module_watch_set(fri_module_watch w);
/* Tells that one: the child m of this name was part of a call that ran several. */
void fri_module_ran(fr_module *m, const char *name, const fr_tensor *x);

#endif
