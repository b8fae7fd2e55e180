/* idx.c - the IDX format of MNIST: big-endian 32-bit words, then bytes.
 *
 *   images  0x00000803  count  height  width   count * height * width bytes
 *   labels  0x00000801  count                  count bytes */
#include "data/dataset.h"
#include "data/source.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC_LABELS = 0x801, MAGIC_IMAGES = 0x803 };

static uint32_t big_endian(const uint8_t b[4]) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static fr_status read_header(fri_source *f, uint32_t magic, int words, uint32_t *word) {
    uint8_t bytes[16];
    fr_status s = fri_source_read(f, bytes, 4);
    if (s != FR_OK) return s;
    if (big_endian(bytes) != magic)
        return fr_fail(FR_EFORMAT, "%s: starts with 0x%08x, IDX %s start with 0x%08x", f->name, big_endian(bytes),
                       magic == MAGIC_IMAGES ? "images" : "labels", magic);
    s = fri_source_read(f, bytes, 4 * (size_t)words);
    for (int i = 0; s == FR_OK && i < words; i++) word[i] = big_endian(bytes + 4 * i);
    return s;
}

static fr_status read_images(fri_source *f, fr_dataset *d) {
    uint32_t word[3];
    char what[80];
    fr_status s = read_header(f, MAGIC_IMAGES, 3, word);
    if (s != FR_OK) return s;
    d->count = word[0];
    d->height = word[1];
    d->width = word[2];
    d->channels = 1;
    if (d->count < 1) return fr_fail(FR_EFORMAT, "%s: holds 0 images, at least 1 is needed", f->name);
    s = fri_image_check_size(f->name, d->height, d->width);
    if (s != FR_OK) return s;
    /* Product of at most 2^32 and 2^26: no overflow. */
    uint64_t bytes = (uint64_t)d->count * (uint64_t)(d->height * d->width);
    snprintf(what, sizeof what, "%u images of %u x %u", word[0], word[2], word[1]);
    s = fri_source_expect(f, bytes, what);
    if (s == FR_OK) s = fri_dataset_array_allocate(d);
    if (s == FR_OK) s = fri_source_read(f, d->pixels, (size_t)bytes);
    return s == FR_OK ? fri_source_end(f) : s;
}

static fr_status read_labels(fri_source *f, const char *images_name, fr_dataset *d) {
    uint32_t count = 0;
    FRI_OWNED(fri_free) uint8_t *labels = NULL;
    FRI_TRY(read_header(f, MAGIC_LABELS, 1, &count));
    if (count != d->count)
        return fr_fail(FR_EFORMAT, "%s: holds %u labels but %s holds %lld images", f->name, count, images_name,
                       (long long)d->count);
    labels = malloc(count);
    if (labels == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for %u labels", f->name, count);
    FRI_TRY(fri_source_read(f, labels, count));
    FRI_TRY(fri_source_end(f));
    for (uint32_t i = 0; i < count; i++) {
        if (labels[i] >= d->classes)
            return fr_fail(FR_EFORMAT, "%s: label %u is %u, outside 0..%lld", f->name, i, labels[i],
                           (long long)d->classes - 1);
        d->labels[i] = labels[i];
    }
    return FR_OK;
}

static fr_status read_both(const char *name, fri_source *images, fri_source *labels, int64_t classes,
                           fr_dataset **out) {
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    if (classes < 1 || classes > 256)
        return fr_fail(FR_EINVAL, "%s: %lld classes; IDX labels allow 1..256", name, (long long)classes);
    FRI_TRY(fri_dataset_new(&fri_dataset_array_ops, name, &d));
    d->classes = classes;
    FRI_TRY(read_images(images, d));
    FRI_TRY(read_labels(labels, images->name, d));
    FRI_MOVE(out, d);
    return FR_OK;
}

/* folder/<prefix>-<kind>[.gz] for the first existing prefix and ending; path [bytes]. */
static fr_status find_file(const char *folder, fr_split split, const char *kind, char *path, size_t bytes) {
    static const char *const prefixes[2][2] = {[FR_SPLIT_TRAIN] = {"train", NULL}, [FR_SPLIT_TEST] = {"t10k", "test"}};
    static const char *const endings[2] = {"", ".gz"};
    for (int p = 0; p < 2 && prefixes[split][p] != NULL; p++)
        for (int e = 0; e < 2; e++) {
            int n = snprintf(path, bytes, "%s/%s-%s%s", folder, prefixes[split][p], kind, endings[e]);
            if (n < 0 || (size_t)n >= bytes) return fr_fail(FR_EINVAL, "%s: the path is too long", folder);
            if (access(path, F_OK) == 0) return FR_OK;
        }
    return fr_fail(FR_EIO, "%s: holds no %s-%s, plain or .gz%s", folder, prefixes[split][0], kind,
                   split == FR_SPLIT_TEST ? ", nor one that starts with test" : "");
}

fr_status fr_dataset_idx(const char *folder, fr_split split, int64_t classes, fr_dataset **out) {
    FRI_NOT_NULL(folder, out);
    if (split != FR_SPLIT_TRAIN && split != FR_SPLIT_TEST)
        return fr_fail(FR_EINVAL, "%s: %d is not a split", folder, (int)split);
    char images_path[4096], labels_path[4096];
    FRI_OWNED(fri_source_close) fri_source images = {.fd = -1}, labels = {.fd = -1};
    FRI_TRY(find_file(folder, split, "images-idx3-ubyte", images_path, sizeof images_path));
    FRI_TRY(find_file(folder, split, "labels-idx1-ubyte", labels_path, sizeof labels_path));
    FRI_TRY(fri_source_open_file(&images, images_path));
    FRI_TRY(fri_source_open_file(&labels, labels_path));
    return read_both(folder, &images, &labels, classes, out);
}

fr_status fr_dataset_idx_memory(const char *name, const void *images, size_t images_bytes, const void *labels,
                                size_t labels_bytes, int64_t classes, fr_dataset **out) {
    FRI_NOT_NULL(name, images, labels, out);
    char images_name[256], labels_name[256];
    snprintf(images_name, sizeof images_name, "%.200s (images)", name);
    snprintf(labels_name, sizeof labels_name, "%.200s (labels)", name);
    FRI_OWNED(fri_source_close) fri_source image_source = {.fd = -1}, label_source = {.fd = -1};
    FRI_TRY(fri_source_open_memory(&image_source, images_name, images, images_bytes));
    FRI_TRY(fri_source_open_memory(&label_source, labels_name, labels, labels_bytes));
    return read_both(name, &image_source, &label_source, classes, out);
}
