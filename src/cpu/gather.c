/* gather.c - elements by index along a dimension. A task takes lines: see fri_gather_desc. */
#include "cpu/cpu.h"

#include <string.h>

typedef struct gather_loop {
    const fri_gather_desc *d;
    const int64_t *index;
    const char *x;
    char *y;
} gather_loop;

static void gather_one(const void *context, int64_t line, int thread) {
    const gather_loop *g = context;
    const fri_gather_desc *d = g->d;
    const size_t size = fr_dtype_size(d->dtype);
    int64_t i = 0, from = 0;
    fri_gather_line(d, line, &i, &from);
    for (int64_t k = 0; k < d->n; k++, i += d->index_step) {
        char *to = g->y + (size_t)i * size;
        if (g->index[i] >= 0 && g->index[i] < d->extent)
            memcpy(to, g->x + (size_t)(from + g->index[i] * d->x_step) * size, size);
        else
            memset(to, 0, size);
    }
}

fr_status fri_cpu_gather(const fri_exec *e, const fri_gather_desc *d, const int64_t *index, const void *x, void *y,
                         int64_t *bad) {
    const gather_loop g = {d, index, x, y};
    FRI_TRY(fri_cpu_accepts("gather", d->dtype));
    *bad = -1;
    for (int64_t i = 0; i < d->lines * d->n && *bad < 0; i++)
        if (index[i] < 0 || index[i] >= d->extent) *bad = i;
    fri_cpu_pieces(d->lines * d->n, d->lines, gather_one, &g);
    return FR_OK;
}
