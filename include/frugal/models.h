/* models.h - networks with torchvision's layer order, parameter names and initialization. */
#ifndef FRUGAL_MODELS_H
#define FRUGAL_MODELS_H

#include <frugal/io.h>
#include <frugal/net.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Last layers of a classifier, after the convolutions. */
typedef enum fr_head {
    FR_HEAD_AUTO,        /* below 64 pixels global average pooling and one Linear, else torchvision's */
    FR_HEAD_TORCHVISION, /* VGG: 7 x 7 average pooling and three Linear with dropout */
    FR_HEAD_GLOBAL,      /* global average pooling and one Linear */
} fr_head;

/* InPlaceABN's slope in its paper (Rota Bulo et al. 2018), and the slope of --inplace-abn. */
#define FR_ABN_SLOPE 0.01

typedef struct fr_model_opts {
    int64_t classes FR_DEFAULT(1000), in_channels FR_DEFAULT(3), image_size FR_DEFAULT(224); /* height, width */
    fr_head head FR_DEFAULT(FR_HEAD_AUTO);
    bool batch_norm FR_DEFAULT(false); /* VGG */
    double dropout FR_DEFAULT(0.5);    /* VGG's classifier; DenseNet's layers use their own default 0 */
    int64_t growth FR_DEFAULT(12);     /* DenseNet-BC for small images: k */
    bool small_stem FR_DEFAULT(false); /* ResNet: 3 x 3 stride 1 stem without pooling, for 32-pixel images */
    double abn_slope FR_DEFAULT(0);    /* > 0: batch norm and the following relu become an in-place ABN of this
                                        * slope, with the batch norm's parameter names */
    fr_device device FR_DEFAULT(FR_CPU);
    double width FR_DEFAULT(1);        /* 0.01..16: factor of all channels, except images' and classes', rounded to
                                 * multiples of 8 by torchvision's _make_divisible. MobileNetV2's last 1280 only
                                 * grow. VGG: hidden Linear, too; DenseNet: growth and stem */
    int64_t image_width FR_DEFAULT(0); /* 0: image_size */
} fr_model_opts;
#define FR_MODEL_DEFAULTS .classes = 1000, .in_channels = 3, .image_size = 224, .dropout = 0.5, .growth = 12, .width = 1

#define FR_MODEL_OPTS(...) FR_OPTS(fr_model_opts, FR_MODEL_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_model_opts, FR_MODEL_OPTS())

/* depth 11, 13, 16, 19. Simonyan and Zisserman 2014; torchvision.models.vgg*. FR_EINVAL: an unknown depth, or an image
 * below 32 pixels (five poolings). */
FR_API fr_status fr_vgg(int depth, const fr_model_opts *opts, fr_module **m);
/* depth 18, 34, 50, 101, 152. He et al. 2015; torchvision.models.resnet* (v1.5: stride in the 3 x 3). */
FR_API fr_status fr_resnet(int depth, const fr_model_opts *opts, fr_module **m);
/* depth 121, 169, 201: torchvision.models.densenet*. Another depth = 3 n + 4, n even: the CIFAR form DenseNet-BC (Huang
 * et al. 2016) of three blocks with growth k, bottleneck 4 k, compression 0.5. */
FR_API fr_status fr_densenet(int depth, const fr_model_opts *opts, fr_module **m);
/* version 2: MobileNetV2, dropout 0.2. Sandler et al. 2018; torchvision.models.mobilenet_v2. small_stem: the stem and
 * the second stage have stride 1, for 32-pixel images. abn_slope: instead of relu6. FR_EINVAL: an unknown version. */
FR_API fr_status fr_mobilenet(int version, const fr_model_opts *opts, fr_module **m);
/* A small U-Net (Ronneberger et al. 2015) with batch norm, `depth` poolings (1..5) and 32 channels on top; classes per
 * pixel. Height and width must be multiples of 2^depth. */
FR_API fr_status fr_unet(int depth, const fr_model_opts *opts, fr_module **m);

/* The library's families, by the name in front of the number. */
#define FR_MODEL_FAMILIES(X) \
    X("vgg", fr_vgg)         \
    X("resnet", fr_resnet)   \
    X("densenet_bc", fr_densenet) X("densenet", fr_densenet) X("mobilenet_v", fr_mobilenet) X("unet", fr_unet)

/* A network by its name: "vgg16_bn", "resnet50", "densenet121", "densenet_bc40_k12", "mobilenet_v2", "unet4", any
 * depth, and the names of add-ons (zoo.h); "_small" behind another sets small_stem, "_abn" abn_slope to FR_ABN_SLOPE;
 * "_w0.5" at the end of any sets width. FR_EINVAL: an unknown name. */
FR_API fr_status fr_model(const char *name, const fr_model_opts *opts, fr_module **m);

/* ---- for families of one's own ---- */

/* A family of networks that fr_model makes by name: a row of fr_addon.models. A NULL name ends the rows. */
typedef struct fr_model_family {
    const char *name; /* "resnet": a number follows, and flags of fr_model_opts ("_small") */
    bool alone;       /* the name is the whole name, `make` gets the number 0 */
    fr_status (*make)(int number, const fr_model_opts *opts, fr_module **m);
} fr_model_family;

/* *out = opts or the defaults. FR_EINVAL, in a sentence with the model's name: classes, channels, abn_slope or width
 * out of range, or an image of less than `stride` pixels. */
FR_API fr_status fr_model_opts_check(const char *model, const fr_model_opts *opts, int64_t stride, fr_model_opts *out);
/* Channels at the options' width; unchanged at width 1. */
FR_API int64_t fr_model_channels(const fr_model_opts *opts, int64_t channels);
/* The multiple of 8 next to x > 0, at least 0.9 x and so at least 8 (torchvision.models._utils._make_divisible; Sandler
 * et al. 2018). */
FR_API int64_t fr_model_divisible(double x);

/* ---- a classifier from its file ---- */

/* A classifier from a file of weights, with the options for fr_predict; folded for inference if the add-on fold is
 * built. Zeroed: empty. */
typedef struct fr_classifier {
    fr_module *model;
    fr_weights_info info; /* classes and their names */
    fr_loader_opts input;
} fr_classifier;
/* *out gets the file's classifier, and may hold an earlier one; a failure leaves *out unchanged. FR_EFORMAT: the file
 * names no network, or a network too large for the file (before any allocation); FR_EINVAL: fr_model does not know the
 * network, unless the file holds the layers, too (.onnx). Else as fr_weights_load. */
FR_API fr_status fr_classifier_load(const char *path, fr_device device, fr_classifier *out);
/* Makes a network of the program's own for `classes` classes, or for vectors of `classes` numbers, on any device,
 * FR_META included. */
typedef fr_status fr_network_fn(void *ctx, fr_device device, int64_t classes, fr_module **out);
/* Loads a file of fr_session_export into the program's own network, made by `network`. FR_EINVAL, FR_ESHAPE: the file's
 * tensors belong to a different network. */
FR_API fr_status fr_classifier_load_own(const char *path, fr_network_fn *network, void *ctx, fr_device device,
                                        fr_classifier *out);
FR_API void fr_classifier_clear(fr_classifier *c);
/* *out: defaults, and the size, channels, mean and deviation of the training. */
FR_API void fr_weights_input(const fr_weights_info *info, fr_loader_opts *out);

/* Probabilities of a classifier's n classes for one image: p = softmax(m(fr_image_preprocess(image, as))), in eval
 * mode, without a graph, on its device. as: size, mean and deviation of m's training; NULL: all defaults. FR_ESHAPE if
 * m has a number of results other than n; FR_EINVAL if one is NaN or inf. */
FR_API fr_status fr_predict(fr_module *m, const fr_image *image, const fr_loader_opts *as, double *p, int64_t n);
/* The likeliest of the classes (1..255) of each pixel of an image, for a network whose result is [1, height, width,
 * classes]: mask gets image->height * image->width classes, by nearest neighbour from the network's size. Eval mode, no
 * graph and `as`: as fr_predict. FR_ESHAPE if the result has another shape; FR_EINVAL if `as` cuts out a part of the
 * image, or a result is NaN or inf. */
FR_API fr_status fr_predict_mask(fr_module *m, const fr_image *image, const fr_loader_opts *as, int64_t classes,
                                 uint8_t *mask);

#ifdef __cplusplus
}
#endif
#endif
