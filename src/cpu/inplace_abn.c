/* inplace_abn.c - ELU (Clevert et al., 2015); gradient and inverse are computed from the result. */
#include "cpu/cpu.h"

static void elu_forward_row(const void *args, int64_t n, const real *x, const real *unused, real *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_elu(x[i]);
}

fr_status fri_cpu_elu_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, void *y) {
    return fri_cpu_map("elu", dtype, n, elu_forward_row, NULL, x, NULL, y);
}

FRI_CLONES static void elu_backward_row(const void *args, int64_t n, const real *y, const real *dy, real *dx) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = fri_elu_gradient(y[i], dy[i]);
}

fr_status fri_cpu_elu_backward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, const void *dy, void *dx) {
    return fri_cpu_map("elu", dtype, n, elu_backward_row, NULL, y, dy, dx);
}

static void inverse_row(const void *args, int64_t n, const real *y, const real *unused, real *x) {
    for (int64_t i = 0; i < n; i++) x[i] = fri_elu_inverse(y[i]);
}

fr_status fri_cpu_elu_inverse(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, void *x) {
    return fri_cpu_map("elu", dtype, n, inverse_row, NULL, y, NULL, x);
}
