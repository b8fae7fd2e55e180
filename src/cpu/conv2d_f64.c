/* conv2d_f64.c - the convolution kernels of f64 data, for gradient checks: plain loops, sums in order, no workspace. */
#include "cpu/cpu.h"

fr_status fri_cpu_f64_conv2d_forward_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

/* The input line (n, h) under output row p and tap r, or NULL in the padding. */
static const double *line_of(const fri_conv2d_desc *d, const double *x, int64_t n, int64_t p, int64_t r) {
    int64_t h = p * d->stride_h - d->pad_h + r * d->dilation_h;
    return h >= 0 && h < d->h ? x + (n * d->h + h) * d->w * d->c : NULL;
}

fr_status fri_cpu_f64_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                     const void *b, void *y) {
    int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const double *wv = w, *bv = b;
    double *yv = y;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->n * d->p * d->q * d->k; i++) {
        int64_t k = i % d->k, q = i / d->k % d->q, p = i / (d->k * d->q) % d->p, n = i / (d->k * d->q * d->p);
        double sum = bv != NULL ? bv[k] : 0;
        for (int64_t r = 0; r < d->r; r++) {
            const double *line = line_of(d, x, n, p, r);
            for (int64_t s = 0; line != NULL && s < d->s; s++) {
                int64_t at = q * d->stride_w - d->pad_w + s * d->dilation_w;
                if (at < 0 || at >= d->w) continue;
                const double *xr = line + at * d->c + k / kg * cg, *wr = wv + ((k * d->r + r) * d->s + s) * cg;
                for (int64_t c = 0; c < cg; c++) sum += xr[c] * wr[c];
            }
        }
        yv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_conv2d_backward_input_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

/* The output index whose tap `tap` reads input index i, or -1. */
static int64_t output_of(int64_t i, int64_t tap, int64_t stride, int64_t pad, int64_t dilation, int64_t outputs) {
    int64_t at = i + pad - tap * dilation;
    return at >= 0 && at % stride == 0 && at / stride < outputs ? at / stride : -1;
}

fr_status fri_cpu_f64_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                            void *dx) {
    int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const double *wv = w, *dyv = dy;
    double *dxv = dx;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->n * d->h * d->w * d->c; i++) {
        int64_t c = i % d->c, wi = i / d->c % d->w, h = i / (d->c * d->w) % d->h, n = i / (d->c * d->w * d->h);
        double sum = 0;
        for (int64_t r = 0; r < d->r; r++) {
            int64_t p = output_of(h, r, d->stride_h, d->pad_h, d->dilation_h, d->p);
            for (int64_t s = 0; p >= 0 && s < d->s; s++) {
                int64_t q = output_of(wi, s, d->stride_w, d->pad_w, d->dilation_w, d->q);
                if (q < 0) continue;
                const double *dyr = dyv + ((n * d->p + p) * d->q + q) * d->k;
                for (int64_t k = c / cg * kg; k < (c / cg + 1) * kg; k++)
                    sum += dyr[k] * wv[((k * d->r + r) * d->s + s) * cg + c % cg];
            }
        }
        dxv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_conv2d_backward_weight_workspace(const fri_conv2d_desc *d, size_t *bytes) {
    *bytes = 0;
    return FR_OK;
}

fr_status fri_cpu_f64_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                             void *dw) {
    int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const double *dyv = dy;
    double *dwv = dw;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < d->k * d->r * d->s * cg; i++) {
        int64_t c = i % cg, s = i / cg % d->s, r = i / (cg * d->s) % d->r, k = i / (cg * d->s * d->r);
        double sum = 0;
        for (int64_t row = 0; row < d->n * d->p; row++) {
            const double *line = line_of(d, x, row / d->p, row % d->p, r);
            for (int64_t q = 0; line != NULL && q < d->q; q++) {
                int64_t at = q * d->stride_w - d->pad_w + s * d->dilation_w;
                if (at >= 0 && at < d->w) sum += line[at * d->c + k / kg * cg + c] * dyv[(row * d->q + q) * d->k + k];
            }
        }
        dwv[i] = sum;
    }
    return FR_OK;
}

fr_status fri_cpu_f64_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    const double *dyv = dy;
    double *dbv = db;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < d->k; k++) {
        double sum = 0;
        for (int64_t i = 0; i < d->n * d->p * d->q; i++) sum += dyv[i * d->k + k];
        dbv[k] = sum;
    }
    return FR_OK;
}
