/* concat.c - two datasets as one. */
#include "data/dataset.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct pair {
    fr_dataset *of[2];
} pair;

static fr_status concat_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const pair *p = d->state;
    const bool second = index >= p->of[0]->count;
    const fr_dataset *from = p->of[second];
    if (second) index -= p->of[0]->count;
    image->labelled = false; /* of the image before */
    fr_status s = from->ops->read(from, index, image);
    if (s == FR_OK && from->target == FR_TARGET_CLASS && !image->labelled && from->labels != NULL) {
        image->label = from->labels[index];
        image->labelled = true;
    }
    return s;
}

static void concat_destroy(fr_dataset *d) {
    pair *p = d->state;
    for (int i = 0; p != NULL && i < 2; i++) fr_dataset_release(&p->of[i]);
    free(p);
}

static const char *concat_class_name(const fr_dataset *d, int64_t label) {
    return fr_dataset_class_name(((const pair *)d->state)->of[0], label);
}

static const fri_dataset_ops concat_ops = {concat_read, concat_destroy, concat_class_name};

fr_status fr_dataset_concat(fr_dataset *a, fr_dataset *b, fr_dataset **out) {
    FRI_NOT_NULL(a, b, out);
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    if (a->channels != b->channels || a->f32 != b->f32 || a->target != b->target || a->classes != b->classes)
        return fr_fail(FR_EINVAL,
                       "dataset_concat: %s has %" PRId64 " channels of %s and %" PRId64 " classes, %s %" PRId64
                       " of %s and %" PRId64 ", or their targets are of other kinds",
                       a->source, a->channels, a->f32 ? "f32" : "u8", a->classes, b->source, b->channels,
                       b->f32 ? "f32" : "u8", b->classes);
    FRI_TRY(fri_dataset_new(&concat_ops, a->source, &d));
    pair *p = d->state = calloc(1, sizeof *p);
    if (p == NULL) return fr_fail(FR_ENOMEM, "%s: no host memory", a->source);
    *p = (pair){{fr_dataset_retain(a), fr_dataset_retain(b)}};
    d->count = a->count + b->count;
    d->classes = a->classes;
    d->height = a->height;
    d->width = a->width;
    d->channels = a->channels;
    d->same_size = a->same_size && b->same_size && a->height == b->height && a->width == b->width;
    d->f32 = a->f32;
    d->target = a->target;
    d->live = a->live || b->live;
    fr_dataset_release(out);
    FRI_MOVE(out, d);
    return FR_OK;
}
