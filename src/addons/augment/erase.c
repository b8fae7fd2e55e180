/* erase.c - torchvision's RandomErasing: scale 2 to 33 %, aspect ratio 0.3 to 3.3, value 0, of the normalized image. */
#include "addons/augment/parts.h"
#include "backend/elementary.h"

#include <math.h>
#include <string.h>

enum { TRIES = 10 };

static double uniform(uint32_t u, double low, double high) {
    return low + (high - low) * ((double)u * 0x1p-32);
}

/* Counters lie behind the counters of crops and colors. */
static void draw_numbers(const fr_augment_input *in, int try, uint32_t r[4]) {
    fr_augment_numbers(in, (UINT64_C(1) << 61) + 16 * (uint64_t)in->index + (uint64_t)try, r);
}

void fri_erase(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    uint32_t r[4];
    draw_numbers(in, TRIES, r);
    if (uniform(r[0], 0, 1) >= a->amount[FRI_AMOUNT_ERASING]) return;
    for (int i = 0; i < TRIES; i++) {
        draw_numbers(in, i, r);
        const double area = (double)(in->height * in->width) * uniform(r[0], 0.02, 0.33);
        const double aspect = fri_exp64(uniform(r[1], fri_ln64(0.3), fri_ln64(3.3)));
        const int64_t h = (int64_t)nearbyint(sqrt(area * aspect)), w = (int64_t)nearbyint(sqrt(area / aspect));
        if (h >= in->height || w >= in->width) continue;
        const int64_t y = (int64_t)uniform(r[2], 0, (double)(in->height - h + 1));
        const int64_t x = (int64_t)uniform(r[3], 0, (double)(in->width - w + 1));
        for (int64_t k = y; k < y + h; k++)
            memset(pixels + (k * in->width + x) * in->channels, 0, (size_t)(w * in->channels) * sizeof *pixels);
        return;
    }
}
