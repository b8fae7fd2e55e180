/* affine.c - a random rotation, scale and shear about the image's middle, bilinear, black outside.
 *
 * torchvision's RandomAffine without translation (the random crop shifts). The map is applied backwards: each pixel of
 * the result reads the source at inverse(map), so no pixel is left out. */
#include "data/transform.h"

#include "backend/elementary.h"
#include "base/status.h"

#include <math.h>

/* Uniform in [-1, 1), from a number of the stream. */
static double symmetric(uint32_t number) {
    return (double)number / 2147483648.0 - 1.0;
}

/* The inverse of rotate * shear * scale, row by row. */
bool fri_affine_map(const fri_transform *t, int64_t epoch, int64_t index, double m[4]) {
    if (t->degrees == 0 && t->zoom == 0 && t->shear == 0) return false;
    const fri_philox4 r4 = fri_philox(t->seed, fri_stream_affine(epoch), (uint64_t)index), *r = &r4;
    const double radians = 0.017453292519943295;
    const double angle = t->degrees * symmetric(r->v[0]) * radians, shear = t->shear * symmetric(r->v[2]) * radians;
    const double scale = fri_exp64(fri_ln64(1 + t->zoom) * symmetric(r->v[1]));
    double c, s, sheared[2];
    fri_sin_cos64(angle, &s, &c);
    fri_sin_cos64(shear, &sheared[0], &sheared[1]);
    const double k = sheared[0] / sheared[1];
    c /= scale;
    s /= scale;
    /* Forward is scale * R(angle) * [1 k; 0 1]; its inverse [1 -k; 0 1] * R(-angle) / scale. */
    m[0] = c + k * s;
    m[1] = s - k * c;
    m[2] = -s;
    m[3] = c;
    return true;
}

void fri_affine_source(const double m[4], int64_t h, int64_t w, int64_t y, int64_t x, double *from_y, double *from_x) {
    const double middle_y = 0.5 * (double)(h - 1), middle_x = 0.5 * (double)(w - 1);
    const double dx = (double)x - middle_x, dy = (double)y - middle_y;
    *from_y = m[2] * dx + m[3] * dy + middle_y;
    *from_x = m[0] * dx + m[1] * dy + middle_x;
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

static void read_bilinear_f32(const fri_pixels *p, double y, double x, float *to) {
    const double y0 = floor(y), x0 = floor(x), fy = y - y0, fx = x - x0;
    const double weight[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    for (int64_t c = 0; c < p->channels; c++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            const int64_t py = (int64_t)y0 + k / 2, px = (int64_t)x0 + k % 2;
            if (py >= 0 && py < p->height && px >= 0 && px < p->width)
                sum += weight[k] * p->f32[(py * p->width + px) * p->channels + c];
        }
        to[c] = (float)sum;
    }
}

fr_status fri_affine(fri_pixels *p, const double m[4], fri_transform_scratch *scratch) {
    const int64_t h = p->height, w = p->width, channels = p->channels;
    const bool real = p->f32 != NULL;
    fr_status s =
        fri_buffer_reserve(&scratch->warped, (size_t)(h * w * channels) * (real ? sizeof(float) : 1), "affine");
    if (s != FR_OK) return s;
    uint8_t *result = scratch->warped.data;
    float *real_result = scratch->warped.data;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            double from_y, from_x;
            fri_affine_source(m, h, w, y, x, &from_y, &from_x);
            if (real)
                read_bilinear_f32(p, from_y, from_x, real_result + (y * w + x) * channels);
            else
                read_bilinear(p->u8, h, w, channels, from_y, from_x, result + (y * w + x) * channels);
        }
    *p = (fri_pixels){real ? NULL : result, real ? real_result : NULL, h, w, channels};
    return FR_OK;
}
