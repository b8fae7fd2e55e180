/* layers.h - a network as a list, for programs that read it: values, results, and what layers keep.
 *
 * fr_module_layer_get (net.h) tells the layers. */
#ifndef FRUGAL_LAYERS_H
#define FRUGAL_LAYERS_H

#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many there are of each. The first `inputs` values are those of the network. */
typedef struct fr_net_info {
    int layers, values, inputs, results;
    const int *result; /* values; borrowed */
} fr_net_info;
/* FR_EINVAL: m is no network. */
FR_API fr_status fr_net_info_get(fr_module *m, fr_net_info *out);

/* A value that layers hand on. */
typedef struct fr_net_value {
    fr_dtype dtype; /* of the example, as the shape */
    fr_shape shape;
    int made_by;                   /* layer; -1: an input of the network */
    int readers;                   /* inputs of layers, and results */
    int last_layer;                /* that reads it; -1: none */
    const fr_channel_piece *piece; /* as in fr_layer; borrowed */
    int pieces;
} fr_net_value;
/* Do the pieces lie in another order than in PyTorch: an image of several pixels and channels among them? */
FR_API bool fr_channels_turned(const fr_channel_piece *piece, int pieces);
FR_API fr_status fr_net_value_get(fr_module *m, int i, fr_net_value *out);

/* ---- the states of layers (fr_module_state) ---- */

/* The state of BatchNorm2d and InPlaceABN, and their tensors. */
typedef struct fr_norm_state {
    double eps, momentum;
    double slope; /* of InPlaceABN */
} fr_norm_state;
enum { FR_NORM_WEIGHT, FR_NORM_BIAS, FR_NORM_MEAN, FR_NORM_VAR, FR_NORM_BATCHES };

/* State of GroupNorm and LayerNorm. */
typedef struct fr_group_norm_state {
    int64_t groups; /* 0: over the last dimension */
    double eps;
} fr_group_norm_state;

/* The states of MaxPool2d and AvgPool2d, and of Upsample by a factor. Those of the other layers are one number or the
 * options of their op. */
typedef struct fr_pool2d_state {
    int64_t kernel;
    fr_pool2d_opts opts;
} fr_pool2d_state;
typedef struct fr_upsample_state {
    int64_t factor;
    fr_upsample_mode mode;
} fr_upsample_state;

/* The states of ZeroPad2d and ConstantPad2d: left, right, top, bottom; of Resize; of Slice. */
typedef struct fr_pad2d_state {
    int64_t pad[4];
    double value;
} fr_pad2d_state;
typedef struct fr_resize_state {
    int64_t h, w;
    fr_upsample_mode mode;
    bool align_corners;
} fr_resize_state;
typedef struct fr_slice_state {
    int dim;
    int64_t start, end, step;
} fr_slice_state;

/* ---- a convolution of a network that only infers ---- */

/* relu(conv2d(x, w, b) + addend): the addend is the layer's second input, where it has one. f32 constants. */
typedef struct fr_folded_conv2d {
    fr_tensor *w, *b; /* [K, R, S, C], [K] */
    fr_conv2d_opts opts;
    bool relu, relu6;
} fr_folded_conv2d;
/* Retains w and b. The layer lays w out for its kernel at the first call. */
FR_API fr_status fr_folded_conv2d_create(const fr_folded_conv2d *of, fr_module **out);
/* Lays w out as [K, R, S, C] again; *out is borrowed. FR_EINVAL: m is of another class. */
FR_API fr_status fr_folded_conv2d_get(fr_module *m, fr_folded_conv2d *out);

#ifdef __cplusplus
}
#endif
#endif
