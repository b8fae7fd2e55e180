/* mse.c - mean squared error, mean absolute error, smooth L1. */
#include "cpu/cpu.h"

FRI_CLONES static double squared_errors_row(const void *args, int64_t n, const real *x, const real *t) {
    double lane[FRI_LANES] = {0};
    FRI_EACH_LANE(n, lane[l] += fri_distance((double)x[i] - (double)t[i], -1));
    return fri_cpu_lane_total(lane);
}

FRI_CLONES static double magnitudes_row(const void *args, int64_t n, const real *x, const real *t) {
    const double beta = *(const double *)args;
    double lane[FRI_LANES] = {0};
    FRI_EACH_LANE(n, lane[l] += fri_distance((double)x[i] - (double)t[i], beta));
    return fri_cpu_lane_total(lane);
}

fr_status fri_cpu_mse_forward(const fri_exec *e, fr_dtype dtype, int64_t n, double beta, const void *x, const void *t,
                              void *loss) {
    double total = 0;
    real buf;
    FRI_TRY(fri_cpu_reduce(e, "mse", dtype, n, beta < 0 ? squared_errors_row : magnitudes_row, &beta, x, t, &total));
    real *out = fri_cpu_target(dtype, loss, 0, &buf);
    *out = (real)(total / (double)n);
    fri_cpu_store(dtype, loss, 0, 1, out);
    return FR_OK;
}

FRI_MAP_ROW(squares_backward_row, fri_distance_half_slope(a[i] - b[i], -1) * p)

FRI_MAP_ROW(magnitudes_backward_row, fri_distance_half_slope(a[i] - b[i], q) * p)

fr_status fri_cpu_mse_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double beta, double sign, const void *x,
                               const void *t, const void *dloss, void *dx) {
    real buf;
    FRI_TRY(fri_cpu_accepts("mse", dtype));
    const real factor = (real)(2 * sign / (double)n * (double)*fri_cpu_load(dtype, dloss, 0, 1, &buf));
    return fri_cpu_map("mse", dtype, n, beta < 0 ? squares_backward_row : magnitudes_backward_row,
                       (const real[2]){factor, (real)beta}, x, t, dx);
}
