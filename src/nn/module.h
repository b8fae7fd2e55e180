/* module.h - the module struct. */
#ifndef FRI_NN_MODULE_H
#define FRI_NN_MODULE_H

#include "autograd/node.h"
#include "base/status.h"

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
    fr_module **children;
    char **names;
    int n_children, child_capacity;
    fri_named_tensor *tensors;
    int n_tensors, tensor_capacity;
};

/* f32 tensor of category parameter. */
fr_status fri_parameter_new(int rank, const int64_t *shape, fr_dtype dtype, fr_device device, fr_tensor **out);

/* Runs m on *x with "name" appended to the module path; errors get the path in front, the checkpoint's stop does not.
 */
fr_status fri_module_run(fr_module *m, const char *name, fr_tensor **x);

#endif
