/* train_mobilenet.c - trains a MobileNet (Sandler et al., 2018), by default MobileNetV2 on the digits, with the stem
 * for small images. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

enum { SMALL_IMAGE = 64 }; /* below, two of the five strides are 1 */

static fr_status mobilenet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    if (o->model.depth != 2) /* mobilenet_v3_small is a network of the add-on zoo */
        return fr_fail(FR_EINVAL, "MobileNetV%d is not for this trainer; finetune --model trains the add-on zoo's",
                       (int)o->model.depth);
    snprintf(name, FR_TRAIN_NAME_BYTES, "mobilenet_v%d%s%s", (int)o->model.depth,
             o->data.image_size < SMALL_IMAGE ? "_small" : "", o->model.inplace_abn ? "_abn" : "");
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .device = o->device),
                    out);
}

static const char *const examples[] = {
    "--epochs 5",
    "MobileNetV2 on the digits:",
    "--device meta --dataset synthetic --classes 1000 --image-size 224 --batch-size 32 --steps 2",
    "What MobileNetV2 on ImageNet would need, without running it:",
    NULL,
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_mobilenet",
        .summary = "train a MobileNet inside a memory budget",
        .description = "Trains MobileNetV2 from scratch or from weights, and shows what its memory was for. For images "
                       "below 64 pixels the stem and the second stage keep the size. Without flags: on the handwritten "
                       "digits that the program carries, at 32 pixels.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.05,
        .depths = "2: MobileNetV2",
        .digits = digits_dataset,
        .model = mobilenet,
    };
    program.defaults.model.depth = 2;
    program.defaults.optim.epochs = 10;
    return fr_train_main(&program, argc, argv);
}
