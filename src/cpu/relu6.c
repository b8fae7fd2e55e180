/* relu6.c - rectifier with a ceiling of 6; bits are handled by relu.c. */
#include "cpu/cpu.h"

FRI_MAP_ROW(relu6_forward_row, fri_relu6(a[i]))

fr_status fri_cpu_relu6_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    return fri_cpu_map("relu6", dtype, n, relu6_forward_row, NULL, x, NULL, y);
}

FRI_MAP_ROW(relu6_backward_row, fri_relu6_gradient(a[i], b[i]))

fr_status fri_cpu_relu6_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, const void *dy,
                                 void *dx) {
    return fri_cpu_map("relu6", dtype, n, relu6_backward_row, NULL, y, dy, dx);
}
