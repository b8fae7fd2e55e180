/* sum.c - sum over all elements, and its backward, broadcast. */
#include "cpu/cpu.h"

FRI_CLONES static double sum_row(const void *args, int64_t n, const real *x, const real *unused) {
    double lane[FRI_LANES] = {0};
    FRI_EACH_LANE(n, lane[l] += (double)x[i]);
    return fri_cpu_lane_total(lane);
}

size_t fri_cpu_sum_workspace(fr_dtype dtype, int64_t n) {
    return (size_t)fri_ceil_div(n, FRI_CHUNK) * sizeof(double);
}

size_t fri_cpu_bias_workspace(fr_dtype dtype, int64_t rows, int64_t k) {
    return 0; /* partial sums over rows are on the stack */
}

fr_status fri_cpu_sum(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *x, void *y) {
    double total = 0;
    real buf;
    FRI_TRY(fri_cpu_reduce(e, "sum", dtype, n, sum_row, NULL, x, NULL, &total));
    real *out = fri_cpu_target(dtype, y, 0, &buf);
    *out = (real)(alpha * total);
    fri_cpu_store(dtype, y, 0, 1, out);
    return FR_OK;
}

fr_status fri_cpu_broadcast(const fri_exec *e, fr_dtype dtype, int64_t n, double alpha, const void *s, void *y) {
    real buf;
    fr_status status = fri_cpu_accepts("broadcast", dtype);
    if (status < 0) return status;
    return fri_cpu_fill(e, dtype, n, (double)(real)(alpha * (double)*fri_cpu_load(dtype, s, 0, 1, &buf)), y);
}
