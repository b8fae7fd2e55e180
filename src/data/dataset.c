/* dataset.c - shared parts of all datasets: lifetime, queries, images in memory. */
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
    fri_buffer_free(&image->target);
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
    free(d->place);
    free(d->run_end);
    free(d->source);
    free(d);
}

fr_status fri_dataset_of_files(fr_dataset *d) {
    fr_image first = {0};
    fr_status s = fri_dataset_read(d, 0, &first);
    d->files = true;
    d->channels = 3;
    d->same_size = false; /* unknown */
    d->height = first.height;
    d->width = first.width;
    fr_image_clear(&first);
    return s;
}

fr_status fr_dataset_as_stored(fr_dataset *dataset) {
    FRI_NOT_NULL(dataset);
    if (!dataset->files || atomic_exchange(&dataset->as_stored, true)) return FR_OK;
    return fri_dataset_of_files(dataset);
}

fr_status fri_dataset_array_allocate(fr_dataset *d) {
    fr_shape shape = FRI_SHAPE(d->count, d->height, d->width, d->channels);
    size_t bytes = 0;
    FRI_TRY(fri_shape_bytes(d->source, &shape, FR_U8, &bytes));
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
    FRI_TRY(check_index(d, index));
    image->as_stored = d->as_stored;
    return d->ops->read(d, index, image);
}

/* i * count / n without overflow: image i of n at equal distances. */
static int64_t spread(const fr_dataset *d, int64_t i, int64_t n) {
    return i * (d->count / n) + i * (d->count % n) / n;
}

fr_status fri_dataset_count_turned(const fr_dataset *d, int64_t look, int64_t *seen, int64_t *turned) {
    FRI_OWNED(fr_image_clear) fr_image image = {.header_only = true};
    *seen = !d->files ? 0 : look < d->count ? look : d->count;
    *turned = 0;
    for (int64_t i = 0; i < *seen; i++) {
        FRI_TRY(fri_dataset_read(d, spread(d, i, *seen), &image));
        *turned += image.orientation > 1;
    }
    return FR_OK;
}

int64_t fri_target_numel(const fr_dataset *d, int64_t height, int64_t width) {
    return d->target == FR_TARGET_PIXELS ? height * width : d->target == FR_TARGET_VECTOR ? d->classes : 1;
}

size_t fri_target_bytes(const fr_dataset *d, int64_t height, int64_t width) {
    static const size_t bytes[] =
        {[FR_TARGET_CLASS] = sizeof(int64_t), [FR_TARGET_PIXELS] = 1, [FR_TARGET_VECTOR] = sizeof(float)};
    return (size_t)fri_target_numel(d, height, width) * bytes[d->target];
}

fr_status fri_target_check(const fr_dataset *d, int64_t index, const fr_image *image) {
    const uint8_t *mask = image->target.data;
    if (d->target == FR_TARGET_CLASS && (image->label < 0 || image->label >= d->classes))
        return fr_fail(FR_EINVAL, "%s: image %lld has label %lld, outside 0..%lld", d->source, (long long)index,
                       (long long)image->label, (long long)d->classes - 1);
    for (int64_t i = 0; d->target == FR_TARGET_PIXELS && i < image->height * image->width; i++)
        if (mask[i] >= d->classes && mask[i] != FR_MASK_IGNORED)
            return fr_fail(FR_EINVAL,
                           "%s: image %lld has class %d at row %lld, column %lld, outside 0..%lld and not %d",
                           d->source, (long long)index, mask[i], (long long)(i / image->width),
                           (long long)(i % image->width), (long long)d->classes - 1, FR_MASK_IGNORED);
    return FR_OK;
}

fr_status fr_dataset_info_get(const fr_dataset *dataset, fr_dataset_info *out) {
    FRI_NOT_NULL(dataset, out);
    *out = (fr_dataset_info){.count = dataset->count,
                             .classes = dataset->classes,
                             .height = dataset->height,
                             .width = dataset->width,
                             .channels = dataset->channels,
                             .same_size = dataset->same_size,
                             .source = dataset->source,
                             .f32 = dataset->f32,
                             .target = dataset->target,
                             .live = dataset->live,
                             .left_out = dataset->left_out};
    return FR_OK;
}

fr_status fr_dataset_label(const fr_dataset *dataset, int64_t index, int64_t *label) {
    FRI_NOT_NULL(dataset, label);
    fr_status s = check_index(dataset, index);
    if (s != FR_OK) return s;
    if (dataset->target != FR_TARGET_CLASS)
        return fr_fail(FR_EUSAGE, "%s: the images have no labels; fr_dataset_info_get gives the kind of target",
                       dataset->source);
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

fr_status fri_dataset_target(const fr_dataset *dataset, int64_t index, void *target, size_t capacity, size_t *bytes) {
    FRI_NOT_NULL(dataset);
    FRI_OWNED(fr_image_clear) fr_image image = {0};
    FRI_TRY(fri_dataset_read(dataset, index, &image));
    if (!image.labelled && dataset->target == FR_TARGET_CLASS) image.label = dataset->labels[index];
    size_t n = fri_target_bytes(dataset, image.height, image.width);
    if (target != NULL && capacity < n)
        return fr_fail(FR_EINVAL, "%s: the target of image %lld has %zu bytes but the buffer holds %zu",
                       dataset->source, (long long)index, n, capacity);
    if (target != NULL) memcpy(target, dataset->target == FR_TARGET_CLASS ? &image.label : image.target.data, n);
    if (bytes != NULL) *bytes = n;
    return FR_OK;
}

const char *fr_dataset_class_name(const fr_dataset *d, int64_t label) {
    if (d == NULL || d->ops->class_name == NULL || label < 0 || label >= d->classes) return NULL;
    return d->ops->class_name(d, label);
}

fr_status fr_dataset_read(const fr_dataset *dataset, int64_t index, void *pixels, size_t capacity, int64_t *height,
                          int64_t *width, int64_t *channels) {
    FRI_NOT_NULL(dataset);
    FRI_OWNED(fr_image_clear) fr_image image = {0};
    FRI_TRY(fri_dataset_read(dataset, index, &image));
    size_t bytes = (size_t)(image.height * image.width * image.channels) * (image.f32 != NULL ? sizeof(float) : 1);
    if (pixels != NULL && capacity < bytes)
        return fr_fail(FR_EINVAL, "%s: image %lld has %zu bytes but the buffer holds %zu", dataset->source,
                       (long long)index, bytes, capacity);
    if (pixels != NULL) memcpy(pixels, image.f32 != NULL ? (const void *)image.f32 : image.pixels, bytes);
    if (height != NULL) *height = image.height;
    if (width != NULL) *width = image.width;
    if (channels != NULL) *channels = image.channels;
    return FR_OK;
}

/* Integers for 8 bits: 2^48 pixels of 255^2 fit. f32 in double about the first pixel, so a large mean costs no
 * digits. */
typedef struct moments {
    uint64_t pixels, sum[FR_CHANNELS_MAX], squares[FR_CHANNELS_MAX];
    double about[FR_CHANNELS_MAX], real_sum[FR_CHANNELS_MAX], real_squares[FR_CHANNELS_MAX];
} moments;

static void add_moments(moments *m, const fr_image *image) {
    const int64_t area = image->height * image->width, channels = image->channels;
    for (int64_t c = 0; image->f32 != NULL && m->pixels == 0 && c < channels; c++) m->about[c] = image->f32[c];
    m->pixels += (uint64_t)area;
    for (int64_t i = 0; i < area * channels; i++) {
        if (image->f32 != NULL) {
            double v = image->f32[i] - m->about[i % channels];
            m->real_sum[i % channels] += v;
            m->real_squares[i % channels] += v * v;
        } else {
            uint64_t v = image->pixels[i];
            m->sum[i % channels] += v;
            m->squares[i % channels] += v * v;
        }
    }
}

fr_status fr_dataset_mean_std(const fr_dataset *dataset, int64_t limit, double *mean, double *std) {
    FRI_NOT_NULL(dataset, mean, std);
    const fr_dataset *d = dataset;
    if (limit < 1) return fr_fail(FR_EINVAL, "fr_dataset_mean_std: limit is %lld, must be >= 1", (long long)limit);
    FRI_OWNED(fr_image_clear) fr_image image = {0};
    moments m = {0};
    fr_status s = FR_OK;
    int64_t n = limit < d->count ? limit : d->count;
    for (int64_t i = 0; i < n; i++) {
        FRI_TRY(fri_dataset_read(d, spread(d, i, n), &image));
        add_moments(&m, &image);
    }
    for (int64_t c = 0; c < d->channels; c++) {
        const double pixels = (double)m.pixels, scale = d->f32 ? 1 : 255;
        const double first = (d->f32 ? m.real_sum[c] : (double)m.sum[c]) / pixels;
        const double variance = (d->f32 ? m.real_squares[c] : (double)m.squares[c]) / pixels - first * first;
        mean[c] = (m.about[c] + first) / scale;
        std[c] = sqrt(variance > 0 ? variance : 0) / scale;
        if (!isfinite(mean[c]) || !isfinite(variance))
            s = fr_fail(FR_EINVAL, "%s: channel %lld of the images has inf or NaN", d->source, (long long)c);
    }
    return s;
}
