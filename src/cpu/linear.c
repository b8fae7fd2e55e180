/* linear.c - the fully connected kernels of f32, f16 and bf16 data: three matrix products.
 *
 *   forward          y  [n, out]  = x [n, in] w^T + b
 *   backward input   dx [n, in]   = dy [n, out] w
 *   backward weight  dw [out, in] = dy^T x
 *
 * f32, and bf16 where the library has code for it, are one product in place. Else half data is widened: the product is
 * cut into tiles whose f32 copies fit the target, along the summed dimension only when a tile of one row and column
 * does not fit otherwise; such sums are added in order, in f32. Tiles follow the shape only. A batch cut in two gives
 * the same y and dx (product.h). */
#include "cpu/product.h"

#include <string.h>

#include "cpu/conv2d_engine.h"
#include "cpu/half_rows.h"

enum { TILE_BYTES = 32 << 20 };

static const char *const pass_name[] = {
    [FRI_PASS_FORWARD] = "linear_forward",
    [FRI_PASS_BACKWARD_INPUT] = "linear_backward_input",
    [FRI_PASS_BACKWARD_WEIGHT] = "linear_backward_weight",
};

typedef struct plan {
    fri_matmul_desc p; /* C [m, n] = A [m, k] B [k, n] of the whole layer; A or B may be stored transposed */
    bool widened;
    fri_product whole;
    int64_t m, n, k; /* of a tile */
    size_t bias_at, a_at, b_at, c_at, product_at, bytes;
} plan;

/* f32 product of a tile of m x n x k with dense copies. */
static fr_status plan_tile(const fri_matmul_desc *p, int64_t m, int64_t n, int64_t k, fri_accum accum,
                           fri_product *made) {
    fri_matmul_desc d = {FR_F32, FR_F32, FR_F32, FR_F32, m, n, k, k, 1, n, 1, n, .accum = accum};
    if (p->a_col != 1) d.a_row = 1, d.a_col = m;
    if (p->b_col != 1) d.b_row = 1, d.b_col = k;
    d.bias = p->bias && accum == FRI_SET;
    return fri_product_plan(&d, made);
}

/* The largest of 1 .. all whose `fixed + per * size` elements fit. */
static int64_t fitting(int64_t all, int64_t fit, int64_t fixed, int64_t per) {
    return fri_min_i64(all, fri_max_i64(1, (fit - fixed) / per));
}

/* Scratch for every tile shape in the loops below: full or remaining m, n, k, adding or not. */
static fr_status tile_scratch(const plan *p, size_t *scratch) {
    int64_t size[3] = {p->m, p->n, p->k}, rest[3] = {p->p.m % p->m, p->p.n % p->n, p->p.k % p->k};
    for (int i = 0; i < 8; i++) {
        int64_t dim[3];
        for (int j = 0; j < 3; j++) dim[j] = i >> j & 1 ? rest[j] : size[j];
        if (dim[0] == 0 || dim[1] == 0 || dim[2] == 0) continue;
        for (int add = 0; add <= (p->k < p->p.k); add++) {
            fri_product tile;
            FRI_TRY(plan_tile(&p->p, dim[0], dim[1], dim[2], add ? FRI_ADD : FRI_SET, &tile));
            if (tile.bytes > *scratch) *scratch = tile.bytes;
        }
    }
    return FR_OK;
}

static fr_status plan_widened(plan *p) {
    const fri_matmul_desc *q = &p->p;
    size_t scratch = 0;
    int64_t fit = TILE_BYTES / (int64_t)sizeof(float);
    p->widened = true;
    /* A quarter of the space for A at full k, the rest for B and C; k is cut if a row of each does not fit. */
    p->k = fri_min_i64(q->k, fit / 4);
    p->m = fitting(q->m, fit / 4, 0, p->k);
    p->n = fitting(q->n, fit, p->m * p->k, p->k + p->m);
    p->m = fitting(q->m, fit, p->n * p->k, p->k + p->n);
    if (q->bias) p->bias_at = fri_part(&p->bytes, (size_t)q->n * sizeof(float));
    p->a_at = fri_part(&p->bytes, (size_t)(p->m * p->k) * sizeof(float));
    p->b_at = fri_part(&p->bytes, (size_t)(p->k * p->n) * sizeof(float));
    p->c_at = fri_part(&p->bytes, (size_t)(p->m * p->n) * sizeof(float));
    FRI_TRY(tile_scratch(p, &scratch));
    p->product_at = fri_part(&p->bytes, scratch);
    return FR_OK;
}

static fr_status make_plan(const fri_linear_desc *d, fri_pass pass, plan *p) {
    memset(p, 0, sizeof *p);
    p->p = fri_product_of_layer(pass, d->dtype, d->bias_dtype, d->n, d->in, d->out);
    fr_status s = fri_cpu_accepts(pass_name[pass], d->dtype);
    if (s < 0 || d->n == 0) return s;
    if (d->dtype != FR_F16) {
        FRI_TRY(fri_product_plan(&p->p, &p->whole));
        if (p->whole.possible) {
            if (p->p.bias) p->bias_at = fri_part(&p->bytes, (size_t)d->out * fr_dtype_size(d->bias_dtype));
            p->product_at = fri_part(&p->bytes, p->whole.bytes);
            return FR_OK;
        }
    }
    return plan_widened(p);
}

/* Converts rows i0 .. i0 + rows and columns j0 .. j0 + columns of the logical matrix, in stored order. row and col are
 * distances of elements; one is 1. */
static void widen_tile(fr_dtype t, const void *base, int64_t row, int64_t col, int64_t i0, int64_t rows, int64_t j0,
                       int64_t columns, float *out) {
    const void *first = fri_cpu_at(t, base, i0 * row + j0 * col);
    if (col == 1)
        fri_cpu_widen_rows(t, rows, columns, first, row, out);
    else
        fri_cpu_widen_rows(t, columns, rows, first, col, out);
}

static fr_status run_widened(fr_dtype t, const plan *p, const void *a, const void *b, const float *bias, void *c,
                             char *workspace) {
    const fri_matmul_desc *q = &p->p;
    float *at = (float *)(void *)(workspace + p->a_at), *bt = (float *)(void *)(workspace + p->b_at);
    float *ct = (float *)(void *)(workspace + p->c_at);
    for (int64_t j = 0; j < q->n; j += p->n) {
        int64_t n = fri_min_i64(p->n, q->n - j);
        for (int64_t i = 0; i < q->m; i += p->m) {
            int64_t m = fri_min_i64(p->m, q->m - i);
            for (int64_t l = 0; l < q->k; l += p->k) {
                int64_t k = fri_min_i64(p->k, q->k - l);
                fri_product tile;
                FRI_TRY(plan_tile(q, m, n, k, l > 0 ? FRI_ADD : FRI_SET, &tile));
                bool new_a = p->m < q->m || p->k < q->k || j == 0, new_b = p->k < q->k || i == 0;
                if (new_a) widen_tile(t, a, q->a_row, q->a_col, i, m, l, k, at);
                if (new_b) widen_tile(t, b, q->b_row, q->b_col, l, k, j, n, bt);
                FRI_TRY(fri_product_run(&tile, at, bt, bias != NULL ? bias + j : NULL, ct, workspace + p->product_at));
            }
            fri_cpu_narrow_rows(t, m, n, ct, (char *)c + (size_t)(i * q->n + j) * fr_dtype_size(t), q->n);
        }
    }
    return FR_OK;
}

static fr_status run(const fri_exec *e, const fri_linear_desc *d, fri_pass pass, const void *a, const void *b,
                     const void *bias, void *c) {
    plan p;
    void *base = NULL;
    fr_status s = make_plan(d, pass, &p);
    if (s >= 0) s = fri_cpu_workspace(e, pass_name[pass], p.bytes, &base);
    if (s < 0 || d->n == 0) return s;
    char *workspace = base;
    fr_dtype bias_dtype = p.widened ? FR_F32 : d->bias_dtype;
    if (p.p.bias && bias == NULL) {
        bias = memset(workspace + p.bias_at, 0, (size_t)d->out * fr_dtype_size(bias_dtype));
    } else if (p.p.bias && bias_dtype != d->bias_dtype) {
        fri_cpu_widen(d->bias_dtype, d->out, bias, (float *)(void *)(workspace + p.bias_at));
        bias = workspace + p.bias_at;
    }
    if (p.widened) return run_widened(d->dtype, &p, a, b, bias, c, workspace);
    return fri_product_run(&p.whole, a, b, bias, c, workspace + p.product_at);
}

static fr_status workspace_of(const fri_linear_desc *d, fri_pass pass, size_t *bytes) {
    plan p;
    fr_status s = make_plan(d, pass, &p);
    if (s >= 0) *bytes = p.bytes;
    return s;
}

/* ---- the kernels ----------------------------------------------------------------------------------------- */

fr_status fri_cpu_linear_forward_workspace(const fri_linear_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_FORWARD, bytes);
}

fr_status fri_cpu_linear_forward(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *w,
                                 const void *b, void *y) {
    return run(e, d, FRI_PASS_FORWARD, x, w, b, y);
}

fr_status fri_cpu_linear_backward_input_workspace(const fri_linear_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_BACKWARD_INPUT, bytes);
}

fr_status fri_cpu_linear_backward_input(const fri_exec *e, const fri_linear_desc *d, const void *w, const void *dy,
                                        void *dx) {
    return run(e, d, FRI_PASS_BACKWARD_INPUT, dy, w, NULL, dx);
}

fr_status fri_cpu_linear_backward_weight_workspace(const fri_linear_desc *d, size_t *bytes) {
    return workspace_of(d, FRI_PASS_BACKWARD_WEIGHT, bytes);
}

fr_status fri_cpu_linear_backward_weight(const fri_exec *e, const fri_linear_desc *d, const void *x, const void *dy,
                                         void *dw, void *db) {
    FRI_TRY(db != NULL ? fri_cpu_linear_backward_bias(e, d, dy, db) : FR_OK);
    return run(e, d, FRI_PASS_BACKWARD_WEIGHT, dy, x, NULL, dw);
}

fr_status fri_cpu_linear_backward_bias(const fri_exec *e, const fri_linear_desc *d, const void *dy, void *db) {
    fr_status s = fri_cpu_accepts("linear_backward_bias", d->dtype);
    if (s >= 0) fri_cpu_sum_rows(d->dtype, d->n, d->out, dy, d->bias_dtype, db);
    return s;
}
