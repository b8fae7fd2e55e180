/* callbacks.c - a dataset that the program reads (a database, files of its own), or fills: a ring of frames.
 *
 * Slot i of a ring holds the newest of the images i, i + count, ... that were pushed. Pushing and reading copy an image
 * under the ring's lock, so a reader sees it and its target together, old or new. */
#include "data/dataset.h"

#include "base/shape.h"
#include "base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct own {
    fr_dataset_source source;
    pthread_mutex_t lock; /* of members for rings */
    uint8_t *pixels, *targets;
    int64_t pushed;
} own;

static size_t image_bytes(const fr_dataset *d) {
    return (size_t)(d->height * d->width * d->channels) * (d->f32 ? sizeof(float) : 1);
}

static size_t target_bytes(const fr_dataset *d) {
    return fri_target_bytes(d, d->height, d->width);
}

static fr_status ring_read(const fr_dataset *d, own *ring, int64_t index, void *pixels, void *target) {
    pthread_mutex_lock(&ring->lock);
    const int64_t held = ring->pushed < d->count ? ring->pushed : d->count, at = held > 0 ? index % held : 0;
    if (held > 0) {
        memcpy(pixels, ring->pixels + (size_t)at * image_bytes(d), image_bytes(d));
        memcpy(target, ring->targets + (size_t)at * target_bytes(d), target_bytes(d));
    }
    pthread_mutex_unlock(&ring->lock);
    return held > 0 ? FR_OK : fr_fail(FR_EUSAGE, "%s: the ring is empty; call fr_dataset_push first", d->source);
}

static fr_status own_read(const fr_dataset *d, int64_t index, fr_image *image) {
    own *o = d->state;
    FRI_TRY(fri_buffer_reserve(&image->decoded, image_bytes(d), d->source));
    FRI_TRY(fri_buffer_reserve(&image->target, target_bytes(d), d->source));
    void *target = d->target == FR_TARGET_CLASS ? (void *)&image->label : image->target.data;
    fr_status s = o->source.read == NULL
                      ? ring_read(d, o, index, image->decoded.data, target)
                      : FRI_CALLBACK("read", o->source.read(o->source.ctx, index, image->decoded.data, target));
    if (s < 0) return o->source.read == NULL ? s : fr_fail_prefix(s, "%s: image %" PRId64 ": ", d->source, index);
    image->labelled = true;
    image->pixels = d->f32 ? NULL : image->decoded.data;
    image->f32 = d->f32 ? image->decoded.data : NULL;
    image->height = d->height;
    image->width = d->width;
    image->channels = d->channels;
    return fri_target_check(d, index, image);
}

static void own_destroy(fr_dataset *d) {
    own *o = d->state;
    if (o == NULL) return;
    if (o->source.release != NULL) o->source.release(o->source.ctx);
    pthread_mutex_destroy(&o->lock);
    free(o->pixels);
    free(o->targets);
    free(o);
}

static const char *own_class_name(const fr_dataset *d, int64_t label) {
    const own *o = d->state;
    return o->source.class_names != NULL ? o->source.class_names[label] : NULL;
}

static const fri_dataset_ops own_ops = {own_read, own_destroy, own_class_name};

fr_status fr_dataset_push(fr_dataset *ring, const void *pixels, const void *target) {
    FRI_NOT_NULL(ring, pixels, target);
    own *o = ring->ops == &own_ops ? ring->state : NULL;
    if (o == NULL || o->pixels == NULL)
        return fr_fail(FR_EUSAGE, "%s: not a ring; fr_dataset_create makes a ring if `read` is NULL", ring->source);
    const fr_image image = {.height = ring->height,
                            .width = ring->width,
                            .label = ring->target == FR_TARGET_CLASS ? *(const int64_t *)target : 0,
                            .target.data = (void *)target};
    pthread_mutex_lock(&o->lock);
    fr_status s = fri_target_check(ring, o->pushed, &image);
    const size_t at = (size_t)(o->pushed % ring->count);
    if (s == FR_OK) {
        memcpy(o->pixels + at * image_bytes(ring), pixels, image_bytes(ring));
        memcpy(o->targets + at * target_bytes(ring), target, target_bytes(ring));
        o->pushed++;
    }
    pthread_mutex_unlock(&o->lock);
    return s;
}

static fr_status check_source(const fr_dataset_source *o, const char *name) {
    const int64_t most = o->target == FR_TARGET_PIXELS ? FR_MASK_IGNORED : INT32_MAX;
    if ((int)o->target < FR_TARGET_CLASS || o->target > FR_TARGET_VECTOR)
        return fr_fail(FR_EINVAL, "%s: %d is not a kind of target", name, (int)o->target);
    if (o->count < 1 || o->count > INT32_MAX || o->classes < 1 || o->classes > most)
        return fr_fail(FR_EINVAL,
                       "%s: %" PRId64 " images and %" PRId64 " classes, they must lie in 1..%d and 1..%" PRId64, name,
                       o->count, o->classes, INT32_MAX, most);
    if (o->channels < 1 || o->channels > FR_CHANNELS_MAX)
        return fr_fail(FR_EINVAL, "%s: %" PRId64 " channels, must lie in 1..%d", name, o->channels, FR_CHANNELS_MAX);
    return fri_image_check_size(name, o->height, o->width) == FR_OK ? FR_OK : FR_EINVAL;
}

static fr_status ring_allocate(const fr_dataset *d, own *ring) {
    const fr_shape images = FRI_SHAPE(d->count, d->height, d->width, d->channels),
                   targets = FRI_SHAPE(d->count, (int64_t)target_bytes(d));
    size_t pixels = 0, bytes = 0;
    FRI_TRY(fri_shape_bytes(d->source, &images, d->f32 ? FR_F32 : FR_U8, &pixels));
    FRI_TRY(fri_shape_bytes(d->source, &targets, FR_U8, &bytes));
    ring->pixels = malloc(pixels);
    ring->targets = malloc(bytes);
    if (ring->pixels == NULL || ring->targets == NULL)
        return fr_fail(FR_ENOMEM, "%s: no host memory for %" PRId64 " images of %zu bytes together", d->source,
                       d->count, pixels);
    return FR_OK;
}

fr_status fr_dataset_create(const fr_dataset_source *source, fr_dataset **out) {
    FRI_NOT_NULL(source, out);
    const char *name = source->name != NULL ? source->name : "dataset";
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    own *o = NULL;
    FRI_TRY(check_source(source, name));
    FRI_TRY(fri_dataset_new(&own_ops, name, &d));
    o = calloc(1, sizeof *o);
    FRI_TRY(o != NULL ? FR_OK : fr_fail(FR_ENOMEM, "%s: no host memory", name));
    pthread_mutex_init(&o->lock, NULL);
    d->state = o;
    d->count = source->count;
    d->classes = source->classes;
    d->height = source->height;
    d->width = source->width;
    d->channels = source->channels;
    d->f32 = source->f32;
    d->target = source->target;
    d->live = source->live || source->read == NULL;
    if (source->read == NULL) FRI_TRY(ring_allocate(d, o));
    o->source = *source; /* from here on a failure calls release */
    fr_dataset_release(out);
    FRI_MOVE(out, d);
    return FR_OK;
}
