/* batch.c - moves batches from the loader to the device (data/input.h). */
#include "session/data.h"
#include "data/input.h"

#include <stdlib.h>
#include <string.h>

/* Grows both scratch arrays to n pixels of 3 channels. */
static fr_status reserve_pixels(fri_run *r, size_t n) {
    if (n <= r->data.pixels_capacity) return FR_OK;
    free(r->data.pixels);
    free(r->data.pixel_classes);
    r->data.pixels = malloc(n * 3 * sizeof(float));
    r->data.pixel_classes = malloc(n * sizeof(int64_t));
    r->data.pixels_capacity = r->data.pixels != NULL && r->data.pixel_classes != NULL ? n : 0;
    return r->data.pixels_capacity > 0 ? FR_OK : fr_fail(FR_ENOMEM, "trainer: no host memory for %zu pixel classes", n);
}

/* Replaces labels [n] in *targets by pixel classes [n, height, width], computed from images in 0..1. */
static fr_status to_pixel_classes(void *ctx, fr_tensor *images, fr_tensor **targets) {
    fri_run *r = ctx;
    const int64_t *d = fr_tensor_shape(images);
    int64_t n = d[0], pixels = d[1] * d[2], channels = d[3];
    fr_device device = fr_tensor_device(images);
    if (device == FR_META) {
        FRI_TRY(fr_tensor_empty(3, d, FR_I64, device, targets));
    } else {
        const float *from = fr_tensor_data(images);
        const int64_t *labels = fr_tensor_data(*targets);
        FRI_TRY(reserve_pixels(r, (size_t)(n * pixels)));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < pixels * channels; k++)
                r->data.pixels[k] = (float)(from[i * pixels * channels + k] * r->config->std[k % channels] +
                                            r->config->mean[k % channels]);
            r->config->program->pixel_target(r->data.pixels, d[1], d[2], channels, labels[i],
                                             r->data.pixel_classes + i * pixels);
        }
        FRI_TRY(fr_tensor_from_host(r->data.pixel_classes, 3, d, FR_I64, device, targets));
    }
    fr_tensor_category_set(*targets, FR_MEM_INPUT);
    return FR_OK;
}

fr_status fri_session_input(fri_run *r) {
    const fr_train_opts *o = &r->config->opts;
    int64_t n = fri_batch_size(r->config, FR_SPLIT_TRAIN);
    const fr_shape images = fri_image_shape(r->config, n), targets = fri_target_shape(r->config, n);
    const fri_input_opts opts = {o->device, o->data.pin_memory, r->config->from_labels ? to_pixel_classes : NULL, r};
    FRI_TRY(fri_input_create(&opts, &r->data.input));
    if (!o->data.device_prefetch || !o->data.pin_memory || !fr_device_is_asynchronous(o->device)) return FR_OK;
    return fri_input_prefetch(r->data.input, &images, fri_image_dtype(r->config), &targets,
                              fri_target_dtype(r->config));
}
