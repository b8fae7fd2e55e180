/* fold.h - networks that only infer: the add-on fold. */
#ifndef FRUGAL_FOLD_H
#define FRUGAL_FOLD_H

#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *m, a network of f32 layers, becomes one that only infers: a batch norm behind a convolution is folded into its
 * weights, w gamma / sqrt(var + eps) by the running values; one call convolves, adds what the next layer adds, and
 * rectifies; weights are laid out once, at the first forward, as the kernel reads them. Results are the evaluation's
 * but for rounding; a NaN may become 0 in a rectifier. The folded layers have no parameters any more: save and load
 * before. *m is taken also on failure, and its old layers are of no use. One thread at a time may run it; a forward
 * that wants gradients is FR_EUSAGE. FR_EINVAL: *m is no network. torch.nn.utils.fusion.fuse_conv_bn_eval. */
FR_API fr_status fr_net_fold(fr_module **m);

#ifdef __cplusplus
}
#endif
#endif
