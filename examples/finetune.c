/* finetune.c - trains the head of a pretrained network, or more layers, on a folder of images. */
#include "digits.h"

#include <frugal/train.h>
#include <stdio.h>

static const char *model = "mobilenet_v2";  /* --model */
static const char *const head[] = {"head"}; /* --train-only */

static fr_status named(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    if (o->model.depth != FR_TRAIN_AUTO)
        return fr_fail(FR_EINVAL, "--depth belongs to the other trainers; --model %s names the network", model);
    if (o->device != FR_META && o->files.weights == NULL && o->files.resume == NULL && o->files.predict == NULL &&
        o->model.train_only == head)
        return fr_fail(FR_EINVAL,
                       "--weights FILE is missing, and a head on random features learns little; --train-only "
                       "all trains the whole network from random weights");
    if (o->model.inplace_abn) return fr_fail(FR_EINVAL, "--inplace-abn: name the network with it, --model NAME_abn");
    snprintf(name, FR_TRAIN_NAME_BYTES, "%s", model);
    fr_train_width_name(o, name);
    return fr_model(name,
                    FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size,
                                  .image_width = o->data.image_width, .device = o->device,
                                  .batch_norm = o->model.batch_norm),
                    out);
}

static const char *const examples[] = {
    "--model mobilenet_v2 --weights mobilenet_v2.safetensors --data photos --memory-budget 300MiB",
    "A new head on torchvision's weights, for photos/train/<class>/*.jpg and photos/test/<class>/*.jpg:",
    "--model resnet18 --weights resnet18.safetensors --data photos --train-only all --lr 1e-4",
    "The whole network:",
    "plan --model resnet50 --device meta --classes 5 --image-size 224",
    "What it would need, without weights and photos:",
    NULL,
};

static const fr_flag flags[] = {
    {"model", FR_FLAG_TEXT, FR_GROUP_MODEL, .value = "NAME",
     .help = "The network by torchvision's name: 'resnet50', 'vgg16_bn', 'densenet121', 'mobilenet_v2'; with the "
             "add-on zoo 'mobilenet_v3_small', 'mobilenet_v3_large', 'efficientnet_b0', 'convnext_tiny', "
             "'squeezenet1_1'.",
     .unset = "mobilenet_v2", .per_run = true, .brief = "The network by torchvision's name", .own = &model},
    {0},
};

int main(int argc, char **argv) {
    fr_train_program program = {
        .name = "finetune",
        .summary = "fine-tune a pretrained network inside a memory budget",
        .description = "Gives a network with pretrained weights (safetensors, torchvision's names) a new head for the "
                       "classes of a folder of images, and trains the head; --train-only trains more layers. Frozen "
                       "layers keep nothing for backward. Images are normalized as the file of weights says, else by "
                       "ImageNet's mean and deviation.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.01,
        .batch_norm_optional = true,
        .digits = digits_dataset,
        .model = named,
        .flags = flags,
    };
    program.defaults.data.dataset = FR_TRAIN_FOLDER;
    program.defaults.optim.epochs = 10;
    program.defaults.optim.batch_size = 32;
    program.defaults.optim.optimizer = FR_TRAIN_ADAMW;
    program.defaults.optim.momentum = 0;
    program.defaults.optim.weight_decay = 0.01;
    program.defaults.model.batch_norm = false;
    program.defaults.model.train_only = head;
    program.defaults.model.n_train_only = 1;
    return fr_train_main(&program, argc, argv);
}
