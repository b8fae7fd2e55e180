/* transform.h - from a decoded image to the batch. */
#ifndef FRI_DATA_TRANSFORM_H
#define FRI_DATA_TRANSFORM_H

#include "data/dataset.h"

typedef struct fri_transform {
    int64_t height, width, channels;
    int64_t resize_height, resize_width; /* FR_LOADER_NATIVE: each image's own */
    int64_t padding;
    bool random_crop, flip;
    double degrees, zoom, shear;
    fr_augmentation augmentation;
    double real_mean[FR_CHANNELS_MAX], real_std[FR_CHANNELS_MAX]; /* applied after augmentation.real; 0 and 1 before */
    uint64_t seed;
    bool bytes;                                         /* unchanged */
    double mean[FR_CHANNELS_MAX], std[FR_CHANNELS_MAX]; /* of f32 images */
    float value[FR_CHANNELS_MAX][256];                  /* per channel: value of each byte */
} fri_transform;

/* An image between steps: 8 bit or f32; the unused pointer is NULL. */
typedef struct fri_pixels {
    const uint8_t *u8;
    const float *f32;
    int64_t height, width, channels;
} fri_pixels;

/* Memory of a thread; zero-initialized, freed once. */
typedef struct fri_transform_scratch {
    fri_buffer resized, rows, weights, warped, cropped;
} fri_transform_scratch;

void fri_transform_scratch_free(fri_transform_scratch *s);

/* Resolves FR_LOADER_AUTO, for images of the given sizes, and checks every value; FR_EINVAL names the option. */
fr_status fri_transform_init(fri_transform *t, const fr_loader_opts *opts, int64_t height, int64_t width,
                             int64_t channels);

/* Writes height * width * channels floats, or bytes, and the classes of the image's mask into `classes`, height *
 * width, unless NULL. The random choices are a function of (seed, epoch, index). */
fr_status fri_transform_apply(const fri_transform *t, const fr_image *image, int64_t epoch, int64_t index,
                              fri_transform_scratch *scratch, void *to, int64_t *classes);

/* The seed's key for the loader's random numbers, and three streams: two per epoch from 0 up, a third from the top. */
uint64_t fri_loader_key(uint64_t seed);
static inline uint64_t fri_stream_shuffle(int64_t epoch) {
    return 2 * (uint64_t)epoch;
}
static inline uint64_t fri_stream_augment(int64_t epoch) {
    return 2 * (uint64_t)epoch + 1;
}
static inline uint64_t fri_stream_affine(int64_t epoch) {
    return UINT64_MAX - (uint64_t)epoch;
}

/* Bilinear with the filter widened to the step when shrinking, pixel centers at half: PIL's BILINEAR, up to rounding
 * (PIL rounds between the two directions). No-op at equal size. */
fr_status fri_resize(fri_pixels *p, int64_t out_h, int64_t out_w, fri_transform_scratch *scratch);

/* A random rotation, zoom and shear by numbers of (seed, epoch, index): the source position of each pixel (y, x), and
 * the warped image. False: all three are 0. */
bool fri_affine_map(const fri_transform *t, int64_t epoch, int64_t index, double m[4]);
void fri_affine_source(const double m[4], int64_t h, int64_t w, int64_t y, int64_t x, double *from_y, double *from_x);
fr_status fri_affine(fri_pixels *p, const double m[4], fri_transform_scratch *scratch);

#endif
