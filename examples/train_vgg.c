/* train_vgg.c - trains a VGG (Simonyan and Zisserman, 2014) on images, by default VGG-16 on handwritten digits. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

static fr_status vgg(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "vgg%d%s", (int)o->model.depth,
             !o->model.batch_norm   ? ""
             : o->model.inplace_abn ? "_abn"
                                    : "_bn");
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .device = o->device),
                    out);
}

static const char *const examples[] = {
    "",
    "VGG-16 with batch norm on the digits: one to three minutes on two cores, 97 % or better:",
    "--steps 3 --batch-size 8 --report r.json",
    "Three small steps, and where each byte at their peak went:",
    "--device meta --dataset synthetic --classes 1000 --image-size 224 --steps 2",
    "What the ImageNet network would need, without running it:",
    "--depth 11 --dataset folder --data cifar10 --image-size 32 --lr 0.05 --epochs 2",
    "VGG-11 on CIFAR-10 from image files:",
    NULL,
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_vgg",
        .summary = "train a VGG network inside a memory budget",
        .description = "Trains VGG-11, 13, 16 or 19 from scratch and shows what its memory was for. Without flags: "
                       "VGG-16 with batch normalization on the handwritten digits that the program carries, at 32 "
                       "pixels.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.02,
        .depths = "11, 13, 16 and 19",
        .batch_norm_optional = true,
        .digits = digits_dataset,
        .model = vgg,
    };
    program.defaults.model.depth = 16;
    program.defaults.optim.label_smoothing = 0.1;
    return fr_train_main(&program, argc, argv);
}
