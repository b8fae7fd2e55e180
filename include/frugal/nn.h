/* nn.h - modules: layers with parameters, in trees.
 *
 * A module owns its parameters (leaves that require grad), buffers (running statistics) and children, each under a
 * name; names, order and parameter paths ("features.0.weight") are PyTorch's. A module keeps no activations.
 * Modules are reference-counted and belong to the training thread. */
#ifndef FRUGAL_NN_H
#define FRUGAL_NN_H

#include <frugal/autograd.h>
#include <frugal/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_module fr_module;

/* Traits of a class of layers. */
enum {
    FR_LAYER_POINTWISE = 1,    /* elementwise, with the first input's shape: the layer may run in place */
    FR_LAYER_KEEPS_LAYOUT = 2, /* channel i of the result is made of channel i of the first input */
    FR_LAYER_FLATTENS = 4,     /* merges all dimensions but the first */
    FR_LAYER_CONCATENATES = 8, /* concatenates the inputs' channels */
    FR_LAYER_COLUMNS = 16,     /* "weight" is [out, in], with columns for the last dimension of the first input */
    FR_LAYER_KEEPS_F32 = 32,   /* a norm, whose tensors fr_module_to_dtype leaves alone */
    FR_LAYER_PER_IMAGE = 64,   /* image i of each result (dimension 0) is made of image i of the inputs alone */
    FR_LAYER_CASTS = 128,      /* reads the input only in the low type under autocast */
    FR_LAYER_MOVES = 256,      /* takes channels to other places */
};

/* Functions of a kind of module: either forward or run. Both must read the tensors through the module at each call, and
 * pass on a negative status at once. */
typedef struct fr_module_class {
    const char *name; /* "Conv2d" */
    /* Replaces *x by the result. The old *x dies without further readers, so activations can run in place. */
    fr_status (*forward)(fr_module *m, fr_tensor **x);
    void (*free_state)(void *state); /* frees members of the state, or NULL */
    /* Runs a module with several inputs or results: run may take or release the references in the slots in[i], and
     * fills out[0..n_out), NULL at entry. */
    fr_status (*run)(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out);
    unsigned traits;                       /* FR_LAYER_... */
    const struct fri_layer_call *fri_call; /* private: part of the layer in a fused call */
} fr_module_class;

/* ---- any module ---------------------------------------------------------------------------------------------- */

/* A new module with state_bytes of zeroed state. FR_ENOMEM. */
FR_API fr_status fr_module_create(const fr_module_class *class_, size_t state_bytes, fr_module **out);
FR_API fr_module *fr_module_retain(fr_module *m);
FR_API void fr_module_release(fr_module **m);
FR_API void *fr_module_state(fr_module *m);
FR_API const fr_module_class *fr_module_class_of(const fr_module *m);

/* The module takes the reference in *child or *t and clears the pointer, also on failure. Names are unique within a
 * module, and the tree has no cycle. */
FR_API fr_status fr_module_add_child(fr_module *m, const char *name, fr_module **child);
FR_API fr_status fr_module_add_parameter(fr_module *m, const char *name, fr_tensor **t); /* becomes a leaf */
FR_API fr_status fr_module_add_buffer(fr_module *m, const char *name, fr_tensor **t);
FR_API fr_module *fr_module_child(fr_module *m, int i);             /* borrowed; NULL past the end */
FR_API fr_tensor *fr_module_tensor(fr_module *m, const char *name); /* parameter or buffer by name, borrowed; or NULL */

/* *y = m(x). Runs under the module's name in the module path of reports. Errors name the path. */
FR_API fr_status fr_module_forward(fr_module *m, fr_tensor *x, fr_tensor **y);
/* Runs a module with several inputs or results. n_out may be less than the number of results: further results are
 * dropped. FR_EINVAL: a wrong number. */
FR_API fr_status fr_module_forward_n(fr_module *m, fr_tensor *const *x, int n_in, fr_tensor **y, int n_out);
/* *x = child(*x) under the child's name: call of a composite's part. */
FR_API fr_status fr_module_run_child(fr_module *m, int i, fr_tensor **x);

FR_API void fr_module_train(fr_module *m, bool on); /* the module and all below; new modules train */
FR_API bool fr_module_training(const fr_module *m);
/* Puts m and all modules below m into eval mode; end restores the mode of each module. Calls nest. */
FR_API void fr_module_evaluation_begin(fr_module *m);
FR_API void fr_module_evaluation_end(fr_module *m);

/* Freezes or unfreezes the layers that the dotted prefix names ("layer1", "layer1.0.bn1", "fc.bias"; NULL or "": all of
 * m). Frozen parameters lose their gradient and get none; frozen batch norms normalize with running values, unchanged
 * (torchvision's FrozenBatchNorm2d). A prefix of a single parameter does not freeze the parameter's batch norm.
 * fr_module_train, evaluations, conversions and loaded states do not change freezing; later calls override earlier
 * calls, which makes "all but the biases" two kinds of calls. New modules train.
 *
 * Frozen layers keep no tensors for backward and get no gradient: a convolution or batch norm keeps the input only if a
 * weight trains. Call between two steps. An optimizer updates training parameters only, drops the state of frozen
 * parameters at the next step, and starts unfrozen parameters with new state. FR_EINVAL: an unknown name; the sentence
 * suggests near names. FR_EUSAGE: a live graph leads to a named parameter. */
FR_API fr_status fr_module_freeze(fr_module *m, const char *prefix, bool on);
/* Number of elements of training parameters; at most fr_module_parameter_count. */
FR_API int64_t fr_module_trained_count(fr_module *m);

/* Makes activations of the module and all below run in place, or never, regardless of fr_switches.inplace: as
 * inplace=True of every ReLU, LeakyReLU and Dropout, functional calls included. Only values without further readers are
 * overwritten, so results have equal bits. */
FR_API void fr_module_inplace(fr_module *m, bool on);

/* Visits every parameter and buffer below m in PyTorch's state_dict order with its dotted path. Stops at a negative
 * status and returns it. */
typedef fr_status fr_module_tensor_fn(void *ctx, const char *path, fr_tensor *t, bool is_parameter);
FR_API fr_status fr_module_each_tensor(fr_module *m, fr_module_tensor_fn *fn, void *ctx);
/* Copies every parameter and buffer of `from` to the equal path of m (load_state_dict); devices and element types may
 * differ. FR_ESHAPE, FR_EINVAL name the first missing path or wrong shape, and change nothing. To refresh a copy for
 * inference while `from` trains, call between two steps. */
FR_API fr_status fr_module_copy_from(fr_module *m, fr_module *from);
FR_API int64_t fr_module_parameter_count(fr_module *m); /* elements of all parameters */
/* Gradients of all parameters are released (torch: zero_grad(set_to_none=True)). */
FR_API void fr_module_zero_grad(fr_module *m);
/* Replaces parameters by f16, bf16 or f32 copies, frozen as before; batch norm keeps f32. Convert before creating the
 * optimizer, which would otherwise update the old parameters. */
FR_API fr_status fr_module_to_dtype(fr_module *m, fr_dtype dtype);

/* ---- initialization (torch.nn.init), from the thread's generator ------------------------------------------------- */

FR_API fr_status fr_init_normal(fr_tensor *t, double mean, double std);
FR_API fr_status fr_init_uniform(fr_tensor *t, double low, double high);

#ifdef __cplusplus
}
#endif
#endif
