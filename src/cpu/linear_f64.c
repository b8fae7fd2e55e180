/* linear_f64.c - the fully connected kernels of f64 data, for gradient checks: plain loops, sums in order. */
#include "cpu/cpu.h"

fr_status fri_cpu_f64_linear_forward_workspace(const fri_linear_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

fr_status fri_cpu_f64_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                     const void *b, void *y) {
    const double *xv = x, *wv = w, *bv = b;
    double *yv = y;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->n * d->out; i++) {
        const double *xr = xv + i / d->out * d->in, *wr = wv + i % d->out * d->in;
        double sum = bv != NULL ? bv[i % d->out] : 0;
        for (int64_t j = 0; j < d->in; j++) sum += xr[j] * wr[j];
        yv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_linear_backward_input_workspace(const fri_linear_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

fr_status fri_cpu_f64_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                            void *dx) {
    const double *wv = w, *dyv = dy;
    double *dxv = dx;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->n * d->in; i++) {
        const double *dyr = dyv + i / d->in * d->out;
        double sum = 0;
        for (int64_t j = 0; j < d->out; j++) sum += dyr[j] * wv[j * d->in + i % d->in];
        dxv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_linear_backward_weight_workspace(const fri_linear_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

fr_status fri_cpu_f64_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                             void *dw, void *db) {
    FRI_TRY(db != NULL ? fri_cpu_f64_linear_backward_bias(e, d, dy, db) : FR_OK);
    const double *xv = x, *dyv = dy;
    double *dwv = dw;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->out * d->in; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d->n; j++) sum += dyv[j * d->out + i / d->in] * xv[j * d->in + i % d->in];
        dwv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    const double *dyv = dy;
    double *dbv = db;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->out; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d->n; j++) sum += dyv[j * d->out + i];
        dbv[i] = sum;
    }
    return FR_OK;
}
