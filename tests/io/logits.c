/* logits.c - logits of a model for given images, for test_torchvision.py.
 *
 *   logits MODEL WEIGHTS INPUT OUTPUT [exact]      (exact: fr_exact_convolutions_set)
 *   logits copy MODEL WEIGHTS OUTPUT               the weights, loaded and written as safetensors
 *   logits batch FOLDER HEIGHT WIDTH OUTPUT        all images of the folder's train split as bytes, "images", in order
 * MODEL is vgg16_bn, resnet50, densenet121, or a name of fr_model. WEIGHTS is a safetensors file; if the file does not
 * exist, the model gets random weights and running statistics, which are saved to the file. INPUT holds "images" f32
 * [n, height, width, 3], OUTPUT gets "logits" f32 [n, 1000]. */
#include "io/safetensors.h"

#include <frugal/data.h>
#include <frugal/io.h>
#include <frugal/models.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fr_status build(const char *name, fr_module **m) {
    const fr_model_opts *o = FR_MODEL_OPTS(.batch_norm = true);
    if (strcmp(name, "vgg16_bn") == 0) return fr_vgg(16, o, m);
    if (strcmp(name, "resnet50") == 0) return fr_resnet(50, o, m);
    if (strcmp(name, "densenet121") == 0) return fr_densenet(121, o, m);
    if (strcmp(name, "mobilenet_v2") == 0) return fr_mobilenet(2, o, m);
    return fr_model(name, FR_MODEL_OPTS(), m);
}

/* New statistics are 0 and 1: a mixed-up channel would not show. */
static fr_status randomize(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const char *name = strrchr(path, '.') + 1;
    fr_tensor *random = NULL;
    fr_status s = FR_OK;
    (void)ctx;
    (void)is_parameter;
    const bool variance = strcmp(name, "running_var") == 0, scale = strcmp(name, "layer_scale") == 0;
    const double low = variance ? 0.5 : scale ? -1 : -0.1, high = variance ? 1.5 : -low;
    if (!variance && !scale && strcmp(name, "running_mean") != 0 && strcmp(name, "bias") != 0) return FR_OK;
    FR_TRY(s, fr_tensor_uniform(fr_tensor_rank(t), fr_tensor_shape(t), low, high, FR_F32, FR_CPU, &random));
    FR_TRY(s, fr_tensor_copy(t, random));
done:
    fr_tensor_release(&random);
    return s;
}

static fr_status read_images(const char *path, fr_tensor **x) {
    fri_safetensors *file = NULL;
    fr_status s = fri_safetensors_open_as(path, FRI_SAFETENSORS_COPIED, &file);
    if (s < 0) return s;
    const fri_safetensors_entry *e = fri_safetensors_find(file, "images");
    s = fri_safetensors_read(file);
    if (s == FR_OK && (e == NULL || e->dtype != FR_F32)) s = FR_EFORMAT;
    if (s == FR_OK) s = fr_tensor_from_host(e->data, e->shape.rank, e->shape.dim, FR_F32, FR_CPU, x);
    fri_safetensors_close(&file);
    return s;
}

static fr_status write_logits(const char *path, fr_tensor *y) {
    fri_safetensors_entry e = {.name = "logits",
                               .dtype = FR_F32,
                               .shape = fri_shape_of(2, fr_tensor_shape(y)),
                               .data = fr_tensor_data(y)};
    return fri_safetensors_write(path, &e, 1, NULL, 0, NULL, NULL);
}

static fr_status write_batch(const char *folder, const char *height, const char *width, const char *path) {
    fr_dataset *d = NULL;
    fr_loader *loader = NULL;
    fr_dataset_info info;
    fr_tensor *images = NULL, *targets = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_dataset_image_folder(folder, FR_SPLIT_TRAIN, &d));
    FR_TRY(s, fr_dataset_info_get(d, &info));
    const fr_loader_opts *o =
        FR_LOADER_OPTS(.batch_size = info.count, .height = strtoll(height, NULL, 10), .width = strtoll(width, NULL, 10),
                       .shuffle = false, .workers = 0, .dtype = FR_U8);
    FR_TRY(s, fr_loader_create(d, o, &loader));
    FR_TRY(s, fr_loader_next(loader, &images, &targets));
    const fri_safetensors_entry e = {.name = "images",
                                     .dtype = FR_U8,
                                     .shape = fri_shape_of(4, fr_tensor_shape(images)),
                                     .data = fr_tensor_data(images)};
    s = fri_safetensors_write(path, &e, 1, NULL, 0, NULL, NULL);
done:
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    fr_loader_release(&loader);
    fr_dataset_release(&d);
    return s;
}

int main(int argc, char **argv) {
    fr_module *m = NULL;
    fr_tensor *x = NULL, *y = NULL;
    fr_status s = FR_OK;
    if (argc != 5 && (argc != 6 || (strcmp(argv[5], "exact") != 0 && strcmp(argv[1], "batch") != 0))) {
        fprintf(stderr, "usage: logits MODEL WEIGHTS INPUT OUTPUT [exact]\n");
        return 2;
    }
    if (strcmp(argv[1], "batch") == 0 && argc == 6) {
        FR_TRY(s, write_batch(argv[2], argv[3], argv[4], argv[5]));
        return 0;
    }
    if (strcmp(argv[1], "copy") == 0) {
        FR_TRY(s, build(argv[2], &m));
        FR_TRY(s, fr_weights_load(m, argv[3], NULL));
        FR_TRY(s, fr_weights_save(m, argv[4], NULL));
        goto done;
    }
    fr_exact_convolutions_set(argc == 6);
    fr_seed(1);
    FR_TRY(s, build(argv[1], &m));
    if (access(argv[2], F_OK) == 0) {
        FR_TRY(s, fr_weights_load(m, argv[2], NULL));
    } else {
        FR_TRY(s, fr_module_each_tensor(m, randomize, NULL));
        FR_TRY(s, fr_weights_save(m, argv[2], NULL));
    }
    FR_TRY(s, read_images(argv[3], &x));
    fr_module_train(m, false);
    fr_no_grad_begin();
    FR_TRY(s, fr_module_forward(m, x, &y));
    FR_TRY(s, write_logits(argv[4], y));
done:
    if (s < 0) fprintf(stderr, "logits: %s: %s\n", fr_status_name(s), fr_last_error());
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_module_release(&m);
    return s < 0;
}
