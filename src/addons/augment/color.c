/* color.c - torchvision's transforms v2 ColorJitter, of a float image in 0..1.
 *
 * Brightness, contrast and saturation are p = clamp(f p + (1 - f) q) with q = 0, the mean of the image's grays, the
 * pixel's gray; hue turns the H of HSV by its factor. All four come in a random order, as there. */
#include "addons/augment/parts.h"

#include <math.h>

enum { HUE = FRI_COLORS - 1 };
typedef enum toward { BLACK, MEAN, GRAY } toward;

static float gray_of(const float *p, int64_t channels) {
    return channels == 3 ? 0.2989f * p[0] + 0.587f * p[1] + 0.114f * p[2] : p[0];
}

static float mean_gray(const float *image, int64_t pixels, int64_t channels) {
    double sum = 0;
    for (int64_t i = 0; i < pixels; i++) sum += (double)gray_of(image + i * channels, channels);
    return (float)(sum / (double)pixels);
}

static void blend_toward(float *image, int64_t pixels, int64_t channels, float f, toward which) {
    const float mean = which == MEAN ? mean_gray(image, pixels, channels) : 0;
    for (int64_t i = 0; i < pixels; i++) {
        float *p = image + i * channels;
        const float q = which == GRAY ? gray_of(p, channels) : mean;
        for (int64_t c = 0; c < channels; c++) {
            const float v = f * p[c] + (1 - f) * q;
            p[c] = v < 0 ? 0 : v > 1 ? 1 : v;
        }
    }
}

/* A turn in HSV, H + by, and back. */
static void turn_hue(float *p, float by) {
    const float most = fmaxf(p[0], fmaxf(p[1], p[2])), range = most - fminf(p[0], fminf(p[1], p[2]));
    if (!(range > 0)) return; /* gray has no hue */
    const float r = (most - p[0]) / range, g = (most - p[1]) / range, b = (most - p[2]) / range, s = range / most;
    float h = (p[0] == most ? b - g : p[1] == most ? 2 + r - b : 4 + g - r) / 6 + by;
    h = 6 * (h - floorf(h));
    const int sector = h >= 0 && h < 6 ? (int)h : 0; /* rounding makes 6 of a little less than 0 */
    const float f = h < 6 ? h - (float)sector : 0;
    const float v[4] = {most, (1 - s) * most, (1 - s * f) * most, (1 - s * (1 - f)) * most};
    static const int from[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3}, {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
    for (int c = 0; c < 3; c++) p[c] = v[from[sector][c]];
}

static void change_color(const fr_augmentation *a, const fr_augment_input *in, int which, double u, float *image) {
    const int64_t pixels = in->height * in->width;
    const double by = a->amount[FRI_AMOUNT_COLOR + which];
    if (by == 0 || (which >= GRAY && in->channels != 3)) return;
    if (which != HUE) {
        const double low = by < 1 ? 1 - by : 0;
        blend_toward(image, pixels, in->channels, (float)(low + (1 + by - low) * u), (toward)which);
        return;
    }
    for (int64_t i = 0; i < pixels; i++) turn_hue(image + i * 3, (float)(by * (2 * u - 1)));
}

/* Counters lie between the counters of crops and of erasing. */
void fri_color(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    const uint64_t at = (UINT64_C(1) << 60) + 2 * (uint64_t)in->index;
    uint32_t factor[4], order[4];
    fr_augment_numbers(in, at, factor);
    fr_augment_numbers(in, at + 1, order);
    int left[FRI_COLORS] = {0, 1, 2, 3};
    for (int n = FRI_COLORS; n > 0; n--) {
        const int k = (int)(((uint64_t)order[n - 1] * (uint64_t)n) >> 32), which = left[k];
        left[k] = left[n - 1];
        change_color(a, in, which, (double)factor[which] * 0x1p-32, pixels);
    }
}
