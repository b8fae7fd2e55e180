/* dataset.h - what every dataset is inside, and the images that pass from datasets to the loader.
 *
 * After creation a dataset is never written again but for its reference count, so workers read it without a lock;
 * everything a read needs besides lies in the fr_image of the caller. */
#ifndef FRI_DATA_DATASET_H
#define FRI_DATA_DATASET_H

#include <frugal/data.h>

#include <stdatomic.h>

/* Limits on one image, stated in data.h. */
enum { FRI_IMAGE_SIDE_MAX = 32768, FRI_IMAGE_PIXELS_MAX = 1 << 26 };

/* Memory that grows and is kept from image to image. */
typedef struct fr_image_buffer fri_buffer;

/* Makes the buffer hold at least `bytes`; its content is lost. FR_ENOMEM names `what`. */
fr_status fri_buffer_reserve(fri_buffer *b, size_t bytes, const char *what);
void fri_buffer_free(fri_buffer *b);

/* FR_EFORMAT, naming the file and the limit, unless 1 <= height, width and both limits hold. */
fr_status fri_image_check_size(const char *name, int64_t height, int64_t width);

typedef struct fri_dataset_ops {
    /* Fills image; called by several threads at a time, each with an image of its own. 0 <= index < count. */
    fr_status (*read)(const fr_dataset *d, int64_t index, fr_image *image);
    void (*destroy)(fr_dataset *d);                                /* frees `state`; NULL if there is none */
    const char *(*class_name)(const fr_dataset *d, int64_t label); /* NULL: no names */
} fri_dataset_ops;

struct fr_dataset {
    const fri_dataset_ops *ops;
    atomic_int references;
    char *source;
    int64_t count, classes;
    int64_t height, width, channels;
    bool same_size, f32, live;
    int64_t left_out;
    fr_target target;
    uint8_t *pixels;        /* count * height * width * channels, or NULL: ops->read knows */
    int32_t *labels;        /* count, or NULL: ops->read knows */
    int64_t *place;         /* the images in the order in which they are stored; NULL: as they are numbered */
    int64_t *run_end, runs; /* files of such an order: the first place behind each; NULL, 0: all is one */
    void *state;
};

/* An empty dataset with one reference. fr_dataset_release undoes it at any stage of filling. */
fr_status fri_dataset_new(const fri_dataset_ops *ops, const char *source, fr_dataset **out);

/* Images in files, of any size, as RGB: the dataset's size is that of the first one. */
fr_status fri_dataset_of_files(fr_dataset *d);

/* image_folder.c: names in a folder, in the order of their bytes. */
enum { FRI_PATH_BYTES = 4096, FRI_IMAGE_FILE_MAX = 1 << 30 };
typedef struct fri_names {
    char **name;
    int64_t count, left_out; /* left_out: of the folder, but for hidden ones */
} fri_names;
void fri_names_free(fri_names *l);
fr_status fri_names_add(fri_names *l, const char *prefix, const char *name);
int fri_names_order(const void *a, const void *b); /* of two elements, for qsort and bsearch */
/* Adds the subfolders of `path` (want_folders) or its image files, with `prefix` before each. */
fr_status fri_names_list(const char *path, bool want_folders, const char *prefix, fri_names *out);
/* <root>/train, or <root>/test or val; FR_EIO where there is none. */
fr_status fri_split_path(const char *root, fr_split split, char path[FRI_PATH_BYTES]);
/* A file's bytes in image->file, if it begins as an image does. */
fr_status fri_image_file(const char *path, fr_image *image, size_t *bytes);

/* Functions of datasets that keep all pixels in memory. */
extern const fri_dataset_ops fri_dataset_array_ops;

/* count * height * width * channels bytes and the labels, overflow-checked; the fields must be set. */
fr_status fri_dataset_array_allocate(fr_dataset *d);

/* How many numbers the target of an image of this size has, and their bytes. */
int64_t fri_target_numel(const fr_dataset *d, int64_t height, int64_t width);
size_t fri_target_bytes(const fr_dataset *d, int64_t height, int64_t width);

/* FR_EINVAL, naming the image, for a class that there is not. */
fr_status fri_target_check(const fr_dataset *d, int64_t index, const fr_image *image);

/* ops->read with the index checked. image->label holds a class, image->target any other target. */
fr_status fri_dataset_read(const fr_dataset *d, int64_t index, fr_image *image);

enum { FRI_IMAGE_SIGNATURE = 4 }; /* bytes that fr_image_check_signature looks at */
/* Decodes a JPEG file as RGB. Messages call it `name`. */
fr_status fri_jpeg_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image);
fr_status fri_png_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image);
/* The values of a gray PNG or the indices of a palette, into image->target; its size in *height and *width. */
fr_status fri_png_decode_mask(const char *name, const uint8_t *bytes, size_t n, fr_image *image, int64_t *height,
                              int64_t *width);

#endif
