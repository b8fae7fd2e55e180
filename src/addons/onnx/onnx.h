/* onnx.h - networks as ONNX files: those that PyTorch exports, to be trained here, and those trained here.
 *
 * In a build without ONNX (meson's -Donnx) every call is FR_EUNSUPPORTED, and names the packages and the option. */
#ifndef FRUGAL_ONNX_H
#define FRUGAL_ONNX_H

#include <frugal/io.h>
#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_onnx_opts {
    fr_device device FR_DEFAULT(FR_CPU);
    int64_t height FR_DEFAULT(0), width FR_DEFAULT(0); /* of images, if open in the file */
    bool drop_softmax FR_DEFAULT(false);               /* replaces a result of (log) softmax by the logits */
    /* Names of values as results instead of the file's; nodes after the values are not read. Borrowed */
    const char *const *results FR_DEFAULT(NULL);
    int n_results FR_DEFAULT(0);
} fr_onnx_opts;
#define FR_ONNX_DEFAULTS  .device = FR_CPU
#define FR_ONNX_OPTS(...) FR_OPTS(fr_onnx_opts, FR_ONNX_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_onnx_opts, FR_ONNX_OPTS())

/* *m = the network in the file, for training, plans and budgets: opset 9 to 22, f32, images [N, H, W, C] for the
 * file's [N, C, H, W]; any batch, unless the file computes with the batch size. Constants are computed; parameters have
 * the names of their initializers ("conv1.weight"), or names from the nodes' modules; normalizations folded by the
 * exporter stay folded. External data are read from the file's folder. On meta no weights are kept. FR_EUNSUPPORTED
 * names an unknown node, with the place. FR_EFORMAT: damaged. FR_EINVAL: height or width is open in the file and in
 * opts; a (log) softmax as result without drop_softmax. FR_EIO, FR_ENOMEM. https://onnx.ai/onnx/operators */
FR_API fr_status fr_onnx_load(const char *path, const fr_onnx_opts *opts, fr_module **m);

typedef struct fr_onnx_save_opts {
    int64_t opset FR_DEFAULT(17); /* 13 to 18 */
    /* is written too, as metadata, for fr_weights_info_read and fr_classifier_load; NULL: nothing is said */
    const fr_weights_info *info FR_DEFAULT(NULL);
} fr_onnx_save_opts;
#define FR_ONNX_SAVE_DEFAULTS  .opset = 17
#define FR_ONNX_SAVE_OPTS(...) FR_OPTS(fr_onnx_save_opts, FR_ONNX_SAVE_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_onnx_save_opts, FR_ONNX_SAVE_OPTS())

/* Writes the network for inference: batch norms with running values, no dropout; also folded networks (fr_net_fold).
 * Input "input" [batch, C, H, W] with the example's C, H, W, results "output", "output_1" ...; constants f32 under
 * parameter paths, in PyTorch's layout. Holds a copy of the parameters on the host. path NULL: only checks whether the
 * network can be written, also on meta. FR_EINVAL: m is no network, an unknown opset, impossible info. FR_EUNSUPPORTED
 * names a layer without ONNX node; on meta. FR_EIO: the older file stays. FR_ENOMEM. */
FR_API fr_status fr_onnx_save(fr_module *m, const char *path, const fr_onnx_save_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
