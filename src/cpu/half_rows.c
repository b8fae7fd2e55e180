/* half_rows.c - conversions and sums over rows, cut into tasks by shape only. */
#include "cpu/half_rows.h"

#include <string.h>

enum {
    SLABS = 64,  /* partial sums over rows ... */
    LANES = 128, /* ... for this many columns at a time: 32 KiB on the stack */
    RUN = 64     /* rows summed before joining a longer sum */
};

typedef struct row_loop {
    fr_dtype t;
    bool widen;
    int64_t n, pitch, cuts; /* elements of a row, distance of rows, pieces of a row */
    char *half;
    float *wide;
} row_loop;

static void convert(const void *context, int64_t i, int thread) {
    const row_loop *l = context;
    const int64_t row = i / l->cuts, first = i % l->cuts * FRI_CHUNK, n = fri_min_i64(FRI_CHUNK, l->n - first);
    char *half = l->half + (size_t)(row * l->pitch + first) * fr_dtype_size(l->t);
    float *wide = l->wide + row * l->n + first;
    if (l->widen)
        fri_cpu_widen(l->t, n, half, wide);
    else
        fri_cpu_narrow(l->t, n, wide, half);
}

/* Long rows are cut, short rows are joined, so that a task has about FRI_CHUNK elements. */
static void convert_rows(fr_dtype t, int64_t rows, int64_t n, char *half, int64_t pitch, float *wide, bool widen) {
    if (n == pitch) n *= rows, pitch = n, rows = n > 0 ? 1 : 0;
    const int64_t cuts = fri_ceil_div(n, FRI_CHUNK);
    fri_cpu_pieces(rows * n, rows * cuts, convert, &(row_loop){t, widen, n, pitch, cuts, half, wide});
}

void fri_cpu_widen_rows(fr_dtype t, int64_t rows, int64_t n, const void *x, int64_t pitch, float *y) {
    convert_rows(t, rows, n, (char *)(uintptr_t)x, pitch, y, true);
}

void fri_cpu_narrow_rows(fr_dtype t, int64_t rows, int64_t n, const float *x, void *y, int64_t pitch) {
    convert_rows(t, rows, n, y, pitch, (float *)(uintptr_t)x, false);
}

FRI_CLONES static void add_row(int64_t n, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

void fri_cpu_add_rows(int64_t n, const float *x, float *y) {
    fri_cpu_add(NULL, FR_F32, n, y, x, y);
}

/* Sums of the n columns at x. */
typedef struct sum_loop {
    fr_dtype t;
    int64_t rows, n, pitch;
    const char *x;
    float (*sum)[LANES];
} sum_loop;

/* Adds the rows of slab k in runs. */
static void sum_slab(const void *context, int64_t k, int thread) {
    const sum_loop *l = context;
    const fr_dtype t = l->t;
    const int64_t slab = fri_ceil_div(l->rows, SLABS), last = fri_min_i64(l->rows, (k + 1) * slab), n = l->n;
    float run[LANES], row[LANES], *sum = l->sum[k];
    size_t size = fr_dtype_size(t);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = k * slab; i < last; i += RUN) {
        memset(run, 0, (size_t)n * sizeof *run);
        for (int64_t j = i; j < fri_min_i64(last, i + RUN); j++) {
            const char *at = l->x + (size_t)(j * l->pitch) * size;
            const float *values = (const float *)(const void *)at;
            if (t != FR_F32) {
                fri_cpu_widen(t, n, at, row);
                values = row;
            }
            add_row(n, values, run);
        }
        add_row(n, run, sum);
    }
}

void fri_cpu_sum_rows(fr_dtype t, int64_t rows, int64_t n, const void *x, fr_dtype out_t, void *out) {
    float partial[SLABS][LANES];
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t lanes = fri_min_i64(LANES, n - c);
        fri_cpu_pieces(rows * lanes, SLABS, sum_slab, &(sum_loop){t, rows, lanes, n, fri_cpu_at(t, x, c), partial});
        for (int i = 1; i < SLABS; i++) add_row(lanes, partial[i], partial[0]);
        char *to = (char *)out + (size_t)c * fr_dtype_size(out_t);
        if (out_t == FR_F32)
            memcpy(to, partial[0], (size_t)lanes * sizeof(float));
        else
            fri_cpu_narrow(out_t, lanes, partial[0], to);
    }
}
