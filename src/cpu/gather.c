/* gather.c - elements by index along a dimension. A task takes lines: see fri_gather_desc. */
#include "cpu/cpu.h"

#include <string.h>

fr_status fri_cpu_gather(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *x, void *y,
                         int64_t *bad) {
    const size_t size = fr_dtype_size(d->dtype);
    FRI_TRY(fri_cpu_accepts("gather", d->dtype));
    *bad = -1;
    for (int64_t i = 0; i < d->lines * d->n && *bad < 0; i++)
        if (index[i] < 0 || index[i] >= d->extent) *bad = i;
#pragma omp parallel for schedule(static) if (d->lines * d->n >= FRI_PARALLEL_MIN)
    for (int64_t line = 0; line < d->lines; line++) {
        int64_t i = 0, from = 0;
        fri_gather_line(d, line, &i, &from);
        for (int64_t k = 0; k < d->n; k++, i += d->index_step) {
            char *to = (char *)y + (size_t)i * size;
            if (index[i] >= 0 && index[i] < d->extent)
                memcpy(to, (const char *)x + (size_t)(from + index[i] * d->x_step) * size, size);
            else
                memset(to, 0, size);
        }
    }
    return FR_OK;
}
