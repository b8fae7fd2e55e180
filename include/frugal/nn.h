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

/* Traits of a class of layers. */
enum {
    FR_LAYER_POINTWISE = 1, /* the result has the first input's shape, and each element comes from those at its place:
                                * such a layer may run in place */
    FR_LAYER_KEEPS_LAYOUT = 2, /* channel i of the result is made of channel i of the first input */
    FR_LAYER_FLATTENS = 4,     /* all dimensions but the first become one */
    FR_LAYER_CONCATENATES = 8, /* the channels of the inputs, one after the other */
    FR_LAYER_COLUMNS = 16,     /* "weight" is [out, in]: its columns are the last dimension of the first input */
    FR_LAYER_KEEPS_F32 = 32,   /* fr_module_to_dtype leaves its tensors alone: it normalizes */
    FR_LAYER_PER_IMAGE = 64,   /* image i of each result (dimension 0) is made of image i of the inputs alone */
    FR_LAYER_CASTS = 128,      /* under autocast it reads its input in the low type only */
};

/* Functions of a kind of module: one of forward and run, which must read its tensors through the module each time. A
 * negative status must be passed on at once. */
typedef struct fr_module_class {
    const char *name; /* "Conv2d" */
    /* Replaces *x by the result: the old *x dies as soon as nobody needs it, which is what lets activations run in
     * place. */
    fr_status (*forward)(fr_module *m, fr_tensor **x);
    void (*free_state)(void *state); /* for what the state points to, or NULL */
    /* Runs a module with several inputs or results: in[i] are slots with a reference each, which run may take or
     * release; it fills out[0..n_out), NULL at entry. */
    fr_status (*run)(fr_module *m, fr_tensor **in, int n_in, fr_tensor **out, int n_out);
    unsigned traits;                       /* FR_LAYER_... */
    const struct fri_layer_call *fri_call; /* the library's own: what such a layer can do as part of a fused call */
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
/* Runs a module with several inputs or results. n_out may be less than the number of results: further results are
 * dropped. FR_EINVAL: another number than the module has. */
FR_API fr_status fr_module_forward_n(fr_module *m, fr_tensor *const *x, int n_in, fr_tensor **y, int n_out);
/* *x = child(*x) under the child's name: how a composite calls its parts. */
FR_API fr_status fr_module_run_child(fr_module *m, int i, fr_tensor **x);

FR_API void fr_module_train(fr_module *m, bool on); /* this module and all below it; new modules train */
FR_API bool fr_module_training(const fr_module *m);
/* Puts m and all modules below m into eval mode; end restores the mode of each module. Calls nest. */
FR_API void fr_module_evaluation_begin(fr_module *m);
FR_API void fr_module_evaluation_end(fr_module *m);

/* Freezes or unfreezes the layers that the dotted prefix names ("layer1", "layer1.0.bn1", "fc.bias"; NULL or "": all of
 * m) is frozen, or trains again: its parameters want no gradient, and lose the one they have; its batch norms normalize
 * with their running values and leave them as they are (torchvision's FrozenBatchNorm2d). A prefix that names one
 * parameter leaves the batch norm that it is of as it was. Whatever fr_module_train says, evaluations, conversions and
 * loaded states leave it so; a later call goes over an earlier one, so "all but the biases" is two kinds of calls. New
 * modules train.
 *
 * For what is frozen nothing is kept for backward and no gradient is made: a convolution and a batch norm keep their
 * input only if a weight of theirs trains. Between two steps, with an optimizer: it updates what trains, keeps no state
 * for what is frozen (what it had goes at its next step), and begins anew with what trains again, as with a new
 * parameter. FR_EINVAL: nothing has that name; the sentence names near ones. FR_EUSAGE: a graph is alive that leads to
 * one of them. */
FR_API fr_status fr_module_freeze(fr_module *m, const char *prefix, bool on);
/* Elements of the parameters that train, of fr_module_parameter_count. */
FR_API int64_t fr_module_trained_count(fr_module *m);

/* The activations of this module and all below it run in place, or never do, whatever fr_switches.inplace says: as if
 * every ReLU, LeakyReLU and Dropout were made with inplace=True, and functional ones too. In place is what nobody else
 * needs; nothing is overwritten that backward reads, so the results are the same bits. */
FR_API void fr_module_inplace(fr_module *m, bool on);

/* Visits every parameter and buffer below m in PyTorch's state_dict order with its dotted path. Stops at a negative
 * status and returns it. */
typedef fr_status fr_module_tensor_fn(void *ctx, const char *path, fr_tensor *t, bool is_parameter);
FR_API fr_status fr_module_each_tensor(fr_module *m, fr_module_tensor_fn *fn, void *ctx);
/* Every parameter and buffer of m becomes what the one of the same path of `from` is (load_state_dict); devices and
 * element types may differ. FR_ESHAPE, FR_EINVAL name the first path that is missing or has another shape; then nothing
 * has changed. For a copy that infers while `from` trains: call it between two steps. */
FR_API fr_status fr_module_copy_from(fr_module *m, fr_module *from);
FR_API int64_t fr_module_parameter_count(fr_module *m); /* elements of all parameters */
/* Gradients of all parameters are released (torch: zero_grad(set_to_none=True)). */
FR_API void fr_module_zero_grad(fr_module *m);
/* Parameters are replaced by f16, bf16 or f32 copies, frozen where they were; batch norm keeps f32. An optimizer made
 * before would go on with the old ones: convert first. */
FR_API fr_status fr_module_to_dtype(fr_module *m, fr_dtype dtype);

/* ---- layers: PyTorch's names, defaults and initialization ------------------------------------------------------- */

typedef struct fr_conv2d_module_opts {
    fr_conv2d_opts conv FR_DEFAULT({});
    bool bias FR_DEFAULT(true);
} fr_conv2d_module_opts;
#define FR_CONV2D_MODULE_DEFAULTS  .conv = {FR_CONV2D_DEFAULTS}, .bias = true
#define FR_CONV2D_MODULE_OPTS(...) FR_OPTS(fr_conv2d_module_opts, FR_CONV2D_MODULE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_conv2d_module_opts, FR_CONV2D_MODULE_OPTS())

/* weight [out, kernel, kernel, in / groups], bias [out]: kaiming uniform with a = sqrt(5), as torch.nn.Conv2d. */
FR_API fr_status fr_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const fr_conv2d_module_opts *opts,
                              fr_device device, fr_module **m);
/* weight [in, kernel, kernel, out / groups], bias [out], as torch.nn.ConvTranspose2d. */
FR_API fr_status fr_nn_conv_transpose2d(int64_t in, int64_t out, int64_t kernel, const fr_conv_transpose2d_opts *opts,
                                        bool bias, fr_device device, fr_module **m);
/* Linear layer over the last dimension. weight [out, in], bias [out]. */
FR_API fr_status fr_nn_linear(int64_t in, int64_t out, bool bias, fr_device device, fr_module **m);
/* weight [rows, dim] from N(0, 1); i64 indices of any shape become [..., dim]. */
FR_API fr_status fr_nn_embedding(int64_t rows, int64_t dim, fr_device device, fr_module **m);
/* weight 1, bias 0, running_mean 0, running_var 1, num_batches_tracked 0; eps 1e-5, momentum 0.1. */
FR_API fr_status fr_nn_batchnorm2d(int64_t channels, fr_device device, fr_module **m);
/* BatchNorm2d and leaky relu as one (fr_inplace_abn): the same tensors under the same names, and only the output is
 * kept. FR_EINVAL: slope is neither > 0 nor FR_ABN_ELU. */
FR_API fr_status fr_nn_inplace_abn(int64_t channels, double slope, fr_device device, fr_module **m);
/* weight 1, bias 0 [channels]: fr_group_norm of images, fr_layer_norm over the last dimension. FR_EINVAL: groups does
 * not divide channels. */
FR_API fr_status fr_nn_group_norm(int64_t channels, int64_t groups, double eps, fr_device device, fr_module **m);
FR_API fr_status fr_nn_layer_norm(int64_t channels, double eps, fr_device device, fr_module **m);
/* x times a factor per channel, all of them `init` at first (Touvron et al. 2021). Its one parameter, [channels, 1, 1]
 * as torchvision's, has the layer's own path: "features.1.0.layer_scale". */
FR_API fr_status fr_nn_layer_scale(int64_t channels, double init, fr_device device, fr_module **m);
FR_API fr_status fr_nn_relu(fr_module **m);
FR_API fr_status fr_nn_relu6(fr_module **m);
FR_API fr_status fr_nn_leaky_relu(double slope, fr_module **m);
FR_API fr_status fr_nn_sigmoid(fr_module **m);
FR_API fr_status fr_nn_tanh(fr_module **m);
FR_API fr_status fr_nn_silu(fr_module **m);
FR_API fr_status fr_nn_hardsigmoid(fr_module **m);
FR_API fr_status fr_nn_hardswish(fr_module **m);
FR_API fr_status fr_nn_gelu(fr_module **m);
FR_API fr_status fr_nn_gelu_tanh(fr_module **m);
FR_API fr_status fr_nn_clamp(double low, double high, fr_module **m); /* torch.clamp; Hardtanh */
/* Softmax over the last dimension: PyTorch's dim=1 of images and rows. */
FR_API fr_status fr_nn_softmax(fr_module **m);
FR_API fr_status fr_nn_log_softmax(fr_module **m);
FR_API fr_status fr_nn_maxpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m);
FR_API fr_status fr_nn_avgpool2d(int64_t kernel, const fr_pool2d_opts *opts, fr_module **m);
FR_API fr_status fr_nn_adaptive_avgpool2d(int64_t p, int64_t q, fr_module **m);
FR_API fr_status fr_nn_dropout(double p, fr_module **m);
FR_API fr_status fr_nn_dropout2d(double p, fr_module **m);
FR_API fr_status fr_nn_stochastic_depth(double p, fr_module **m); /* whole images */
FR_API fr_status fr_nn_flatten(int start_dim, fr_module **m);
FR_API fr_status fr_nn_upsample(int64_t factor, fr_upsample_mode mode, fr_module **m);
/* pad: left, right, top, bottom, each >= 0 (torch.nn.ZeroPad2d). */
FR_API fr_status fr_nn_zero_pad2d(const int64_t pad[4], fr_module **m);
FR_API fr_status fr_nn_pixel_shuffle(int64_t r, fr_module **m);
FR_API fr_status fr_nn_pixel_unshuffle(int64_t r, fr_module **m);
FR_API fr_status fr_nn_identity(fr_module **m);

/* ---- initialization (torch.nn.init), from the thread's generator ------------------------------------------------- */

FR_API fr_status fr_init_kaiming_normal(fr_tensor *weight, bool fan_out); /* N(0, sqrt(2 / fan)) */
FR_API fr_status fr_init_normal(fr_tensor *t, double mean, double std);
FR_API fr_status fr_init_uniform(fr_tensor *t, double low, double high);

#ifdef __cplusplus
}
#endif
#endif
