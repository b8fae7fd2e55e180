/* mix.c - torchvision's transforms v2 MixUp and CutMix of a batch. */
#include "addons/augment/parts.h"
#include "backend/elementary.h"

#include <math.h>
#include <string.h>

/* Numbers of one batch, behind the counters of erasing. */
typedef struct numbers {
    const fr_augment_input *in;
    uint64_t at;
    uint32_t four[4];
    int left;
} numbers;

/* A number in (0, 1). */
static double uniform(numbers *x) {
    if (x->left == 0) {
        fr_augment_numbers(x->in, x->at++, x->four);
        x->left = 4;
    }
    return ((double)x->four[--x->left] + 0.5) * 0x1p-32;
}

/* log of a number from the gamma distribution of shape a > 0 (Marsaglia and Tsang 2000; below 1 from that of a + 1).
 * The logarithm, because small shapes give numbers that no double can hold. */
static double log_gamma_number(numbers *x, double a) {
    const double small = a < 1 ? fri_ln64(uniform(x)) / a : 0, d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double sine, cosine;
        const double radius = sqrt(-2 * fri_ln64(uniform(x)));
        fri_sin_cos64(6.283185307179586 * uniform(x), &sine, &cosine);
        const double z = radius * cosine, v = 1 + c * z;
        if (v <= 0) continue;
        const double cube = v * v * v;
        if (fri_ln64(uniform(x)) < 0.5 * z * z + d - d * cube + d * fri_ln64(cube)) return small + fri_ln64(d * cube);
    }
}

/* A number from Beta(a, a). */
static double beta_number(numbers *x, double a) {
    const double p = log_gamma_number(x, a), q = log_gamma_number(x, a);
    return 1 / (1 + fri_exp64(q - p));
}

/* Rows of `size` numbers: x[i] = l x[i] + (1 - l) x[i - 1], x[-1] the last. */
static void blend_images(float *x, float *last, int64_t n, int64_t size, double l) {
    const float a = (float)l, b = (float)(1 - l);
    memcpy(last, x + (n - 1) * size, (size_t)size * sizeof *last);
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *from = i > 0 ? x + (i - 1) * size : last;
        float *to = x + i * size;
        for (int64_t k = 0; k < size; k++) to[k] = b * from[k] + a * to[k];
    }
}

static int64_t clamp_to(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

/* Pastes a box of the image before into each. Returns the share of the image that stays, as torchvision's CutMix. */
static double paste_box(numbers *x, double l, float *images, float *last) {
    const int64_t n = x->in->n, h = x->in->height, w = x->in->width, c = x->in->channels, size = h * w * c;
    const int64_t at_x = (int64_t)(uniform(x) * (double)w), at_y = (int64_t)(uniform(x) * (double)h);
    const double r = 0.5 * sqrt(1 - l);
    const int64_t half_w = (int64_t)(r * (double)w), half_h = (int64_t)(r * (double)h);
    const int64_t x1 = clamp_to(at_x - half_w, 0, w), x2 = clamp_to(at_x + half_w, 0, w);
    const int64_t y1 = clamp_to(at_y - half_h, 0, h), y2 = clamp_to(at_y + half_h, 0, h);
    memcpy(last, images + (n - 1) * size, (size_t)size * sizeof *last);
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *from = i > 0 ? images + (i - 1) * size : last;
        for (int64_t y = y1; y < y2; y++)
            memcpy(images + i * size + (y * w + x1) * c, from + (y * w + x1) * c,
                   (size_t)((x2 - x1) * c) * sizeof *images);
    }
    return 1 - (double)((x2 - x1) * (y2 - y1)) / (double)(w * h);
}

void fri_mix(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares, float *spare) {
    const double mixup = a->amount[FRI_AMOUNT_MIXUP], cutmix = a->amount[FRI_AMOUNT_CUTMIX];
    numbers x = {.in = in, .at = (UINT64_C(1) << 62) + ((uint64_t)in->index << 20)};
    const bool cut = cutmix > 0 && (mixup == 0 || uniform(&x) < 0.5);
    double l = beta_number(&x, cut ? cutmix : mixup);
    if (cut)
        l = paste_box(&x, l, images, spare);
    else
        blend_images(images, spare, in->n, in->height * in->width * in->channels, l);
    blend_images(shares, spare, in->n, in->classes, l);
}
