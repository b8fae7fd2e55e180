/* files.c - a dataset of files found and read by the program (fr_dataset_files). */
#include "data/dataset.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct files {
    fr_status (*read)(void *ctx, int64_t index, fr_image *image);
    const char *(*class_name)(void *ctx, int64_t label);
    void (*release)(void *ctx);
    void *ctx;
} files;

static fr_status files_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const files *f = d->state;
    return f->read(f->ctx, index, image);
}

static void files_destroy(fr_dataset *d) {
    files *f = d->state;
    if (f != NULL && f->release != NULL) f->release(f->ctx);
    free(f);
}

static const char *files_class_name(const fr_dataset *d, int64_t label) {
    const files *f = d->state;
    return f->class_name != NULL ? f->class_name(f->ctx, label) : NULL;
}

static const fri_dataset_ops files_ops = {.read = files_read, .destroy = files_destroy, .class_name = files_class_name};

static fr_status copy_list(const fr_file_source *s, const void *from, int64_t n, size_t size, void *to) {
    if (from == NULL) return FR_OK;
    void *data = malloc((size_t)n * size);
    if (data == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for the order of %lld images", s->name, (long long)n);
    memcpy(data, from, (size_t)n * size);
    memcpy(to, &data, sizeof data);
    return FR_OK;
}

static fr_status fill_dataset(const fr_file_source *s, fr_dataset *d) {
    FRI_TRY(copy_list(s, s->labels, s->count, sizeof *s->labels, &d->labels));
    FRI_TRY(copy_list(s, s->place, s->count, sizeof *s->place, &d->place));
    FRI_TRY(copy_list(s, s->run_end, s->runs, sizeof *s->run_end, &d->run_end));
    d->count = s->count;
    d->classes = s->classes;
    d->runs = s->run_end != NULL ? s->runs : 0;
    return fri_dataset_of_files(d);
}

fr_status fr_dataset_files(const fr_file_source *source, fr_dataset **out) {
    FRI_NOT_NULL(source, out);
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    fr_status s = FR_OK;
    if (source->name == NULL || source->read == NULL || source->labels == NULL || source->count < 1)
        s = fr_fail(FR_EINVAL, "fr_dataset_files: a name, labels, a read and at least 1 image are needed");
    if (s == FR_OK) s = fri_dataset_new(&files_ops, source->name, &d);
    files *f = s == FR_OK ? malloc(sizeof *f) : NULL;
    if (s == FR_OK && f == NULL) s = fr_fail(FR_ENOMEM, "%s: no memory for the dataset", source->name);
    if (s < 0) {
        if (source->release != NULL) source->release(source->ctx);
        return s;
    }
    *f = (files){source->read, source->class_name, source->release, source->ctx};
    d->state = f;
    FRI_TRY(fill_dataset(source, d));
    FRI_MOVE(out, d);
    return FR_OK;
}
