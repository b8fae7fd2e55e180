/* relu6.c - rectifier with a ceiling of 6; bits are handled by relu.c. */
#include "cpu/cpu.h"

FRI_CLONES static void relu6_forward_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_relu6(x[i]);
}

fr_status fri_cpu_relu6_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    return fri_cpu_map("relu6", dtype, n, relu6_forward_row, NULL, x, NULL, y);
}

FRI_CLONES static void relu6_backward_row(const void *args, int64_t n, const real *y, const real *dy, real *dx) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = fri_relu6_gradient(y[i], dy[i]);
}

fr_status fri_cpu_relu6_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, const void *dy,
                                 void *dx) {
    return fri_cpu_map("relu6", dtype, n, relu6_backward_row, NULL, y, dy, dx);
}
