/* conv2d_im2col.c - convolution as matrix products over a bounded buffer of columns.
 *
 *   forward          y   [M, K]  = col [M, RSC] w^T               M = n P Q, RSC = R S C / groups
 *   backward input   col [M, RSC] = dy [M, K] w, then dx[h, w] += the columns that h, w went into
 *   backward weight  dw  [K, RSC] = sum over pieces of dy^T col
 *
 * The unit of work is an output row (n, p) of Q pixels; `rows` of them make one piece. Grouped convolutions repeat all
 * of it per group, of two or more output channels. Pieces follow the shape only, and are added in order: same bits on
 * any number of threads, as far as the library's products are. */
#include "cpu/conv2d_engine.h"

#include <string.h>

#include "cpu/half_rows.h"

enum { COLUMN_BYTES = 8 << 20 }; /* target: a piece stays in the last-level cache until it is used */

static int64_t row_elements(const fri_conv2d_desc *d) {
    return d->r * d->s * (d->c / d->groups);
}

static fr_dtype column_dtype(const fri_conv2d_engine *e) {
    return e->pass == FRI_PASS_BACKWARD_INPUT ? FR_F32 : e->d.dtype; /* sums of columns are in f32 */
}

/* The product over `rows` output rows. */
static fri_matmul_desc product(const fri_conv2d_engine *e, int64_t rows, fri_accum accum) {
    const fri_conv2d_desc *d = &e->d;
    int64_t kg = d->k / d->groups, rsc = row_elements(d), m = rows * d->q;
    int64_t col_row = e->pointwise ? d->c : rsc;
    fri_matmul_desc p = {.a_dtype = d->dtype, .b_dtype = d->dtype, .bias_dtype = d->bias_dtype, .accum = accum};
    switch (e->pass) {
    case FRI_PASS_FORWARD:
        p.c_dtype = d->dtype, p.bias = true;
        p.m = m, p.k = rsc, p.n = kg;
        p.a_row = col_row, p.a_col = 1, p.b_row = 1, p.b_col = rsc, p.c_row = d->k;
        break;
    case FRI_PASS_BACKWARD_INPUT:
        p.c_dtype = e->pointwise ? d->dtype : FR_F32;
        p.m = m, p.k = kg, p.n = rsc;
        p.a_row = d->k, p.a_col = 1, p.b_row = rsc, p.b_col = 1, p.c_row = col_row;
        break;
    case FRI_PASS_BACKWARD_WEIGHT:
        p.c_dtype = FR_F32;
        p.m = kg, p.k = m, p.n = rsc;
        p.a_row = 1, p.a_col = d->k, p.b_row = col_row, p.b_col = 1, p.c_row = rsc;
        break;
    }
    return p;
}

static fr_status plan_product(fri_conv2d_engine *e, int slot, int64_t rows, fri_accum accum, size_t *scratch) {
    fri_matmul_desc p = product(e, rows, accum);
    FRI_TRY(fri_dnnl()->matmul(&p, &e->op[slot]));
    if (e->op[slot] == NULL)
        e->method = FRI_CONV2D_NONE;
    else if (e->op[slot]->scratch_bytes > *scratch)
        *scratch = e->op[slot]->scratch_bytes;
    return FR_OK;
}

fr_status fri_conv2d_im2col_plan(fri_conv2d_engine *e) {
    const fri_conv2d_desc *d = &e->d;
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT, dx = e->pass == FRI_PASS_BACKWARD_INPUT;
    size_t scratch = 0, column = fr_dtype_size(column_dtype(e));
    e->method = FRI_CONV2D_IM2COL;
    if (d->k == d->groups && d->groups > 1) { /* vectors whose elements are apart: handled by widening */
        e->method = FRI_CONV2D_NONE;
        return FR_OK;
    }
    e->pointwise = d->r == 1 && d->s == 1 && d->stride_h == 1 && d->stride_w == 1 && d->pad_h == 0 && d->pad_w == 0;
    if (d->c == d->groups && d->groups > 1) e->pointwise = false; /* columns of x are not dense */

    size_t row_bytes = (size_t)(d->q * row_elements(d)) * column;
    int64_t fit = fri_max_i64(1, (int64_t)(COLUMN_BYTES / row_bytes)), all = d->n * d->p;
    if (dx && !e->pointwise) { /* whole images, so that sums are complete; large images in pieces */
        e->images = fri_min_i64(d->n, fri_max_i64(1, fit / d->p));
        all = e->images * d->p;
    }
    e->rows = e->pointwise ? all : fri_min_i64(fit, all);

    int64_t tail = all % e->rows;
    FRI_TRY(plan_product(e, 0, e->rows, FRI_SET, &scratch));
    if (dw && e->rows < all && e->method != FRI_CONV2D_NONE) FRI_TRY(plan_product(e, 1, e->rows, FRI_ADD, &scratch));
    if (tail > 0 && e->method != FRI_CONV2D_NONE) FRI_TRY(plan_product(e, 2, tail, dw ? FRI_ADD : FRI_SET, &scratch));
    if (e->images > 0 && d->n % e->images > 0 && e->method != FRI_CONV2D_NONE) {
        int64_t last = d->n % e->images * d->p; /* e->images > 1 implies rows == all, so there is no other tail */
        FRI_TRY(plan_product(e, 2, last, FRI_SET, &scratch));
    }

    if (e->pass == FRI_PASS_FORWARD) e->bias_at = fri_part(&e->bytes, (size_t)d->k * fr_dtype_size(d->bias_dtype));
    if (!e->pointwise) e->col_at = fri_part(&e->bytes, (size_t)e->rows * row_bytes);
    if (d->dtype != FR_F32 && dw) e->sum_at = fri_part(&e->bytes, (size_t)(d->k * row_elements(d)) * sizeof(float));
    if (d->dtype != FR_F32 && dx && !e->pointwise)
        e->sum_at = fri_part(&e->bytes, (size_t)(e->images * d->h * d->w * d->c) * sizeof(float));
    e->scratch_at = fri_part(&e->bytes, scratch);
    return FR_OK;
}

/* ---- x to columns ---------------------------------------------------------------------------------------- */

/* A loop over output rows from .. from + rows, or over the lines of dx that these rows reach. */
typedef struct row_loop {
    const fri_conv2d_desc *d;
    int64_t from, rows, first; /* first: channel */
    const char *x;
    void *out;
    const float *col;
    int64_t image; /* the first of out */
} row_loop;

/* The Q column rows of an output row for channels first .. first + c / groups. */
static void gather_row(const void *context, int64_t i, int thread) {
    const row_loop *l = context;
    const fri_conv2d_desc *d = l->d;
    size_t element = fr_dtype_size(d->dtype);
    int64_t n = (l->from + i) / d->p, p = (l->from + i) % d->p, cg = d->c / d->groups;
    char *col = (char *)l->out + (size_t)(i * d->q * row_elements(d)) * element;
    size_t tap = (size_t)cg * element;
    bool dense = cg == d->c && d->dilation_w == 1; /* the S taps of a row are adjacent in x */
    for (int64_t q = 0; q < d->q; q++) {
        for (int64_t r = 0; r < d->r; r++) {
            int64_t h = p * d->stride_h - d->pad_h + r * d->dilation_h;
            if (h < 0 || h >= d->h) {
                memset(col, 0, (size_t)d->s * tap);
                col += (size_t)d->s * tap;
                continue;
            }
            int64_t w = q * d->stride_w - d->pad_w;
            const char *line = l->x + (size_t)(((n * d->h + h) * d->w) * d->c + l->first) * element;
            if (dense && w >= 0 && w + d->s <= d->w) {
                memcpy(col, line + (size_t)(w * d->c) * element, (size_t)d->s * tap);
                col += (size_t)d->s * tap;
                continue;
            }
            for (int64_t s = 0; s < d->s; s++, w += d->dilation_w, col += tap) {
                if (w < 0 || w >= d->w)
                    memset(col, 0, tap);
                else
                    memcpy(col, line + (size_t)(w * d->c) * element, tap);
            }
        }
    }
}

/* ---- columns to dx --------------------------------------------------------------------------------------- */

FRI_CLONES static void add_row(int64_t n, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* Adds the contributions of output rows from .. from + rows to line (n, h) of dx, in order of (r, q, s). */
static void scatter_line(const fri_conv2d_desc *d, int64_t from, int64_t rows, int64_t n, int64_t h, const float *col,
                         float *line) {
    int64_t cg = d->c / d->groups, rsc = row_elements(d);
    bool dense = cg == d->c && d->dilation_w == 1;
    for (int64_t r = 0; r < d->r; r++) {
        int64_t offset = h + d->pad_h - r * d->dilation_h, p = offset / d->stride_h;
        if (offset < 0 || offset % d->stride_h != 0 || p >= d->p) continue;
        int64_t row = n * d->p + p - from;
        if (row < 0 || row >= rows) continue;
        for (int64_t q = 0; q < d->q; q++) {
            const float *c = col + (row * d->q + q) * rsc + r * d->s * cg;
            int64_t w = q * d->stride_w - d->pad_w;
            if (dense && w >= 0 && w + d->s <= d->w) {
                add_row(d->s * cg, c, line + w * d->c);
                continue;
            }
            for (int64_t s = 0; s < d->s; s++, w += d->dilation_w)
                if (w >= 0 && w < d->w) add_row(cg, c + s * cg, line + w * d->c);
        }
    }
}

static void scatter_piece(const void *context, int64_t i, int thread) {
    const row_loop *l = context;
    const fri_conv2d_desc *d = l->d;
    const int64_t n = l->from / d->p + i / d->h, h = i % d->h;
    scatter_line(d, l->from, l->rows, n, h, l->col,
                 (float *)l->out + (((n - l->image) * d->h + h) * d->w) * d->c + l->first);
}

static void scatter(const row_loop *l) {
    const int64_t p = l->d->p, images = (l->from + l->rows - 1) / p + 1 - l->from / p;
    fri_parallel(images * l->d->h, fr_threads_get(), scatter_piece, l);
}

/* ---- running --------------------------------------------------------------------------------------------- */

static const char *at(const void *base, int64_t elements, fr_dtype t) {
    return (const char *)base + (size_t)elements * fr_dtype_size(t);
}

/* Output rows from .. from + rows of group g. out: y, dw, or the columns of dx. */
static fr_status run_piece(const fri_conv2d_engine *e, const fri_dnnl_op *op, int64_t g, int64_t from, int64_t rows,
                           const void *a, const void *b, const void *bias, char *out, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    int64_t cg = d->c / d->groups, kg = d->k / d->groups, rsc = row_elements(d), pixel = from * d->q;
    char *col = workspace + e->col_at, *scratch = workspace + e->scratch_at;
    const char *matrix = col;
    if (e->pass != FRI_PASS_BACKWARD_INPUT && e->pointwise)
        matrix = at(a, pixel * d->c + g * cg, d->dtype);
    else if (e->pass != FRI_PASS_BACKWARD_INPUT)
        fri_parallel(rows, fr_threads_get(), gather_row, &(row_loop){d, from, rows, g * cg, a, col});
    switch (e->pass) {
    case FRI_PASS_FORWARD:
        return fri_dnnl()->run(op, matrix, at(b, g * kg * rsc, d->dtype), at(bias, g * kg, d->bias_dtype),
                               out + (size_t)(pixel * d->k + g * kg) * fr_dtype_size(d->dtype), scratch);
    case FRI_PASS_BACKWARD_INPUT:
        return fri_dnnl()->run(op, at(a, pixel * d->k + g * kg, d->dtype), at(b, g * kg * rsc, d->dtype), NULL, out,
                               scratch);
    default:
        return fri_dnnl()->run(op, at(b, pixel * d->k + g * kg, d->dtype), matrix, NULL,
                               out + (size_t)(g * kg * rsc) * sizeof(float), scratch);
    }
}

/* Adds the columns of a block of images into f32 sums, directly in dx if dx is f32. */
static fr_status run_images(const fri_conv2d_engine *e, int64_t image, int64_t images, const void *dy, const void *w,
                            char *dx, char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    int64_t elements = images * d->h * d->w * d->c, from = image * d->p, last = (image + images) * d->p;
    char *part = dx + (size_t)(image * d->h * d->w * d->c) * fr_dtype_size(d->dtype);
    float *sums = (float *)(void *)(d->dtype == FR_F32 ? part : workspace + e->sum_at);
    memset(sums, 0, (size_t)elements * sizeof(float));
    for (int64_t rows; from < last; from += rows) {
        rows = fri_min_i64(e->rows, last - from);
        for (int64_t g = 0; g < d->groups; g++) {
            FRI_TRY(run_piece(e, e->op[rows == e->rows ? 0 : 2], g, from, rows, dy, w, NULL, workspace + e->col_at,
                              workspace));
            scatter(&(row_loop){d, from, rows, g * (d->c / d->groups), .out = sums, .image = image,
                                .col = (const float *)(void *)(workspace + e->col_at)});
        }
    }
    if (d->dtype != FR_F32) fri_cpu_narrow_rows(d->dtype, 1, elements, sums, part, elements);
    return FR_OK;
}

fr_status fri_conv2d_im2col_run(const fri_conv2d_engine *e, const void *a, const void *b, const void *bias, void *out,
                                char *workspace) {
    const fri_conv2d_desc *d = &e->d;
    if (e->images > 0) {
        for (int64_t i = 0; i < d->n; i += e->images)
            FRI_TRY(run_images(e, i, fri_min_i64(e->images, d->n - i), a, b, out, workspace));
        return FR_OK;
    }
    bool dw = e->pass == FRI_PASS_BACKWARD_WEIGHT, sums = dw && d->dtype != FR_F32;
    char *target = sums ? workspace + e->sum_at : out;
    int64_t all = d->n * d->p;
    for (int64_t from = 0, rows; from < all; from += rows) {
        rows = fri_min_i64(e->rows, all - from);
        const fri_dnnl_op *op = e->op[rows < e->rows ? 2 : dw && from > 0 ? 1 : 0];
        for (int64_t g = 0; g < d->groups; g++) {
            char *to = target;
            if (e->pass == FRI_PASS_BACKWARD_INPUT) /* pointwise: columns are dx */
                to += (size_t)(from * d->q * d->c + g * (d->c / d->groups)) * fr_dtype_size(d->dtype);
            FRI_TRY(run_piece(e, op, g, from, rows, a, b, bias, to, workspace));
        }
    }
    int64_t weights = d->k * row_elements(d);
    if (sums) fri_cpu_narrow_rows(d->dtype, 1, weights, (const float *)(const void *)target, out, weights);
    return FR_OK;
}
