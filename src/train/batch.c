/* batch.c - a batch from the loader to the device, with targets for classification or segmentation.
 *
 * On a device that runs ahead a batch is laid into one of two page-locked places, in turn, and goes from there on a
 * stream of its own: behind what the device still does with that memory, and before what is queued next. The loader's
 * buffer is free at once. The host waits only if the batch before the last one has not left its place yet.
 *
 * Note [Ahead]
 * A batch's memory is needed to the end of its step, so its transfer begins when the step before is over. With
 * --device-prefetch there is memory for one batch more: the next one is copied there while a step runs, and from there,
 * on the device, to where its step expects it. The loader is a batch ahead then, so a batch is fetched only when the
 * state between two steps has been saved. */
#include "base/status.h"
#include "tensor/tensor.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>

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

/* Makes the place large enough. Without page-locked memory its pointer stays NULL. */
static fr_status make_room(const fri_streams *streams, fri_input_place *p, size_t bytes) {
    fr_status s = streams->wait(p->left);
    if (s < 0 || bytes <= p->bytes) return s;
    streams->host_free(p->memory, p->bytes);
    *p = (fri_input_place){.streams = streams};
    if (streams->host_alloc(bytes, &p->memory) == FR_OK) p->bytes = bytes;
    return FR_OK;
}

void fri_input_place_free(fri_input_place *p) {
    if (p->memory != NULL) p->streams->host_free(p->memory, p->bytes);
    *p = (fri_input_place){0};
}

/* Behind this fence `to` may be written. */
static fr_status transfer(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, fri_fence behind,
                          void *to) {
    size_t bytes = fri_nbytes(from);
    fr_status s = FR_OK;
    memcpy(p->memory, fri_data(from), bytes);
    FR_TRY(s, streams->follow(FRI_STREAM_INPUT, behind));
    FR_TRY(s, streams->copy(FRI_STREAM_INPUT, FRI_COPY_HOST_TO_DEVICE, p->memory, to, bytes));
    FR_TRY(s, streams->mark(FRI_STREAM_INPUT, &p->left));
done:
    return s;
}

/* Between what was queued before and what comes. */
static fr_status queue(const fri_streams *streams, fri_input_place *p, const fr_tensor *from, void *to) {
    fri_fence before = {0};
    fr_status s = FR_OK;
    FR_TRY(s, streams->mark(FRI_STREAM_COMPUTE, &before));
    FR_TRY(s, transfer(streams, p, from, before, to));
    FR_TRY(s, streams->follow(FRI_STREAM_COMPUTE, p->left));
done:
    return s;
}

/* which: 0 images, 1 targets. */
static fr_status to_device(fri_run *r, int which, fr_tensor **t) {
    fr_device device = r->opts.device;
    const fri_backend *b = fri_backend_get(device);
    fri_input_place *p = &r->input[which][r->input_turn];
    fr_tensor *moved = NULL;
    fr_status s = FR_OK;
    if (fr_tensor_device(*t) == device) return FR_OK;
    if (b != NULL && b->streams != NULL && r->opts.pin_memory) {
        FR_TRY(s, make_room(b->streams, p, fri_nbytes(*t)));
        if (p->memory != NULL) {
            FR_TRY(s, fr_tensor_empty((*t)->shape.rank, (*t)->shape.dim, (*t)->dtype, device, &moved));
            fri_relabel(moved, FR_MEM_INPUT);
            FR_TRY(s, queue(b->streams, p, *t, fri_data(moved)));
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

static fr_status next_on_host(fri_run *r, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    fr_status s = fr_loader_next(loader, images, targets);
    if (s == FR_OK && r->program->pixel_target != NULL) s = to_pixel_classes(r, *images, targets);
    return s;
}

/* ---- Note [Ahead] ---------------------------------------------------------------------------------------------- */

fr_status fri_batch_ahead_prepare(fri_run *r) {
    const fr_train_opts *o = &r->opts;
    int64_t n = o->batch_size < r->train_count ? o->batch_size : r->train_count, size = o->image_size;
    fr_tensor **memory = r->ahead.memory;
    fr_status s = FR_OK;
    if (!o->device_prefetch || !o->pin_memory || !fri_device_runs_ahead(o->device)) return FR_OK;
    FR_TRY(s, fr_tensor_empty(4, (int64_t[]){n, size, size, 3}, FR_F32, o->device, &memory[0]));
    FR_TRY(s, fr_tensor_empty(r->program->pixel_target != NULL ? 3 : 1, (int64_t[]){n, size, size}, FR_I64, o->device,
                              &memory[1]));
    fri_relabel(memory[0], FR_MEM_INPUT);
    fri_relabel(memory[1], FR_MEM_INPUT);
done:
    return s;
}

void fri_batch_ahead_release(fri_run *r) {
    fr_tensor_release(&r->ahead.memory[0]);
    fr_tensor_release(&r->ahead.memory[1]);
    r->ahead = (fri_ahead){0};
}

static fr_status fetch(fri_run *r, const fr_tensor *const t[2]) {
    const fri_backend *b = fri_backend_get(r->opts.device);
    fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        fri_input_place *p = &r->input[i][r->input_turn];
        a->dtype[i] = t[i]->dtype;
        a->shape[i] = t[i]->shape;
        if (fri_nbytes(t[i]) > fri_nbytes(a->memory[i]))
            return fri_fail(FR_EINTERNAL, "trainer: a batch of %zu bytes, more than the %zu of a full one",
                            fri_nbytes(t[i]), fri_nbytes(a->memory[i]));
        FR_TRY(s, make_room(b->streams, p, fri_nbytes(t[i])));
        if (p->memory == NULL) /* without page-locked memory in the compute stream's order */
            FR_TRY(s, b->copy(&(fri_exec){0}, FRI_COPY_HOST_TO_DEVICE, fri_data(t[i]), fri_data(a->memory[i]),
                              fri_nbytes(t[i])));
        else
            FR_TRY(s, transfer(b->streams, p, t[i], a->taken, fri_data(a->memory[i])));
        a->arrived[i] = p->left;
    }
    r->input_turn = 1 - r->input_turn;
    a->full = true;
done:
    return s;
}

fr_status fri_batch_ahead(fri_run *r) {
    fr_tensor *t[2] = {NULL, NULL};
    fr_status s = FR_OK;
    if (r->ahead.memory[0] == NULL || r->ahead.full) return FR_OK;
    s = next_on_host(r, r->loader, &t[0], &t[1]);
    if (s == FR_OK) s = fetch(r, (const fr_tensor *const[2]){t[0], t[1]});
    fr_tensor_release(&t[0]);
    fr_tensor_release(&t[1]);
    return s == FR_END ? FR_OK : s;
}

static fr_status take(fri_run *r, int which, void *to, size_t bytes) {
    const fri_streams *streams = fri_backend_get(r->opts.device)->streams;
    const fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    FR_TRY(s, streams->follow(FRI_STREAM_COMPUTE, a->arrived[which]));
    FR_TRY(s, streams->copy(FRI_STREAM_COMPUTE, FRI_COPY_DEVICE_TO_DEVICE, fri_data(a->memory[which]), to, bytes));
done:
    return s;
}

static fr_status taken(fri_run *r) {
    r->ahead.full = false;
    return fri_backend_get(r->opts.device)->streams->mark(FRI_STREAM_COMPUTE, &r->ahead.taken);
}

static fr_status next_ahead(fri_run *r, fr_tensor **images, fr_tensor **targets) {
    fr_tensor **out[2] = {images, targets}, *t = NULL;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        FR_TRY(s, fri_tensor_new(&r->ahead.shape[i], r->ahead.dtype[i], r->opts.device, FR_MEM_TEMPORARY, &t));
        fri_relabel(t, FR_MEM_INPUT);
        FR_TRY(s, take(r, i, fri_data(t), fri_nbytes(t)));
        fri_tensor_put(&t, out[i]);
    }
    s = taken(r);
done:
    fr_tensor_release(&t);
    return s;
}

/* ---- the next batch -------------------------------------------------------------------------------------------- */

static fr_status fits(size_t bytes, size_t place) {
    if (bytes == place) return FR_OK;
    return fri_fail(FR_ESHAPE, "trainer: a batch of %zu bytes where a recorded step has %zu", bytes, place);
}

static fr_status into_place(fri_run *r, int which, const fr_tensor *t, void *place, size_t bytes) {
    const fri_backend *b = fri_backend_get(r->opts.device);
    fri_input_place *p = &r->input[which][r->input_turn];
    fr_status s = FR_OK;
    FR_TRY(s, fits(fri_nbytes(t), bytes));
    if (b->streams != NULL && r->opts.pin_memory) {
        FR_TRY(s, make_room(b->streams, p, bytes));
        if (p->memory != NULL) return queue(b->streams, p, t, place);
    }
    s = b->copy(&(fri_exec){0}, FRI_COPY_HOST_TO_DEVICE, fri_data(t), place, bytes);
done:
    return s;
}

static fr_status ahead_into(fri_run *r, const fri_batch_place *place, int64_t *count) {
    const fri_ahead *a = &r->ahead;
    fr_status s = FR_OK;
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)fri_shape_numel(&a->shape[i]) * fr_dtype_size(a->dtype[i]);
        FR_TRY(s, fits(bytes, place->bytes[i]));
        FR_TRY(s, take(r, i, place->data[i], bytes));
    }
    *count = fri_shape_numel(&a->shape[1]);
    s = taken(r);
done:
    return s;
}

fr_status fri_batch_into(fri_run *r, fr_loader *loader, const fri_batch_place *place, int64_t *count) {
    fr_tensor *images = NULL, *targets = NULL;
    fr_status s = FR_OK;
    if (r->ahead.full && loader == r->loader) return ahead_into(r, place, count);
    s = next_on_host(r, loader, &images, &targets);
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

fr_status fri_batch_next(fri_run *r, fr_loader *loader, fr_tensor **images, fr_tensor **targets) {
    if (r->ahead.full && loader == r->loader) return next_ahead(r, images, targets);
    fr_status s = next_on_host(r, loader, images, targets);
    if (s != FR_OK) return s;
    FR_TRY(s, to_device(r, 0, images));
    FR_TRY(s, to_device(r, 1, targets));
    r->input_turn = 1 - r->input_turn;
done:
    return s;
}
