/* inplace_abn.c - the inverse of ELU (Clevert et al., 2015). */
#include "cpu/cpu.h"

static void inverse_row(const void *args, int64_t n, const real *y, const real *unused, real *x) {
    for (int64_t i = 0; i < n; i++) x[i] = fri_elu_inverse(y[i]);
}

fr_status fri_cpu_elu_inverse(const fri_exec *e, fr_dtype dtype, int64_t n, const void *y, void *x) {
    return fri_cpu_map("elu", dtype, n, inverse_row, NULL, y, NULL, x);
}
