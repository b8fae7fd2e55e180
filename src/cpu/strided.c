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

/* Two lines that lie side by side in y (a shuffle of halves) or in x (the opposite), by vectors. */
FRI_CLONES static void interleave(int64_t n, const uint32_t *restrict a, const uint32_t *restrict b,
                                  uint32_t *restrict y) {
    for (int64_t i = 0; i < n; i++) y[2 * i] = a[i], y[2 * i + 1] = b[i];
}

FRI_CLONES static void separate(int64_t n, const uint32_t *restrict x, uint32_t *restrict a, uint32_t *restrict b) {
    for (int64_t i = 0; i < n; i++) a[i] = x[2 * i], b[i] = x[2 * i + 1];
}

typedef struct strided_loop {
    const fri_strided_desc *d;
    int64_t lines, group, n, x_step, y_step; /* lines of a piece, elements of a line */
    bool pairs;                              /* lines 2 i and 2 i + 1 are side by side */
    const char *x;
    char *y;
} strided_loop;

static void copy_lines(const void *context, int64_t g, int thread) {
    const strided_loop *l = context;
    const fri_strided_desc *d = l->d;
    for (int64_t line = g * l->group; line < fri_min_i64(l->lines, (g + 1) * l->group); line++) {
        int64_t from, to;
        fri_strided_place(d, d->rank - 1, line, &from, &to);
        if (l->pairs && l->y_step == 2) {
            const uint32_t *a = (const uint32_t *)(const void *)l->x + from;
            interleave(l->n, a, a + d->x_stride[d->rank - 2], (uint32_t *)(void *)l->y + to);
            line++;
            continue;
        }
        if (l->pairs) {
            uint32_t *a = (uint32_t *)(void *)l->y + to;
            separate(l->n, (const uint32_t *)(const void *)l->x + from, a, a + d->y_stride[d->rank - 2]);
            line++;
            continue;
        }
        copy_line(d->size, l->n, l->x_step, l->y_step, l->x + (size_t)from * d->size, l->y + (size_t)to * d->size);
    }
}

fr_status fri_cpu_copy_strided(const fri_exec *e, const fri_strided_desc *d, const void *x, void *y) {
    const int last = d->rank - 1;
    enum { SHORT = 16 };
    fri_strided_desc turned = *d; /* where single elements are copied, the line is the longer of the last dimensions */
    if (last > 0 && d->extent[last] <= SHORT && d->extent[last] < d->extent[last - 1] &&
        (d->x_stride[last] != 1 || d->y_stride[last] != 1))
        for (int i = 0; i < 2; i++) {
            turned.extent[last - i] = d->extent[last - 1 + i];
            turned.x_stride[last - i] = d->x_stride[last - 1 + i];
            turned.y_stride[last - i] = d->y_stride[last - 1 + i];
        }
    d = &turned;
    const int64_t n = d->rank > 0 ? d->extent[last] : 1;
    strided_loop l = {d, 1, fri_max_i64(2, FRI_CHUNK / n / 2 * 2), n, 1, 1, false, x, y};
    if (d->rank > 0) l.x_step = d->x_stride[last], l.y_step = d->y_stride[last];
    for (int i = 0; i < last; i++) l.lines *= d->extent[i];
    l.pairs = last > 0 && d->size == 4 && d->extent[last - 1] == 2 &&
              ((l.x_step == 1 && l.y_step == 2 && d->y_stride[last - 1] == 1) ||
               (l.x_step == 2 && l.y_step == 1 && d->x_stride[last - 1] == 1));
    fri_cpu_pieces(l.lines * n, fri_ceil_div(l.lines, l.group), copy_lines, &l);
    return FR_OK;
}
