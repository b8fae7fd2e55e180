/* mse.c - mean squared error. */
#include "cpu/cpu.h"

FRI_CLONES static double squares_row(int64_t n, const real *x, const real *t) {
    double lane[FRI_LANES] = {0};
    int64_t i = 0;
    for (; i + FRI_LANES <= n; i += FRI_LANES)
        for (int l = 0; l < FRI_LANES; l++) {
            double difference = (double)x[i + l] - (double)t[i + l];
            lane[l] += difference * difference;
        }
    for (int l = 0; i < n; i++, l++) {
        double difference = (double)x[i] - (double)t[i];
        lane[l] += difference * difference;
    }
    return fri_cpu_lane_total(lane);
}

fr_status fri_cpu_mse_forward(const fri_exec *e, fr_dtype dtype, int64_t n, const void *x, const void *t, void *loss) {
    double total = 0;
    real buf;
    fr_status s = fri_cpu_reduce(e, "mse", dtype, n, squares_row, x, t, &total);
    if (s < 0) return s;
    real *out = fri_cpu_target(dtype, loss, 0, &buf);
    *out = (real)(total / (double)n);
    fri_cpu_store(dtype, loss, 0, 1, out);
    return FR_OK;
}

FRI_CLONES static void backward_row(const void *args, int64_t n, const real *x, const real *t, real *dx) {
    const real factor = *(const real *)args;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = (x[i] - t[i]) * factor;
}

fr_status fri_cpu_mse_backward(const fri_exec *e, fr_dtype dtype, int64_t n, double sign, const void *x, const void *t,
                               const void *dloss, void *dx) {
    real buf;
    fr_status s = fri_cpu_accepts("mse", dtype);
    if (s < 0) return s;
    const real factor = (real)(2 * sign / (double)n * (double)*fri_cpu_load(dtype, dloss, 0, 1, &buf));
    return fri_cpu_map("mse", dtype, n, backward_row, &factor, x, t, dx);
}
