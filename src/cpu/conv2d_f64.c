/* conv2d_f64.c - the convolution kernels of f64 data, for gradient checks: plain loops, sums in order, no workspace. */
#include "cpu/cpu.h"

FRI_NO_WORKSPACE(conv2d, forward)
FRI_NO_WORKSPACE(conv2d, backward_input)
FRI_NO_WORKSPACE(conv2d, backward_weight)

/* The input line (n, h) under output row p and tap r, or NULL in the padding. */
static const double *line_of(const fri_conv2d_desc *d, const double *x, int64_t n, int64_t p, int64_t r) {
    int64_t h = p * d->stride_h - d->pad_h + r * d->dilation_h;
    return h >= 0 && h < d->h ? x + (n * d->h + h) * d->w * d->c : NULL;
}

typedef struct conv2d_loop {
    const fri_conv2d_desc *d;
    const double *x, *w, *b, *dy;
    double *out;
} conv2d_loop;

static void forward_one(const void *context, int64_t i, int thread) {
    const conv2d_loop *l = context;
    const fri_conv2d_desc *d = l->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const int64_t k = i % d->k, q = i / d->k % d->q, p = i / (d->k * d->q) % d->p, n = i / (d->k * d->q * d->p);
    double sum = l->b != NULL ? l->b[k] : 0;
    for (int64_t r = 0; r < d->r; r++) {
        const double *line = line_of(d, l->x, n, p, r);
        for (int64_t s = 0; line != NULL && s < d->s; s++) {
            int64_t at = q * d->stride_w - d->pad_w + s * d->dilation_w;
            if (at < 0 || at >= d->w) continue;
            const double *xr = line + at * d->c + k / kg * cg, *wr = l->w + ((k * d->r + r) * d->s + s) * cg;
            for (int64_t c = 0; c < cg; c++) sum += xr[c] * wr[c];
        }
    }
    l->out[i] = sum;
}

fr_status fri_cpu_f64_conv2d_forward(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *w,
                                     const void *b, void *y) {
    fri_parallel(d->n * d->p * d->q * d->k, fr_threads_get(), forward_one,
                 &(conv2d_loop){d, .x = x, .w = w, .b = b, .out = y});
    return FR_OK;
}

/* The output index whose tap `tap` reads input index i, or -1. */
static int64_t output_of(int64_t i, int64_t tap, int64_t stride, int64_t pad, int64_t dilation, int64_t outputs) {
    int64_t at = i + pad - tap * dilation;
    return at >= 0 && at % stride == 0 && at / stride < outputs ? at / stride : -1;
}

static void input_one(const void *context, int64_t i, int thread) {
    const conv2d_loop *l = context;
    const fri_conv2d_desc *d = l->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const int64_t c = i % d->c, wi = i / d->c % d->w, h = i / (d->c * d->w) % d->h, n = i / (d->c * d->w * d->h);
    double sum = 0;
    for (int64_t r = 0; r < d->r; r++) {
        int64_t p = output_of(h, r, d->stride_h, d->pad_h, d->dilation_h, d->p);
        for (int64_t s = 0; p >= 0 && s < d->s; s++) {
            int64_t q = output_of(wi, s, d->stride_w, d->pad_w, d->dilation_w, d->q);
            if (q < 0) continue;
            const double *dyr = l->dy + ((n * d->p + p) * d->q + q) * d->k;
            for (int64_t k = c / cg * kg; k < (c / cg + 1) * kg; k++)
                sum += dyr[k] * l->w[((k * d->r + r) * d->s + s) * cg + c % cg];
        }
    }
    l->out[i] = sum;
}

fr_status fri_cpu_f64_conv2d_backward_input(const fri_exec *e, const fri_conv2d_desc *d, const void *w, const void *dy,
                                            void *dx) {
    fri_parallel(d->n * d->h * d->w * d->c, fr_threads_get(), input_one,
                 &(conv2d_loop){d, .w = w, .dy = dy, .out = dx});
    return FR_OK;
}

static void weight_one(const void *context, int64_t i, int thread) {
    const conv2d_loop *l = context;
    const fri_conv2d_desc *d = l->d;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const int64_t c = i % cg, s = i / cg % d->s, r = i / (cg * d->s) % d->r, k = i / (cg * d->s * d->r);
    double sum = 0;
    for (int64_t row = 0; row < d->n * d->p; row++) {
        const double *line = line_of(d, l->x, row / d->p, row % d->p, r);
        for (int64_t q = 0; line != NULL && q < d->q; q++) {
            int64_t at = q * d->stride_w - d->pad_w + s * d->dilation_w;
            if (at >= 0 && at < d->w) sum += line[at * d->c + k / kg * cg + c] * l->dy[(row * d->q + q) * d->k + k];
        }
    }
    l->out[i] = sum;
}

fr_status fri_cpu_f64_conv2d_backward_weight(const fri_exec *e, const fri_conv2d_desc *d, const void *x, const void *dy,
                                             void *dw) {
    fri_parallel(d->k * d->r * d->s * (d->c / d->groups), fr_threads_get(), weight_one,
                 &(conv2d_loop){d, .x = x, .dy = dy, .out = dw});
    return FR_OK;
}

fr_status fri_cpu_f64_conv2d_backward_bias(const fri_exec *e, const fri_conv2d_desc *d, const void *dy, void *db) {
    return fri_cpu_f64_linear_backward_bias(e, &(fri_linear_desc){.n = d->n * d->p * d->q, .out = d->k}, dy, db);
}
