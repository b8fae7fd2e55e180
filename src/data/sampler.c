/* sampler.c - see sampler.h. */
#include "data/sampler.h"

#include "base/philox.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- balanced sampling --------------------------------------------------------------------------------------- */

/* Counting sort; end[c] is the end of class c, then those of classes without images go. */
static fr_status sort(const fr_dataset *d, fri_balance *b) {
    int64_t label = 0;
    for (int64_t i = 0; i < d->count; i++) {
        FRI_TRY(fr_dataset_label(d, i, &label));
        b->end[label]++;
    }
    for (int64_t c = 0, sum = 0; c < d->classes; c++) {
        const int64_t images = b->end[c];
        b->end[c] = sum;
        sum += images;
    }
    for (int64_t i = 0; i < d->count; i++) {
        FRI_TRY(fr_dataset_label(d, i, &label));
        b->image[b->end[label]++] = i;
    }
    for (int64_t c = 0, last = 0; c < d->classes; c++) {
        if (b->end[c] > last) b->end[b->classes++] = b->end[c];
        last = b->end[c];
    }
    return FR_OK;
}

fr_status fri_balance_init(const fr_dataset *d, fri_balance *b) {
    if (d->target != FR_TARGET_CLASS || d->live)
        return fr_fail(FR_EINVAL, "loader: balanced, and the images of %s have no classes%s", d->source,
                       d->live ? " that stay" : "");
    b->image = malloc((size_t)d->count * sizeof *b->image);
    b->end = calloc((size_t)d->classes, sizeof *b->end);
    if (b->image == NULL || b->end == NULL)
        return fr_fail(FR_ENOMEM, "loader: no memory for the classes of %lld images", (long long)d->count);
    return sort(d, b);
}

void fri_balance_free(fri_balance *b) {
    free(b->image);
    free(b->end);
    *b = (fri_balance){0};
}

static int64_t below(uint32_t high, uint32_t low, int64_t n) {
    return (int64_t)(((uint64_t)high << 32 | low) % (uint64_t)n); /* bias below 2^-32 */
}

void fri_balance_draw(const fri_balance *b, uint64_t key, int64_t epoch, int64_t n, int64_t *order) {
    for (int64_t i = 0; i < n; i++) {
        const fri_philox4 r = fri_philox(key, fri_stream_shuffle(epoch), (uint64_t)i);
        const int64_t c = below(r.v[1], r.v[0], b->classes), first = c > 0 ? b->end[c - 1] : 0;
        order[i] = b->image[first + below(r.v[3], r.v[2], b->end[c] - first)];
    }
}

/* ---- mixup and cutmix ---------------------------------------------------------------------------------------- */

/* Numbers of one batch, behind those of all images. */
typedef struct mix_numbers {
    uint64_t key, stream, at;
    fri_philox4 four;
    int left;
} mix_numbers;

/* In (0, 1). */
static double uniform_number(mix_numbers *x) {
    if (x->left == 0) {
        x->four = fri_philox(x->key, x->stream, x->at++);
        x->left = 4;
    }
    return ((double)x->four.v[--x->left] + 0.5) * 0x1p-32;
}

/* log of a number from the gamma distribution of shape a > 0 (Marsaglia and Tsang 2000; below 1 from that of a + 1).
 * The logarithm, because small shapes give numbers that no double can hold. */
static double log_gamma_number(mix_numbers *x, double a) {
    const double small = a < 1 ? log(uniform_number(x)) / a : 0, d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double z = sqrt(-2 * log(uniform_number(x))) * cos(6.283185307179586 * uniform_number(x)), v = 1 + c * z;
        if (v <= 0) continue;
        const double cube = v * v * v;
        if (log(uniform_number(x)) < 0.5 * z * z + d - d * cube + d * log(cube)) return small + log(d * cube);
    }
}

/* From Beta(a, a). */
static double beta_number(mix_numbers *x, double a) {
    const double p = log_gamma_number(x, a), q = log_gamma_number(x, a);
    return 1 / (1 + exp(q - p));
}

/* Rows of `size` numbers: x[i] = l x[i] + (1 - l) x[i - 1], x[-1] the last. */
static void blend_rows(float *x, float *last, int64_t n, int64_t size, double l) {
    const float a = (float)l, b = (float)(1 - l);
    memcpy(last, x + (n - 1) * size, (size_t)size * sizeof *last);
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *from = i > 0 ? x + (i - 1) * size : last;
        float *to = x + i * size;
        for (int64_t k = 0; k < size; k++) to[k] = b * from[k] + a * to[k];
    }
}

static int64_t within(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

/* A box of each image is that of the image before it. Returns what stays of the image, as torchvision's CutMix. */
static double paste(mix_numbers *x, double l, const fri_transform *t, int64_t n, float *images, float *last) {
    const int64_t h = t->height, w = t->width, c = t->channels, size = h * w * c;
    const int64_t at_x = (int64_t)(uniform_number(x) * (double)w), at_y = (int64_t)(uniform_number(x) * (double)h);
    const double r = 0.5 * sqrt(1 - l);
    const int64_t half_w = (int64_t)(r * (double)w), half_h = (int64_t)(r * (double)h);
    const int64_t x1 = within(at_x - half_w, 0, w), x2 = within(at_x + half_w, 0, w);
    const int64_t y1 = within(at_y - half_h, 0, h), y2 = within(at_y + half_h, 0, h);
    memcpy(last, images + (n - 1) * size, (size_t)size * sizeof *last);
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *from = i > 0 ? images + (i - 1) * size : last;
        for (int64_t y = y1; y < y2; y++)
            memcpy(images + i * size + (y * w + x1) * c, from + (y * w + x1) * c,
                   (size_t)((x2 - x1) * c) * sizeof *images);
    }
    return 1 - (double)((x2 - x1) * (y2 - y1)) / (double)(w * h);
}

void fri_mix_batch(const fri_mix *m, int64_t epoch, int64_t batch, int64_t n, const fri_transform *t, int64_t classes,
                   float *images, float *shares) {
    mix_numbers x = {.key = m->key,
                     .stream = fri_stream_augment(epoch),
                     .at = (UINT64_C(1) << 62) + ((uint64_t)batch << 20)};
    const bool cut = m->cutmix > 0 && (m->mixup == 0 || uniform_number(&x) < 0.5);
    double l = beta_number(&x, cut ? m->cutmix : m->mixup);
    if (cut)
        l = paste(&x, l, t, n, images, m->image);
    else
        blend_rows(images, m->image, n, t->height * t->width * t->channels, l);
    blend_rows(shares, m->image, n, classes, l);
}
