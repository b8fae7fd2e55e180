/* data.h - datasets, and the loader of batches.
 *
 * A dataset is a list of (image, target). Each image is 8 bit or f32, 1 to 16 channels, and is read on request; the
 * target is a class, a class per pixel (a mask), or a vector of numbers.
 * A loader decodes images on worker threads, transforms the images and writes each directly into the batch: f32,
 * NHWC, normalized, or bytes for fr_images_normalize. Order and augmentation depend on (seed, epoch, image) only,
 * never on workers or time.
 *
 * Limits: an image has sides of at most 32768 and at most 67,108,864 pixels; the header is checked before any memory
 * is taken. Damaged or hostile files give FR_EIO or FR_EFORMAT and a sentence with the file and both values. */
#ifndef FRUGAL_DATA_H
#define FRUGAL_DATA_H

#include <frugal/base.h>
#include <frugal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets ---------------------------------------------------------------------------------------------- */

typedef struct fr_dataset fr_dataset;

typedef enum fr_split {
    FR_SPLIT_TRAIN,
    FR_SPLIT_TEST,
} fr_split;

enum { FR_CHANNELS_MAX = 16 };

/* Kind of a target. */
typedef enum fr_target {
    FR_TARGET_CLASS,  /* a number, 0..classes - 1 */
    FR_TARGET_PIXELS, /* a class for each pixel, or FR_MASK_IGNORED, which losses skip */
    FR_TARGET_VECTOR, /* `classes` real numbers */
} fr_target;
enum { FR_MASK_IGNORED = 255 };

/* IDX files as MNIST and Fashion-MNIST publish them: `folder` holds {train,t10k}-images-idx3-ubyte and
 * {train,t10k}-labels-idx1-ubyte, each plain or with .gz (t10k may also be spelled test). Only the files of the split
 * asked for are needed. Labels lie in 0..classes-1 (10 for both sets). All images are kept in memory, 8 bit. */
FR_API fr_status fr_dataset_idx(const char *folder, fr_split split, int64_t classes, fr_dataset **out);

/* Reads the two files from memory, plain or gzip; the call does not keep the memory. `name` stands for a file name in
 * messages. */
FR_API fr_status fr_dataset_idx_memory(const char *name, const void *images, size_t images_bytes, const void *labels,
                                       size_t labels_bytes, int64_t classes, fr_dataset **out);

/* The binary versions of CIFAR: data_batch_1..5.bin, test_batch.bin; train.bin, test.bin (fine labels). `folder`
 * contains the files, or a folder cifar-10-batches-bin or cifar-100-binary. */
FR_API fr_status fr_dataset_cifar10(const char *folder, fr_split split, fr_dataset **out);
FR_API fr_status fr_dataset_cifar100(const char *folder, fr_split split, fr_dataset **out);

/* <root>/<split>/<class>/<image>.jpg, .jpeg or .png; split is "train", and "test" or else "val". Classes are numbered
 * in the byte order of their names, as torchvision does. Images may differ in size; all are read as RGB. A class
 * without images and a test split with different classes are errors. Only names stay in memory: the loader's
 * workers read the files. */
FR_API fr_status fr_dataset_image_folder(const char *root, fr_split split, fr_dataset **out);

/* <root>/<split>/images/<name>.jpg, .jpeg or .png, each with <root>/<split>/masks/<name>.png: gray or a palette of at
 * most 8 bits, whose values (a palette's indices) are the classes of the pixels. Images may differ in size; a mask
 * has the size of the image. Sorted by the bytes of the names. FR_EFORMAT names a file without a counterpart, and a
 * wrong value in a mask. */
FR_API fr_status fr_dataset_mask_folder(const char *root, fr_split split, int64_t classes, fr_dataset **out);

/* Noise, for benchmarks: bytes and labels are a function of (seed, index). channels is 1 or 3. */
FR_API fr_status fr_dataset_synthetic(int64_t count, int64_t classes, int64_t height, int64_t width, int64_t channels,
                                      uint64_t seed, fr_dataset **out);

/* Drops the reference and clears the pointer; accepts a pointer to NULL. A loader holds a reference. */
FR_API fr_dataset *fr_dataset_retain(fr_dataset *dataset); /* another reference; returns it. NULL stays NULL */
FR_API void fr_dataset_release(fr_dataset **dataset);

/* Images of the program's own: a database, a simulator, a camera's last frames. Copied; strings and arrays are borrowed
 * as long as the dataset lives. */
typedef struct fr_dataset_source {
    const char *name;                /* for messages; NULL: "dataset" */
    int64_t count, classes;          /* classes: of the targets; numbers in a vector */
    int64_t height, width, channels; /* of every image; 1 to 16 channels */
    /* Writes image `index`, [height, width, channels], and the target: an int64_t; a uint8_t per pixel; floats. The
     * loader's workers call read concurrently. NULL: the dataset is a ring, see fr_dataset_push. */
    fr_status (*read)(void *ctx, int64_t index, void *pixels, void *target);
    void (*release)(void *ctx);     /* when the last reference is dropped; or NULL */
    const char *const *class_names; /* `classes` names; NULL: none */
    void *ctx;
    bool f32; /* pixels are float, not divided by 255; else uint8_t */
    fr_target target;
    bool live; /* images may change between reads: saved states do not compare the first image */
} fr_dataset_source;

/* FR_EINVAL names a number out of range. */
FR_API fr_status fr_dataset_create(const fr_dataset_source *source, fr_dataset **out);

/* Adds an image and its target to a ring, in place of the oldest once the ring holds `count`; both are copied. While
 * the ring holds only k images, image `index` is image index % k. Any thread may push while workers read: the ring's
 * lock protects each copy. FR_EUSAGE: not a ring, or reading an empty ring. FR_EINVAL: a class out of range. */
FR_API fr_status fr_dataset_push(fr_dataset *ring, const void *pixels, const void *target);

typedef struct fr_dataset_info {
    int64_t count, classes;
    int64_t height, width, channels; /* of every image; of the first, if sizes differ */
    bool same_size;
    const char *source; /* file or folder, for messages; borrowed until the dataset is released */
    bool f32;           /* pixels are float, else uint8_t */
    fr_target target;
    bool live;        /* fr_dataset_source.live; true for a ring */
    int64_t left_out; /* of an image folder: number of ignored files and folders, hidden entries aside */
} fr_dataset_info;

/* Image files are read as they lie, without the EXIF orientation of JPEG files. Call before the first loader. */
FR_API fr_status fr_dataset_as_stored(fr_dataset *dataset);

FR_API fr_status fr_dataset_info_get(const fr_dataset *dataset, fr_dataset_info *out);

/* The class of an image. FR_EUSAGE: the target is no class. */
FR_API fr_status fr_dataset_label(const fr_dataset *dataset, int64_t index, int64_t *label);

/* The folder name of a class; NULL where the format has no names. Borrowed until the dataset is released. */
FR_API const char *fr_dataset_class_name(const fr_dataset *dataset, int64_t label);

/* Reads image `index` into `pixels`, [height, width, channels] of uint8_t (float: info.f32), unchanged from the file.
 * `capacity` is the size of `pixels` in bytes; pixels NULL only asks for the size. height, width, channels: or NULL. */
FR_API fr_status fr_dataset_read(const fr_dataset *dataset, int64_t index, void *pixels, size_t capacity,
                                 int64_t *height, int64_t *width, int64_t *channels);

/* Mean and standard deviation per channel, on a scale of 0..1 (of f32 images unscaled), over at most `limit` images
 * at equal distances: mean and std of fr_loader_opts. Fills info.channels numbers each. */
FR_API fr_status fr_dataset_mean_std(const fr_dataset *dataset, int64_t limit, double *mean, double *std);

/* ---- loader ------------------------------------------------------------------------------------------------ */

enum { FR_LOADER_AUTO = -1, FR_LOADER_NATIVE = -2, FR_AUGMENT_AMOUNTS = 12 };

/* Description of an image or a batch, for the calls of an augmentation. */
typedef struct fr_augment_input {
    uint64_t seed;                      /* of the loader's numbers, see fr_augment_numbers */
    int64_t epoch, index;               /* of the image in the dataset, of a balanced draw in the epoch; of the batch */
    int64_t n, height, width, channels; /* n: images in the batch, else 1 */
    int64_t classes;                    /* of a batch */
} fr_augment_input;

/* Further random changes of images and batches, by the add-on augment (augment.h) or by the program. Numbers from
 * fr_augment_numbers make the changes a function of seed, epoch and index, with any number of workers and after a
 * resume. Calls may be NULL. fr_loader_next calls `batch`, the workers call the rest. */
typedef struct fr_augmentation fr_augmentation;
struct fr_augmentation {
    /* Changes 8-bit images without masks, 1 or 3 channels, after the flip. Returns x or spare, whichever holds the
     * result; spare has the size of an image. */
    uint8_t *(*bytes)(const fr_augmentation *a, const fr_augment_input *in, uint8_t *x, uint8_t *spare)FR_DEFAULT(NULL);
    /* Changes pixels of f32 batches before the normalization; bytes are numbers of 0..1. 1 or 3 channels. */
    void (*real)(const fr_augmentation *a, const fr_augment_input *in, float *pixels) FR_DEFAULT(NULL);
    /* Changes pixels of f32 batches after the normalization. */
    void (*last)(const fr_augmentation *a, const fr_augment_input *in, float *pixels) FR_DEFAULT(NULL);
    /* images [n, height, width, channels]; shares [n, classes] replace the class targets; spare: memory for an image,
     * or for shares of an image. */
    void (*batch)(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares, float *spare)
        FR_DEFAULT(NULL);
    double amount[FR_AUGMENT_AMOUNTS] FR_DEFAULT({}); /* for the calls, as is ctx */
    void *ctx FR_DEFAULT(NULL);                       /* borrowed while the loader lives */
};
/* Four random numbers of the loader's seed and of the epoch. `at` counts from 2^60: smaller values belong to crops.
 * Each image or batch has separate numbers, by index. */
FR_API void fr_augment_numbers(const fr_augment_input *in, uint64_t at, uint32_t number[4]);

/* Options of a loader. Steps of an image, in order: bilinear resize (triangle filter, so shrinking averages) to
 * resize_height x resize_width; a random rotation, zoom and shear about the middle (bilinear; torchvision's
 * RandomAffine); zero padding on all sides; a crop of height x width, at random or in the middle; a flip; gray
 * repeated or RGB made gray; (pixel / 255 - mean) / std, of f32 images (pixel - mean) / std. Padding, and areas
 * uncovered by a rotation, are pixels of value 0. A mask takes equal steps, nearest instead of bilinear (torch's
 * "nearest"), padded with FR_MASK_IGNORED; a vector stays unchanged. */
typedef struct fr_loader_opts {
    int64_t batch_size FR_DEFAULT(64);
    int64_t height FR_DEFAULT(FR_LOADER_AUTO), width FR_DEFAULT(FR_LOADER_AUTO); /* of the result; AUTO: info's */
    int64_t channels FR_DEFAULT(FR_LOADER_AUTO);      /* info's, or 1 or 3 if info's is 1 or 3; AUTO: info's */
    int64_t resize_height FR_DEFAULT(FR_LOADER_AUTO); /* before the crop; AUTO: height. NATIVE, for both: no resize;
                                                       * an image smaller than the crop is padded on each side */
    int64_t resize_width FR_DEFAULT(FR_LOADER_AUTO);  /* AUTO: width */
    int64_t padding FR_DEFAULT(0);      /* k: with random_crop and no larger resize, shifts of up to k pixels */
    bool random_crop FR_DEFAULT(false); /* else the middle */
    bool flip FR_DEFAULT(false);        /* mirror left to right, one image in two */
    double degrees FR_DEFAULT(0);       /* largest rotation to either side, 0..180 */
    double zoom FR_DEFAULT(0);          /* z: sizes times 1/(1+z) to 1+z, log-uniform; 0..1 */
    double shear FR_DEFAULT(0);         /* largest x-shear to either side in degrees, 0..45 */
    double mean[16] FR_DEFAULT({0});    /* per channel of the result, 0..1 for 8 bits */
    double std[16] FR_DEFAULT({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    bool shuffle FR_DEFAULT(true);   /* a new order each epoch */
    bool drop_last FR_DEFAULT(true); /* no batch shorter than batch_size */
    uint64_t seed FR_DEFAULT(0);
    int workers FR_DEFAULT(2);  /* threads; 0: fr_loader_next decodes by itself */
    int prefetch FR_DEFAULT(2); /* batches decoded ahead of the one in use, at least 1; unused without workers */
    fr_device device FR_DEFAULT(FR_CPU); /* FR_CPU; FR_META: shapes only, nothing is read */
    /* Several loaders share an epoch: of each `group` batches in a row the loader gives the batches first, first +
     * every, ... of the group. Positions and counts refer to the whole epoch. */
    int64_t group FR_DEFAULT(1), every FR_DEFAULT(1), first FR_DEFAULT(0);
    /* k: an epoch reads the dataset's files in sequence, in a new order, and shuffles within each k images; 0: over
     * all images. */
    int64_t shuffle_window FR_DEFAULT(0);
    /* An epoch draws as many images as the dataset has, with replacement, all classes equally often (torch's
     * WeightedRandomSampler with weights 1 / images of the class). Reads all labels once. */
    bool balanced FR_DEFAULT(false);
    fr_dtype dtype FR_DEFAULT(FR_F32);           /* FR_U8: 8-bit images stay bytes; mean and std are not applied */
    fr_augmentation augmentation FR_DEFAULT({}); /* more random changes; zeroed: none */
} fr_loader_opts;

/* The defaults suit training, without augmentation. */
#define FR_LOADER_DEFAULTS                                                                                     \
    .batch_size = 64, .height = FR_LOADER_AUTO, .width = FR_LOADER_AUTO, .channels = FR_LOADER_AUTO,           \
    .resize_height = FR_LOADER_AUTO, .resize_width = FR_LOADER_AUTO,                                           \
    .std = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, .shuffle = true, .drop_last = true, .workers = 2, \
    .prefetch = 2, .group = 1, .every = 1
#define FR_LOADER_OPTS(...) FR_OPTS(fr_loader_opts, FR_LOADER_DEFAULTS, __VA_ARGS__)
FR_OPTS_DEFAULT(fr_loader_opts, FR_LOADER_OPTS())

/* An image, [height, width, channels]. A zeroed image is empty. The buffers serve the next read, until clear. */
typedef struct fr_image {
    const uint8_t *pixels;
    int64_t height, width, channels;
    const float *f32; /* in place of `pixels`, if not NULL */
    struct fr_image_buffer {
        void *data;
        size_t capacity;
    } decoded, file, target; /* private, as all further members */
    bool labelled;           /* the image came with a label, which the dataset does not know */
    int64_t label;
    bool header_only;
    int orientation; /* of the file that was read; 1: upright */
    bool as_stored;  /* public, set before a read: a JPEG file's EXIF orientation is left aside */
} fr_image;

/* A JPEG or PNG file, as RGB, upright by the EXIF orientation (PIL.ImageOps.exif_transpose). FR_EIO, FR_EFORMAT,
 * FR_ENOMEM name the file. */
FR_API fr_status fr_image_read(const char *path, fr_image *image);
FR_API void fr_image_clear(fr_image *image);
/* Decodes an image from memory; messages call the image `name`. FR_EFORMAT, FR_ENOMEM. */
FR_API fr_status fr_image_decode(const char *name, const void *bytes, size_t n, fr_image *image);
/* FR_EFORMAT, without a name, unless these first bytes of a file (4, or all of a shorter one) begin a JPEG or PNG. */
FR_API fr_status fr_image_check_signature(const void *bytes, size_t n);
FR_API bool fr_image_has_name(const char *name); /* does it end in .jpg, .jpeg or .png? */
/* Memory of the image for a file's bytes, kept from image to image. */
FR_API fr_status fr_image_room(fr_image *image, size_t bytes, void **out);

/* Images in files that the program finds and reads: in an archive, on a server. The call copies all arrays. */
typedef struct fr_file_source {
    const char *name; /* in messages: a path */
    int64_t count, classes;
    const int32_t *labels;  /* [count] */
    const int64_t *place;   /* [count], the images in order of storage; NULL: in order of number */
    const int64_t *run_end; /* [runs], the end of each file in the order of storage; or NULL */
    int64_t runs;
    /* Makes image `index` by fr_image_room and fr_image_decode. Several threads call concurrently, each with a
     * separate image. */
    fr_status (*read)(void *ctx, int64_t index, fr_image *image);
    const char *(*class_name)(void *ctx, int64_t label); /* NULL: classes have no names */
    void (*release)(void *ctx);                          /* frees ctx at the end, also after a failed
                                                          * fr_dataset_files; or NULL */
    void *ctx;
} fr_file_source;
/* Reads the first image for the dataset's size. FR_EINVAL: no images, or no read. */
FR_API fr_status fr_dataset_files(const fr_file_source *source, fr_dataset **out);
/* Makes a tensor of the image, as a loader with the options would without random changes: f32 [1, height, width,
 * channels]; FR_LOADER_AUTO is the image's own size; opts NULL: all defaults. The pixels may be the caller's: a
 * frame. */
FR_API fr_status fr_image_preprocess(const fr_image *image, const fr_loader_opts *opts, fr_device device,
                                     fr_tensor **out);

typedef struct fr_loader fr_loader;

/* opts NULL: all defaults. Allocates the batch buffers (prefetch + 1, or 1 without workers) and starts the workers.
 * errors: FR_EINVAL for a value out of range, and for a batch larger than the dataset with drop_last. */
FR_API fr_status fr_loader_create(fr_dataset *dataset, const fr_loader_opts *opts, fr_loader **out);

/* Stops the workers, at any time, and frees the loader; tensors of the caller stay valid. */
FR_API void fr_loader_release(fr_loader **loader);

/* The next batch: images of opts.dtype [n, height, width, channels] and targets: labels i64 [n]; pixels i64 [n,
 * height, width], -100 for ignored pixels (as fr_cross_entropy); vectors f32 [n, classes]. n is batch_size, except in
 * a short last batch.
 * FR_END after the last batch; the following call begins the next epoch. On success the old tensors in the slots are
 * released and replaced; on failure the slots are untouched. The loader reuses a batch buffer only after the last
 * reference is gone. errors: those of reading an image, with the file's name. A failing image is not skipped: the
 * call fails again until the position is set. Call from the training thread only. */
FR_API fr_status fr_loader_next(fr_loader *loader, fr_tensor **images, fr_tensor **targets);

/* (x / 255 - mean) / std of u8 images [..., channels], on their device, in `dtype`, f32 or a half type: the f32
 * loader's numbers, rounded to `dtype`. mean and std have a number per channel; no gradient. A batch of bytes takes a
 * quarter of an f32 batch's time on a bus. FR_EDTYPE: images are not u8. FR_ESHAPE: more than FR_CHANNELS_MAX
 * channels. */
FR_API fr_status fr_images_normalize(const fr_tensor *images, const double *mean, const double *std, fr_dtype dtype,
                                     fr_tensor **out);

/* Batches per epoch. */
FR_API int64_t fr_loader_batches(const fr_loader *loader);

/* The next batch of fr_loader_next; batch == fr_loader_batches means FR_END. A run that saves and restores the
 * position continues exactly. Epochs count from 0; setting batch 0 starts an epoch, also in the middle of an epoch. */
FR_API fr_status fr_loader_position_get(const fr_loader *loader, int64_t *epoch, int64_t *batch);
FR_API fr_status fr_loader_position_set(fr_loader *loader, int64_t epoch, int64_t batch);

#ifdef __cplusplus
}
#endif
#endif
