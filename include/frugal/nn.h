/* nn.h - modules: layers with parameters, and trees of them.
 *
 * A module owns its parameters (leaves that require grad), buffers (running statistics) and children, each under a
 * name; names and order are PyTorch's, so a parameter has the path it has there ("features.0.weight"). A module keeps
 * no activations. Modules are reference-counted and belong to the thread that trains. */
#ifndef FRUGAL_NN_H
#define FRUGAL_NN_H

#include <frugal/autograd.h>
#include <frugal/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_module fr_module;

/* What a kind of module does. forward replaces *x by the result: the old *x dies as soon as nobody needs it, which is
 * what lets activations run in place. A negative status must be passed on at once. */
typedef struct fr_module_class {
    const char *name; /* "Conv2d" */
    fr_status (*forward)(fr_module *m, fr_tensor **x);
    void (*free_state)(void *state); /* for what the state points to, or NULL */
    /* The chain that fr_module_units lists, each unit run on the result of the one before; NULL: the module is one
     * unit, because nobody else knows what its forward does with its children. */
    int (*units)(fr_module *m, fr_module **out, int n);
} fr_module_class;

/* ---- any module ---------------------------------------------------------------------------------------------- */

/* A new module with state_bytes of zeroed state. FR_ENOMEM. */
FR_API fr_status fr_module_create(const fr_module_class *class_, size_t state_bytes, fr_module **out);
FR_API fr_module *fr_module_retain(fr_module *m);
FR_API void fr_module_release(fr_module **m);
FR_API void *fr_module_state(fr_module *m);
FR_API const fr_module_class *fr_module_class_of(const fr_module *m);

/* The module takes the reference in *child / *t and clears it, also on failure. Names are unique within the module, and
 * no module is below itself. */
FR_API fr_status fr_module_add_child(fr_module *m, const char *name, fr_module **child);
FR_API fr_status fr_module_add_parameter(fr_module *m, const char *name, fr_tensor **t); /* becomes a leaf */
FR_API fr_status fr_module_add_buffer(fr_module *m, const char *name, fr_tensor **t);
FR_API fr_module *fr_module_child(fr_module *m, int i); /* borrowed; NULL past the end */
FR_API int fr_module_children(const fr_module *m);
FR_API fr_tensor *fr_module_tensor(fr_module *m, const char *name); /* parameter or buffer by name, borrowed; or NULL */

/* *y = m(x). Runs under the module's name in the module path of reports. Errors name the path. */
FR_API fr_status fr_module_forward(fr_module *m, fr_tensor *x, fr_tensor **y);
/* *x = child(*x) under the child's name: how a composite calls its parts. */
FR_API fr_status fr_module_run_child(fr_module *m, int i, fr_tensor **x);

FR_API void fr_module_train(fr_module *m, bool on); /* this module and all below it; new modules train */
FR_API bool fr_module_training(const fr_module *m);

/* The activations of this module and all below it run in place, or never do, whatever fr_switches.inplace says: as if
 * every ReLU, LeakyReLU and Dropout were made with inplace=True, and functional ones too. In place is what nobody else
 * needs; nothing is overwritten that backward reads, so the results are the same bits. */
FR_API void fr_module_inplace(fr_module *m, bool on);

/* Visits every parameter and buffer below m in PyTorch's state_dict order with its dotted path. Stops at a negative
 * status and returns it. */
typedef fr_status fr_module_tensor_fn(void *ctx, const char *path, fr_tensor *t, bool is_parameter);
FR_API fr_status fr_module_each_tensor(fr_module *m, fr_module_tensor_fn *fn, void *ctx);
FR_API int64_t fr_module_parameter_count(fr_module *m); /* elements of all parameters */
/* Gradients of all parameters are released (torch: zero_grad(set_to_none=True)). */
FR_API void fr_module_zero_grad(fr_module *m);
/* Parameters are replaced by f16, bf16 or f32 copies, frozen where they were; batch norm keeps f32. An optimizer made
 * before would go on with the old ones: convert first. */
FR_API fr_status fr_module_to_dtype(fr_module *m, fr_dtype dtype);

/* ---- layers: PyTorch's names, defaults and initialization ------------------------------------------------------- */

typedef struct fr_conv2d_module_opts {
    fr_conv2d_opts conv;
    bool bias;
} fr_conv2d_module_opts;
#define FR_CONV2D_MODULE_OPTS(...)                       \
    (&(fr_conv2d_module_opts){.conv = {.stride = 1,      \
                                       .stride_w = -1,   \
                                       .padding = 0,     \
                                       .padding_w = -1,  \
                                       .dilation = 1,    \
                                       .dilation_w = -1, \
                                       .groups = 1},     \
                              .bias = true,              \
                              __VA_ARGS__})

/* weight [out, kernel, kernel, in / groups], bias [out]: kaiming uniform with a = sqrt(5), as torch.nn.Conv2d. */
FR_API fr_status fr_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const fr_conv2d_module_opts *opts,
                              fr_device device, fr_module **m);
FR_API fr_status fr_nn_linear(int64_t in, int64_t out, bool bias, fr_device device, fr_module **m);
/* weight [rows, dim] from N(0, 1); i64 indices of any shape become [..., dim]. */
FR_API fr_status fr_nn_embedding(int64_t rows, int64_t dim, fr_device device, fr_module **m);
/* weight 1, bias 0, running_mean 0, running_var 1, num_batches_tracked 0; eps 1e-5, momentum 0.1. */
FR_API fr_status fr_nn_batchnorm2d(int64_t channels, fr_device device, fr_module **m);
/* BatchNorm2d and leaky relu as one (fr_inplace_abn): the same tensors under the same names, and only the output is
 * kept. FR_EINVAL: slope is not > 0. */
FR_API fr_status fr_nn_inplace_abn(int64_t channels, double slope, fr_device device, fr_module **m);
FR_API fr_status fr_nn_relu(fr_module **m);
FR_API fr_status fr_nn_leaky_relu(double slope, fr_module **m);
FR_API fr_status fr_nn_maxpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m);
FR_API fr_status fr_nn_avgpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m);
FR_API fr_status fr_nn_adaptive_avgpool2d(int64_t p, int64_t q, fr_module **m);
FR_API fr_status fr_nn_dropout(double p, fr_module **m);
FR_API fr_status fr_nn_dropout2d(double p, fr_module **m);
FR_API fr_status fr_nn_flatten(int start_dim, fr_module **m);
FR_API fr_status fr_nn_upsample(int64_t factor, fr_upsample_mode mode, fr_module **m);
FR_API fr_status fr_nn_identity(fr_module **m);
/* An empty chain; add children with fr_module_add_child, or unnamed ("0", "1", ...) with fr_nn_append, which refuses a
 * module of another kind (FR_EINVAL). */
FR_API fr_status fr_nn_sequential(fr_module **m);
FR_API fr_status fr_nn_append(fr_module *sequential, fr_module **child);

/* ---- initialization (torch.nn.init), from the thread's generator ------------------------------------------------- */

FR_API fr_status fr_init_kaiming_normal(fr_tensor *weight, bool fan_out); /* N(0, sqrt(2 / fan)) */
FR_API fr_status fr_init_normal(fr_tensor *t, double mean, double std);
FR_API fr_status fr_init_uniform(fr_tensor *t, double low, double high);

/* ---- checkpointing of chains ------------------------------------------------------------------------------------- */

/* The chain of units of a module: a Sequential's children, or what its class lists (VGG: layers; ResNet and DenseNet:
 * stem, blocks, head); any other module is one unit, itself. Writes at most n (0: out may be NULL), borrowed; returns
 * how many there are. */
FR_API int fr_module_units(fr_module *m, fr_module **out, int n);

/* y = m(x) with the chain of units cut into `segments`, all but the last checkpointed: torch.utils.checkpoint's
 * checkpoint_sequential (units / segments each, the last takes the rest). FR_EINVAL: segments < 1 or more than
 * units. */
FR_API fr_status fr_checkpoint_sequential(fr_module *m, int segments, fr_tensor *x, fr_tensor **y);
/* The same with given cuts: segment i is units first[i] .. first[i + 1] - 1, checkpointed where `checkpoint[i]`.
 * first[0] is 0, ascending. */
FR_API fr_status fr_checkpoint_units(fr_module *m, const int *first, const bool *checkpoint, int segments, fr_tensor *x,
                                     fr_tensor **y);

/* ---- a plan for every unit of a chain ------------------------------------------------------------------------- */

/* What becomes of what one unit saves for backward. */
typedef enum fr_unit_option {
    FR_UNIT_AS_SET,  /* as the thread's switches say */
    FR_UNIT_KEEP,    /* whole tensors: encode, rebuild and offload off */
    FR_UNIT_ENCODE,  /* bits and one-byte codes */
    FR_UNIT_INSIDE,  /* encode, and elementwise outputs made inside the unit are made again; its input is kept */
    FR_UNIT_REBUILD, /* encode, and all elementwise outputs are made again, the unit's input too */
    FR_UNIT_OFFLOAD, /* encode, and what is still large goes to the offload file */
    FR_UNIT_REBUILD_OFFLOAD,
    FR_UNIT_OPTIONS
} fr_unit_option;
FR_API const char *fr_unit_option_name(fr_unit_option o); /* "keep" */

/* Units first .. end - 1, of which only the input is kept: they run again in backward. */
typedef struct fr_unit_range {
    int first, end;
} fr_unit_range;

/* Which units are recomputed together, and what each saves when it runs for the last time. Ranges nest: one inside
 * another is recomputed again within the outer one's recomputation. Outer before inner, then by first unit; no two are
 * equal, none overlap in part. */
typedef struct fr_unit_plan {
    int units;
    const fr_unit_option *option; /* [units] */
    int ranges;
    const fr_unit_range *range; /* [ranges] */
} fr_unit_plan;

/* y = m(x) by the plan. The results are those of fr_module_forward, bit for bit. FR_EINVAL: the plan is for another
 * number of units, or its ranges do not nest. */
FR_API fr_status fr_checkpoint_plan(fr_module *m, const fr_unit_plan *plan, fr_tensor *x, fr_tensor **y);

/* ---- cutting a chain ------------------------------------------------------------------------------------------ */

typedef enum fr_segmentation {
    FR_SEGMENTS_COUNT, /* `segments` of them */
    FR_SEGMENTS_SQRT,  /* sqrt(units), rounded: about 2 sqrt(n) units alive, one more forward */
    FR_SEGMENTS_LOG,   /* halves of halves: about log2(n) inputs alive, log2(n) / 2 more forwards on average */
    FR_SEGMENTS_EACH,  /* every unit: its input is kept, one more forward */
} fr_segmentation;

/* The ranges of a plan that cuts a chain of `units` this way; the last part is in no range, it runs plainly (as in
 * checkpoint_sequential). `segments` matters to COUNT only. weight[i] (NULL: all the same) is what unit i costs, in
 * bytes for example: parts are cut so that the heaviest is as light as possible, halves at half the weight. COUNT
 * without weights cuts as PyTorch does: units / segments each, the last takes the rest. `range` has room for `units`.
 * FR_EINVAL: segments < 1 or more than units, units < 1. */
FR_API fr_status fr_unit_segments(fr_segmentation how, int segments, int units, const size_t *weight,
                                  fr_unit_range *range, int *ranges);
/* y = m(x) cut this way. */
FR_API fr_status fr_checkpoint_segments(fr_module *m, fr_segmentation how, int segments, const size_t *weight,
                                        fr_tensor *x, fr_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
