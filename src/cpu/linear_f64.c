/* linear_f64.c - the fully connected kernels of f64 data, for gradient checks: plain loops, sums in order. */
#include "cpu/cpu.h"

FRI_NO_WORKSPACE(linear, forward)
FRI_NO_WORKSPACE(linear, backward_input)
FRI_NO_WORKSPACE(linear, backward_weight)

typedef struct linear_loop {
    const fri_linear_desc *d;
    const double *x, *w, *b, *dy;
    double *out;
} linear_loop;

static void forward_one(const void *context, int64_t i, int thread) {
    const linear_loop *l = context;
    const int64_t in = l->d->in, out = l->d->out;
    double sum = l->b != NULL ? l->b[i % out] : 0;
    for (int64_t j = 0; j < in; j++) sum += l->x[i / out * in + j] * l->w[i % out * in + j];
    l->out[i] = sum;
}

fr_status fri_cpu_f64_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                     const void *b, void *y) {
    fri_parallel(d->n * d->out, fr_threads_get(), forward_one, &(linear_loop){d, .x = x, .w = w, .b = b, .out = y});
    return FR_OK;
}

static void input_one(const void *context, int64_t i, int thread) {
    const linear_loop *l = context;
    const int64_t in = l->d->in, out = l->d->out;
    double sum = 0;
    for (int64_t j = 0; j < out; j++) sum += l->dy[i / in * out + j] * l->w[j * in + i % in];
    l->out[i] = sum;
}

fr_status fri_cpu_f64_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                            void *dx) {
    fri_parallel(d->n * d->in, fr_threads_get(), input_one, &(linear_loop){d, .w = w, .dy = dy, .out = dx});
    return FR_OK;
}

static void weight_one(const void *context, int64_t i, int thread) {
    const linear_loop *l = context;
    const int64_t in = l->d->in, out = l->d->out;
    double sum = 0;
    for (int64_t j = 0; j < l->d->n; j++) sum += l->dy[j * out + i / in] * l->x[j * in + i % in];
    l->out[i] = sum;
}

fr_status fri_cpu_f64_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                             void *dw, void *db) {
    FRI_TRY(db != NULL ? fri_cpu_f64_linear_backward_bias(e, d, dy, db) : FR_OK);
    fri_parallel(d->out * d->in, fr_threads_get(), weight_one, &(linear_loop){d, .x = x, .dy = dy, .out = dw});
    return FR_OK;
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
