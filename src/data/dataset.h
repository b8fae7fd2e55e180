/* dataset.h - what every dataset is inside, and the images that pass from datasets to the loader.
 *
 * After creation a dataset is never written again but for its reference count, so workers read it without a lock;
 * everything a read needs besides lies in the fr_image of the caller. */
#ifndef FRI_DATA_DATASET_H
#define FRI_DATA_DATASET_H

#include <frugal/data.h>

#include <stdatomic.h>

/* Limits of an image, stated in data.h. */
enum { FRI_IMAGE_SIDE_MAX = 32768, FRI_IMAGE_PIXELS_MAX = 1 << 26 };

/* Growing memory, kept from image to image. */
typedef struct fr_image_buffer fri_buffer;

/* Gives the buffer at least `bytes`; the content is lost. FR_ENOMEM names `what`. */
fr_status fri_buffer_reserve(fri_buffer *b, size_t bytes, const char *what);
void fri_buffer_free(fri_buffer *b);

/* FR_EFORMAT, naming the file and the limit, unless 1 <= height, width and both limits hold. */
fr_status fri_image_check_size(const char *name, int64_t height, int64_t width);

typedef struct fri_dataset_ops {
    /* Fills image; called by several threads concurrently, each with a separate image. 0 <= index < count. */
    fr_status (*read)(const fr_dataset *d, int64_t index, fr_image *image);
    void (*destroy)(fr_dataset *d);                                /* frees `state`; or NULL */
    const char *(*class_name)(const fr_dataset *d, int64_t label); /* NULL: no names */
} fri_dataset_ops;

struct fr_dataset {
    const fri_dataset_ops *ops;
    atomic_int references;
    char *source;
    int64_t count, classes;
    int64_t height, width, channels;
    bool same_size, f32, live;
    bool files; /* images come from files: fri_dataset_of_files */
    atomic_bool as_stored;
    int64_t left_out;
    fr_target target;
    uint8_t *pixels;        /* count * height * width * channels, or NULL: ops->read knows */
    int32_t *labels;        /* count, or NULL: ops->read knows */
    int64_t *place;         /* the images in order of storage; NULL: in order of number */
    int64_t *run_end, runs; /* end of each file in the order of storage; NULL, 0: a single file */
    void *state;
};

/* An empty dataset with a reference. fr_dataset_release frees the dataset at any stage of filling. */
fr_status fri_dataset_new(const fri_dataset_ops *ops, const char *source, fr_dataset **out);

/* Images in files, of any size, as RGB: the first image gives the dataset's size. Again after a change of as_stored. */
fr_status fri_dataset_of_files(fr_dataset *d);

/* image_folder.c: names in a folder, in byte order. */
enum { FRI_PATH_BYTES = 4096, FRI_IMAGE_FILE_MAX = 1 << 30 };
typedef struct fri_names {
    char **name;
    int64_t count, left_out; /* left_out: ignored entries of the folder, hidden entries aside */
} fri_names;
void fri_names_free(fri_names *l);
fr_status fri_names_add(fri_names *l, const char *prefix, const char *name);
int fri_names_order(const void *a, const void *b); /* of two elements, for qsort and bsearch */
/* Adds the subfolders of `path` (want_folders) or its image files, with `prefix` before each. */
fr_status fri_names_list(const char *path, bool want_folders, const char *prefix, fri_names *out);
/* <root>/train, or <root>/test or val; FR_EIO without a folder. */
fr_status fri_split_path(const char *root, fr_split split, char path[FRI_PATH_BYTES]);
/* A file's bytes in image->file, if the first bytes are an image's. */
fr_status fri_image_file(const char *path, fr_image *image, size_t *bytes);

/* Functions of datasets with all pixels in memory. */
extern const fri_dataset_ops fri_dataset_array_ops;

/* count * height * width * channels bytes and the labels, overflow-checked; the fields must be set. */
fr_status fri_dataset_array_allocate(fr_dataset *d);

/* Number of values in an image's target, and the bytes. */
int64_t fri_target_numel(const fr_dataset *d, int64_t height, int64_t width);
size_t fri_target_bytes(const fr_dataset *d, int64_t height, int64_t width);

/* FR_EINVAL, with the image's number, for a class out of range. */
fr_status fri_target_check(const fr_dataset *d, int64_t index, const fr_image *image);

/* ops->read with the index checked. image->label gets a class, image->target a mask or vector. */
fr_status fri_dataset_read(const fr_dataset *d, int64_t index, fr_image *image);

/* Copies an image upright from its EXIF orientation, 1 to 8, and swaps height and width where the image lies on a
 * side. */
void fri_image_turn(int orientation, int64_t *height, int64_t *width, int64_t channels, const uint8_t *from,
                    uint8_t *to);
/* Number of files that lie on a side, of at most `look` at equal distances; reads headers of JPEG files alone. */
fr_status fri_dataset_count_turned(const fr_dataset *d, int64_t look, int64_t *seen, int64_t *turned);
/* mask_folder.c: true if no pair of image and mask tells the way of masks beside turned images. */
bool fri_dataset_masks_untold(const fr_dataset *d);

enum { FRI_IMAGE_SIGNATURE = 4 }; /* bytes for fr_image_check_signature */
/* Decodes a JPEG file as RGB. Messages use `name`. */
fr_status fri_jpeg_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image);
fr_status fri_png_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image);
/* The values of a gray PNG or the indices of a palette, into image->target; the size in *height and *width. */
fr_status fri_png_decode_mask(const char *name, const uint8_t *bytes, size_t n, fr_image *image, int64_t *height,
                              int64_t *width);
/* Writes a mask as a palette PNG, whose pixels are the classes; the file appears complete, or not at all. */
fr_status fri_png_write_mask(const char *path, const uint8_t *mask, int64_t height, int64_t width);

/* Reads a target of any kind: an int64_t, a uint8_t per pixel, or floats. capacity: bytes of `target`; target NULL:
 * sets *bytes alone. bytes may be NULL. */
fr_status fri_dataset_target(const fr_dataset *dataset, int64_t index, void *target, size_t capacity, size_t *bytes);

#endif
