/* scale.c - y = alpha * x, y = x + alpha. */
#include "cpu/cpu.h"

FRI_MAP_ROW(scale_row, p *a[i])

fr_status fri_cpu_scale(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    return fri_cpu_map("scale", dtype, n, scale_row, (const real[2]){(real)alpha}, x, NULL, y);
}

FRI_MAP_ROW(add_scalar_row, a[i] + p)

fr_status fri_cpu_add_scalar(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    return fri_cpu_map("add_scalar", dtype, n, add_scalar_row, (const real[2]){(real)alpha}, x, NULL, y);
}
