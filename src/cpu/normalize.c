/* normalize.c - converts image bytes to network input with a table of 256 numbers per channel. */
#include "cpu/cpu.h"

typedef struct normalize_loop {
    const fri_normalize_desc *d;
    float value[FRI_NORMALIZE_CHANNELS][256];
    const uint8_t *x;
    void *y;
} normalize_loop;

static void normalize_block(const void *context, int64_t block, int thread) {
    const normalize_loop *l = context;
    const fri_normalize_desc *d = l->d;
    const int64_t first = block * FRI_BLOCK, n = fri_min_i64(FRI_BLOCK, d->n - first);
    float buf[FRI_BLOCK], *to = fri_cpu_target(d->dtype, l->y, first, buf);
    for (int64_t i = 0, c = first % d->channels; i < n; i++, c = c + 1 < d->channels ? c + 1 : 0)
        to[i] = l->value[c][l->x[first + i]];
    fri_cpu_store(d->dtype, l->y, first, n, to);
}

fr_status fri_cpu_normalize(const fri_exec *e, const fri_normalize_desc *d, const uint8_t *x, void *y) {
    normalize_loop l = {.d = d, .x = x, .y = y};
    FRI_TRY(fri_cpu_accepts("normalize", d->dtype));
    for (int64_t c = 0; c < d->channels; c++)
        for (int v = 0; v < 256; v++) l.value[c][v] = fri_normalized(v, d->mean[c], d->std[c]);
    fri_cpu_pieces(d->n, fri_ceil_div(d->n, FRI_BLOCK), normalize_block, &l);
    return FR_OK;
}
