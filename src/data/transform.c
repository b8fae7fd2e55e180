/* transform.c - see transform.h. The order of steps is stated at fr_loader_opts. */
#include "data/transform.h"

#include "base/philox.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

uint64_t fri_loader_key(uint64_t seed) {
    /* Keeps the loader's numbers apart from those that initialize the model under the same seed. */
    return seed ^ UINT64_C(0x6c6f61646572);
}

void fri_transform_scratch_free(fri_transform_scratch *s) {
    fri_buffer_free(&s->resized);
    fri_buffer_free(&s->rows);
    fri_buffer_free(&s->weights);
    fri_buffer_free(&s->warped);
}

static fr_status check_side(const char *name, int64_t value) {
    if (value >= 1 && value <= FRI_IMAGE_SIDE_MAX) return FR_OK;
    return fr_fail(FR_EINVAL, "loader: %s is %lld, must lie in 1..%d", name, (long long)value, FRI_IMAGE_SIDE_MAX);
}

fr_status fri_transform_init(fri_transform *t, const fr_loader_opts *o, int64_t height, int64_t width,
                             int64_t channels) {
    fr_status s = FR_OK;
    t->height = o->height == FR_LOADER_AUTO ? height : o->height;
    t->width = o->width == FR_LOADER_AUTO ? width : o->width;
    t->channels = o->channels == FR_LOADER_AUTO ? channels : o->channels;
    t->resize_height = o->resize_height == FR_LOADER_AUTO ? t->height : o->resize_height;
    t->resize_width = o->resize_width == FR_LOADER_AUTO ? t->width : o->resize_width;
    t->padding = o->padding;
    t->random_crop = o->random_crop;
    t->flip = o->flip;
    t->degrees = o->degrees;
    t->zoom = o->zoom;
    t->shear = o->shear;
    t->seed = fri_loader_key(o->seed);
    FR_TRY(s, check_side("height", t->height));
    FR_TRY(s, check_side("width", t->width));
    FR_TRY(s, check_side("resize_height", t->resize_height));
    FR_TRY(s, check_side("resize_width", t->resize_width));
    if (t->channels != 1 && t->channels != 3)
        return fr_fail(FR_EINVAL, "loader: channels is %lld, must be 1 or 3", (long long)t->channels);
    if (t->padding < 0 || t->padding > FRI_IMAGE_SIDE_MAX)
        return fr_fail(FR_EINVAL, "loader: padding is %lld, must lie in 0..%d", (long long)t->padding,
                       FRI_IMAGE_SIDE_MAX);
    if (t->height * t->width > FRI_IMAGE_PIXELS_MAX || t->resize_height * t->resize_width > FRI_IMAGE_PIXELS_MAX)
        return fr_fail(FR_EINVAL, "loader: images of %lld x %lld, resized to %lld x %lld; the limit is %d pixels",
                       (long long)t->width, (long long)t->height, (long long)t->resize_width,
                       (long long)t->resize_height, FRI_IMAGE_PIXELS_MAX);
    if (t->height > t->resize_height + 2 * t->padding || t->width > t->resize_width + 2 * t->padding)
        return fr_fail(FR_EINVAL, "loader: a crop of %lld x %lld from images of %lld x %lld padded by %lld",
                       (long long)t->width, (long long)t->height, (long long)t->resize_width,
                       (long long)t->resize_height, (long long)t->padding);
    if (!(t->degrees >= 0 && t->degrees <= 180))
        return fr_fail(FR_EINVAL, "loader: degrees is %g, must lie in 0..180", t->degrees);
    if (!(t->zoom >= 0 && t->zoom <= 1)) return fr_fail(FR_EINVAL, "loader: zoom is %g, must lie in 0..1", t->zoom);
    if (!(t->shear >= 0 && t->shear <= 45))
        return fr_fail(FR_EINVAL, "loader: shear is %g degrees, must lie in 0..45", t->shear);
    for (int64_t c = 0; c < t->channels; c++) {
        if (!isfinite(o->mean[c]) || !isfinite(o->std[c]) || o->std[c] <= 0)
            return fr_fail(FR_EINVAL, "loader: mean %g and std %g of channel %lld; std must be positive", o->mean[c],
                           o->std[c], (long long)c);
        for (int v = 0; v < 256; v++) t->value[c][v] = (float)(((double)v / 255.0 - o->mean[c]) / o->std[c]);
    }
done:
    return s;
}

/* An offset in [-padding, size + padding - window], at random or the middle one. */
static int64_t offset(int64_t size, int64_t window, int64_t padding, bool random, uint32_t number) {
    int64_t choices = size + 2 * padding - window + 1;
    int64_t k = random ? (int64_t)(((uint64_t)number * (uint64_t)choices) >> 32) : (choices - 1) / 2;
    return k - padding;
}

/* BT.601 luma in 16 bit fixed point, as PIL's convert("L"). */
static uint8_t luma(const uint8_t *p) {
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
}

fr_status fri_transform_apply(const fri_transform *t, const fr_image *image, int64_t epoch, int64_t index,
                              fri_transform_scratch *scratch, float *to) {
    const uint8_t *pixels = NULL;
    fr_status s = fri_resize(image->pixels, image->height, image->width, image->channels, t->resize_height,
                             t->resize_width, scratch, &pixels);
    if (s == FR_OK) s = fri_affine(t, pixels, image->channels, epoch, index, scratch, &pixels);
    if (s != FR_OK) return s;
    const fri_philox4 r = fri_philox(t->seed, fri_stream_augment(epoch), (uint64_t)index);
    const int64_t top = offset(t->resize_height, t->height, t->padding, t->random_crop, r.v[0]);
    const int64_t left = offset(t->resize_width, t->width, t->padding, t->random_crop, r.v[1]);
    const bool mirror = t->flip && (r.v[2] >> 31) != 0;
    const int64_t in = image->channels, out = t->channels;
    static const uint8_t black[3] = {0, 0, 0};
    for (int64_t y = 0; y < t->height; y++) {
        const int64_t from_y = y + top;
        const bool row_inside = from_y >= 0 && from_y < t->resize_height;
        for (int64_t x = 0; x < t->width; x++) {
            const int64_t from_x = (mirror ? t->width - 1 - x : x) + left;
            const bool inside = row_inside && from_x >= 0 && from_x < t->resize_width;
            const uint8_t *p = inside ? pixels + (from_y * t->resize_width + from_x) * in : black;
            float *q = to + (y * t->width + x) * out;
            if (out == 1)
                q[0] = t->value[0][in == 1 ? p[0] : luma(p)];
            else
                for (int c = 0; c < 3; c++) q[c] = t->value[c][in == 1 ? p[0] : p[c]];
        }
    }
    return FR_OK;
}

fr_status fr_image_preprocess(const fr_image *image, const fr_loader_opts *opts, fr_device device, fr_tensor **out) {
    FRI_NOT_NULL(image, out);
    fr_loader_opts plain = opts != NULL ? *opts : fr_loader_opts_default();
    fri_transform_scratch scratch = {0};
    fri_transform t;
    float *pixels = NULL;
    fr_status s = FR_OK;
    plain.random_crop = plain.flip = false;
    plain.degrees = plain.zoom = plain.shear = 0;
    FR_TRY(s, image->pixels != NULL ? FR_OK : fr_fail(FR_EINVAL, "image_preprocess: the image has no pixels"));
    FR_TRY(s, fri_image_check_size("image_preprocess", image->height, image->width));
    if (image->channels != 1 && image->channels != 3)
        return fr_fail(FR_EINVAL, "image_preprocess: the image has %lld channels, 1 or 3 are possible",
                       (long long)image->channels);
    FR_TRY(s, fri_transform_init(&t, &plain, image->height, image->width, image->channels));
    pixels = malloc((size_t)(t.height * t.width * t.channels) * sizeof *pixels);
    FR_TRY(s, pixels != NULL ? FR_OK : fr_fail(FR_ENOMEM, "image_preprocess: no host memory for the image"));
    FR_TRY(s, fri_transform_apply(&t, image, 0, 0, &scratch, pixels));
    s = fr_tensor_from_host(pixels, 4, (int64_t[]){1, t.height, t.width, t.channels}, FR_F32, device, out);
done:
    free(pixels);
    fri_transform_scratch_free(&scratch);
    return s;
}
