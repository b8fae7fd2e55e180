/* transform.c - see transform.h. The order of steps is stated at fr_loader_opts. */
#include "data/transform.h"

#include "backend/arith.h"
#include "base/philox.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IGNORED = -100 }; /* fr_cross_entropy's ignore_index */

uint64_t fri_loader_key(uint64_t seed) {
    /* Separates the loader's numbers from the model's initial numbers under a common seed. */
    return seed ^ UINT64_C(0x6c6f61646572);
}

void fri_transform_scratch_free(fri_transform_scratch *s) {
    fri_buffer_free(&s->resized);
    fri_buffer_free(&s->rows);
    fri_buffer_free(&s->weights);
    fri_buffer_free(&s->warped);
    fri_buffer_free(&s->cropped);
}

static fr_status check_side(const char *name, int64_t value) {
    if (value >= 1 && value <= FRI_IMAGE_SIDE_MAX) return FR_OK;
    return fr_fail(FR_EINVAL, "loader: %s is %lld, must lie in 1..%d", name, (long long)value, FRI_IMAGE_SIDE_MAX);
}

/* Converts between gray and RGB. */
static bool is_color(int64_t channels) {
    return channels == 1 || channels == 3;
}

fr_status fri_transform_init(fri_transform *t, const fr_loader_opts *o, int64_t height, int64_t width,
                             int64_t channels) {
    t->height = o->height == FR_LOADER_AUTO ? height : o->height;
    t->width = o->width == FR_LOADER_AUTO ? width : o->width;
    t->channels = o->channels == FR_LOADER_AUTO ? channels : o->channels;
    t->resize_height = o->resize_height == FR_LOADER_AUTO ? t->height : o->resize_height;
    t->resize_width = o->resize_width == FR_LOADER_AUTO ? t->width : o->resize_width;
    t->padding = o->padding;
    t->random_crop = o->random_crop;
    t->flip = o->flip;
    t->bytes = o->dtype == FR_U8;
    t->degrees = o->degrees;
    t->zoom = o->zoom;
    t->shear = o->shear;
    t->augmentation = o->augmentation;
    t->seed = fri_loader_key(o->seed);
    FRI_TRY(check_side("height", t->height));
    FRI_TRY(check_side("width", t->width));
    const bool native = t->resize_height == FR_LOADER_NATIVE && t->resize_width == FR_LOADER_NATIVE;
    if (!native) FRI_TRY(check_side("resize_height", t->resize_height));
    if (!native) FRI_TRY(check_side("resize_width", t->resize_width));
    if (t->channels != channels && !(is_color(t->channels) && is_color(channels)))
        return fr_fail(FR_EINVAL, "loader: channels is %lld but the images have %lld; only 1 and 3 are converted",
                       (long long)t->channels, (long long)channels);
    if (t->padding < 0 || t->padding > FRI_IMAGE_SIDE_MAX)
        return fr_fail(FR_EINVAL, "loader: padding is %lld, must lie in 0..%d", (long long)t->padding,
                       FRI_IMAGE_SIDE_MAX);
    if (t->height * t->width > FRI_IMAGE_PIXELS_MAX ||
        (!native && t->resize_height * t->resize_width > FRI_IMAGE_PIXELS_MAX))
        return fr_fail(FR_EINVAL, "loader: images of %lld x %lld, resized to %lld x %lld; the limit is %d pixels",
                       (long long)t->width, (long long)t->height, (long long)t->resize_width,
                       (long long)t->resize_height, FRI_IMAGE_PIXELS_MAX);
    if (!native && (t->height > t->resize_height + 2 * t->padding || t->width > t->resize_width + 2 * t->padding))
        return fr_fail(FR_EINVAL, "loader: the crop of %lld x %lld exceeds images of %lld x %lld padded by %lld",
                       (long long)t->width, (long long)t->height, (long long)t->resize_width,
                       (long long)t->resize_height, (long long)t->padding);
    if (!(t->degrees >= 0 && t->degrees <= 180))
        return fr_fail(FR_EINVAL, "loader: degrees is %g, must lie in 0..180", t->degrees);
    if (!(t->zoom >= 0 && t->zoom <= 1)) return fr_fail(FR_EINVAL, "loader: zoom is %g, must lie in 0..1", t->zoom);
    if (!(t->shear >= 0 && t->shear <= 45))
        return fr_fail(FR_EINVAL, "loader: shear is %g degrees, must lie in 0..45", t->shear);
    const bool real = o->augmentation.real != NULL;
    if ((real || o->augmentation.bytes != NULL) && !is_color(t->channels))
        return fr_fail(FR_EINVAL, "loader: augmentations before normalization need 1 or 3 channels, not %lld",
                       (long long)t->channels);
    for (int64_t c = 0; c < t->channels; c++) {
        if (!isfinite(o->mean[c]) || !isfinite(o->std[c]) || o->std[c] <= 0)
            return fr_fail(FR_EINVAL, "loader: mean %g and std %g of channel %lld; std must be positive", o->mean[c],
                           o->std[c], (long long)c);
        t->real_mean[c] = o->mean[c];
        t->real_std[c] = o->std[c];
        t->mean[c] = real ? 0 : o->mean[c];
        t->std[c] = real ? 1 : o->std[c];
        for (int v = 0; v < 256; v++) t->value[c][v] = fri_normalized(v, t->mean[c], t->std[c]);
    }
    return FR_OK;
}

/* An offset in [-padding, size + padding - window], at random or in the middle, where a half is rounded to even, as
 * torchvision's CenterCrop does. An image smaller than the window is padded on each side, as pad_if_needed does. */
static int64_t window_offset(int64_t size, int64_t window, int64_t padding, bool random, uint32_t number) {
    int64_t over = size + 2 * padding - window;
    if (!random) return over / 2 + (over % 4 == 3) - padding;
    if (over < 0) padding = window - size - padding;
    if (over < 0) over = size + 2 * padding - window;
    return (int64_t)(((uint64_t)number * (uint64_t)(over + 1)) >> 32) - padding;
}

/* BT.601 luma in 16 bit fixed point, as PIL's convert("L"). */
static uint8_t luma(const uint8_t *p) {
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
}

static inline void put_u8(const fri_transform *t, const uint8_t *p, int64_t in, int64_t out, float *to) {
    if (in > out)
        to[0] = t->value[0][luma(p)];
    else
        for (int64_t c = 0; c < out; c++) to[c] = t->value[c][in < out ? p[0] : p[c]];
}

static inline void put_bytes(const uint8_t *p, int64_t in, int64_t out, uint8_t *to) {
    if (in > out)
        to[0] = luma(p);
    else
        for (int64_t c = 0; c < out; c++) to[c] = in < out ? p[0] : p[c];
}

static inline void put_f32(const fri_transform *t, const float *p, int64_t in, int64_t out, float *to) {
    const double gray = in > out ? 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2] : p[0];
    for (int64_t c = 0; c < out; c++) to[c] = (float)(((in != out ? gray : p[c]) - t->mean[c]) / t->std[c]);
}

/* Places of the result's pixels in the image. */
typedef struct place {
    int64_t top, left; /* of the window in the resized image */
    bool mirror, warped;
    double m[4];
} place;

/* Pixel that PyTorch's interpolate(mode="nearest") reads for position i: in f32, as PyTorch. */
static int64_t nearest_of_size(int64_t i, int64_t in, int64_t out) {
    const int64_t k = (int64_t)floorf((float)i * ((float)in / (float)out));
    return k < in - 1 ? k : in - 1;
}

/* The class at (y, x) of the mask after resizing to h x w and warping. */
static int64_t class_at(const fr_image *image, const place *at, int64_t h, int64_t w, int64_t y, int64_t x) {
    if (at->warped) {
        double from_y, from_x;
        fri_affine_source(at->m, h, w, y, x, &from_y, &from_x);
        y = (int64_t)nearbyint(from_y);
        x = (int64_t)nearbyint(from_x);
    }
    if (y < 0 || y >= h || x < 0 || x >= w) return IGNORED;
    const uint8_t c =
        ((const uint8_t *)image->target
             .data)[nearest_of_size(y, image->height, h) * image->width + nearest_of_size(x, image->width, w)];
    return c == FR_MASK_IGNORED ? IGNORED : c;
}

/* Index in the resized image, of rows of `width` pixels, of pixel (y, x) of the window; -1: outside. */
static inline int64_t source_index(const fri_transform *t, const fri_pixels *p, const place *at, int64_t y, int64_t x) {
    const int64_t from_y = y + at->top, from_x = (at->mirror ? t->width - 1 - x : x) + at->left;
    const bool inside = from_y >= 0 && from_y < p->height && from_x >= 0 && from_x < p->width;
    return inside ? from_y * p->width + from_x : -1;
}

/* The window. in and out are p's and t's channels: constants where the caller knows the numbers, so compilers
 * unroll the loops. */
static inline void cut_window(const fri_transform *t, const fri_pixels *p, const place *at, int64_t in, int64_t out,
                              bool bytes, void *to) {
    static const uint8_t black[FR_CHANNELS_MAX] = {0};
    static const float zero[FR_CHANNELS_MAX] = {0};
    for (int64_t y = 0; y < t->height; y++)
        for (int64_t x = 0; x < t->width; x++) {
            const int64_t from = source_index(t, p, at, y, x);
            const int64_t at_to = (y * t->width + x) * out;
            if (p->f32 != NULL)
                put_f32(t, from >= 0 ? p->f32 + from * in : zero, in, out, (float *)to + at_to);
            else if (bytes)
                put_bytes(from >= 0 ? p->u8 + from * in : black, in, out, (uint8_t *)to + at_to);
            else
                put_u8(t, from >= 0 ? p->u8 + from * in : black, in, out, (float *)to + at_to);
        }
}

static void cut_any(const fri_transform *t, const fri_pixels *p, const place *at, bool bytes, void *to) {
    if (p->channels == 3 && t->channels == 3)
        cut_window(t, p, at, 3, 3, bytes, to);
    else if (p->channels == 1 && t->channels == 3)
        cut_window(t, p, at, 1, 3, bytes, to);
    else
        cut_window(t, p, at, p->channels, t->channels, bytes, to);
}

/* Bytes, whatever the result is. */
static fr_status cut_augmented(const fri_transform *t, const fri_pixels *p, const place *at, const fr_augment_input *in,
                               fri_transform_scratch *scratch, void *to) {
    const size_t n = (size_t)(t->height * t->width * t->channels);
    FRI_TRY(fri_buffer_reserve(&scratch->cropped, 2 * n, "an augmentation"));
    uint8_t *bytes = scratch->cropped.data;
    cut_any(t, p, at, true, bytes);
    const uint8_t *from = t->augmentation.bytes(&t->augmentation, in, bytes, bytes + n);
    if (t->bytes)
        memcpy(to, from, n);
    else
        for (size_t i = 0; i < n; i++) ((float *)to)[i] = t->value[i % (size_t)t->channels][from[i]];
    return FR_OK;
}

void fr_augment_numbers(const fr_augment_input *in, uint64_t at, uint32_t number[4]) {
    if (in == NULL || number == NULL) return;
    const fri_philox4 r = fri_philox(in->seed, fri_stream_augment(in->epoch), at);
    memcpy(number, r.v, sizeof r.v);
}

static void normalize_real(const fri_transform *t, float *pixels) {
    for (int64_t i = 0; i < t->height * t->width; i++)
        for (int64_t c = 0; c < t->channels; c++)
            pixels[i * t->channels + c] = (float)((pixels[i * t->channels + c] - t->real_mean[c]) / t->real_std[c]);
}

static void cut_mask(const fri_transform *t, const fri_pixels *p, const place *at, const fr_image *image,
                     int64_t *classes) {
    for (int64_t y = 0; y < t->height; y++)
        for (int64_t x = 0; x < t->width; x++) {
            const int64_t from = source_index(t, p, at, y, x);
            classes[y * t->width + x] =
                from < 0 ? IGNORED : class_at(image, at, p->height, p->width, from / p->width, from % p->width);
        }
}

fr_status fri_transform_apply(const fri_transform *t, const fr_image *image, int64_t epoch, int64_t index,
                              fri_transform_scratch *scratch, void *to, int64_t *classes) {
    fri_pixels p = {image->pixels, image->f32, image->height, image->width, image->channels};
    place at = {.warped = false};
    if (t->resize_height != FR_LOADER_NATIVE) FRI_TRY(fri_resize(&p, t->resize_height, t->resize_width, scratch));
    at.warped = fri_affine_map(t, epoch, index, at.m);
    if (at.warped) FRI_TRY(fri_affine(&p, at.m, scratch));
    const fri_philox4 r = fri_philox(t->seed, fri_stream_augment(epoch), (uint64_t)index);
    at.top = window_offset(p.height, t->height, t->padding, t->random_crop, r.v[0]);
    at.left = window_offset(p.width, t->width, t->padding, t->random_crop, r.v[1]);
    at.mirror = t->flip && (r.v[2] >> 31) != 0;
    const fr_augmentation *a = &t->augmentation;
    const fr_augment_input in = {t->seed, epoch, index, 1, t->height, t->width, t->channels, 0};
    if (a->bytes != NULL)
        FRI_TRY(cut_augmented(t, &p, &at, &in, scratch, to));
    else
        cut_any(t, &p, &at, t->bytes, to);
    if (a->real != NULL) {
        a->real(a, &in, to);
        normalize_real(t, to);
    }
    if (a->last != NULL) a->last(a, &in, to);
    if (classes != NULL) cut_mask(t, &p, &at, image, classes);
    return FR_OK;
}

fr_status fr_image_preprocess(const fr_image *image, const fr_loader_opts *opts, fr_device device, fr_tensor **out) {
    FRI_NOT_NULL(image, out);
    fr_loader_opts plain = opts != NULL ? *opts : fr_loader_opts_default();
    FRI_OWNED(fri_transform_scratch_free) fri_transform_scratch scratch = {0};
    FRI_OWNED(fri_free) float *pixels = NULL;
    fri_transform t;
    plain.random_crop = plain.flip = false;
    plain.augmentation = (fr_augmentation){0};
    plain.degrees = plain.zoom = plain.shear = 0;
    plain.dtype = FR_F32;
    FRI_TRY(image->pixels != NULL || image->f32 != NULL
                ? FR_OK
                : fr_fail(FR_EINVAL, "image_preprocess: the image has no pixels"));
    FRI_TRY(fri_image_check_size("image_preprocess", image->height, image->width));
    if (image->channels < 1 || image->channels > FR_CHANNELS_MAX)
        return fr_fail(FR_EINVAL, "image_preprocess: the image has %lld channels, 1 to %d are possible",
                       (long long)image->channels, FR_CHANNELS_MAX);
    FRI_TRY(fri_transform_init(&t, &plain, image->height, image->width, image->channels));
    pixels = malloc((size_t)(t.height * t.width * t.channels) * sizeof *pixels);
    FRI_TRY(pixels != NULL ? FR_OK : fr_fail(FR_ENOMEM, "image_preprocess: no host memory for the image"));
    FRI_TRY(fri_transform_apply(&t, image, 0, 0, &scratch, pixels, NULL));
    return fr_tensor_from_host(pixels, 4, (int64_t[]){1, t.height, t.width, t.channels}, FR_F32, device, out);
}
