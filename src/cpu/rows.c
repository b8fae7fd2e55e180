/* rows.c - converts storage types to and from real; the two loops behind the pointwise kernels. */
#include "cpu/cpu.h"

#include "base/half.h"

#include <string.h>

fr_status fri_cpu_accepts(const char *op, fr_dtype t) {
    if (t == FRI_REAL_DTYPE) return FR_OK;
#ifndef FRI_REAL_F64
    if (t == FR_F16 || t == FR_BF16) return FR_OK;
#endif
    return fr_fail(FR_EUNSUPPORTED, "%s: the cpu kernel for %s data was called with %s data", op,
                   FRI_REAL_DTYPE == FR_F64 ? "f64" : "f32, f16 and bf16", fr_dtype_name(t));
}

#ifdef FRI_REAL_F64

/* Never reached: fri_cpu_accepts admits only f64 data, which needs no conversion. */
void fri_cpu_widen(fr_dtype t, int64_t n, const void *x, real *y) {
    memcpy(y, x, (size_t)n * sizeof *y);
}

void fri_cpu_narrow(fr_dtype t, int64_t n, const real *x, void *y) {
    memcpy(y, x, (size_t)n * sizeof *x);
}

#else

FRI_CLONES static void real_from_f16(int64_t n, const fri_f16 *x, real *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_f32_from_f16(x[i]);
}

FRI_CLONES static void real_from_bf16(int64_t n, const fri_bf16 *x, real *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_f32_from_bf16(x[i]);
}

void fri_cpu_widen(fr_dtype t, int64_t n, const void *x, real *y) {
    if (t == FR_F16)
        real_from_f16(n, x, y);
    else
        real_from_bf16(n, x, y);
}

FRI_CLONES static void f16_from_real(int64_t n, const real *x, fri_f16 *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_f16_from_f32(x[i]);
}

FRI_CLONES static void bf16_from_real(int64_t n, const real *x, fri_bf16 *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_bf16_from_f32(x[i]);
}

void fri_cpu_narrow(fr_dtype t, int64_t n, const real *x, void *y) {
    if (t == FR_F16)
        f16_from_real(n, x, y);
    else
        bf16_from_real(n, x, y);
}

#endif

typedef struct ranges {
    int64_t n;
    fri_cpu_range *range;
    const void *context;
} ranges;

static void one_range(const void *context, int64_t i, int thread) {
    const ranges *r = context;
    r->range(r->context, i * FRI_CHUNK, fri_min_i64(r->n, (i + 1) * FRI_CHUNK));
}

void fri_cpu_ranges(int64_t n, fri_cpu_range *range, const void *context) {
    fri_cpu_pieces(n, fri_ceil_div(n, FRI_CHUNK), one_range, &(ranges){n, range, context});
}

/* A loop over rows of elements, which either maps or reduces them. */
typedef struct row_loop {
    fr_dtype t;
    fri_cpu_map_row *map;
    fri_cpu_reduce_row *reduce;
    const void *args, *a, *b;
    void *y;
    double *partial;
} row_loop;

/* Processes elements first .. last in blocks; data that needs no conversion is a single block. */
static void map_range(const void *context, int64_t first, int64_t last) {
    const row_loop *l = context;
    const fr_dtype t = l->t;
    real abuf[FRI_BLOCK], bbuf[FRI_BLOCK], ybuf[FRI_BLOCK];
    int64_t block = t == FRI_REAL_DTYPE ? last - first : FRI_BLOCK;
    for (int64_t i = first; i < last; i += block) {
        int64_t n = fri_min_i64(block, last - i);
        const real *av = fri_cpu_load(t, l->a, i, n, abuf);
        const real *bv = l->b != NULL ? fri_cpu_load(t, l->b, i, n, bbuf) : NULL;
        real *yv = fri_cpu_target(t, l->y, i, ybuf);
        l->map(l->args, n, av, bv, yv);
        fri_cpu_store(t, l->y, i, n, yv);
    }
}

fr_status fri_cpu_map(const char *op, fr_dtype t, int64_t n, fri_cpu_map_row *row, const void *args, const void *a,
                      const void *b, void *y) {
    FRI_TRY(fri_cpu_accepts(op, t));
    fri_cpu_ranges(n, map_range, &(row_loop){.t = t, .map = row, .args = args, .a = a, .b = b, .y = y});
    return FR_OK;
}

static void reduce_range(const void *context, int64_t first, int64_t last) {
    const row_loop *l = context;
    const fr_dtype t = l->t;
    real abuf[FRI_BLOCK], bbuf[FRI_BLOCK];
    int64_t block = t == FRI_REAL_DTYPE ? last - first : FRI_BLOCK;
    double total = 0;
    for (int64_t i = first; i < last; i += block) {
        int64_t n = fri_min_i64(block, last - i);
        const real *av = fri_cpu_load(t, l->a, i, n, abuf);
        const real *bv = l->b != NULL ? fri_cpu_load(t, l->b, i, n, bbuf) : NULL;
        total += l->reduce(l->args, n, av, bv);
    }
    l->partial[first / FRI_CHUNK] = total;
}

fr_status fri_cpu_reduce(const fri_exec *e, const char *op, fr_dtype t, int64_t n, fri_cpu_reduce_row *row,
                         const void *args, const void *a, const void *b, double *total) {
    void *scratch = NULL;
    FRI_TRY(fri_cpu_accepts(op, t));
    FRI_TRY(fri_cpu_workspace(e, op, fri_cpu_sum_workspace(t, n), &scratch));
    double *partial = scratch, sum = 0;
    fri_cpu_ranges(n, reduce_range, &(row_loop){t, .reduce = row, .args = args, .a = a, .b = b, .partial = partial});
    for (int64_t i = 0; i < fri_ceil_div(n, FRI_CHUNK); i++) sum += partial[i];
    *total = sum;
    return FR_OK;
}
