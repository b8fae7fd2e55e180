/* embedding.c - rows of a table by index.
 *
 * Backward: a task owns a range of the vocabulary, reads all indices in order and sums the rows of dy in its range.
 * No two tasks write the same row, and each row is summed in the order of positions. Half tables are summed in f32,
 * in a tile on the stack. */
#include "cpu/cpu.h"

#include <string.h>

enum { ROW_TILE = 8192 }; /* elements of dw that a task sums in f32: 32 KiB */

fr_status fri_cpu_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index, const void *w,
                                    void *y, int64_t *bad) {
    const size_t row = (size_t)d->dim * fr_dtype_size(d->dtype);
    FRI_TRY(fri_cpu_accepts("embedding", d->dtype));
    *bad = -1;
    for (int64_t i = 0; i < d->n && *bad < 0; i++)
        if (index[i] < 0 || index[i] >= d->vocabulary) *bad = i;
    if (row == 0) return FR_OK;
#pragma omp parallel for schedule(static) if (d->n * d->dim >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < d->n; i++) {
        char *to = (char *)y + (size_t)i * row;
        if (index[i] >= 0 && index[i] < d->vocabulary)
            memcpy(to, (const char *)w + (size_t)index[i] * row, row);
        else
            memset(to, 0, row);
    }
    return FR_OK;
}

FRI_CLONES static void add_to(int64_t n, const real *x, real *sum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Table rows v .. v + rows, columns c .. c + width; sum has rows `pitch` apart. */
static void sum_tile(const fri_embedding_desc *d, const int64_t *index, const void *dy, int64_t v, int64_t rows,
                     int64_t c, int64_t width, int64_t pitch, real *sum) {
    real buf[FRI_BLOCK];
    for (int64_t i = 0; i < rows; i++) memset(sum + i * pitch, 0, (size_t)width * sizeof *sum);
    for (int64_t i = 0; i < d->n; i++) {
        if (index[i] < v || index[i] >= v + rows) continue;
        real *to = sum + (index[i] - v) * pitch;
        for (int64_t j = 0; j < width; j += FRI_BLOCK) {
            int64_t n = fri_min_i64(FRI_BLOCK, width - j);
            add_to(n, fri_cpu_load(d->dtype, dy, i * d->dim + c + j, n, buf), to + j);
        }
    }
}

fr_status fri_cpu_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                     const void *dy, void *dw) {
    FRI_TRY(fri_cpu_accepts("embedding", d->dtype));
    if (d->vocabulary == 0 || d->dim == 0) return FR_OK;
    bool in_place = d->dtype == FRI_REAL_DTYPE;
    int64_t width = in_place ? d->dim : fri_min_i64(d->dim, ROW_TILE);
    int64_t rows = in_place ? fri_ceil_div(d->vocabulary, 64) : ROW_TILE / width;
    int64_t columns = fri_ceil_div(d->dim, width), tasks = fri_ceil_div(d->vocabulary, rows) * columns;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < tasks; i++) {
        real buf[ROW_TILE];
        int64_t v = i / columns * rows, c = i % columns * width;
        int64_t count = fri_min_i64(rows, d->vocabulary - v), wide = fri_min_i64(width, d->dim - c);
        if (in_place) {
            sum_tile(d, index, dy, v, count, c, wide, d->dim, (real *)dw + v * d->dim);
            continue;
        }
        sum_tile(d, index, dy, v, count, c, wide, wide, buf);
        for (int64_t j = 0; j < count; j++) fri_cpu_store(d->dtype, dw, (v + j) * d->dim + c, wide, buf + j * wide);
    }
    return FR_OK;
}
