/* mask_folder.c - <root>/<split>/images/<name>.* with <root>/<split>/masks/<name>.png: a class for each pixel.
 *
 * Both lists are sorted by stem, so equal indices belong together. Beside images turned by EXIF, all masks lie as
 * stored, or all upright: the first pair with different shapes tells. Without such a pair masks count as upright, as
 * labelling programs draw them. */
#include "data/dataset.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES, MASKS };
enum { UNKNOWN, UNTOLD, AS_STORED, UPRIGHT }; /* ways of masks beside images turned by EXIF */

typedef struct mask_folder {
    char *root; /* NULL: a split for find_way alone */
    fr_split split;
    char path[2][FRI_PATH_BYTES]; /* <root>/<split>/images and masks */
    fri_names names[2];           /* of the files */
    atomic_int way;               /* UNKNOWN until an image is not upright */
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

static void close_pairs(mask_folder *f) {
    for (int i = 0; i < 2; i++) fri_names_free(&f->names[i]);
    free(f->root);
}

/* Lists images and masks of <root>/<split>. */
static fr_status open_pairs(mask_folder *f, const char *split_path) {
    for (int i = 0; i < 2; i++) {
        const int n = snprintf(f->path[i], FRI_PATH_BYTES, "%s/%s", split_path, i == IMAGES ? "images" : "masks");
        if (n < 0 || n >= FRI_PATH_BYTES)
            return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", split_path, FRI_PATH_BYTES);
        FRI_TRY(fri_names_list(f->path[i], false, "", &f->names[i]));
        if (f->names[i].count > 0) qsort(f->names[i].name, (size_t)f->names[i].count, sizeof(char *), by_stem);
    }
    return pair_masks(f);
}

static fr_status path_of(const mask_folder *f, int which, int64_t index, char path[FRI_PATH_BYTES]) {
    const int n = snprintf(path, FRI_PATH_BYTES, "%s/%s", f->path[which], f->names[which].name[index]);
    if (n > 0 && n < FRI_PATH_BYTES) return FR_OK;
    return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", f->names[which].name[index], FRI_PATH_BYTES);
}

/* Way of mask i beside an image turned by a quarter, from both shapes. */
static int way_of_pair(const mask_folder *f, int64_t i, fr_image *image) {
    char path[FRI_PATH_BYTES];
    int64_t height = 0, width = 0;
    size_t bytes = 0;
    if (path_of(f, IMAGES, i, path) < 0 || fr_image_read(path, image) < 0) return UNTOLD; /* its read will fail */
    if (image->orientation < 5 || image->height == image->width) return UNTOLD;
    if (path_of(f, MASKS, i, path) < 0 || fri_image_file(path, image, &bytes) < 0 ||
        fri_png_decode_mask(path, image->file.data, bytes, image, &height, &width) < 0)
        return UNTOLD;
    if (height == image->height && width == image->width) return AS_STORED;
    return height == image->width && width == image->height ? UPRIGHT : UNTOLD;
}

/* Way from the first telling pair of this split, then of the other. */
static int find_way(const mask_folder *f) {
    FRI_OWNED(fr_image_clear) fr_image image = {.header_only = true};
    FRI_OWNED(close_pairs) mask_folder other = {0};
    char path[FRI_PATH_BYTES];
    for (int64_t i = 0; i < f->names[IMAGES].count; i++) {
        const int way = way_of_pair(f, i, &image);
        if (way != UNTOLD) return way;
    }
    if (f->root == NULL) return UNTOLD;
    const fr_split split = f->split == FR_SPLIT_TRAIN ? FR_SPLIT_TEST : FR_SPLIT_TRAIN;
    if (fri_split_path(f->root, split, path) < 0 || open_pairs(&other, path) < 0) return UNTOLD;
    return find_way(&other);
}

/* Way of all masks. Threads may search at once, for one answer. */
static int way_of(mask_folder *f) {
    if (f->way == UNKNOWN) f->way = find_way(f);
    return f->way;
}

static fr_status mask_folder_read(const fr_dataset *d, int64_t index, fr_image *image) {
    mask_folder *f = d->state;
    char path[FRI_PATH_BYTES], mask[FRI_PATH_BYTES];
    int64_t height = 0, width = 0;
    size_t bytes = 0;
    FRI_TRY(path_of(f, IMAGES, index, path));
    FRI_TRY(fr_image_read(path, image));
    if (image->header_only) return FR_OK;
    FRI_TRY(path_of(f, MASKS, index, mask));
    FRI_TRY(fri_image_file(mask, image, &bytes));
    FRI_TRY(fri_png_decode_mask(mask, image->file.data, bytes, image, &height, &width));
    const bool turns = image->orientation > 1 && way_of(f) == AS_STORED, lies = turns && image->orientation >= 5;
    const int64_t h = lies ? image->width : image->height, w = lies ? image->height : image->width;
    const char *how = turns ? " as stored, as the folder's masks lie" : " upright, as the folder's masks lie";
    if (height != h || width != w)
        return fr_fail(FR_EFORMAT,
                       "%s: %" PRId64 " x %" PRId64 " pixels, but its image has %" PRId64 " x %" PRId64 "%s", mask,
                       width, height, w, h, image->orientation > 1 ? how : "");
    if (turns) {
        FRI_TRY(fri_buffer_reserve(&image->file, (size_t)(h * w), "its mask"));
        memcpy(image->file.data, image->target.data, (size_t)(h * w));
        fri_image_turn(image->orientation, &height, &width, 1, image->file.data, image->target.data);
    }
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
    if (d->state != NULL) close_pairs(d->state);
    free(d->state);
}

static const fri_dataset_ops mask_folder_ops = {.read = mask_folder_read, .destroy = mask_folder_destroy};

bool fri_dataset_masks_untold(const fr_dataset *d) {
    return d->ops == &mask_folder_ops && way_of(d->state) == UNTOLD;
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
    if (f == NULL || (f->root = strdup(root)) == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for the dataset", path);
    f->split = split;
    FRI_TRY(open_pairs(f, path));
    d->count = f->names[IMAGES].count;
    d->classes = classes;
    d->target = FR_TARGET_PIXELS;
    FRI_TRY(fri_dataset_of_files(d));
    if (classes == 2) FRI_TRY(expect_second_class(d));
    fr_dataset_release(out);
    FRI_MOVE(out, d);
    return FR_OK;
}
