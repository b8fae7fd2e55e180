/* strided.c - copies elements from and to regular positions, as bytes of any meaning. A line is the last
 * dimension. */
#include "cpu/cpu.h"

#include <string.h>

#define COPY(type)                                                                           \
    for (int64_t i = 0; i < n; i++) ((type *)y)[i * y_step] = ((const type *)x)[i * x_step]; \
    break;

static void copy_line(size_t size, int64_t n, int64_t x_step, int64_t y_step, const char *x, char *y) {
    if (x_step == 1 && y_step == 1) {
        memcpy(y, x, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1: COPY(uint8_t)
    case 2: COPY(uint16_t)
    case 4: COPY(uint32_t)
    default: COPY(uint64_t)
    }
}

fr_status fri_cpu_copy_strided(const fri_exec *e, const fri_strided_desc *d, const void *x, void *y) {
    const int last = d->rank - 1;
    const int64_t n = d->rank > 0 ? d->extent[last] : 1;
    const int64_t x_step = d->rank > 0 ? d->x_stride[last] : 1, y_step = d->rank > 0 ? d->y_stride[last] : 1;
    int64_t lines = 1;
    for (int i = 0; i < last; i++) lines *= d->extent[i];
    const int64_t group = fri_max_i64(1, FRI_CHUNK / n), groups = fri_ceil_div(lines, group);
#pragma omp parallel for schedule(static) if (lines * n >= FRI_PARALLEL_MIN)
    for (int64_t g = 0; g < groups; g++)
        for (int64_t line = g * group; line < fri_min_i64(lines, (g + 1) * group); line++) {
            int64_t from, to;
            fri_strided_place(d, last, line, &from, &to);
            copy_line(d->size, n, x_step, y_step, (const char *)x + (size_t)from * d->size,
                      (char *)y + (size_t)to * d->size);
        }
    return FR_OK;
}
