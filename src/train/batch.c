/* batch.c - a batch from the loader to the device, with targets for classification or segmentation. */
#include "base/status.h"
#include "tensor/tensor.h"
#include "train/run.h"

#include <stdlib.h>

/* Both scratch arrays for n pixels of 3 channels. */
static fr_status reserve(fri_run *r, size_t n) {
    if (n <= r->pixels_capacity) return FR_OK;
    free(r->pixels);
    free(r->pixel_classes);
    r->pixels = malloc(n * 3 * sizeof(float));
    r->pixel_classes = malloc(n * sizeof(int64_t));
    r->pixels_capacity = r->pixels != NULL && r->pixel_classes != NULL ? n : 0;
    return r->pixels_capacity > 0 ? FR_OK : fri_fail(FR_ENOMEM, "trainer: no host memory for %zu pixel classes", n);
}

/* *targets: labels [n] become pixel classes [n, height, width]. The images are normalized; the program sees 0..1. */
static fr_status to_pixel_classes(fri_run *r, fr_tensor *images, fr_tensor **targets) {
    const int64_t *d = fr_tensor_shape(images);
    int64_t n = d[0], pixels = d[1] * d[2], channels = d[3];
    fr_device device = fr_tensor_device(images);
    fr_status s = FR_OK;
    if (device == FR_META) {
        FR_TRY(s, fr_tensor_empty(3, d, FR_I64, device, targets));
    } else {
        const float *from = fr_tensor_data(images);
        const int64_t *labels = fr_tensor_data(*targets);
        FR_TRY(s, reserve(r, (size_t)(n * pixels)));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < pixels * channels; k++)
                r->pixels[k] = (float)(from[i * pixels * channels + k] * r->std[k % channels] + r->mean[k % channels]);
            r->program->pixel_target(r->pixels, d[1], d[2], channels, labels[i], r->pixel_classes + i * pixels);
        }
        FR_TRY(s, fr_tensor_from_host(r->pixel_classes, 3, d, FR_I64, device, targets));
    }
    fri_relabel(*targets, FR_MEM_INPUT);
done:
    return s;
}

static fr_status to_device(fr_device device, fr_tensor **t) {
    if (fr_tensor_device(*t) == device) return FR_OK;
    fr_status s = fr_tensor_to_device(*t, device, t);
    if (s == FR_OK) fri_relabel(*t, FR_MEM_INPUT);
    return s;
}

fr_status fri_batch_next(fri_run *r, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    fr_status s = fr_loader_next(loader, images, targets);
    if (s != FR_OK) return s;
    if (r->program->pixel_target != NULL) FR_TRY(s, to_pixel_classes(r, *images, targets));
    FR_TRY(s, to_device(r->opts.device, images));
    FR_TRY(s, to_device(r->opts.device, targets));
done:
    return s;
}
