/* onnx.h - networks as ONNX files: those that PyTorch exports, to be trained here.
 *
 * In a build without ONNX (meson's -Donnx) every call is FR_EUNSUPPORTED, and names the packages and the option. */
#ifndef FRUGAL_ONNX_H
#define FRUGAL_ONNX_H

#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_onnx_opts {
    fr_device device FR_DEFAULT(FR_CPU);
    int64_t height FR_DEFAULT(0), width FR_DEFAULT(0); /* of images, where the file leaves them open */
    bool drop_softmax FR_DEFAULT(false); /* a result that is a (log) softmax becomes its input, the logits */
} fr_onnx_opts;
#define FR_ONNX_DEFAULTS  .device = FR_CPU
#define FR_ONNX_OPTS(...) FR_OPTS(fr_onnx_opts, FR_ONNX_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_onnx_opts, FR_ONNX_OPTS())

/* *m = the network in the file, which trains, plans and fits like any other: opset 13 to 20, f32, images [N, H, W, C]
 * where the file has [N, C, H, W]; any batch, unless the file computes with its number. Constants are computed;
 * parameters have the names of their initializers ("conv1.weight"), or those of the modules that their nodes tell; a
 * normalization that the exporter folded into a convolution stays folded. Weights beside the file (external data) are
 * read from its folder. On meta no weights are kept.
 * FR_EUNSUPPORTED names the node that frugal has no layer for, with its place. FR_EFORMAT: damaged. FR_EINVAL: height
 * or width is open in the file and in opts; a (log) softmax as result without drop_softmax. FR_EIO, FR_ENOMEM.
 * https://onnx.ai/onnx/operators */
FR_API fr_status fr_onnx_load(const char *path, const fr_onnx_opts *opts, fr_module **m);

#ifdef __cplusplus
}
#endif
#endif
