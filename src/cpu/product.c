/* product.c - if the bits of the library's product depend on the number of rows (fri_dnnl_rows_depend), each thread
 * computes a block of C's columns in two products: one of whole groups of FRI_DNNL_ROWS rows, and one of the
 * remaining rows, copied and padded with zeros. */
#include "cpu/product.h"

#include <omp.h>
#include <string.h>

#include "cpu/conv2d_engine.h"
#include "cpu/cpu.h"
#include "cpu/team.h"

/* Columns per block are a multiple of COLUMNS; the last block has at least COLUMNS if C does. */
enum { COLUMNS = 16 };

static int64_t whole_rows(const fri_product *p) {
    return p->d.m / FRI_DNNL_ROWS * FRI_DNNL_ROWS;
}

static int64_t columns_of(const fri_product *p, bool last) {
    return last ? p->d.n - (p->blocks - 1) * p->block : p->block;
}

static fr_status plan_part(fri_product *p, bool last, bool copied) {
    fri_matmul_desc d = p->d;
    d.m = copied ? FRI_DNNL_ROWS : whole_rows(p), d.n = columns_of(p, last);
    if (copied) d.a_row = d.k;
    d.alone = true;
    if (d.m == 0 || (!last && p->blocks == 1)) return FR_OK;
    const fri_dnnl_op **op = &p->part[last][copied];
    FRI_TRY(fri_dnnl_matmul(&d, op));
    if (*op == NULL) return fr_fail(FR_EUNSUPPORTED, "oneDNN has no product of %lld columns", (long long)d.n);
    if (fri_dnnl_scratch_bytes(*op) > p->scratch) p->scratch = fri_dnnl_scratch_bytes(*op);
    return FR_OK;
}

static fr_status plan_blocks(fri_product *p) {
    const fri_matmul_desc *d = &p->d;
    p->block = d->alone ? d->n : fri_ceil_div(fri_ceil_div(d->n, fr_threads_get()), COLUMNS) * COLUMNS;
    p->blocks = fri_ceil_div(d->n, p->block);
    if (p->blocks > 1 && columns_of(p, true) < COLUMNS) p->blocks--;
    for (int i = 0; i < 4; i++) FRI_TRY(plan_part(p, i / 2, i % 2));
    if (d->m == whole_rows(p)) return FR_OK;
    p->rows_at = fri_part(&p->bytes, (size_t)(FRI_DNNL_ROWS * d->k) * fr_dtype_size(d->a_dtype));
    p->result_at = fri_part(&p->bytes, (size_t)(FRI_DNNL_ROWS * d->c_row) * fr_dtype_size(d->c_dtype));
    return FR_OK;
}

fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p) {
    *p = (fri_product){.d = *d};
    FRI_TRY(fri_dnnl_matmul(d, &p->op));
    if (p->op == NULL) return FR_OK;
    if (d->a_col == 1 && fri_dnnl_rows_depend(p->op, d->m))
        FRI_TRY(plan_blocks(p));
    else
        p->scratch = fri_dnnl_scratch_bytes(p->op);
    p->scratch = (p->scratch + 63) / 64 * 64;
    p->scratch_at = fri_part(&p->bytes, p->scratch * (size_t)fri_max_i64(1, p->blocks));
    return FR_OK;
}

static fr_status run_block(const fri_product *p, int64_t i, const void *a, const void *b, const void *bias, void *c,
                           char *workspace) {
    const fri_matmul_desc *d = &p->d;
    const bool last = i == p->blocks - 1;
    const int64_t first = i * p->block, whole = whole_rows(p);
    const size_t element = fr_dtype_size(d->c_dtype);
    char *scratch = workspace + p->scratch_at + (size_t)i * p->scratch;
    char *to = (char *)c + (size_t)first * element;
    b = (const char *)b + (size_t)(first * d->b_col) * fr_dtype_size(d->b_dtype);
    if (bias != NULL) bias = (const char *)bias + (size_t)first * fr_dtype_size(d->bias_dtype);
    if (whole > 0) FRI_TRY(fri_dnnl_run(p->part[last][false], a, b, bias, to, scratch));
    if (whole == d->m) return FR_OK;
    char *result = workspace + p->result_at + (size_t)first * element;
    const size_t pitch = (size_t)d->c_row * element, line = (size_t)columns_of(p, last) * element;
    to += (size_t)whole * pitch;
    for (size_t j = 0; d->accum == FRI_ADD && j < (size_t)(d->m - whole); j++)
        memcpy(result + j * pitch, to + j * pitch, line);
    FRI_TRY(fri_dnnl_run(p->part[last][true], workspace + p->rows_at, b, bias, result, scratch));
    for (size_t j = 0; j < (size_t)(d->m - whole); j++) memcpy(to + j * pitch, result + j * pitch, line);
    return FR_OK;
}

fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace) {
    const fri_matmul_desc *d = &p->d;
    if (p->blocks == 0) return fri_dnnl_run(p->op, a, b, bias, c, workspace + p->scratch_at);
    const size_t line = (size_t)d->k * fr_dtype_size(d->a_dtype);
    const int64_t whole = whole_rows(p);
    const char *rest = (const char *)a + (size_t)(whole * d->a_row) * fr_dtype_size(d->a_dtype);
    for (size_t j = 0; whole < d->m && j < FRI_DNNL_ROWS; j++) {
        char *to = workspace + p->rows_at + j * line;
        if ((int64_t)j < d->m - whole)
            memcpy(to, rest + j * (size_t)d->a_row * fr_dtype_size(d->a_dtype), line);
        else
            memset(to, 0, line);
    }
    if (d->alone) return run_block(p, 0, a, b, bias, c, workspace);
    fri_team_failure f = {FR_OK, ""};
#pragma omp parallel num_threads((int)p->blocks)
    {
        omp_set_num_threads(1); /* otherwise the library would divide products for more threads */
#pragma omp for schedule(static, 1)
        for (int64_t i = 0; i < p->blocks; i++) fri_team_note(&f, run_block(p, i, a, b, bias, c, workspace));
    }
    return fri_team_told(&f);
}
