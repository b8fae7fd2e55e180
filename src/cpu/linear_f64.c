/* linear_f64.c - the fully connected kernels of f64 data: convolutions (conv2d_f64.c) of images of one pixel. */
#include "cpu/cpu.h"

FRI_NO_WORKSPACE(linear, forward)
FRI_NO_WORKSPACE(linear, backward_input)
FRI_NO_WORKSPACE(linear, backward_weight)

static fri_conv2d_desc pixels(const fri_linear_desc *d) {
    return (fri_conv2d_desc){.n = d->n,
                             .h = 1,
                             .w = 1,
                             .c = d->in,
                             .k = d->out,
                             .r = 1,
                             .s = 1,
                             .p = 1,
                             .q = 1,
                             .stride_h = 1,
                             .stride_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1};
}

fr_status fri_cpu_f64_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                     const void *b, void *y) {
    const fri_conv2d_desc layer = pixels(d);
    return fri_cpu_f64_conv2d_forward(e, &layer, x, w, b, y);
}

fr_status fri_cpu_f64_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                            void *dx) {
    const fri_conv2d_desc layer = pixels(d);
    return fri_cpu_f64_conv2d_backward_input(e, &layer, w, dy, dx);
}

fr_status fri_cpu_f64_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                             void *dw, void *db) {
    const fri_conv2d_desc layer = pixels(d);
    FRI_TRY(db != NULL ? fri_cpu_f64_linear_backward_bias(e, d, dy, db) : FR_OK);
    return fri_cpu_f64_conv2d_backward_weight(e, &layer, x, dy, dw);
}

fr_status fri_cpu_f64_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    const double *dyv = dy;
    double *dbv = db;
    for (int64_t i = 0; i < d->out; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d->n; j++) sum += dyv[j * d->out + i];
        dbv[i] = sum;
    }
    return FR_OK;
}
