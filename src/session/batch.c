/* batch.c - a batch from the loader to the device, with targets for classification or segmentation. */
#include "base/status.h"
#include "tensor/tensor.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

/* Both scratch arrays for n pixels of 3 channels. */
static fr_status reserve(fri_session *r, size_t n) {
    if (n <= r->pixels_capacity) return FR_OK;
    free(r->pixels);
    free(r->pixel_classes);
    r->pixels = malloc(n * 3 * sizeof(float));
    r->pixel_classes = malloc(n * sizeof(int64_t));
    r->pixels_capacity = r->pixels != NULL && r->pixel_classes != NULL ? n : 0;
    return r->pixels_capacity > 0 ? FR_OK : fri_fail(FR_ENOMEM, "trainer: no host memory for %zu pixel classes", n);
}

/* *targets: labels [n] become pixel classes [n, height, width]. The images are normalized; the program sees 0..1. */
static fr_status to_pixel_classes(fri_session *r, fr_tensor *images, fr_tensor **targets) {
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
                r->pixels[k] = (float)(from[i * pixels * channels + k] * r->config->std[k % channels] +
                                       r->config->mean[k % channels]);
            r->config->program->pixel_target(r->pixels, d[1], d[2], channels, labels[i], r->pixel_classes + i * pixels);
        }
        FR_TRY(s, fr_tensor_from_host(r->pixel_classes, 3, d, FR_I64, device, targets));
    }
    fri_relabel(*targets, FR_MEM_INPUT);
done:
    return s;
}

/* which: 0 images, 1 targets. */
static fr_status to_device(fri_session *r, int which, fr_tensor **t) {
    fr_device device = r->config->opts.device;
    const fri_backend *b = fri_backend_get(device);
    fri_input_place *p = &r->input[which][r->input_turn];
    fr_tensor *moved = NULL;
    fr_status s = FR_OK;
    if (fr_tensor_device(*t) == device) return FR_OK;
    if (b != NULL && b->streams != NULL && r->config->opts.pin_memory) {
        FR_TRY(s, fri_input_room(b->streams, p, fri_nbytes(*t)));
        if (p->memory != NULL) {
            FR_TRY(s, fr_tensor_empty((*t)->shape.rank, (*t)->shape.dim, (*t)->dtype, device, &moved));
            fri_relabel(moved, FR_MEM_INPUT);
            FR_TRY(s, fri_input_queue(b->streams, p, *t, fri_data(moved)));
            fri_bump_version(moved);
            fri_tensor_put(&moved, t);
            goto done;
        }
    }
    FR_TRY(s, fr_tensor_to_device(*t, device, t));
    fri_relabel(*t, FR_MEM_INPUT);
done:
    fr_tensor_release(&moved);
    return s;
}

fr_status fri_batch_on_host(fri_session *r, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    fr_status s = fr_loader_next(loader, images, targets);
    if (s == FR_OK && r->config->program->pixel_target != NULL) s = to_pixel_classes(r, *images, targets);
    return s;
}

/* ---- the next batch -------------------------------------------------------------------------------------------- */

fr_status fri_batch_fits(size_t bytes, size_t place) {
    if (bytes == place) return FR_OK;
    return fri_fail(FR_ESHAPE, "trainer: a batch of %zu bytes where a recorded step has %zu", bytes, place);
}

static fr_status into_place(fri_session *r, int which, const fr_tensor *t, void *place, size_t bytes) {
    const fri_backend *b = fri_backend_get(r->config->opts.device);
    fri_input_place *p = &r->input[which][r->input_turn];
    fr_status s = FR_OK;
    FR_TRY(s, fri_batch_fits(fri_nbytes(t), bytes));
    if (b->streams != NULL && r->config->opts.pin_memory) {
        FR_TRY(s, fri_input_room(b->streams, p, bytes));
        if (p->memory != NULL) return fri_input_queue(b->streams, p, t, place);
    }
    s = b->copy(FRI_EXEC, FRI_COPY_HOST_TO_DEVICE, fri_data(t), place, bytes);
done:
    return s;
}

fr_status fri_batch_into(fri_session *r, fr_loader *loader, const fri_batch_place *place, int64_t *count) {
    fr_tensor *images = NULL, *targets = NULL;
    fr_status s = FR_OK;
    if (r->prefetch.full && loader == r->loader) return fri_prefetch_into(r, place, count);
    s = fri_batch_on_host(r, loader, &images, &targets);
    if (s != FR_OK) goto done;
    FR_TRY(s, into_place(r, 0, images, place->data[0], place->bytes[0]));
    FR_TRY(s, into_place(r, 1, targets, place->data[1], place->bytes[1]));
    r->input_turn = 1 - r->input_turn;
    *count = fr_tensor_numel(targets);
done:
    fr_tensor_release(&images);
    fr_tensor_release(&targets);
    return s;
}

fr_status fri_batch_next(fri_session *r, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    if (r->prefetch.full && loader == r->loader) return fri_prefetch_next(r, images, targets);
    fr_status s = fri_batch_on_host(r, loader, images, targets);
    if (s != FR_OK) return s;
    FR_TRY(s, to_device(r, 0, images));
    FR_TRY(s, to_device(r, 1, targets));
    r->input_turn = 1 - r->input_turn;
done:
    return s;
}
