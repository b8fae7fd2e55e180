/* half_rows.c - conversions and sums over rows, cut into tasks by shape only. */
#include "cpu/half_rows.h"

#include <string.h>

enum {
    SLABS = 64,  /* partial sums over rows ... */
    LANES = 128, /* ... for this many columns at a time: 32 KiB on the stack */
    RUN = 64     /* rows summed before joining a longer sum */
};

static void convert(fr_dtype t, int64_t n, const char *half, float *wide, bool widen) {
    if (widen)
        fri_cpu_widen(t, n, half, wide);
    else
        fri_cpu_narrow(t, n, wide, (void *)(uintptr_t)half);
}

/* Long rows are cut, short rows are joined, so that a task has about FRI_CHUNK elements. */
static void convert_rows(fr_dtype t, int64_t rows, int64_t n, const char *half, int64_t pitch, float *wide,
                         bool widen) {
    size_t size = fr_dtype_size(t);
    if (n == pitch) n *= rows, pitch = n, rows = n > 0 ? 1 : 0;
    int64_t cuts = fri_ceil_div(n, FRI_CHUNK), tasks = rows * cuts;
#pragma omp parallel for schedule(static) if (rows * n >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < tasks; i++) {
        int64_t row = i / cuts, first = i % cuts * FRI_CHUNK;
        convert(t, fri_min_i64(FRI_CHUNK, n - first), half + (size_t)(row * pitch + first) * size,
                wide + row * n + first, widen);
    }
}

void fri_cpu_widen_rows(fr_dtype t, int64_t rows, int64_t n, const void *x, int64_t pitch, float *y) {
    convert_rows(t, rows, n, x, pitch, y, true);
}

void fri_cpu_narrow_rows(fr_dtype t, int64_t rows, int64_t n, const float *x, void *y, int64_t pitch) {
    convert_rows(t, rows, n, y, pitch, (float *)(uintptr_t)x, false);
}

FRI_CLONES static void add_row(int64_t n, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

void fri_cpu_add_rows(int64_t n, const float *x, float *y) {
#pragma omp parallel for schedule(static) if (n >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i += FRI_CHUNK) add_row(fri_min_i64(FRI_CHUNK, n - i), x + i, y + i);
}

/* Rows first .. last of the columns at x, added in runs. */
static void sum_slab(fr_dtype t, int64_t first, int64_t last, int64_t n, int64_t pitch, const char *x, float *sum) {
    float run[LANES], row[LANES];
    size_t size = fr_dtype_size(t);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = first; i < last; i += RUN) {
        memset(run, 0, (size_t)n * sizeof *run);
        for (int64_t j = i; j < fri_min_i64(last, i + RUN); j++) {
            const char *at = x + (size_t)(j * pitch) * size;
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
    int64_t slab = fri_ceil_div(rows, SLABS);
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t lanes = fri_min_i64(LANES, n - c);
#pragma omp parallel for schedule(static) if (rows * lanes >= FRI_PARALLEL_MIN)
        for (int i = 0; i < SLABS; i++)
            sum_slab(t, fri_min_i64(rows, i * slab), fri_min_i64(rows, (i + 1) * slab), lanes, n,
                     (const char *)x + (size_t)c * fr_dtype_size(t), partial[i]);
        for (int i = 1; i < SLABS; i++) add_row(lanes, partial[i], partial[0]);
        char *to = (char *)out + (size_t)c * fr_dtype_size(out_t);
        if (out_t == FR_F32)
            memcpy(to, partial[0], (size_t)lanes * sizeof(float));
        else
            fri_cpu_narrow(out_t, lanes, partial[0], to);
    }
}
