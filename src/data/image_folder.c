/* image_folder.c - <root>/<split>/<class>/<image>, the layout of torchvision's ImageFolder.
 *
 * Names are sorted by their bytes, which for UTF-8 is Python's order. What a listing holds: "class/file" per image,
 * in the order of (class, file). Files are opened only when an image is read. */
#include "data/dataset.h"

#include "base/atomic_file.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = FRI_PATH_BYTES };

typedef struct folder {
    char *path; /* <root>/<split> */
    fri_names classes, images;
} folder;

void fri_names_free(fri_names *l) {
    for (int64_t i = 0; i < l->count; i++) free(l->name[i]);
    free(l->name);
    *l = (fri_names){0};
}

fr_status fri_names_add(fri_names *l, const char *prefix, const char *name) {
    FRI_TRY(FRI_ROOM(l->name, l->count, "image folder"));
    size_t a = strlen(prefix), b = strlen(name);
    char *text = malloc(a + b + 1);
    if (text == NULL) return fr_fail(FR_ENOMEM, "image folder: no memory for a name of %zu bytes", a + b);
    memcpy(text, prefix, a);
    memcpy(text + a, name, b + 1);
    l->name[l->count++] = text;
    return FR_OK;
}

int fri_names_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool fr_image_has_name(const char *name) {
    if (name == NULL) return false;
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t k = strlen(endings[i]);
        if (n > k && strcasecmp(name + n - k, endings[i]) == 0) return true;
    }
    return false;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

fr_status fri_names_list(const char *path, bool want_folders, const char *prefix, fri_names *out) {
    int64_t first = out->count;
    fr_status s = FR_OK;
    DIR *dir = opendir(path);
    if (dir == NULL) return fr_fail(FR_EIO, "%s: cannot be opened as a folder: %s", path, strerror(errno));
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (e == NULL) {
            if (errno != 0) s = fr_fail(FR_EIO, "%s: cannot be listed: %s", path, strerror(errno));
            break;
        }
        if (e->d_name[0] == '.') continue;
        char full[PATH_BYTES];
        int n = snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (n < 0 || n >= PATH_BYTES) {
            s = fr_fail(FR_EIO, "%s/%s: the path is longer than %d bytes", path, e->d_name, PATH_BYTES);
            break;
        }
        const bool nested = e->d_type == DT_DIR || (e->d_type != DT_REG && is_folder(full));
        const bool wanted = want_folders ? nested : !nested && fr_image_has_name(e->d_name);
        out->left_out += !wanted;
        if (wanted) s = fri_names_add(out, prefix, e->d_name);
        if (s != FR_OK) break;
    }
    closedir(dir);
    if (s == FR_OK && out->count > first)
        qsort(out->name + first, (size_t)(out->count - first), sizeof *out->name, fri_names_order);
    return s;
}

/* Reads an image file after its size and first bytes were checked. Sentences name the file. */
fr_status fri_image_file(const char *path, fr_image *image, size_t *bytes) {
    uint8_t first[FRI_IMAGE_SIGNATURE];
    uint64_t size = 0;
    int fd = -1;
    fr_status s = FR_OK;
    FR_TRY(s, fr_file_open(path, &fd, &size));
    if (size < 1 || size > FRI_IMAGE_FILE_MAX) {
        s = fr_fail(FR_EFORMAT, "has %llu bytes, an image file has 1..%d", (unsigned long long)size,
                    FRI_IMAGE_FILE_MAX);
        goto done;
    }
    size_t n = size < sizeof first ? (size_t)size : sizeof first;
    FR_TRY(s, fr_file_read(fd, first, n, 0));
    FR_TRY(s, fr_image_check_signature(first, n)); /* before allocating memory for the file */
    FR_TRY(s, fri_buffer_reserve(&image->file, (size_t)size, "its bytes"));
    FR_TRY(s, fr_file_read(fd, image->file.data, (size_t)size, 0));
    *bytes = (size_t)size;
done:
    if (fd >= 0) close(fd);
    return s < 0 ? fr_fail_prefix(s, "%s: ", path) : s;
}

fr_status fr_image_read(const char *path, fr_image *image) {
    FRI_NOT_NULL(path, image);
    size_t bytes = 0;
    fr_status s = fri_image_file(path, image, &bytes);
    return s < 0 ? s : fr_image_decode(path, image->file.data, bytes, image);
}

static fr_status folder_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const folder *f = d->state;
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", f->path, f->images.name[index]);
    if (n < 0 || n >= PATH_BYTES)
        return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", f->images.name[index], PATH_BYTES);
    return fr_image_read(path, image);
}

static void folder_destroy(fr_dataset *d) {
    folder *f = d->state;
    if (f == NULL) return;
    fri_names_free(&f->classes);
    fri_names_free(&f->images);
    free(f->path);
    free(f);
}

static const char *folder_class_name(const fr_dataset *d, int64_t label) {
    return ((const folder *)d->state)->classes.name[label];
}

static const fri_dataset_ops folder_ops = {.read = folder_read,
                                           .destroy = folder_destroy,
                                           .class_name = folder_class_name};

/* Checks that a test set has the training set's classes, because labels are numbers of classes. */
static fr_status check_same_classes(const char *root, const char *test_path, const fri_names *test) {
    char path[PATH_BYTES];
    FRI_OWNED(fri_names_free) fri_names train = {0};
    int n = snprintf(path, sizeof path, "%s/train", root);
    if (n < 0 || n >= PATH_BYTES || !is_folder(path)) return FR_OK;
    FRI_TRY(fri_names_list(path, true, "", &train));
    for (int64_t i = 0; i < train.count || i < test->count; i++) {
        const char *a = i < train.count ? train.name[i] : NULL, *b = i < test->count ? test->name[i] : NULL;
        if (a != NULL && b != NULL && strcmp(a, b) == 0) continue;
        bool only_train = b == NULL || (a != NULL && strcmp(a, b) < 0);
        return fr_fail(FR_EFORMAT, "%s: class %s is in %s but not in %s; both need the same classes", root,
                       only_train ? a : b, only_train ? path : test_path, only_train ? test_path : path);
    }
    return FR_OK;
}

fr_status fri_split_path(const char *root, fr_split split, char path[PATH_BYTES]) {
    if (split != FR_SPLIT_TRAIN && split != FR_SPLIT_TEST)
        return fr_fail(FR_EINVAL, "%s: %d is not a split", root, (int)split);
    static const char *const names[2][2] = {[FR_SPLIT_TRAIN] = {"train", NULL}, [FR_SPLIT_TEST] = {"test", "val"}};
    for (int i = 0; i < 2 && names[split][i] != NULL; i++) {
        int n = snprintf(path, PATH_BYTES, "%s/%s", root, names[split][i]);
        if (n > 0 && n < PATH_BYTES && is_folder(path)) return FR_OK;
    }
    if (!is_folder(root))
        return fr_fail(FR_EIO, "%s: %s", root, access(root, F_OK) == 0 ? "is no folder" : strerror(errno));
    return fr_fail(FR_EIO, "%s: holds no folder %s; name the folder above train and test", root,
                   split == FR_SPLIT_TRAIN ? "train" : "test or val");
}

/* Appends the images of class c. */
static fr_status list_class(fr_dataset *d, const char *path, int64_t c) {
    folder *f = d->state;
    char class_path[PATH_BYTES], prefix[PATH_BYTES];
    int64_t labelled = f->images.count;
    /* Both fit: fri_names_list has built the longer name. */
    snprintf(prefix, sizeof prefix, "%s/", f->classes.name[c]);
    if (snprintf(class_path, sizeof class_path, "%s/%s", path, f->classes.name[c]) >= PATH_BYTES) return FR_OK;
    fr_status s = fri_names_list(class_path, false, prefix, &f->images);
    if (s == FR_OK && f->images.count == labelled)
        s = fr_fail(FR_EFORMAT, "%s: the class folder holds 0 images (.jpg, .jpeg, .png)", class_path);
    for (; s == FR_OK && labelled < f->images.count; labelled++) {
        s = FRI_ROOM(d->labels, labelled, path);
        if (s == FR_OK) d->labels[labelled] = (int32_t)c;
    }
    return s;
}

fr_status fr_dataset_image_folder(const char *root, fr_split split, fr_dataset **out) {
    FRI_NOT_NULL(root, out);
    char path[PATH_BYTES];
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    FRI_TRY(fri_split_path(root, split, path));
    FRI_TRY(fri_dataset_new(&folder_ops, path, &d));
    folder *f = d->state = calloc(1, sizeof *f);
    if (f == NULL || (f->path = strdup(path)) == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for the dataset", path);
    FRI_TRY(fri_names_list(path, true, "", &f->classes));
    if (f->classes.count == 0) return fr_fail(FR_EFORMAT, "%s: holds 0 class folders, at least 1 is needed", path);
    if (f->classes.count == 2 && strcmp(f->classes.name[0], "images") == 0 && strcmp(f->classes.name[1], "masks") == 0)
        return fr_fail(FR_EUSAGE, "%s: holds images and masks, which fr_dataset_mask_folder (--dataset masks) reads",
                       path);
    if (split == FR_SPLIT_TEST) FRI_TRY(check_same_classes(root, path, &f->classes));
    for (int64_t c = 0; c < f->classes.count; c++) FRI_TRY(list_class(d, path, c));
    d->count = f->images.count;
    d->left_out = f->classes.left_out + f->images.left_out;
    d->classes = f->classes.count;
    FRI_TRY(fri_dataset_of_files(d));
    FRI_MOVE(out, d);
    return FR_OK;
}
