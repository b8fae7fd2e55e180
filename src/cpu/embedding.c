/* embedding.c - rows of a table by index.
 *
 * Backward: a task owns a range of the vocabulary, reads all indices in order and sums the rows of dy in its range.
 * No two tasks write the same row, and each row is summed in the order of positions. Half tables are summed in f32,
 * in a tile on the stack. */
#include "cpu/cpu.h"

#include <string.h>

enum { ROW_TILE = 8192 }; /* elements of dw that a task sums in f32: 32 KiB */

typedef struct embedding_loop {
    const fri_embedding_desc *d;
    const int64_t *index;
    const void *in; /* w, or backward's dy */
    void *out;
    int64_t rows, width; /* backward: of a tile of dw */
} embedding_loop;

static void take_row(const void *context, int64_t i, int thread) {
    const embedding_loop *l = context;
    const size_t row = (size_t)l->d->dim * fr_dtype_size(l->d->dtype);
    char *to = (char *)l->out + (size_t)i * row;
    if (l->index[i] >= 0 && l->index[i] < l->d->vocabulary)
        memcpy(to, (const char *)l->in + (size_t)l->index[i] * row, row);
    else
        memset(to, 0, row);
}

fr_status fri_cpu_embedding_forward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index, const void *w,
                                    void *y, int64_t *bad) {
    FRI_TRY(fri_cpu_accepts("embedding", d->dtype));
    *bad = -1;
    for (int64_t i = 0; i < d->n && *bad < 0; i++)
        if (index[i] < 0 || index[i] >= d->vocabulary) *bad = i;
    if (d->dim > 0) fri_cpu_pieces(d->n * d->dim, d->n, take_row, &(embedding_loop){d, index, w, y});
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

static void sum_piece(const void *context, int64_t i, int thread) {
    const embedding_loop *l = context;
    const fri_embedding_desc *d = l->d;
    const int64_t columns = fri_ceil_div(d->dim, l->width), v = i / columns * l->rows, c = i % columns * l->width;
    const int64_t count = fri_min_i64(l->rows, d->vocabulary - v), wide = fri_min_i64(l->width, d->dim - c);
    real buf[ROW_TILE];
    if (d->dtype == FRI_REAL_DTYPE) {
        sum_tile(d, l->index, l->in, v, count, c, wide, d->dim, (real *)l->out + v * d->dim);
        return;
    }
    sum_tile(d, l->index, l->in, v, count, c, wide, wide, buf);
    for (int64_t j = 0; j < count; j++) fri_cpu_store(d->dtype, l->out, (v + j) * d->dim + c, wide, buf + j * wide);
}

fr_status fri_cpu_embedding_backward(const fri_exec *e, const fri_embedding_desc *d, const int64_t *index,
                                     const void *dy, void *dw) {
    FRI_TRY(fri_cpu_accepts("embedding", d->dtype));
    if (d->vocabulary == 0 || d->dim == 0) return FR_OK;
    const bool in_place = d->dtype == FRI_REAL_DTYPE;
    const int64_t width = in_place ? d->dim : fri_min_i64(d->dim, ROW_TILE);
    const int64_t rows = in_place ? fri_ceil_div(d->vocabulary, 64) : ROW_TILE / width;
    fri_parallel(fri_ceil_div(d->vocabulary, rows) * fri_ceil_div(d->dim, width), fr_threads_get(), sum_piece,
                 &(embedding_loop){d, index, dy, dw, rows, width});
    return FR_OK;
}
