/* planted.c - a trainer in which batches overflow under a loss scale if their labels sum to 5 modulo 16; a step
 * mostly has at most one such batch, on one rank. The results go through dropout. PLANTED_MODEL names the network
 * (fr_model). PLANTED_FIELDS sets options without a flag: "ema=X", "check" (of replicas), "groups" (of parameters),
 * "recipe" (the library's loss and all options besides the network). */
#include "digits.h"

#include <frugal/addon.h>
#include <frugal/frugal.h>
#include <frugal/train.h>
#include <stdlib.h>
#include <string.h>

static fr_status model(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "%s", getenv("PLANTED_MODEL"));
    return fr_model(name, FR_MODEL_OPTS(.classes = classes, .image_size = o->data.image_size, .device = o->device),
                    out);
}

static int64_t pixel_classes(int64_t classes) {
    return classes + 1;
}

static void pixel_target(const float *image, int64_t height, int64_t width, int64_t channels, int64_t label,
                         int64_t *target) {
    for (int64_t i = 0; i < height * width; i++) target[i] = image[i * channels] > 0.5f ? label + 1 : 0;
}

static fr_status loss(void *ctx, fr_tensor *y, fr_tensor *targets, fr_tensor **out) {
    const int64_t n = fr_tensor_device(targets) != FR_META ? fr_tensor_numel(targets) : 0;
    int64_t sum = 0, *label = malloc((size_t)(n + 1) * sizeof *label);
    fr_tensor *x = NULL;
    (void)ctx;
    fr_status s = label != NULL ? fr_dropout(y, 0.1, fr_grad_enabled(), &x) : FR_ENOMEM;
    if (s == FR_OK) s = fr_cross_entropy(x, targets, NULL, out);
    if (s == FR_OK && n > 0) s = fr_tensor_to_host(targets, label);
    fr_tensor_release(&x);
    for (int64_t i = 0; s == FR_OK && i < n; i++) sum += label[i];
    free(label);
    return s == FR_OK && sum % 16 == 5 ? fr_scale(*out, 1e6, out) : s;
}

static void set_fields(fr_train_program *p, const char *words) {
    fr_train_opts *o = &p->defaults;
    const char *ema = strstr(words, "ema=");
    if (ema != NULL) o->optim.ema = atof(ema + 4);
    o->check_replicas = strstr(words, "check") != NULL;
    if (strstr(words, "groups") != NULL) {
        o->optim.head_lr_scale = 10;
        o->optim.no_norm_decay = true;
    }
    if (strstr(words, "recipe") == NULL) return;
    p->loss = NULL;
    o->data.balanced_sampling = o->optim.balanced_weights = o->optim.per_class = true;
    o->optim.label_smoothing = 0.1;
    if (fr_addon_find("augment") != NULL) o->data.augment = FR_TRAIN_AUGMENT_STRONG;
}

int main(int argc, char **argv) {
    static const char *const examples[] = {NULL};
    fr_train_program program = {
        .name = "planted",
        .summary = "train with gradients that overflow now and then",
        .description = "For tests.",
        .examples = examples,
        .defaults = fr_train_opts_default(),
        .sgd_lr = 0.02,
        .batch_norm_optional = true,
        .digits = digits_dataset,
        .model = model,
        .loss = loss,
    };
    if (getenv("PLANTED_MODEL") == NULL) return 2;
    if (strncmp(getenv("PLANTED_MODEL"), "unet", 4) == 0) {
        program.pixel_classes = pixel_classes;
        program.pixel_target = pixel_target;
    }
    if (getenv("PLANTED_FIELDS") != NULL) set_fields(&program, getenv("PLANTED_FIELDS"));
    return fr_train_main(&program, argc, argv);
}
