/* sampler.c - see sampler.h. */
#include "data/sampler.h"

#include "base/philox.h"
#include "base/status.h"

#include <stdlib.h>

/* Counting sort; end[c] is the end of class c; then removes classes without images. */
static fr_status sort_by_class(const fr_dataset *d, fri_balance *b) {
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
        return fr_fail(FR_EINVAL, "loader: balanced needs classes, but the images of %s have none%s", d->source,
                       d->live ? " that stay" : "");
    b->image = malloc((size_t)d->count * sizeof *b->image);
    b->end = calloc((size_t)d->classes, sizeof *b->end);
    if (b->image == NULL || b->end == NULL)
        return fr_fail(FR_ENOMEM, "loader: no memory for the classes of %lld images", (long long)d->count);
    return sort_by_class(d, b);
}

void fri_balance_free(fri_balance *b) {
    free(b->image);
    free(b->end);
    *b = (fri_balance){0};
}

static int64_t random_below(uint32_t high, uint32_t low, int64_t n) {
    return (int64_t)(((uint64_t)high << 32 | low) % (uint64_t)n); /* bias below 2^-32 */
}

void fri_balance_draw(const fri_balance *b, uint64_t key, int64_t epoch, int64_t n, int64_t *order) {
    for (int64_t i = 0; i < n; i++) {
        const fri_philox4 r = fri_philox(key, fri_stream_shuffle(epoch), (uint64_t)i);
        const int64_t c = random_below(r.v[1], r.v[0], b->classes), first = c > 0 ? b->end[c - 1] : 0;
        order[i] = b->image[first + random_below(r.v[3], r.v[2], b->end[c] - first)];
    }
}
