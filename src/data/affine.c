/* affine.c - a random rotation, scale and shear about the image's middle, bilinear, black outside.
 *
 * torchvision's RandomAffine without translation (the random crop shifts). The map is applied backwards: each pixel of
 * the result reads the source at inverse(map), so that none is left out. */
#include "data/transform.h"

#include "base/philox.h"
#include "base/status.h"

#include <math.h>

/* Uniform in [-1, 1), from one number of the stream. */
static double symmetric(uint32_t number) {
    return (double)number / 2147483648.0 - 1.0;
}

/* The inverse of rotate * shear * scale, row by row. */
static void inverse(const fri_transform *t, const fri_philox4 *r, double m[4]) {
    const double radians = 0.017453292519943295;
    const double angle = t->degrees * symmetric(r->v[0]) * radians, shear = t->shear * symmetric(r->v[2]) * radians;
    const double scale = exp(log1p(t->zoom) * symmetric(r->v[1]));
    const double c = cos(angle) / scale, s = sin(angle) / scale, k = tan(shear);
    /* Forward is scale * R(angle) * [1 k; 0 1]; its inverse [1 -k; 0 1] * R(-angle) / scale. */
    m[0] = c + k * s;
    m[1] = s - k * c;
    m[2] = -s;
    m[3] = c;
}

/* Four source pixels and their weights in 1/65536ths; a pixel outside is black. */
static void read_bilinear(const uint8_t *from, int64_t h, int64_t w, int64_t channels, double y, double x,
                          uint8_t *to) {
    const double y0 = floor(y), x0 = floor(x);
    const int64_t top = (int64_t)y0, left = (int64_t)x0;
    const uint32_t fy = (uint32_t)((y - y0) * 256.0), fx = (uint32_t)((x - x0) * 256.0);
    const uint32_t weight[4] = {(256 - fy) * (256 - fx), (256 - fy) * fx, fy * (256 - fx), fy * fx};
    for (int64_t c = 0; c < channels; c++) {
        uint32_t sum = 0x8000u; /* rounds to nearest when shifted off */
        for (int k = 0; k < 4; k++) {
            const int64_t py = top + k / 2, px = left + k % 2;
            if (py >= 0 && py < h && px >= 0 && px < w) sum += weight[k] * from[(py * w + px) * channels + c];
        }
        to[c] = (uint8_t)(sum >> 16);
    }
}

fr_status fri_affine(const fri_transform *t, const uint8_t *from, int64_t channels, int64_t epoch, int64_t index,
                     fri_transform_scratch *scratch, const uint8_t **to) {
    *to = from;
    if (t->degrees == 0 && t->zoom == 0 && t->shear == 0) return FR_OK;
    const int64_t h = t->resize_height, w = t->resize_width;
    fr_status s = fri_buffer_reserve(&scratch->warped, (size_t)(h * w * channels), "affine");
    if (s != FR_OK) return s;
    const fri_philox4 r = fri_philox(t->seed, fri_stream_affine(epoch), (uint64_t)index);
    double m[4];
    inverse(t, &r, m);
    uint8_t *result = scratch->warped.data;
    const double middle_y = 0.5 * (double)(h - 1), middle_x = 0.5 * (double)(w - 1);
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            const double dx = (double)x - middle_x, dy = (double)y - middle_y;
            read_bilinear(from, h, w, channels, m[2] * dx + m[3] * dy + middle_y, m[0] * dx + m[1] * dy + middle_x,
                          result + (y * w + x) * channels);
        }
    *to = result;
    return FR_OK;
}
