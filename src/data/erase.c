/* erase.c - torchvision's RandomErasing: scale 2 to 33 %, aspect ratio 0.3 to 3.3, value 0, of the normalized image. */
#include "data/transform.h"

#include "base/philox.h"

#include <math.h>
#include <string.h>

enum { TRIES = 10 };

static double uniform(uint32_t u, double low, double high) {
    return low + (high - low) * ((double)u * 0x1p-32);
}

/* Behind the counters of all images' crops. */
static fri_philox4 numbers(const fri_transform *t, int64_t epoch, int64_t index, int try) {
    return fri_philox(t->seed, fri_stream_augment(epoch), (UINT64_C(1) << 61) + 16 * (uint64_t)index + (uint64_t)try);
}

void fri_erase(const fri_transform *t, int64_t epoch, int64_t index, float *image) {
    if (uniform(numbers(t, epoch, index, TRIES).v[0], 0, 1) >= t->erasing) return;
    for (int i = 0; i < TRIES; i++) {
        const fri_philox4 r = numbers(t, epoch, index, i);
        const double area = (double)(t->height * t->width) * uniform(r.v[0], 0.02, 0.33);
        const double aspect = exp(uniform(r.v[1], log(0.3), log(3.3)));
        const int64_t h = (int64_t)nearbyint(sqrt(area * aspect)), w = (int64_t)nearbyint(sqrt(area / aspect));
        if (h >= t->height || w >= t->width) continue;
        const int64_t y = (int64_t)uniform(r.v[2], 0, (double)(t->height - h + 1));
        const int64_t x = (int64_t)uniform(r.v[3], 0, (double)(t->width - w + 1));
        for (int64_t k = y; k < y + h; k++)
            memset(image + (k * t->width + x) * t->channels, 0, (size_t)(w * t->channels) * sizeof *image);
        return;
    }
}
