/* mask_folder.c - <root>/<split>/images/<name>.* with <root>/<split>/masks/<name>.png: a class for each pixel.
 *
 * Both lists are sorted by stem, so equal indices belong together. */
#include "data/dataset.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES, MASKS };

typedef struct mask_folder {
    char *path[2];      /* <root>/<split>/images and masks */
    fri_names names[2]; /* of the files */
} mask_folder;

static size_t stem_length(const char *name) {
    return (size_t)(strrchr(name, '.') - name); /* a listed name ends in .jpg, .jpeg or .png */
}

static int compare_stems(const char *a, const char *b) {
    const size_t n = stem_length(a), k = stem_length(b);
    const int order = memcmp(a, b, n < k ? n : k);
    return order != 0 ? order : (n > k) - (n < k);
}

static int by_stem(const void *a, const void *b) {
    return compare_stems(*(char *const *)a, *(char *const *)b);
}

static fr_status pair_masks(const mask_folder *f) {
    const fri_names *a = &f->names[IMAGES], *b = &f->names[MASKS];
    for (int64_t i = 0; i < a->count || i < b->count; i++) {
        const int order = i >= a->count ? 1 : i >= b->count ? -1 : compare_stems(a->name[i], b->name[i]);
        const int has = order < 0 ? IMAGES : MASKS;
        if (order != 0)
            return fr_fail(FR_EFORMAT, "%s: %s has no file of the same name in %s", f->path[has], f->names[has].name[i],
                           f->path[1 - has]);
        if (i > 0 && compare_stems(a->name[i - 1], a->name[i]) == 0)
            return fr_fail(FR_EFORMAT, "%s: %s and %s have one stem", f->path[IMAGES], a->name[i - 1], a->name[i]);
    }
    return a->count > 0 ? FR_OK : fr_fail(FR_EFORMAT, "%s: holds 0 images (.jpg, .jpeg, .png)", f->path[IMAGES]);
}

static fr_status path_of(const mask_folder *f, int which, int64_t index, char path[FRI_PATH_BYTES]) {
    const int n = snprintf(path, FRI_PATH_BYTES, "%s/%s", f->path[which], f->names[which].name[index]);
    if (n > 0 && n < FRI_PATH_BYTES) return FR_OK;
    return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", f->names[which].name[index], FRI_PATH_BYTES);
}

/* Turns a mask that lies as the image's file does. An upright mask is kept. */
static fr_status turn_mask(fr_image *image, int64_t *height, int64_t *width) {
    const bool lies = image->orientation >= 5;
    const size_t bytes = (size_t)(*height * *width);
    if (*height != (lies ? image->width : image->height) || *width != (lies ? image->height : image->width))
        return FR_OK;
    FRI_TRY(fri_buffer_reserve(&image->file, bytes, "its mask"));
    memcpy(image->file.data, image->target.data, bytes);
    fri_image_turn(image->orientation, height, width, 1, image->file.data, image->target.data);
    return FR_OK;
}

static fr_status mask_folder_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const mask_folder *f = d->state;
    char path[FRI_PATH_BYTES], mask[FRI_PATH_BYTES];
    int64_t height = 0, width = 0;
    size_t bytes = 0;
    FRI_TRY(path_of(f, IMAGES, index, path));
    FRI_TRY(fr_image_read(path, image));
    if (image->header_only) return FR_OK;
    FRI_TRY(path_of(f, MASKS, index, mask));
    FRI_TRY(fri_image_file(mask, image, &bytes));
    FRI_TRY(fri_png_decode_mask(mask, image->file.data, bytes, image, &height, &width));
    if (image->orientation > 1) FRI_TRY(turn_mask(image, &height, &width));
    if (height != image->height || width != image->width)
        return fr_fail(FR_EFORMAT, "%s: %" PRId64 " x %" PRId64 " pixels, but its image has %" PRId64 " x %" PRId64,
                       mask, width, height, image->width, image->height);
    const fr_status s = fri_target_check(d, index, image);
    return s < 0 ? fr_fail_prefix(FR_EFORMAT, "%s: ", mask) : s;
}

/* Masks of two classes often hold 0 and 255. The loss ignores 255, so one class would be left. Looks at the first masks
 * that can be read. */
static fr_status expect_second_class(const fr_dataset *d) {
    enum { LOOK = 8 };
    fr_image image = {0};
    bool seen[FR_MASK_IGNORED + 1] = {false};
    for (int64_t i = 0; i < d->count && i < LOOK && mask_folder_read(d, i, &image) == FR_OK; i++)
        for (int64_t p = 0; p < image.height * image.width; p++) seen[((const uint8_t *)image.target.data)[p]] = true;
    fr_image_clear(&image);
    if (!seen[0] || seen[1] || !seen[FR_MASK_IGNORED]) return FR_OK;
    return fr_fail(FR_EFORMAT,
                   "%s: the first masks hold only 0 and 255; 255 marks pixels that the loss ignores, so write the "
                   "second class as 1",
                   d->source);
}

static void mask_folder_destroy(fr_dataset *d) {
    mask_folder *f = d->state;
    for (int i = 0; f != NULL && i < 2; i++) {
        fri_names_free(&f->names[i]);
        free(f->path[i]);
    }
    free(f);
}

static const fri_dataset_ops mask_folder_ops = {.read = mask_folder_read, .destroy = mask_folder_destroy};

static fr_status list_images(mask_folder *f, int which, const char *split_path) {
    static const char *const names[2] = {[IMAGES] = "images", [MASKS] = "masks"};
    char path[FRI_PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", split_path, names[which]);
    if (n < 0 || n >= FRI_PATH_BYTES)
        return fr_fail(FR_EIO, "%s/%s: the path is longer than %d bytes", split_path, names[which], FRI_PATH_BYTES);
    if ((f->path[which] = strdup(path)) == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for the dataset", path);
    fr_status s = fri_names_list(path, false, "", &f->names[which]);
    if (s == FR_OK && f->names[which].count > 0)
        qsort(f->names[which].name, (size_t)f->names[which].count, sizeof(char *), by_stem);
    return s;
}

fr_status fr_dataset_mask_folder(const char *root, fr_split split, int64_t classes, fr_dataset **out) {
    FRI_NOT_NULL(root, out);
    char path[FRI_PATH_BYTES];
    FRI_OWNED(fr_dataset_release) fr_dataset *d = NULL;
    if (classes < 1 || classes > FR_MASK_IGNORED)
        return fr_fail(FR_EINVAL, "%s: %" PRId64 " classes, must lie in 1..%d", root, classes, FR_MASK_IGNORED);
    FRI_TRY(fri_split_path(root, split, path));
    FRI_TRY(fri_dataset_new(&mask_folder_ops, path, &d));
    mask_folder *f = d->state = calloc(1, sizeof *f);
    FRI_TRY(f != NULL ? FR_OK : fr_fail(FR_ENOMEM, "%s: no memory for the dataset", path));
    for (int i = 0; i < 2; i++) FRI_TRY(list_images(f, i, path));
    FRI_TRY(pair_masks(f));
    d->count = f->names[IMAGES].count;
    d->classes = classes;
    d->target = FR_TARGET_PIXELS;
    FRI_TRY(fri_dataset_of_files(d));
    if (classes == 2) FRI_TRY(expect_second_class(d));
    fr_dataset_release(out);
    FRI_MOVE(out, d);
    return FR_OK;
}
