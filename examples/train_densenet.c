/* train_densenet.c - trains a DenseNet (Huang et al., 2016), by default a small DenseNet-BC on the digits. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

static int64_t growth = 12; /* --growth */

static fr_status densenet(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    bool imagenet = o->model.depth == 121 || o->model.depth == 169 || o->model.depth == 201;
    const char *norm = o->model.inplace_abn ? "_abn" : "";
    if (imagenet)
        snprintf(name, FR_TRAIN_NAME_BYTES, "densenet%d%s", (int)o->model.depth, norm);
    else
        snprintf(name, FR_TRAIN_NAME_BYTES, "densenet_bc%d_k%d%s", (int)o->model.depth, (int)growth, norm);
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .growth = growth, .device = o->device),
                    out);
}

static const char *const examples[] = {
    "--epochs 5",
    "DenseNet-BC-40 on the digits:",
    "--depth 100",
    "DenseNet-BC-100; backward recomputes concatenations and activations:",
    "--depth 121 --device meta --dataset synthetic --classes 1000 --image-size 224 --steps 2",
    "What DenseNet-121 on ImageNet would need, without running it:",
    NULL,
};

static const fr_flag flags[] = {
    {"growth", FR_FLAG_INT, FR_GROUP_MODEL, .value = "N", .help = "Growth rate of DenseNet-BC for small images.",
     .least = 1, .most = 4096, .own = &growth},
    {0},
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "train_densenet",
        .summary = "train a DenseNet inside a memory budget",
        .description = "Trains DenseNet-121, 169 or 201, or the form for small images, DenseNet-BC with three blocks, "
                       "from scratch and shows what its memory was for. Without flags: DenseNet-BC-40 with growth 12 "
                       "on the handwritten digits that the program carries, at 32 pixels.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.1,
        .depths = "121, 169, 201 and 6 n + 4 (22, 40, 100)",
        .digits = digits_dataset,
        .model = densenet,
        .flags = flags,
    };
    program.defaults.model.depth = 40;
    program.defaults.optim.epochs = 10;
    return fr_train_main(&program, argc, argv);
}
