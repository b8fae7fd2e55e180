/* leaky_relu.c - rectifier with a slope on the negative side. */
#include "cpu/cpu.h"

FRI_MAP_ROW(leaky_forward_row, fri_leaky_relu(a[i], p))

fr_status fri_cpu_leaky_relu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope, const void *x,
                                     void *y) {
    return fri_cpu_map("leaky_relu", dtype, n, leaky_forward_row, (const real[2]){(real)slope}, x, NULL, y);
}

FRI_MAP_ROW(leaky_backward_row, fri_leaky_relu_gradient(a[i], p, b[i]))

fr_status fri_cpu_leaky_relu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double slope, const void *y,
                                      const void *dy, void *dx) {
    return fri_cpu_map("leaky_relu", dtype, n, leaky_backward_row, (const real[2]){(real)slope}, y, dy, dx);
}
