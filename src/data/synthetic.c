/* synthetic.c - noise as a function of (seed, index): a dataset without files or memory, for benchmarks. */
#include "data/dataset.h"

#include "base/philox.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_COUNTER (UINT64_C(1) << 63) /* more than any image's pixels */

static fr_status synthetic_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const uint64_t seed = *(const uint64_t *)d->state;
    size_t bytes = (size_t)(d->height * d->width * d->channels);
    FRI_TRY(fri_buffer_reserve(&image->decoded, bytes, "synthetic image"));
    uint8_t *to = image->decoded.data;
    for (size_t i = 0; i < bytes; i += 16) {
        fri_philox4 r = fri_philox(seed, (uint64_t)index, i / 16);
        uint8_t b[16];
        for (int k = 0; k < 16; k++) b[k] = (uint8_t)(r.v[k / 4] >> 8 * (k % 4)); /* independent of the byte order */
        memcpy(to + i, b, bytes - i < 16 ? bytes - i : 16);
    }
    image->pixels = to;
    image->height = d->height;
    image->width = d->width;
    image->channels = d->channels;
    return FR_OK;
}

static void synthetic_destroy(fr_dataset *d) {
    free(d->state);
}

static const fri_dataset_ops synthetic_ops = {.read = synthetic_read, .destroy = synthetic_destroy};

fr_status fr_dataset_synthetic(int64_t count, int64_t classes, int64_t height, int64_t width, int64_t channels,
                               uint64_t seed, fr_dataset **out) {
    FRI_NOT_NULL(out);
    if (count < 1 || count > INT32_MAX || classes < 1 || classes > INT32_MAX)
        return fr_fail(FR_EINVAL, "synthetic: %lld images and %lld classes, both must lie in 1..%d", (long long)count,
                       (long long)classes, INT32_MAX);
    if (channels != 1 && channels != 3)
        return fr_fail(FR_EINVAL, "synthetic: %lld channels; 1 or 3 are possible", (long long)channels);
    if (fri_image_check_size("synthetic", height, width) != FR_OK) return FR_EINVAL;
    fr_dataset *d = NULL;
    FRI_TRY(fri_dataset_new(&synthetic_ops, "synthetic", &d));
    uint64_t *state = malloc(sizeof *state);
    d->state = state;
    d->labels = malloc((size_t)count * sizeof *d->labels);
    if (state == NULL || d->labels == NULL) {
        fr_dataset_release(&d);
        return fr_fail(FR_ENOMEM, "synthetic: no memory for %lld labels", (long long)count);
    }
    *state = seed;
    for (int64_t i = 0; i < count; i++)
        d->labels[i] = (int32_t)(fri_philox(seed, (uint64_t)i, LABEL_COUNTER).v[0] % (uint32_t)classes);
    d->count = count;
    d->classes = classes;
    d->height = height;
    d->width = width;
    d->channels = channels;
    *out = d;
    return FR_OK;
}
