/* cifar.c - the binary versions of CIFAR-10 and CIFAR-100.
 *
 *   CIFAR-10   one byte label, then 3072 bytes: 32 x 32 of red, of green, of blue
 *   CIFAR-100  one byte coarse label, one byte fine label, then 3072 bytes
 * A file is any whole number of records. Opening a file interleaves the planes. */
#include "data/dataset.h"
#include "data/source.h"

#include "base/status.h"

#include <string.h>
#include <unistd.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, IMAGE = 3 * PLANE, COARSE_CLASSES = 20, FILES_MAX = 5 };
#define FILE_MOST (INT64_C(1) << 30) /* six times the largest existing file */

typedef struct variant {
    const char *name, *folder;
    int64_t classes;
    int label_bytes; /* the last label counts */
    const char *files[2][FILES_MAX + 1];
} variant;

static const variant cifar10 = {.name = "CIFAR-10",
                                .folder = "cifar-10-batches-bin",
                                .classes = 10,
                                .label_bytes = 1,
                                .files = {[FR_SPLIT_TRAIN] = {"data_batch_1.bin", "data_batch_2.bin",
                                                              "data_batch_3.bin", "data_batch_4.bin",
                                                              "data_batch_5.bin"},
                                          [FR_SPLIT_TEST] = {"test_batch.bin"}}};

static const variant cifar100 = {.name = "CIFAR-100",
                                 .folder = "cifar-100-binary",
                                 .classes = 100,
                                 .label_bytes = 2,
                                 .files = {[FR_SPLIT_TRAIN] = {"train.bin"}, [FR_SPLIT_TEST] = {"test.bin"}}};

static fr_status read_records(const variant *v, fri_source *f, int64_t n, uint8_t *pixels, int32_t *labels) {
    uint8_t record[2 + IMAGE];
    for (int64_t i = 0; i < n; i++) {
        FRI_TRY(fri_source_read(f, record, (size_t)(v->label_bytes + IMAGE)));
        if (v->label_bytes == 2 && record[0] >= COARSE_CLASSES)
            return fr_fail(FR_EFORMAT, "%s: coarse label %lld is %u, outside 0..%d", f->name, (long long)i, record[0],
                           COARSE_CLASSES - 1);
        uint8_t label = record[v->label_bytes - 1];
        if (label >= v->classes)
            return fr_fail(FR_EFORMAT, "%s: label %lld is %u, outside 0..%lld", f->name, (long long)i, label,
                           (long long)v->classes - 1);
        labels[i] = label;
        const uint8_t *plane = record + v->label_bytes;
        for (int p = 0; p < PLANE; p++)
            for (int c = 0; c < 3; c++) pixels[i * IMAGE + p * 3 + c] = plane[c * PLANE + p];
    }
    return FR_OK;
}

static fr_status file_path(const variant *v, const char *folder, const char *file, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", folder, file);
    if (n > 0 && n < 4096 && access(path, F_OK) == 0) return FR_OK;
    n = snprintf(path, 4096, "%s/%s/%s", folder, v->folder, file);
    if (n > 0 && n < 4096 && access(path, F_OK) == 0) return FR_OK;
    return fr_fail(FR_EIO, "%s: holds neither %s nor %s/%s of %s", folder, file, v->folder, file, v->name);
}

static fr_status open_variant(const variant *v, const char *folder, fr_split split, fr_dataset **out) {
    if (split != FR_SPLIT_TRAIN && split != FR_SPLIT_TEST)
        return fr_fail(FR_EINVAL, "%s: %d is not a split", folder, (int)split);
    const char *const *files = v->files[split];
    const uint64_t record = (uint64_t)v->label_bytes + IMAGE;
    char path[4096];
    int64_t counts[FILES_MAX] = {0}, total = 0, done_count = 0;
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    for (int i = 0; files[i] != NULL; i++) {
        fri_source f;
        FRI_TRY(file_path(v, folder, files[i], path));
        FRI_TRY(fri_source_open_file(&f, path));
        uint64_t bytes = f.stored;
        fri_source_close(&f);
        if (bytes > FILE_MOST) /* the format has no header with the number of images */
            return fr_fail(FR_EFORMAT, "%s: has %llu bytes, a %s file has at most %lld", path,
                           (unsigned long long)bytes, v->name, (long long)FILE_MOST);
        if (bytes == 0 || bytes % record != 0)
            return fr_fail(FR_EFORMAT, "%s: has %llu bytes, which is not a whole number of %s records of %llu bytes",
                           path, (unsigned long long)bytes, v->name, (unsigned long long)record);
        counts[i] = (int64_t)(bytes / record);
        total += counts[i];
    }
    FRI_TRY(fri_dataset_new(&fri_dataset_array_ops, folder, &d));
    d->count = total;
    d->classes = v->classes;
    d->height = d->width = SIDE;
    d->channels = 3;
    FRI_TRY(fri_dataset_array_allocate(d));
    for (int i = 0; files[i] != NULL; i++) {
        FRI_OWNED(fri_source_close) fri_source f = {.fd = -1};
        FRI_TRY(file_path(v, folder, files[i], path));
        FRI_TRY(fri_source_open_file(&f, path));
        FRI_TRY(read_records(v, &f, counts[i], d->pixels + done_count * IMAGE, d->labels + done_count));
        done_count += counts[i];
    }
    FRI_MOVE(out, d);
    return FR_OK;
}

fr_status fr_dataset_cifar10(const char *folder, fr_split split, fr_dataset **out) {
    FRI_NOT_NULL(folder, out);
    return open_variant(&cifar10, folder, split, out);
}

fr_status fr_dataset_cifar100(const char *folder, fr_split split, fr_dataset **out) {
    FRI_NOT_NULL(folder, out);
    return open_variant(&cifar100, folder, split, out);
}
