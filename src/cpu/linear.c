/* linear.c - the fully connected kernels of f32, f16 and bf16 data: three matrix products.
 *
 *   forward          y  [n, out]  = x [n, in] w^T + b
 *   backward input   dx [n, in]   = dy [n, out] w
 *   backward weight  dw [out, in] = dy^T x
 *
 * f32 is one product in place. Half data is widened: C is cut into tiles whose f32 copies, and those of their rows of A
 * and columns of B, fit the target. Tiles follow the shape only. A batch cut in two gives the same y and dx
 * (product.h). */
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
    int64_t m, n; /* of a tile of C */
    size_t bias_at, a_at, b_at, c_at, product_at, bytes;
} plan;

/* f32 product of a tile of m x n with dense copies. */
static void plan_tile(const fri_matmul_desc *p, int64_t m, int64_t n, fri_product *made) {
    fri_matmul_desc d = {m, n, p->k, p->k, 1, n, 1, n, .bias = p->bias};
    if (p->a_col != 1) d.a_row = 1, d.a_col = m;
    if (p->b_col != 1) d.b_row = 1, d.b_col = p->k;
    fri_product_plan(&d, made);
}

/* The largest of 1 .. all whose `fixed + per * size` elements fit. */
static int64_t fitting(int64_t all, int64_t fit, int64_t fixed, int64_t per) {
    return fri_min_i64(all, fri_max_i64(1, (fit - fixed) / per));
}

/* Scratch for every tile shape: full or remaining m and n. */
static void tile_scratch(const plan *p, size_t *scratch) {
    for (int i = 0; i < 4; i++) {
        const int64_t m = i & 1 ? p->p.m % p->m : p->m, n = i & 2 ? p->p.n % p->n : p->n;
        fri_product tile = {.bytes = 0};
        if (m > 0 && n > 0) plan_tile(&p->p, m, n, &tile);
        if (tile.bytes > *scratch) *scratch = tile.bytes;
    }
}

static void plan_widened(plan *p) {
    const fri_matmul_desc *q = &p->p;
    size_t scratch = 0;
    int64_t fit = TILE_BYTES / (int64_t)sizeof(float);
    p->widened = true;
    p->m = fitting(q->m, fit / 4, 0, q->k); /* a quarter of the space for A, the rest for B and C */
    p->n = fitting(q->n, fit, p->m * q->k, q->k + p->m);
    p->m = fitting(q->m, fit, p->n * q->k, q->k + p->n);
    if (q->bias) p->bias_at = fri_part(&p->bytes, (size_t)q->n * sizeof(float));
    p->a_at = fri_part(&p->bytes, (size_t)(p->m * q->k) * sizeof(float));
    p->b_at = fri_part(&p->bytes, (size_t)(q->k * p->n) * sizeof(float));
    p->c_at = fri_part(&p->bytes, (size_t)(p->m * p->n) * sizeof(float));
    tile_scratch(p, &scratch);
    p->product_at = fri_part(&p->bytes, scratch);
}

static fr_status make_plan(const fri_linear_desc *d, fri_pass pass, plan *p) {
    memset(p, 0, sizeof *p);
    p->p = fri_product_of_layer(pass, d->n, d->in, d->out);
    fr_status s = fri_cpu_accepts(pass_name[pass], d->dtype);
    if (s < 0 || d->n == 0) return s;
    if (d->dtype == FR_F32 && d->bias_dtype == FR_F32) {
        fri_product_plan(&p->p, &p->whole);
        if (p->p.bias) p->bias_at = fri_part(&p->bytes, (size_t)d->out * sizeof(float));
        p->product_at = fri_part(&p->bytes, p->whole.bytes);
    } else {
        plan_widened(p);
    }
    return FR_OK;
}

/* Converts vectors of k terms, in stored order. The vectors are `next` elements apart and their terms `term`; one of
 * both is 1. */
static void widen_tile(fr_dtype t, const void *base, int64_t next, int64_t term, int64_t first, int64_t vectors,
                       int64_t k, float *out) {
    const bool rows = term == 1;
    fri_cpu_widen_rows(t, rows ? vectors : k, rows ? k : vectors, fri_cpu_at(t, base, first * next), rows ? next : term,
                       out);
}

static void run_widened(fr_dtype t, const plan *p, const void *a, const void *b, const float *bias, void *c,
                        char *workspace) {
    const fri_matmul_desc *q = &p->p;
    float *at = (float *)(void *)(workspace + p->a_at), *bt = (float *)(void *)(workspace + p->b_at);
    float *ct = (float *)(void *)(workspace + p->c_at);
    for (int64_t j = 0; j < q->n; j += p->n) {
        int64_t n = fri_min_i64(p->n, q->n - j);
        for (int64_t i = 0; i < q->m; i += p->m) {
            int64_t m = fri_min_i64(p->m, q->m - i);
            fri_product tile;
            plan_tile(q, m, n, &tile);
            if (p->m < q->m || j == 0) widen_tile(t, a, q->a_row, q->a_col, i, m, q->k, at);
            if (i == 0) widen_tile(t, b, q->b_col, q->b_row, j, n, q->k, bt);
            fri_product_run(&tile, at, bt, bias != NULL ? bias + j : NULL, ct, workspace + p->product_at);
            fri_cpu_narrow_rows(t, m, n, ct, (char *)c + (size_t)(i * q->n + j) * fr_dtype_size(t), q->n);
        }
    }
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
    if (p.widened)
        run_widened(d->dtype, &p, a, b, bias, c, workspace);
    else
        fri_product_run(&p.whole, a, b, bias, c, workspace + p.product_at);
    return FR_OK;
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
