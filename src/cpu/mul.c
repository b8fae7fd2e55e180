/* mul.c - y = a * b, element by element. */
#include "cpu/cpu.h"

FRI_CLONES static void mul_row(const void *args, int64_t n, const real *a, const real *b, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

fr_status fri_cpu_mul(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    return fri_cpu_map("mul", dtype, n, mul_row, NULL, a, b, y);
}
