/* callbacks.c - a dataset that the program reads: frames in memory, a database, files of its own. */
#include "data/dataset.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>

static fr_status callbacks_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const fr_dataset_source *source = d->state;
    fr_status s = FR_OK;
    FR_TRY(s, fri_buffer_reserve(&image->decoded, (size_t)(d->height * d->width * d->channels), d->source));
    FR_TRY(s, source->read(source->ctx, index, image->decoded.data, &image->label));
    if (image->label < 0 || image->label >= d->classes)
        return fr_fail(FR_EINVAL, "%s: image %" PRId64 " has label %" PRId64 ", outside 0..%" PRId64, d->source, index,
                       image->label, d->classes - 1);
    image->labelled = true;
    image->pixels = image->decoded.data;
    image->height = d->height;
    image->width = d->width;
    image->channels = d->channels;
done:
    return s;
}

static void callbacks_destroy(fr_dataset *d) {
    const fr_dataset_source *source = d->state;
    if (source != NULL && source->release != NULL) source->release(source->ctx);
    free(d->state);
}

static const char *callbacks_class_name(const fr_dataset *d, int64_t label) {
    const fr_dataset_source *source = d->state;
    return source->class_names != NULL ? source->class_names[label] : NULL;
}

static const fri_dataset_ops callbacks_ops = {callbacks_read, callbacks_destroy, callbacks_class_name};

fr_status fr_dataset_create(const fr_dataset_source *source, fr_dataset **out) {
    FRI_NOT_NULL(source, out);
    const fr_dataset_source *o = source;
    const char *name = o->name != NULL ? o->name : "dataset";
    fr_dataset *d = NULL;
    fr_status s = FR_OK;
    if (o->read == NULL) return fr_fail(FR_EINVAL, "%s: there is no function that reads an image", name);
    if (o->count < 1 || o->count > INT32_MAX || o->classes < 1 || o->classes > INT32_MAX)
        return fr_fail(FR_EINVAL, "%s: %" PRId64 " images and %" PRId64 " classes, both must lie in 1..%d", name,
                       o->count, o->classes, INT32_MAX);
    if (o->channels != 1 && o->channels != 3)
        return fr_fail(FR_EINVAL, "%s: %" PRId64 " channels, must be 1 or 3", name, o->channels);
    if (fri_image_check_size(name, o->height, o->width) != FR_OK) return FR_EINVAL;
    FR_TRY(s, fri_dataset_new(&callbacks_ops, name, &d));
    fr_dataset_source *state = malloc(sizeof *state);
    if (state == NULL) {
        s = fr_fail(FR_ENOMEM, "%s: no host memory", name);
        goto done;
    }
    *state = *o;
    d->state = state;
    d->count = o->count;
    d->classes = o->classes;
    d->height = o->height;
    d->width = o->width;
    d->channels = o->channels;
    d->same_size = true;
    fr_dataset_release(out);
    *out = d;
    d = NULL;
done:
    fr_dataset_release(&d);
    return s;
}
