/* units.h - what planning asks of a network. */
#ifndef FRI_NET_UNITS_H
#define FRI_NET_UNITS_H

#include <frugal/net.h>

/* Weights for fri_unit_segments: each unit's saved bytes when m runs once on x, under the thread's switches; without
 * computation on meta. weight: fr_module_units of m numbers. */
fr_status fri_unit_saved_bytes(fr_module *m, fr_tensor *x, size_t *weight);
/* True if m is a network whose images are independent while no graph is built. */
bool fri_module_is_per_image(fr_module *m);
/* Number of leading layers without graph and with independent images (FR_LAYER_PER_IMAGE): the layers before the first
 * that trains, normalizes over the batch, or draws random numbers. 0: m is no network. */
int fri_module_frozen_prefix(fr_module *m);
/* The name of the last layer with parameters ("fc"), borrowed; NULL: none has any, or m is no network. */
const char *fri_module_head(fr_module *m);
/* The last dimension of the network's first result, in the definition's example; 0: m is no network. */
int64_t fri_module_results(fr_module *m);
/* Replaces the last layer with parameters by a fresh layer with `results` results; *old gets the replaced layer.
 * FR_EINVAL: m is no network, or the layer is no Linear or Conv2d with the network's results. */
fr_status fri_module_head_renew(fr_module *m, int64_t results, fr_module **old);
/* Runs the leading layers on parts of `images` images in turn, in training and evaluation, with equal bits. Only
 * activations of a single part are alive at a time. 0: the whole batch at once. FR_EINVAL: m is no network, images <
 * 0. */
fr_status fri_module_prefix_parts(fr_module *m, int64_t images);
/* The ranges of a plan with this segmentation of `units` units; the last part runs plainly, in no range (as in
 * checkpoint_sequential). `segments` is for COUNT only. weight[i] (NULL: all equal) is the cost of unit i, for example
 * in bytes: the heaviest part is as light as possible, halves divide at half the weight. COUNT without weights cuts as
 * PyTorch does: units / segments each, the last part takes the rest. `range` has room for `units`. FR_EINVAL: segments
 * < 1 or more than units, units < 1. */
fr_status fri_unit_segments(fr_segmentation how, int segments, int units, const size_t *weight, fr_unit_range *range,
                            int *ranges);

#endif
