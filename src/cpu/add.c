/* add.c - y = a + b: residual connections, sums of gradients. */
#include "cpu/cpu.h"

FRI_CLONES static void add_row(const void *args, int64_t n, const real *a, const real *b, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

fr_status fri_cpu_add(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    return fri_cpu_map("add", dtype, n, add_row, NULL, a, b, y);
}

FRI_CLONES static void add_relu_row(const void *args, int64_t n, const real *a, const real *b, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_relu(a[i] + b[i]);
}

fr_status fri_cpu_add_relu(const fri_exec *e, fr_dtype dtype, int64_t n, const void *a, const void *b, void *y) {
    return fri_cpu_map("add_relu", dtype, n, add_relu_row, NULL, a, b, y);
}
