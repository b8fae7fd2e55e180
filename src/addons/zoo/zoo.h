/* zoo.h - more networks with torchvision's layer order, parameter names and initialization (models.h): the add-on zoo.
 * fr_model makes them, too: "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "squeezenet1_1",
 * "convnext_tiny". All are FR_EINVAL with small_stem or abn_slope. */
#ifndef FRUGAL_ZOO_H
#define FRUGAL_ZOO_H

#include <frugal/models.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MobileNetV3, dropout 0.2. Howard et al. 2019; torchvision.models.mobilenet_v3_small, mobilenet_v3_large. FR_EINVAL:
 * an image below 32 pixels. */
FR_API fr_status fr_mobilenet_v3(bool large, const fr_model_opts *opts, fr_module **m);
/* version 0: EfficientNet-B0 with stochastic depth up to 0.2. Tan and Le 2019; torchvision.models.efficientnet_b0.
 * FR_EINVAL: another version, or an image below 32 pixels. */
FR_API fr_status fr_efficientnet(int version, const fr_model_opts *opts, fr_module **m);
/* version 1: SqueezeNet 1.1. Iandola et al. 2016; torchvision.models.squeezenet1_1. FR_EINVAL: another version, or an
 * image below 17 pixels. */
FR_API fr_status fr_squeezenet(int version, const fr_model_opts *opts, fr_module **m);
/* ConvNeXt-Tiny with stochastic depth up to 0.1. Liu et al. 2022; torchvision.models.convnext_tiny. FR_EINVAL: an image
 * below 32 pixels. */
FR_API fr_status fr_convnext_tiny(const fr_model_opts *opts, fr_module **m);

#ifdef __cplusplus
}
#endif
#endif
