/* softmax.c - softmax of rows and its logarithm. A row's maximum is subtracted before exp; sums are in f64. */
#include "cpu/cpu.h"

FRI_CLONES static void forward_block(int64_t n, const real *x, double lse, bool logarithm, real *y) {
    if (logarithm) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) y[i] = fri_softmax(x[i], lse, true);
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) y[i] = fri_softmax(x[i], lse, false);
    }
}

typedef struct softmax_loop {
    const fri_loss_desc *d;
    bool logarithm;
    const void *x, *y, *dy; /* forward reads x, backward y and dy */
    void *out;
} softmax_loop;

static void softmax_row(const void *context, int64_t row, int thread) {
    const softmax_loop *l = context;
    const fri_loss_desc *d = l->d;
    real xbuf[FRI_BLOCK], ybuf[FRI_BLOCK];
    const double lse = fri_cpu_log_sum_exp(d, row, l->x);
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        const int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        real *out = fri_cpu_target(d->dtype, l->out, at, ybuf);
        forward_block(n, fri_cpu_load(d->dtype, l->x, at, n, xbuf), lse, l->logarithm, out);
        fri_cpu_store(d->dtype, l->out, at, n, out);
    }
}

fr_status fri_cpu_softmax_forward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *x, void *y) {
    fr_status s = fri_cpu_accepts("softmax", d->dtype);
    if (s < 0 || d->classes == 0) return s;
    fri_cpu_loss_pieces(d, d->rows, softmax_row, &(softmax_loop){d, logarithm, .x = x, .out = y});
    return FR_OK;
}

FRI_CLONES static double terms(int64_t n, const real *y, const real *dy, bool logarithm) {
    double lane[FRI_LANES] = {0};
    FRI_EACH_LANE(n, lane[l] += fri_softmax_term(y[i], dy[i], logarithm));
    return fri_cpu_lane_total(lane);
}

FRI_CLONES static void backward_block(int64_t n, const real *y, const real *dy, double sum, bool logarithm, real *dx) {
    if (logarithm) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) dx[i] = fri_softmax_gradient(y[i], dy[i], sum, true);
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) dx[i] = fri_softmax_gradient(y[i], dy[i], sum, false);
    }
}

static void softmax_row_backward(const void *context, int64_t row, int thread) {
    const softmax_loop *l = context;
    const fri_loss_desc *d = l->d;
    real ybuf[FRI_BLOCK], dybuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    double sum = 0;
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        const int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        const real *y = fri_cpu_load(d->dtype, l->y, at, n, ybuf), *dy = fri_cpu_load(d->dtype, l->dy, at, n, dybuf);
        sum += terms(n, y, dy, l->logarithm);
    }
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        const int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        real *out = fri_cpu_target(d->dtype, l->out, at, dxbuf);
        backward_block(n, fri_cpu_load(d->dtype, l->y, at, n, ybuf), fri_cpu_load(d->dtype, l->dy, at, n, dybuf), sum,
                       l->logarithm, out);
        fri_cpu_store(d->dtype, l->out, at, n, out);
    }
}

fr_status fri_cpu_softmax_backward(const fri_exec *e, const fri_loss_desc *d, bool logarithm, const void *y,
                                   const void *dy, void *dx) {
    FRI_TRY(fri_cpu_accepts("softmax", d->dtype));
    fri_cpu_loss_pieces(d, d->rows, softmax_row_backward, &(softmax_loop){d, logarithm, .y = y, .dy = dy, .out = dx});
    return FR_OK;
}
