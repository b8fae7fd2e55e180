/* scale.c - y = alpha * x, y = x + alpha. */
#include "cpu/cpu.h"

FRI_CLONES static void scale_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
    const real alpha = *(const real *)args;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = alpha * x[i];
}

fr_status fri_cpu_scale(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    const real factor = (real)alpha;
    return fri_cpu_map("scale", dtype, n, scale_row, &factor, x, NULL, y);
}

FRI_CLONES static void add_scalar_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
    const real alpha = *(const real *)args;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = x[i] + alpha;
}

fr_status fri_cpu_add_scalar(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    const real summand = (real)alpha;
    return fri_cpu_map("add_scalar", dtype, n, add_scalar_row, &summand, x, NULL, y);
}
