/* normalize.c - converts image bytes to network input with a table of 256 numbers per channel. */
#include "cpu/cpu.h"

fr_status fri_cpu_normalize(const fri_exec *e, const fri_normalize_desc *d, const uint8_t *x, void *y) {
    float value[FRI_NORMALIZE_CHANNELS][256];
    const int64_t chunks = fri_ceil_div(d->n, FRI_BLOCK);
    FRI_TRY(fri_cpu_accepts("normalize", d->dtype));
    for (int64_t c = 0; c < d->channels; c++)
        for (int v = 0; v < 256; v++) value[c][v] = fri_normalized(v, d->mean[c], d->std[c]);
#pragma omp parallel for schedule(static) if (d->n >= FRI_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t first = chunk * FRI_BLOCK, n = fri_min_i64(FRI_BLOCK, d->n - first);
        float block[FRI_BLOCK], *to = fri_cpu_target(d->dtype, y, first, block);
        for (int64_t i = 0, c = first % d->channels; i < n; i++, c = c + 1 < d->channels ? c + 1 : 0)
            to[i] = value[c][x[first + i]];
        fri_cpu_store(d->dtype, y, first, n, to);
    }
    return FR_OK;
}
