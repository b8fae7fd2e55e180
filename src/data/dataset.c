/* dataset.c - the part that all datasets share: life, questions, images in memory. */
#include "data/dataset.h"

#include "base/shape.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

fr_status fri_buffer_reserve(fri_buffer *b, size_t bytes, const char *what) {
    if (bytes <= b->capacity) return FR_OK;
    void *data = malloc(bytes);
    if (data == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for %zu bytes", what, bytes);
    free(b->data);
    *b = (fri_buffer){.data = data, .capacity = bytes};
    return FR_OK;
}

void fri_buffer_free(fri_buffer *b) {
    free(b->data);
    *b = (fri_buffer){0};
}

void fr_image_clear(fr_image *image) {
    if (image == NULL) return;
    fri_buffer_free(&image->decoded);
    fri_buffer_free(&image->file);
    *image = (fr_image){0};
}

fr_status fri_image_check_size(const char *name, int64_t height, int64_t width) {
    if (height < 1 || width < 1 || height > FRI_IMAGE_SIDE_MAX || width > FRI_IMAGE_SIDE_MAX)
        return fr_fail(FR_EFORMAT, "%s: an image of %lld x %lld pixels; sides must lie in 1..%d", name,
                       (long long)width, (long long)height, FRI_IMAGE_SIDE_MAX);
    if (height * width > FRI_IMAGE_PIXELS_MAX)
        return fr_fail(FR_EFORMAT, "%s: an image of %lld x %lld pixels; the limit is %d pixels", name, (long long)width,
                       (long long)height, FRI_IMAGE_PIXELS_MAX);
    return FR_OK;
}

fr_status fri_dataset_new(const fri_dataset_ops *ops, const char *source, fr_dataset **out) {
    fr_dataset *d = calloc(1, sizeof *d);
    if (d != NULL) d->source = strdup(source);
    if (d == NULL || d->source == NULL) {
        free(d);
        return fr_fail(FR_ENOMEM, "%s: no memory for the dataset", source);
    }
    d->ops = ops;
    d->same_size = true;
    atomic_init(&d->references, 1);
    *out = d;
    return FR_OK;
}

fr_dataset *fr_dataset_retain(fr_dataset *d) {
    if (d == NULL) return NULL;
    atomic_fetch_add_explicit(&d->references, 1, memory_order_relaxed);
    return d;
}

void fr_dataset_release(fr_dataset **dataset) {
    if (dataset == NULL || *dataset == NULL) return;
    fr_dataset *d = *dataset;
    *dataset = NULL;
    if (atomic_fetch_sub_explicit(&d->references, 1, memory_order_acq_rel) != 1) return;
    if (d->ops->destroy != NULL) d->ops->destroy(d);
    free(d->pixels);
    free(d->labels);
    free(d->source);
    free(d);
}

fr_status fri_dataset_array_allocate(fr_dataset *d) {
    fr_shape shape = FRI_SHAPE(d->count, d->height, d->width, d->channels);
    size_t bytes = 0;
    fr_status s = fri_shape_bytes(d->source, &shape, FR_U8, &bytes);
    if (s != FR_OK) return s;
    d->pixels = malloc(bytes);
    d->labels = calloc((size_t)d->count, sizeof *d->labels);
    if (d->pixels == NULL || d->labels == NULL)
        return fr_fail(FR_ENOMEM, "%s: no memory for %lld images of %zu bytes together", d->source, (long long)d->count,
                       bytes);
    return FR_OK;
}

static fr_status array_read(const fr_dataset *d, int64_t index, fr_image *image) {
    image->height = d->height;
    image->width = d->width;
    image->channels = d->channels;
    image->pixels = d->pixels + (size_t)index * (size_t)(d->height * d->width * d->channels);
    return FR_OK;
}

const fri_dataset_ops fri_dataset_array_ops = {.read = array_read};

static fr_status check_index(const fr_dataset *d, int64_t index) {
    if (index < 0 || index >= d->count)
        return fr_fail(FR_EINVAL, "%s: index %lld is outside 0..%lld", d->source, (long long)index,
                       (long long)d->count - 1);
    return FR_OK;
}

fr_status fri_dataset_read(const fr_dataset *d, int64_t index, fr_image *image) {
    fr_status s = check_index(d, index);
    return s != FR_OK ? s : d->ops->read(d, index, image);
}

fr_status fr_dataset_info_get(const fr_dataset *dataset, fr_dataset_info *out) {
    FRI_NOT_NULL(dataset, out);
    *out = (fr_dataset_info){.count = dataset->count,
                             .classes = dataset->classes,
                             .height = dataset->height,
                             .width = dataset->width,
                             .channels = dataset->channels,
                             .same_size = dataset->same_size,
                             .source = dataset->source};
    return FR_OK;
}

fr_status fr_dataset_label(const fr_dataset *dataset, int64_t index, int64_t *label) {
    FRI_NOT_NULL(dataset, label);
    fr_status s = check_index(dataset, index);
    if (s != FR_OK) return s;
    if (dataset->labels != NULL) {
        *label = dataset->labels[index];
        return FR_OK;
    }
    fr_image image = {0};
    s = fri_dataset_read(dataset, index, &image);
    if (s == FR_OK) *label = image.label;
    fr_image_clear(&image);
    return s;
}

const char *fr_dataset_class_name(const fr_dataset *d, int64_t label) {
    if (d == NULL || d->ops->class_name == NULL || label < 0 || label >= d->classes) return NULL;
    return d->ops->class_name(d, label);
}

fr_status fr_dataset_read(const fr_dataset *dataset, int64_t index, uint8_t *pixels, size_t capacity, int64_t *height,
                          int64_t *width, int64_t *channels) {
    FRI_NOT_NULL(dataset);
    fr_image image = {0};
    fr_status s = FR_OK;
    FR_TRY(s, fri_dataset_read(dataset, index, &image));
    size_t bytes = (size_t)(image.height * image.width * image.channels);
    if (pixels != NULL && capacity < bytes) {
        s = fr_fail(FR_EINVAL, "%s: image %lld has %zu bytes but the buffer holds %zu", dataset->source,
                    (long long)index, bytes, capacity);
        goto done;
    }
    if (pixels != NULL) memcpy(pixels, image.pixels, bytes);
    if (height != NULL) *height = image.height;
    if (width != NULL) *width = image.width;
    if (channels != NULL) *channels = image.channels;
done:
    fr_image_clear(&image);
    return s;
}

fr_status fr_dataset_mean_std(const fr_dataset *dataset, int64_t limit, double mean[3], double std[3]) {
    FRI_NOT_NULL(dataset, mean, std);
    if (limit < 1) return fr_fail(FR_EINVAL, "fr_dataset_mean_std: limit is %lld, must be >= 1", (long long)limit);
    fr_image image = {0};
    fr_status s = FR_OK;
    uint64_t sum[3] = {0}, squares[3] = {0}, pixels = 0; /* integers: 2^48 pixels of 255^2 fit, and order is free */
    int64_t n = limit < dataset->count ? limit : dataset->count;
    for (int64_t i = 0; i < n; i++) {
        /* i * count / n without overflow */
        int64_t index = i * (dataset->count / n) + i * (dataset->count % n) / n;
        FR_TRY(s, fri_dataset_read(dataset, index, &image));
        int64_t area = image.height * image.width;
        pixels += (uint64_t)area;
        for (int64_t p = 0; p < area; p++)
            for (int64_t c = 0; c < image.channels; c++) {
                uint64_t v = image.pixels[p * image.channels + c];
                sum[c] += v;
                squares[c] += v * v;
            }
    }
    for (int64_t c = 0; c < dataset->channels; c++) {
        double m = (double)sum[c] / (double)pixels;
        double variance = (double)squares[c] / (double)pixels - m * m;
        mean[c] = m / 255.0;
        std[c] = sqrt(variance > 0 ? variance : 0) / 255.0;
    }
done:
    fr_image_clear(&image);
    return s;
}
