/* tar.c - images in tar shards (WebDataset's layout), each read by its offset.
 *
 * Images are numbered in the byte order of their names over all shards, so that shards made from a folder give the
 * folder's numbers; `place` has the order in which they lie. A shard stays open from its first image on. */
#include "addons/tar/index.h"
#include "addons/tar/tar.h"

#include <frugal/addon.h>
#include <frugal/train.h>
#include <frugal/files.h>
#include <frugal/try.h>

#include <ctype.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_AT = 124, SIZE_DIGITS = 12, OPEN_SHARDS = 512, SHARDS_MAX = 1 << 20 };
enum { SIGNATURE = 4, IMAGE_FILE_MAX = 1 << 30 };

typedef struct names {
    char **name;
    int64_t count;
} names;

typedef struct entry {
    fri_tar_image image; /* owns the name */
    int64_t shard;
} entry;

typedef struct tar {
    names shards, classes;
    atomic_int *descriptor; /* of each shard, plus 1; 0: closed */
    atomic_int open;
    entry *entry; /* [count], in order of number */
    int64_t count, n_classes;
} tar;

static void names_free(names *l) {
    for (int64_t i = 0; i < l->count; i++) free(l->name[i]);
    free(l->name);
}

static fr_status names_add(names *l, const char *name) {
    FRI_TRY(FRI_ROOM(l->name, l->count, "tar"));
    l->name[l->count] = strdup(name);
    return l->name[l->count++] != NULL ? FR_OK : fr_fail(FR_ENOMEM, "tar: no memory for a name");
}

static int names_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- shards ------------------------------------------------------------------------------------------ */

/* "train-{000..127}.tar", bash's range: as many digits as the first number has. */
static fr_status expand_range(const char *pattern, const char *brace, names *out) {
    char *end = NULL, name[FRI_TAR_PATH];
    const char *from = brace + 1;
    long long first = strtoll(from, &end, 10), last = 0;
    int digits = (int)(end - from);
    bool fine =
        isdigit((unsigned char)*from) && digits <= 9 && strncmp(end, "..", 2) == 0 && isdigit((unsigned char)end[2]);
    if (fine) last = strtoll(end + 2, &end, 10);
    if (!fine || *end != '}' || strchr(end, '{') != NULL || last < first || last - first >= SHARDS_MAX)
        return fr_fail(FR_EINVAL, "%s: braces must hold one range of numbers, {000..127}, of at most %d", pattern,
                       SHARDS_MAX);
    fr_status s = FR_OK;
    for (long long i = first; i <= last && s == FR_OK; i++) {
        int n = snprintf(name, sizeof name, "%.*s%0*lld%s", (int)(brace - pattern), pattern, digits, i, end + 1);
        if (n < 0 || n >= FRI_TAR_PATH)
            return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", pattern, FRI_TAR_PATH);
        s = names_add(out, name);
    }
    return s;
}

static fr_status find_shards(const char *pattern, names *out) {
    const char *brace = strchr(pattern, '{');
    if (brace != NULL) return expand_range(pattern, brace, out);
    if (access(pattern, F_OK) == 0) return names_add(out, pattern);
    glob_t found = {0};
    fr_status s = FR_OK;
    int failed = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; failed == 0 && i < found.gl_pathc && s == FR_OK; i++) s = names_add(out, found.gl_pathv[i]);
    globfree(&found);
    if (failed != 0) return fr_fail(FR_EIO, "%s: no such file, and no file matches the pattern", pattern);
    return s;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

static fr_status open_shard(tar *t, int64_t shard, int *fd, bool *keeps) {
    uint64_t bytes = 0;
    int none = 0;
    *keeps = true;
    *fd = atomic_load(&t->descriptor[shard]) - 1;
    if (*fd >= 0) return FR_OK;
    FRI_TRY(fr_file_open(t->shards.name[shard], fd, &bytes));
    *keeps = atomic_fetch_add(&t->open, 1) < OPEN_SHARDS &&
             atomic_compare_exchange_strong(&t->descriptor[shard], &none, *fd + 1);
    if (!*keeps) atomic_fetch_sub(&t->open, 1);
    return FR_OK;
}

/* A header's size, in octal. Larger forms are for files above 8 GiB, larger than any image. */
static bool header_agrees(const uint8_t *header, int64_t bytes) {
    int64_t size = 0;
    for (int i = 0; i < SIZE_DIGITS; i++) {
        uint8_t c = header[SIZE_AT + i];
        if (c >= '0' && c <= '7')
            size = size * 8 + (c - '0');
        else if (c != ' ' && c != '\0')
            return false;
    }
    return size == bytes;
}

/* *bytes = the image's, in the image's buffer. Sentences name neither shard nor image. */
static fr_status read_bytes(int fd, const fri_tar_image *m, fr_image *image, void **bytes) {
    uint8_t first[FRI_TAR_BLOCK + SIGNATURE];
    const size_t look = m->bytes < SIGNATURE ? (size_t)m->bytes : SIGNATURE;
    if (m->bytes < 1 || m->bytes > IMAGE_FILE_MAX)
        return fr_fail(FR_EFORMAT, "has %lld bytes, an image has 1..%d", (long long)m->bytes, IMAGE_FILE_MAX);
    FRI_TRY(fr_file_read(fd, first, FRI_TAR_BLOCK + look, (uint64_t)m->offset - FRI_TAR_BLOCK));
    if (!header_agrees(first, m->bytes))
        return fr_fail(FR_EFORMAT,
                       "no file of %lld bytes begins at byte %lld, as the shard's index says; remove the index",
                       (long long)m->bytes, (long long)m->offset);
    FRI_TRY(fr_image_check_signature(first + FRI_TAR_BLOCK, look)); /* before allocating memory for the file */
    FRI_TRY(fr_image_room(image, (size_t)m->bytes, bytes));
    return fr_file_read(fd, *bytes, (size_t)m->bytes, (uint64_t)m->offset);
}

static fr_status tar_read(void *ctx, int64_t index, fr_image *image) {
    tar *t = ctx;
    void *bytes = NULL;
    const entry *e = &t->entry[index];
    const char *shard = t->shards.name[e->shard];
    bool keeps = true;
    int fd = -1;
    fr_status s = open_shard(t, e->shard, &fd, &keeps);
    if (s == FR_OK) s = read_bytes(fd, &e->image, image, &bytes);
    if (!keeps && fd >= 0) close(fd);
    if (s < 0) return fr_fail_prefix(s, "%s: %s: ", shard, e->image.name);
    s = fr_image_decode(e->image.name, bytes, (size_t)e->image.bytes, image);
    return s < 0 ? fr_fail_prefix(s, "%s: ", shard) : s;
}

static void tar_release(void *ctx) {
    tar *t = ctx;
    for (int64_t i = 0; t->descriptor != NULL && i < t->shards.count; i++)
        if (t->descriptor[i] > 0) close(t->descriptor[i] - 1);
    for (int64_t i = 0; i < t->count; i++) free(t->entry[i].image.name);
    free(t->entry);
    free(t->descriptor);
    names_free(&t->shards);
    names_free(&t->classes);
    free(t);
}

static const char *tar_class_name(void *ctx, int64_t label) {
    const tar *t = ctx;
    return t->classes.count > 0 ? t->classes.name[label] : NULL;
}

/* ---- classes and order ------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int c = strcmp(x->image.name, y->image.name);
    if (c != 0) return c;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->image.offset < y->image.offset ? -1 : x->image.offset > y->image.offset;
}

/* The folder of a name; false: none. */
static bool folder_of(const char *name, char folder[FRI_TAR_PATH]) {
    const char *slash = strrchr(name, '/'), *begin = slash;
    while (begin != NULL && begin > name && begin[-1] != '/') begin--;
    if (slash == NULL || begin == slash) return false;
    memcpy(folder, begin, (size_t)(slash - begin));
    folder[slash - begin] = '\0';
    return true;
}

/* All folders, sorted, each once. */
static fr_status find_classes(const tar *t, names *out) {
    char folder[FRI_TAR_PATH];
    fr_status s = FR_OK;
    for (int64_t i = 0; i < t->count && s == FR_OK; i++) {
        if (!folder_of(t->entry[i].image.name, folder))
            return fr_fail(FR_EFORMAT, "%s: %s has neither a .cls file nor a folder that names its class",
                           t->shards.name[t->entry[i].shard], t->entry[i].image.name);
        if (out->count > 0 && strcmp(out->name[out->count - 1], folder) == 0) continue;
        s = names_add(out, folder);
    }
    if (s < 0) return s;
    qsort(out->name, (size_t)out->count, sizeof *out->name, names_order);
    int64_t kept = 0;
    for (int64_t i = 0; i < out->count; i++) {
        if (kept > 0 && strcmp(out->name[kept - 1], out->name[i]) == 0)
            free(out->name[i]);
        else
            out->name[kept++] = out->name[i];
    }
    out->count = kept;
    return FR_OK;
}

static fr_status labels_of_folders(tar *t, int32_t *labels) {
    char folder[FRI_TAR_PATH];
    fr_status s = find_classes(t, &t->classes);
    for (int64_t i = 0; i < t->count && s == FR_OK; i++) {
        const char *key = folder;
        (void)folder_of(t->entry[i].image.name, folder);
        char **at = bsearch(&key, t->classes.name, (size_t)t->classes.count, sizeof *t->classes.name, names_order);
        labels[i] = (int32_t)(at - t->classes.name);
    }
    t->n_classes = t->classes.count;
    return s;
}

static fr_status set_labels(tar *t, int32_t *labels) {
    int64_t labelled = 0, without = -1;
    for (int64_t i = 0; i < t->count; i++) {
        const fri_tar_image *m = &t->entry[i].image;
        labels[i] = (int32_t)m->label;
        if (m->label >= t->n_classes) t->n_classes = m->label + 1;
        if (m->label == FRI_TAR_NO_LABEL)
            without = i;
        else
            labelled++;
    }
    if (labelled == 0) return labels_of_folders(t, labels);
    if (without < 0) return FR_OK;
    return fr_fail(FR_EFORMAT, "%s: %s has no .cls file, but %lld other images have one",
                   t->shards.name[t->entry[without].shard], t->entry[without].image.name, (long long)labelled);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static fr_status take_images(tar *t, int64_t shard) {
    FRI_OWNED(fri_tar_index_free) fri_tar_index x = {0};
    FRI_TRY(fri_tar_index_open(t->shards.name[shard], &x));
    if (x.count == 0) return fr_fail(FR_EFORMAT, "%s: holds 0 images (.jpg, .jpeg, .png)", t->shards.name[shard]);
    for (int64_t i = 0; i < x.count; i++) {
        FRI_TRY(FRI_ROOM(t->entry, t->count, "tar"));
        t->entry[t->count++] = (entry){x.image[i], shard};
        x.image[i].name = NULL;
    }
    return FR_OK;
}

typedef struct place {
    int64_t shard, offset, index;
} place;

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Arrays, copied by the dataset. */
typedef struct arrays {
    int32_t *labels;
    int64_t *place, *run_end;
    place *all;
} arrays;

static void arrays_free(arrays *a) {
    free(a->labels);
    free(a->place);
    free(a->run_end);
    free(a->all);
}

/* The images in order of storage, and the end of each shard. */
static void set_places(const tar *t, arrays *a) {
    for (int64_t i = 0; i < t->count; i++) a->all[i] = (place){t->entry[i].shard, t->entry[i].image.offset, i};
    qsort(a->all, (size_t)t->count, sizeof *a->all, by_place);
    for (int64_t i = 0; i < t->count; i++) {
        a->place[i] = a->all[i].index;
        a->run_end[a->all[i].shard] = i + 1;
    }
}

static fr_status open_all(tar *t, const char *pattern, arrays *a) {
    FRI_TRY(find_shards(pattern, &t->shards));
    t->descriptor = calloc((size_t)t->shards.count, sizeof *t->descriptor);
    if (t->descriptor == NULL)
        return fr_fail(FR_ENOMEM, "%s: no memory for %lld shards", pattern, (long long)t->shards.count);
    for (int64_t k = 0; k < t->shards.count; k++) FRI_TRY(take_images(t, k));
    qsort(t->entry, (size_t)t->count, sizeof *t->entry, by_name);
    *a = (arrays){.labels = malloc((size_t)t->count * sizeof *a->labels),
                  .place = malloc((size_t)t->count * sizeof *a->place),
                  .run_end = calloc((size_t)t->shards.count, sizeof *a->run_end),
                  .all = malloc((size_t)t->count * sizeof *a->all)};
    if (a->labels == NULL || a->place == NULL || a->run_end == NULL || a->all == NULL)
        return fr_fail(FR_ENOMEM, "%s: no memory for the order of %lld images", pattern, (long long)t->count);
    FRI_TRY(set_labels(t, a->labels));
    set_places(t, a);
    return FR_OK;
}

fr_status fr_dataset_tar(const char *pattern, fr_dataset **out) {
    FRI_NOT_NULL(pattern, out);
    FRI_OWNED(arrays_free) arrays a = {0};
    tar *t = calloc(1, sizeof *t);
    if (t == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for the dataset", pattern);
    const fr_status s = open_all(t, pattern, &a);
    if (s < 0) {
        tar_release(t);
        return s;
    }
    return fr_dataset_files(&(fr_file_source){.name = pattern,
                                              .count = t->count,
                                              .classes = t->n_classes,
                                              .labels = a.labels,
                                              .place = a.place,
                                              .run_end = a.run_end,
                                              .runs = t->shards.count,
                                              .read = tar_read,
                                              .class_name = tar_class_name,
                                              .release = tar_release,
                                              .ctx = t},
                            out);
}

/* ---- --dataset tar ------------------------------------------------------------------------------------------- */

/* <folder>/train*.tar, and test*.tar or else val*.tar. */
static fr_status open_split(const fr_train_opts *opts, fr_split split, fr_dataset **out) {
    static const char *const words[2][2] = {[FR_SPLIT_TRAIN] = {"train", "train"}, [FR_SPLIT_TEST] = {"test", "val"}};
    char pattern[FRI_TAR_PATH];
    glob_t found = {0};
    int missing = 1;
    for (int i = 0; i < 2 && missing != 0; i++) {
        int n = snprintf(pattern, sizeof pattern, "%s/%s*.tar", opts->data.path, words[split][i]);
        if (n < 0 || n >= (int)sizeof pattern) return fr_fail(FR_EIO, "%s: the path is too long", opts->data.path);
        missing = glob(pattern, 0, NULL, &found);
        globfree(&found);
    }
    if (missing != 0)
        return fr_fail(FR_EIO, "%s: holds no shard %s", opts->data.path,
                       split == FR_SPLIT_TRAIN ? "train*.tar" : "test*.tar or val*.tar");
    return fr_dataset_tar(pattern, out);
}

static const fr_train_source sources[] = {{"tar", open_split}, {0}};

const fr_addon fr_addon_tar = {.name = "tar", .sources = sources};
