/* train_resnet.c - trains a ResNet (He et al., 2015), by default ResNet-18 on the digits, with the stem for small
 * images. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

enum { SMALL_IMAGE = 64 }; /* below, the stem is 3 x 3 without pooling, as is usual for CIFAR */

static fr_status resnet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "resnet%d%s%s", (int)o->model.depth,
             o->data.image_size < SMALL_IMAGE ? "_small" : "", o->model.inplace_abn ? "_abn" : "");
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .device = o->device),
                    out);
}

static const char *const examples[] = {
    "--epochs 5",
    "ResNet-18 on the digits:",
    "--depth 50 --device meta --dataset synthetic --classes 1000 --image-size 224 --steps 2",
    "What ResNet-50 on ImageNet would need, without running it:",
    "--dataset folder --data cifar10 --image-size 32 --batch-size 128 --epochs 2",
    "ResNet-18 on CIFAR-10 from image files:",
    NULL,
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_resnet",
        .summary = "train a ResNet inside a memory budget",
        .description = "Trains ResNet-18, 34, 50, 101 or 152 from scratch and shows what its memory was for. Images "
                       "below 64 pixels get the stem that is usual for CIFAR: a 3 x 3 convolution and no pooling. "
                       "Without flags: ResNet-18 on the handwritten digits that the program carries, at 32 pixels.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.05,
        .depths = "18, 34, 50, 101 and 152",
        .digits = digits_dataset,
        .model = resnet,
    };
    program.defaults.model.depth = 18;
    program.defaults.optim.epochs = 10;
    return fr_train_main(&program, argc, argv);
}
