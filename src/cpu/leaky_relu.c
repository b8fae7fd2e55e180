/* leaky_relu.c - rectifier with a slope on the negative side. */
#include "cpu/cpu.h"

FRI_CLONES static void leaky_forward_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
    const real slope = *(const real *)args;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_leaky_relu(x[i], slope);
}

fr_status fri_cpu_leaky_relu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope, const void *x,
                                     void *y) {
    const real factor = (real)slope;
    return fri_cpu_map("leaky_relu", dtype, n, leaky_forward_row, &factor, x, NULL, y);
}

FRI_CLONES static void leaky_backward_row(const void *args, int64_t n, const real *y, const real *dy, real *dx) {
    const real slope = *(const real *)args;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = fri_leaky_relu_gradient(y[i], slope, dy[i]);
}

fr_status fri_cpu_leaky_relu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope, const void *y,
                                      const void *dy, void *dx) {
    const real factor = (real)slope;
    return fri_cpu_map("leaky_relu", dtype, n, leaky_backward_row, &factor, y, dy, dx);
}
