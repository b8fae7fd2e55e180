/* fold.h - inference networks: the add-on fold. */
#ifndef FRUGAL_FOLD_H
#define FRUGAL_FOLD_H

#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *m, a network of f32 layers, becomes an inference network. Batch norms are folded into the weights of the convolution
 * before, w gamma / sqrt(var + eps) by the running values; a call convolves, adds the next layer's addend, and applies
 * relu; weights are laid out for the kernel once, at the first forward. Results equal the evaluation's up to rounding;
 * a NaN may become 0 in a relu. Folded layers have no parameters: save and load before. *m is taken also on failure;
 * the old layers are then unusable. A single thread at a time may run the network; a forward with gradients is
 * FR_EUSAGE. FR_EINVAL: *m is no network. torch.nn.utils.fusion.fuse_conv_bn_eval. */
FR_API fr_status fr_net_fold(fr_module **m);

#ifdef __cplusplus
}
#endif
#endif
