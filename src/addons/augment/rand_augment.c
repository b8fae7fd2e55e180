/* rand_augment.c - torchvision's transforms v2 RandAugment of an 8-bit image: some of 14 ops one after the other, each
 * of one magnitude, of 31; nearest pixels, black outside. Arithmetic is f32, as there. */
#include "addons/augment/parts.h"
#include "backend/elementary.h"

#include <math.h>
#include <string.h>

enum { BINS = 31, LEVELS = 256 };

typedef enum augment {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTO_CONTRAST,
    EQUALIZE,
    AUGMENTS,
} augment;

typedef struct picture {
    uint8_t *pixels;
    int64_t height, width, channels;
} picture;

/* torch.linspace(from, to, BINS)[i] in f32. */
static float linspace(float from, float to, int i) {
    const float step = (to - from) / (BINS - 1);
    return i < BINS / 2 ? from + step * (float)i : to - step * (float)(BINS - 1 - i);
}

/* Clamped and cut off, not rounded, as torch converts to u8. */
static uint8_t to_level(float v) {
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* ---- where pixels come from ---------------------------------------------------------------------------------- */

/* The inverse of a rotation by `angle`, of y after x sheared, about `center` from the middle, then a shift: rows of
 * _get_inverse_affine_matrix (torchvision). */
typedef struct motion {
    double angle, shear[2], center[2], shift[2]; /* radians; tangents of x, y; pixels */
} motion;

static void inverse_of(const motion *k, float m[6]) {
    const double tx = k->shear[0], ty = k->shear[1], *c = k->center;
    double sine, cosine;
    fri_sin_cos64(k->angle, &sine, &cosine);
    const double a = cosine + sine * ty, b = -(a * tx + sine), d0 = sine - cosine * ty;
    const double d = cosine - d0 * tx, x = c[0] + k->shift[0], y = c[1] + k->shift[1];
    const double rows[6] = {d, -b, c[0] - d * x + b * y, -d0, a, c[1] + d0 * x - a * y};
    for (int i = 0; i < 6; i++) m[i] = (float)rows[i];
}

/* grid_sample's nearest pixel of a coordinate in units of half the size; may lie outside. */
static int64_t nearest_of_grid(float at, int64_t size) {
    return (int64_t)nearbyintf((at + 1) * (0.5f * (float)size) - 0.5f);
}

static void move_pixels(const picture *p, const motion *k, uint8_t *to) {
    const size_t channels = (size_t)p->channels;
    const float half_w = 0.5f * (float)p->width, half_h = 0.5f * (float)p->height;
    float m[6];
    inverse_of(k, m);
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++, to += channels) {
            const float from_x = (float)x - 0.5f * (float)(p->width - 1),
                        from_y = (float)y - 0.5f * (float)(p->height - 1);
            const float u = fmaf(from_y, m[1] / half_w, from_x * (m[0] / half_w)) + m[2] / half_w;
            const float v = fmaf(from_y, m[4] / half_h, from_x * (m[3] / half_h)) + m[5] / half_h;
            const int64_t sx = nearest_of_grid(u, p->width), sy = nearest_of_grid(v, p->height);
            if (sx >= 0 && sx < p->width && sy >= 0 && sy < p->height)
                memcpy(to, p->pixels + (size_t)(sy * p->width + sx) * channels, channels);
            else
                memset(to, 0, channels);
        }
}

/* ---- colors -------------------------------------------------------------------------------------------------- */

static float gray_of_pixel(const uint8_t *p, int64_t channels) {
    return channels == 3 ? floorf(fmaf(0.114f, p[2], fmaf(0.587f, p[1], 0.2989f * p[0]))) : p[0];
}

/* Toward black (ratio * v), the image's mean gray, or each pixel's. */
static void blend_picture(const picture *p, augment which, double ratio) {
    const int64_t n = p->height * p->width;
    const float f = (float)ratio, rest = (float)(1 - ratio);
    double mean = 0;
    if (which == COLOR && p->channels == 1) return;
    for (int64_t i = 0; i < n && which == CONTRAST; i++)
        mean += gray_of_pixel(p->pixels + i * p->channels, p->channels);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *v = p->pixels + i * p->channels;
        const float toward = which == CONTRAST ? (float)(mean / (double)n) : gray_of_pixel(v, p->channels);
        for (int64_t c = 0; c < p->channels; c++)
            v[c] = to_level(which == BRIGHTNESS ? f * v[c] : fmaf(rest, toward, f * v[c]));
    }
}

/* Pixels go from or to the mean of 3 x 3 about each, the middle counted five times; the border stays. */
static void sharpen(const picture *p, double ratio, uint8_t *to) {
    const int64_t w = p->width * p->channels, c = p->channels;
    memcpy(to, p->pixels, (size_t)(p->height * w));
    for (int64_t y = 1; y < p->height - 1; y++)
        for (int64_t x = c; x < w - c; x++) {
            const uint8_t *v = p->pixels + y * w + x;
            const int sum = v[-w - c] + v[-w] + v[-w + c] + v[-c] + 5 * v[0] + v[c] + v[w - c] + v[w] + v[w + c];
            to[y * w + x] = to_level(fmaf((float)(1 - ratio), (float)((2 * sum + 13) / 26 - v[0]), v[0]));
        }
}

/* ---- by a table of levels -------------------------------------------------------------------------------------- */

static void count_levels(const picture *p, int64_t channel, int64_t count[LEVELS]) {
    memset(count, 0, LEVELS * sizeof *count);
    for (int64_t i = 0; i < p->height * p->width; i++) count[p->pixels[i * p->channels + channel]]++;
}

static void stretch_table(const int64_t count[LEVELS], uint8_t table[LEVELS]) {
    int low = 0, high = LEVELS - 1;
    while (count[low] == 0) low++;
    while (count[high] == 0) high--;
    const float scale = (float)(high - low) * (float)(1.0 / 255);
    for (int v = low; v <= high && low < high; v++) table[v] = to_level((float)(v - low) / scale);
}

/* PIL's way: the highest level does not count. */
static void equalize_table(const int64_t count[LEVELS], uint8_t table[LEVELS]) {
    int64_t sum = 0, below = 0;
    int high = LEVELS - 1;
    while (count[high] == 0) high--;
    for (int v = 0; v < high; v++) sum += count[v];
    const int64_t step = sum / (LEVELS - 1);
    for (int v = 0; v < LEVELS && step > 0; v++) {
        const int64_t level = v > 0 ? (below + step / 2) / step : 0;
        table[v] = (uint8_t)(level < LEVELS - 1 ? level : LEVELS - 1);
        below += count[v];
    }
}

static void look_up(const picture *p, augment which, int bin) {
    const int bits = (int)lrint(8 - bin / 7.5), mask = 255 << (8 - bits) & 255;
    const float threshold = 255 * linspace(1, 0, bin);
    for (int64_t c = 0; c < p->channels; c++) {
        int64_t count[LEVELS];
        uint8_t table[LEVELS];
        for (int v = 0; v < LEVELS; v++)
            table[v] = (uint8_t)(which == POSTERIZE                           ? v & mask
                                 : which == SOLARIZE && (float)v >= threshold ? 255 - v
                                                                              : v);
        count_levels(p, c, count);
        if (which == AUTO_CONTRAST) stretch_table(count, table);
        if (which == EQUALIZE) equalize_table(count, table);
        for (int64_t i = c; i < p->height * p->width * p->channels; i += p->channels)
            p->pixels[i] = table[p->pixels[i]];
    }
}

/* ---- the choice ---------------------------------------------------------------------------------------------- */

/* One op; true: its result is in `to`. */
static bool apply_augment(const picture *p, augment which, int bin, bool negative, uint8_t *to) {
    const double sign = negative ? -1 : 1, radians = 0.017453292519943295, shear = sign * linspace(0, 0.3f, bin);
    const double ratio = 1 + sign * linspace(0, 0.9f, bin), w = (double)p->width, h = (double)p->height;
    motion k = {0};
    switch (which) {
    case SHEAR_X: k = (motion){.shear = {shear, 0}, .center = {-0.5 * w, -0.5 * h}}; break;
    case SHEAR_Y: k = (motion){.shear = {0, shear}, .center = {-0.5 * w, -0.5 * h}}; break;
    case TRANSLATE_X: k.shift[0] = sign * floor(linspace(0, (float)(150.0 / 331 * w), bin)); break;
    case TRANSLATE_Y: k.shift[1] = sign * floor(linspace(0, (float)(150.0 / 331 * h), bin)); break;
    case ROTATE: k.angle = -sign * linspace(0, 30, bin) * radians; break;
    case SHARPNESS: sharpen(p, ratio, to); return true;
    case BRIGHTNESS:
    case COLOR:
    case CONTRAST: blend_picture(p, which, ratio); return false;
    case POSTERIZE:
    case SOLARIZE:
    case AUTO_CONTRAST:
    case EQUALIZE: look_up(p, which, bin); return false;
    default: return false;
    }
    move_pixels(p, &k, to);
    return true;
}

/* Counters lie behind the counters of erasing. */
uint8_t *fri_rand_augment(const fr_augmentation *a, const fr_augment_input *in, uint8_t *pixels, uint8_t *spare) {
    for (int i = 0; i < (int)a->amount[FRI_AMOUNT_RAND_OPS]; i++) {
        uint32_t r[4];
        fr_augment_numbers(in, (UINT64_C(1) << 62) + FRI_RAND_OPS_MAX * (uint64_t)in->index + (uint64_t)i, r);
        const augment which = (augment)(((uint64_t)r[0] * AUGMENTS) >> 32);
        const picture p = {pixels, in->height, in->width, in->channels};
        if (!apply_augment(&p, which, (int)a->amount[FRI_AMOUNT_RAND_MAGNITUDE], r[1] >> 31 == 0, spare)) continue;
        uint8_t *result = spare;
        spare = pixels;
        pixels = result;
    }
    return pixels;
}
