/* net.h - networks as lists of layers: definition, search for layers, checkpointed runs.
 *
 * A network is a list of layers over values: layer i reads some values and makes some. A program writes the list, a
 * line per layer; memory plans, checkpoints, fused passes, summaries and files read the list.
 *
 *     fr_net *n = fr_net_begin(FR_CPU);
 *     fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 32, 32, 3});
 *     x = fr_net_conv2d(n, "conv1", x, 64, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
 *     x = fr_net_batchnorm2d(n, "bn1", x, NULL);
 *     x = fr_net_relu(n, "relu", x);
 *     ...
 *     FR_TRY(s, fr_net_end(&n, &x, 1, &m));
 *
 * After a failure further calls do nothing, and fr_net_end returns the failure with the layer's name. The input value
 * gives the number of input channels or features. Every layer runs once on meta for the shapes, without effect on
 * statistics, logs and random numbers.
 *
 * The result is a module (nn.h) with PyTorch's dotted paths for parameters. Neighbouring layers run as a single call
 * where possible (batch norm, sum and relu), with the bits and graph of the separate layers, if the in-place switch is
 * on and no further layer reads the inner values. */
#ifndef FRUGAL_NET_H
#define FRUGAL_NET_H

#include <frugal/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- defining a network ------------------------------------------------------------------------------------------ */

typedef struct fr_net fr_net; /* an unfinished definition; belongs to a thread */
typedef struct fr_value {
    int id; /* -1 after a failure */
} fr_value;

/* Parameters will lie on `device`. NULL without host memory; all calls accept a NULL definition. */
FR_API fr_net *fr_net_begin(fr_device device);
/* Ends the definition; the network returns the given values. Frees *n, also on failure, and sets *n to NULL. The first
 * failure of any call since begin; FR_EINVAL without an input, a layer or a result, or with an open scope. */
FR_API fr_status fr_net_end(fr_net **n, const fr_value *results, int count, fr_module **m);
/* An input of the network. The shape is an example: later inputs may differ if the layers permit. */
FR_API fr_value fr_net_input(fr_net *n, fr_dtype dtype, int rank, const int64_t *shape);

/* Puts the formatted name before the names of layers between begin and end: "layer1.0". Scopes nest. */
FR_API void fr_net_scope_begin(fr_net *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
FR_API void fr_net_scope_end(fr_net *n);

/* Sets the initialization of later convolutions; linear layers always start as in PyTorch. */
typedef enum fr_net_init_rule {
    FR_NET_INIT_DEFAULT, /* torch.nn.Conv2d */
    FR_NET_INIT_FAN_OUT, /* weights N(0, sqrt(2 / fan out)) (kaiming_normal_), bias 0: torchvision's VGG and ResNet */
    FR_NET_INIT_FAN_IN,  /* by fan in: torchvision's DenseNet */
} fr_net_init_rule;
FR_API void fr_net_init(fr_net *n, fr_net_init_rule rule);

/* Queries on a network that is still being defined. */
FR_API fr_status fr_net_status(const fr_net *n);               /* of the first failure so far */
FR_API void fr_net_try(fr_net *n, fr_status s);                /* records the failure s, if s is one */
FR_API fr_module *fr_net_layer_of(fr_net *n, fr_value x);      /* the layer of x, borrowed; NULL: none */
FR_API int64_t fr_net_dim(const fr_net *n, fr_value x, int i); /* of the example; negative i from the end; 0: none */

/* ---- layers --------------------------------------------------------------------------------------------------------
 *
 * name: a dotted path below the current scope; NULL: the next number there, as in a Sequential of PyTorch. A repeated
 * name is FR_EINVAL. ops.h and nn.h have shapes, options, parameters and defaults. */

#define FR_BIAS    true
#define FR_NO_BIAS false

FR_API fr_value fr_net_conv2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel,
                              const fr_conv2d_opts *opts, bool bias);
FR_API fr_value fr_net_conv_transpose2d(fr_net *n, const char *name, fr_value x, int64_t out, int64_t kernel,
                                        const fr_conv_transpose2d_opts *opts, bool bias);
FR_API fr_value fr_net_linear(fr_net *n, const char *name, fr_value x, int64_t out, bool bias);
FR_API fr_value fr_net_embedding(fr_net *n, const char *name, fr_value index, int64_t rows, int64_t dim);
/* opts: eps and momentum count; NULL: 1e-5 and 0.1. */
FR_API fr_value fr_net_batchnorm2d(fr_net *n, const char *name, fr_value x, const fr_batchnorm2d_opts *opts);
FR_API fr_value fr_net_inplace_abn(fr_net *n, const char *name, fr_value x, double slope);
/* PyTorch's GroupNorm(groups, C) and LayerNorm(C); eps 1e-5. */
FR_API fr_value fr_net_group_norm(fr_net *n, const char *name, fr_value x, int64_t groups, double eps);
FR_API fr_value fr_net_layer_norm(fr_net *n, const char *name, fr_value x, double eps);
FR_API fr_value fr_net_layer_scale(fr_net *n, const char *name, fr_value x, double init);
FR_API fr_value fr_net_relu(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_relu6(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_leaky_relu(fr_net *n, const char *name, fr_value x, double slope);
FR_API fr_value fr_net_sigmoid(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_tanh(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_silu(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_hardsigmoid(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_hardswish(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_gelu(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_gelu_tanh(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_clamp(fr_net *n, const char *name, fr_value x, double low, double high);
FR_API fr_value fr_net_softmax(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_log_softmax(fr_net *n, const char *name, fr_value x);
FR_API fr_value fr_net_maxpool2d(fr_net *n, const char *name, fr_value x, int64_t kernel, const fr_pool2d_opts *opts);
FR_API fr_value fr_net_avgpool2d(fr_net *n, const char *name, fr_value x, int64_t kernel, const fr_pool2d_opts *opts);
FR_API fr_value fr_net_adaptive_avgpool2d(fr_net *n, const char *name, fr_value x, int64_t p, int64_t q);
FR_API fr_value fr_net_dropout(fr_net *n, const char *name, fr_value x, double p);
FR_API fr_value fr_net_dropout2d(fr_net *n, const char *name, fr_value x, double p);
FR_API fr_value fr_net_stochastic_depth(fr_net *n, const char *name, fr_value x, double p);
FR_API fr_value fr_net_flatten(fr_net *n, const char *name, fr_value x, int start_dim);
FR_API fr_value fr_net_upsample(fr_net *n, const char *name, fr_value x, int64_t factor, fr_upsample_mode mode);
/* x at the height and width of `like`. */
FR_API fr_value fr_net_upsample_to(fr_net *n, const char *name, fr_value x, fr_value like, fr_upsample_mode mode);
FR_API fr_value fr_net_zero_pad2d(fr_net *n, const char *name, fr_value x, const int64_t pad[4]);
FR_API fr_value fr_net_constant_pad2d(fr_net *n, const char *name, fr_value x, const int64_t pad[4], double value);
FR_API fr_value fr_net_pixel_shuffle(fr_net *n, const char *name, fr_value x, int64_t r);
FR_API fr_value fr_net_pixel_unshuffle(fr_net *n, const char *name, fr_value x, int64_t r);
/* alpha x, x + alpha; x + b with a trained b per channel, as layer_scale's factors. */
FR_API fr_value fr_net_scale(fr_net *n, const char *name, fr_value x, double alpha);
FR_API fr_value fr_net_add_scalar(fr_net *n, const char *name, fr_value x, double alpha);
FR_API fr_value fr_net_layer_shift(fr_net *n, const char *name, fr_value x, double init);
/* Images at h x w pixels (fr_upsample); rows [N, h w C] as images; x[start:end:step] of height (dim 1) or width (2). */
FR_API fr_value fr_net_resize(fr_net *n, const char *name, fr_value x, int64_t h, int64_t w, fr_upsample_mode mode,
                              bool align_corners);
FR_API fr_value fr_net_unflatten(fr_net *n, const char *name, fr_value x, int64_t h, int64_t w);
FR_API fr_value fr_net_slice(fr_net *n, const char *name, fr_value x, int dim, int64_t start, int64_t end,
                             int64_t step);
/* PyTorch's ChannelShuffle: channel i C / groups + k goes to k groups + i. H W groups of features after a Flatten of
 * H x W pixels: PyTorch's order, C, H, W. */
FR_API fr_value fr_net_channel_shuffle(fr_net *n, const char *name, fr_value x, int64_t groups);
/* Channels (features) start .. start + length - 1. */
FR_API fr_value fr_net_narrow(fr_net *n, const char *name, fr_value x, int64_t start, int64_t length);
FR_API fr_value fr_net_identity(fr_net *n, const char *name, fr_value x);
/* a + b, a - b, a b, a / b, over a if a has no further reader; b may be smaller (ops.h). */
FR_API fr_value fr_net_add(fr_net *n, const char *name, fr_value a, fr_value b);
FR_API fr_value fr_net_sub(fr_net *n, const char *name, fr_value a, fr_value b);
FR_API fr_value fr_net_mul(fr_net *n, const char *name, fr_value a, fr_value b);
FR_API fr_value fr_net_div(fr_net *n, const char *name, fr_value a, fr_value b);
FR_API fr_value fr_net_concat(fr_net *n, const char *name, const fr_value *x, int count); /* over the channels */

/* A finished module as a layer; takes *m also on failure. A network's layers become layers of the definition, below
 * `name`; a module of any further kind is a single layer. Fills out[0..n_out), with -1 on failure. */
FR_API void fr_net_module(fr_net *n, const char *name, fr_module **m, const fr_value *in, int n_in, fr_value *out,
                          int n_out);
/* Adds a layer of the program's own: a new module of the class, with a copy of the state. */
FR_API void fr_net_op(fr_net *n, const char *name, const fr_module_class *class_, const void *state, size_t state_bytes,
                      const fr_value *in, int n_in, fr_value *out, int n_out);
/* Runs the named layer below the current scope again, on new values, with shared parameters and a single entry in the
 * state dict. */
FR_API void fr_net_again(fr_net *n, const char *name, const fr_value *in, int n_in, fr_value *out, int n_out);

/* ---- the layers of a network ----------------------------------------------------------------------------- */

/* Channels of images, laid out in a row: `spatial` pixels of `channels` each. */
typedef struct fr_channel_piece {
    int64_t spatial, channels;
} fr_channel_piece;

/* Borrowed from the module. Values have numbers; the inputs come first. */
typedef struct fr_layer {
    const char *name;
    fr_module *module;
    const int *in, *out;
    int n_in, n_out;
    const fr_channel_piece *piece; /* layout of the first input's last dimension, if made by a flatten */
    int pieces;
} fr_layer;

/* Number of layers; 1 for a module without a list. */
FR_API int fr_module_layers(fr_module *m);
/* FR_EINVAL: i is no layer. */
FR_API fr_status fr_module_layer_get(fr_module *m, int i, fr_layer *out);
/* The module at a dotted path, borrowed; NULL: none. */
FR_API fr_module *fr_module_find(fr_module *m, const char *path);
/* Replaces the layer at the path, also where shared, by *layer; takes *layer also on failure. FR_EINVAL: no layer at
 * the path. FR_EUSAGE: a live graph on the thread may hold the old layer. */
FR_API fr_status fr_module_replace(fr_module *m, const char *path, fr_module **layer);
/* Adds the output of the named layer (or of the last layer below that name) as the network's last result;
 * fr_module_forward_n returns all results. FR_EINVAL: no layer of the name, or m is no network. */
FR_API fr_status fr_module_tap(fr_module *m, const char *name);

/* ---- units and checkpoints ------------------------------------------------------------------------------- */

/* A network may be cut between any two layers; live values cross the cut. Units are the layers between borders. A
 * border is a cut with a single live value, but not before a layer that may run in place; with fewer than two such
 * cuts, the cuts with the fewest values. Writes the first layer of at most n units (0: `first` may be NULL); returns
 * the number of units. A module without a list is a single unit. */
FR_API int fr_module_units(fr_module *m, int *first, int n);

/* Treatment of a unit's saved tensors. */
typedef enum fr_unit_option {
    FR_UNIT_AS_SET,  /* as the thread's switches say */
    FR_UNIT_KEEP,    /* whole tensors: encode, rebuild and offload off */
    FR_UNIT_ENCODE,  /* bits and one-byte codes */
    FR_UNIT_INSIDE,  /* encode, and elementwise outputs inside the unit are recomputed; the unit's input is kept */
    FR_UNIT_REBUILD, /* encode, and all elementwise outputs are made again, the unit's input too */
    FR_UNIT_OFFLOAD, /* encode, and large tensors go to the offload file */
    FR_UNIT_REBUILD_OFFLOAD,
    FR_UNIT_OPTIONS
} fr_unit_option;

/* Units first .. end - 1 keep only their input values and run again in backward. */
typedef struct fr_unit_range {
    int first, end;
} fr_unit_range;

/* Ranges of units for joint recomputation, and the option of each unit in the last run. Ranges nest: an inner range is
 * recomputed again within the recomputation of the outer range. Outer before inner, then by first unit; no two are
 * equal, none overlap in part. */
enum { FR_MAX_UNITS = 4096 };

typedef struct fr_unit_plan {
    int units;
    const fr_unit_option *option; /* [units]; NULL: all as set */
    int ranges;
    const fr_unit_range *range; /* [ranges] */
    const int *first;           /* [units], the first layer of each, ascending from 0; NULL: those of fr_module_units */
} fr_unit_plan;

/* y = m(x) by the plan. Results equal fr_module_forward's, bit for bit. FR_EINVAL: a wrong number of units, units that
 * are no cuts, or ranges that do not nest. */
FR_API fr_status fr_checkpoint_plan(fr_module *m, const fr_unit_plan *plan, fr_tensor *x, fr_tensor **y);

/* Ways to choose ranges. */
typedef enum fr_segmentation {
    FR_SEGMENTS_COUNT, /* `segments` ranges */
    FR_SEGMENTS_SQRT,  /* sqrt(units), rounded: about 2 sqrt(n) units alive, one more forward */
    FR_SEGMENTS_LOG,   /* halves of halves: about log2(n) inputs alive, log2(n) / 2 more forwards on average */
    FR_SEGMENTS_EACH,  /* every unit keeps the input only, one more forward */
} fr_segmentation;

/* y = m(x) with this segmentation. */
FR_API fr_status fr_checkpoint_segments(fr_module *m, fr_segmentation how, int segments, const size_t *weight,
                                        fr_tensor *x, fr_tensor **y);
/* torch.utils.checkpoint.checkpoint_sequential. */
static inline fr_status fr_checkpoint_sequential(fr_module *m, int segments, fr_tensor *x, fr_tensor **y) {
    return fr_checkpoint_segments(m, FR_SEGMENTS_COUNT, segments, NULL, x, y);
}

#ifdef __cplusplus
}
#endif
#endif
