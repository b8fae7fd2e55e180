/* binary.c - y = a + b, a - b, a * b, a / b: elementwise, and with b broadcast over a run of a's dimensions. */
#include "cpu/cpu.h"

/* Rows of c elements of a, combined with the c values of b. */
typedef void image_rows_fn(int64_t rows, int64_t c, const real *a, const real *b, real *y);

#define BINARY(name, kind, sign)                                                                                    \
    FRI_MAP_ROW(name##_row, a[i] sign b[i])                                                                         \
    fr_status fri_cpu_##name(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) { \
        return fri_cpu_map(#name, dtype, n, name##_row, NULL, a, b, y);                                             \
    }                                                                                                               \
    FRI_CLONES static void name##_image_rows(int64_t rows, int64_t c, const real *a, const real *b, real *y) {      \
        for (int64_t r = 0; r < rows; r++)                                                                          \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < c; i++) y[r * c + i] = a[r * c + i] sign b[i];             \
    }
FRI_BINARIES(BINARY)

#define ROWS(name, kind, sign) [FRI_BINARY_##kind] = name##_image_rows,
static image_rows_fn *const image_rows[] = {FRI_BINARIES(ROWS)};

/* ---- broadcast: a pixel is the c values of a that meet a value of b each ------------------------------------- */

enum { NARROW = 16 }; /* with fewer channels, b is repeated for a block of pixels to get long loops */

static const real *repeated(const real *b, int64_t c, int64_t pixels, real *buf) {
    for (int64_t i = b == buf ? 1 : 0; i < pixels; i++)
        for (int64_t j = 0; j < c; j++) buf[i * c + j] = b[j];
    return buf;
}

typedef struct image_loop {
    const fri_binary_desc *d;
    int64_t parts, step; /* tasks of an image; pixels or channels of a task */
    const void *a, *b;
    void *y;
} image_loop;

/* Some pixels of one image. A block holds whole pixels or a part of a pixel's channels. */
static void image_range(const void *context, int64_t i, int thread) {
    const image_loop *l = context;
    const fri_binary_desc *d = l->d;
    const int64_t image = i / l->parts, first = image * d->hw + i % l->parts * l->step;
    const int64_t last = fri_min_i64(first + l->step, (image + 1) * d->hw);
    real abuf[FRI_BLOCK], bbuf[FRI_BLOCK], ybuf[FRI_BLOCK];
    const int64_t width = fri_min_i64(d->c, FRI_BLOCK), step = fri_min_i64(FRI_BLOCK / width, last - first);
    for (int64_t c0 = 0; c0 < d->c; c0 += width) {
        const int64_t w = fri_min_i64(width, d->c - c0);
        const real *own = fri_cpu_load(d->dtype, l->b, image * d->c + c0, w, bbuf);
        if (d->c < NARROW) own = repeated(own, w, step, bbuf);
        for (int64_t r = first; r < last; r += step) {
            const int64_t rows = fri_min_i64(step, last - r), at = r * d->c + c0;
            const real *from = fri_cpu_load(d->dtype, l->a, at, rows * w, abuf);
            real *out = fri_cpu_target(d->dtype, l->y, at, ybuf);
            if (d->c < NARROW)
                image_rows[d->op](1, rows * w, from, own, out);
            else
                image_rows[d->op](rows, w, from, own, out);
            fri_cpu_store(d->dtype, l->y, at, rows * w, out);
        }
    }
}

fr_status fri_cpu_binary_image(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *b, void *y) {
    fr_status s = fri_cpu_accepts("binary", d->dtype);
    if (s < 0 || d->n * d->hw * d->c == 0) return s;
    const int64_t chunk = fri_max_i64(1, FRI_CHUNK / d->c), chunks = fri_ceil_div(d->hw, chunk);
    fri_cpu_pieces(d->n * d->hw * d->c, d->n * chunks, image_range, &(image_loop){d, chunks, chunk, a, b, y});
    return FR_OK;
}

enum { SUM_WIDTH = 128 }; /* channels of a task */

FRI_CLONES static void add_products(int64_t c, const real *a, const real *dy, double *sum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < c; i++) sum[i] += (double)a[i] * (double)dy[i];
}

FRI_CLONES static void add_values(int64_t c, const real *dy, double *sum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < c; i++) sum[i] += (double)dy[i];
}

/* y of a range of channels of an image: the sum of b over the pixels, or of a * b. */
static void image_sum(const void *context, int64_t i, int thread) {
    const image_loop *l = context;
    const fri_binary_desc *d = l->d;
    const int64_t image = i / l->parts, c0 = i % l->parts * SUM_WIDTH;
    real abuf[SUM_WIDTH], dybuf[SUM_WIDTH], out[SUM_WIDTH];
    double sum[SUM_WIDTH] = {0};
    const int64_t w = fri_min_i64(SUM_WIDTH, d->c - c0);
    for (int64_t r = image * d->hw; r < (image + 1) * d->hw; r++) {
        const real *v = fri_cpu_load(d->dtype, l->b, r * d->c + c0, w, dybuf);
        if (l->a != NULL)
            add_products(w, fri_cpu_load(d->dtype, l->a, r * d->c + c0, w, abuf), v, sum);
        else
            add_values(w, v, sum);
    }
    real *to = fri_cpu_target(d->dtype, l->y, image * d->c + c0, out);
    for (int64_t j = 0; j < w; j++) to[j] = (real)sum[j];
    fri_cpu_store(d->dtype, l->y, image * d->c + c0, w, to);
}

fr_status fri_cpu_binary_image_sum(const fri_exec *e, const fri_binary_desc *d, const void *a, const void *dy,
                                   void *db) {
    fr_status s = fri_cpu_accepts("binary", d->dtype);
    const int64_t across = fri_ceil_div(d->c, SUM_WIDTH);
    if (s < 0) return s;
    fri_cpu_pieces(d->n * d->hw * d->c, d->n * across, image_sum, &(image_loop){d, across, SUM_WIDTH, a, dy, db});
    return FR_OK;
}
