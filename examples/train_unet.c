/* train_unet.c - trains a U-Net (Ronneberger et al., 2015) to classify each pixel, by default of the digits.
 *
 * The pixel classes come from the image and its label: a pixel with a mean above one half is ink and has class
 * label + 1; all other pixels are background, class 0. So the network has to find the ink and to know the digit. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

static fr_status unet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "unet%d%s", (int)o->model.depth, o->model.inplace_abn ? "_abn" : "");
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .device = o->device),
                    out);
}

static int64_t pixel_classes(int64_t classes) {
    return classes + 1;
}

static void pixel_target(const float *image, int64_t height, int64_t width, int64_t channels, int64_t label,
                         int64_t *target) {
    for (int64_t i = 0; i < height * width; i++) {
        float sum = 0;
        for (int64_t c = 0; c < channels; c++) sum += image[i * channels + c];
        target[i] = sum > 0.5f * (float)channels ? label + 1 : 0;
    }
}

static const char *const examples[] = {
    "--epochs 5",
    "Pixel classes of the digits:",
    "--depth 4 --device meta --image-size 256 --batch-size 4 --steps 2",
    "What larger images would need, without running it:",
    NULL,
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_unet",
        .summary = "train a U-Net inside a memory budget",
        .description = "Trains a small U-Net from scratch to classify pixels, and shows what its memory was for. The "
                       "classes of an image's pixels are made from the image: background, or ink of the image's own "
                       "class. Accuracy is the share of pixels that are right; background alone is most of them. "
                       "--depth is the number of poolings; the image size must be a multiple of 2 to that power.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.1,
        .depths = "1, 2, 3, 4 and 5",
        .digits = digits_dataset,
        .model = unet,
        .pixel_classes = pixel_classes,
        .pixel_target = pixel_target,
    };
    program.defaults.model.depth = 3;
    program.defaults.optim.epochs = 8;
    return fr_train_main(&program, argc, argv);
}
