/* product.c - the choice between the library's product and ours, and how ours is cut for threads. */
#include "cpu/product.h"

#include <omp.h>
#include <string.h>

#include "cpu/cpu.h"

extern const fri_sweep_kernel fri_sweep_loops;
#if defined(__x86_64__)
extern const fri_sweep_kernel fri_sweep_loops_v3, fri_sweep_loops_v4;
#endif

/* As wide as this processor's vectors. */
static const fri_sweep_kernel *loops(void) {
#if defined(__x86_64__)
    if (fri_dnnl_lanes() == FRI_LANES_AVX512) return &fri_sweep_loops_v4;
    if (fri_dnnl_lanes() == FRI_LANES_AVX2) return &fri_sweep_loops_v3;
#endif
    return &fri_sweep_loops;
}

static size_t scratch_of(const fri_sweep_kernel *k) {
    return (k->scratch + 63) / 64 * 64;
}

/* ---- sweeps ------------------------------------------------------------------------------------------------ */

size_t fri_sweep_bytes(void) {
    return scratch_of(loops()) * (size_t)fr_threads_get();
}

/* Part i of `parts` of n, in whole tiles of `tile`. */
static void cut(int64_t n, int64_t tile, int64_t i, int64_t parts, int64_t *first, int64_t *end) {
    const int64_t tiles = fri_ceil_div(n, tile);
    *first = fri_min_i64(n, i * tiles / parts * tile);
    *end = fri_min_i64(n, (i + 1) * tiles / parts * tile);
}

void fri_sweep_run(const fri_sweep *s, bool pixels, char *workspace) {
    enum { LEAST = 1 << 18 }; /* multiplications of a thread that are worth waking it */
    const fri_sweep_kernel *k = loops();
    const int64_t grid = s->images * s->grid_h * s->grid_w;
    const int64_t rows = pixels ? s->depth : grid, columns = pixels ? s->columns * s->taps : s->columns;
    const int64_t work = grid * s->depth * s->columns * s->taps;
    const int64_t row_tiles = fri_ceil_div(rows, k->rows), column_tiles = fri_ceil_div(columns, k->columns);
    int64_t parts = fri_min_i64(fr_threads_get(), fri_max_i64(1, work / LEAST));
    /* A thread packs B for its rows: columns are cut where there are enough, or where rows are few. */
    const bool by_columns = column_tiles % parts == 0 || column_tiles >= 4 * parts || column_tiles >= row_tiles;
    parts = fri_min_i64(parts, by_columns ? column_tiles : row_tiles);
#pragma omp parallel for schedule(static, 1) num_threads((int)parts) if (parts > 1)
    for (int64_t i = 0; i < parts; i++) {
        fri_sweep_part part = {0, rows, 0, columns};
        if (by_columns)
            cut(columns, k->columns, i, parts, &part.column, &part.column_end);
        else
            cut(rows, k->rows, i, parts, &part.row, &part.row_end);
        (pixels ? k->run_pixels : k->run)(s, &part, workspace + (size_t)i * scratch_of(k));
    }
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* The library's kernels that are taken for f32: a row's bits do not depend on the number of rows in brg. oneDNN 3 cuts
 * a sum over 1,024 in two unless there is one row: such sums are ours. */
static bool is_taken(const fri_matmul_desc *d, const fri_dnnl_op *op) {
    enum { DEEP = 1024 };
    char version[64];
    if (d->a_dtype != FR_F32) return true;
    fri_dnnl_version(version, sizeof version);
    if (d->a_col == 1 && d->k >= DEEP && strncmp(version, "oneDNN 2", 8) != 0) return false;
    return fri_dnnl_lanes() == FRI_LANES_AVX512 && strncmp(fri_dnnl_name(op, FRI_DNNL_PLAIN), "brg", 3) == 0;
}

static int64_t batch_threads(void) {
    return fri_min_i64(fr_threads_get(), FRI_BATCH_THREADS);
}

fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p) {
    const bool f32 = d->a_dtype == FR_F32 && d->b_dtype == FR_F32 && d->c_dtype == FR_F32;
    const bool ours = f32 && (d->a_col == 1 || (d->b_col == 1 && !d->bias));
    *p = (fri_product){.d = *d};
    if (!f32 || fri_dnnl_lanes() == FRI_LANES_AVX512) FRI_TRY(fri_dnnl_matmul(d, &p->op));
    if (p->op != NULL && !is_taken(d, p->op)) p->op = NULL;
    p->there = p->op != NULL || ours;
    if (p->op != NULL)
        p->bytes = fri_dnnl_scratch_bytes(p->op);
    else if (ours)
        p->bytes = scratch_of(loops()) * (size_t)(d->alone ? 1 : d->batch > 0 ? batch_threads() : fr_threads_get());
    return FR_OK;
}

const char *fri_product_name(const fri_product *p) {
    return p->op != NULL ? fri_dnnl_name(p->op, FRI_DNNL_PLAIN) : "own";
}

/* A matrix is a map of one row of pixels. A^T has its pixels, which are summed over, in rows. */
static fri_sweep sweep_of(const fri_matmul_desc *d, const float *a, const float *b, const float *bias, float *c) {
    static const fri_sweep_tap here;
    const bool turned = d->a_col != 1;
    fri_sweep s = {.images = 1,
                   .grid_h = 1,
                   .grid_w = turned ? d->k : d->m,
                   .depth = turned ? d->m : d->k,
                   .columns = d->n,
                   .taps = 1,
                   .tap = &here,
                   .a = turned ? b : a,
                   .a_h = 1,
                   .a_w = turned ? d->k : d->m,
                   .a_pitch = turned ? d->b_row : d->a_row,
                   .step_h = 1,
                   .step_w = 1,
                   .b = turned ? a : b,
                   .b_row = turned ? d->a_col : d->b_row,
                   .b_col = turned ? 1 : d->b_col,
                   .c = c,
                   .c_h = 1,
                   .c_w = d->m,
                   .c_pitch = d->c_row,
                   .c_step_h = 1,
                   .c_step_w = 1,
                   .bias = d->bias ? bias : NULL,
                   .add = d->accum == FRI_ADD};
    return s;
}

static void run_own(const fri_product *p, const float *a, const float *b, const float *bias, float *c,
                    char *workspace) {
    const fri_matmul_desc *d = &p->d;
    const fri_sweep_kernel *k = loops();
    if (d->batch == 0 && !d->alone) {
        const fri_sweep s = sweep_of(d, a, b, bias, c);
        fri_sweep_run(&s, d->a_col != 1, workspace);
        return;
    }
    const int threads = d->alone ? 1 : (int)batch_threads();
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < fri_max_i64(1, d->batch); i++) {
        const fri_sweep s = sweep_of(d, a + i * d->a_batch, b + i * d->b_batch, bias, c + i * d->c_batch);
        const fri_sweep_part all = {0, d->m, 0, d->n};
        (d->a_col != 1
             ? k->run_pixels
             : k->run)(&s, &all, workspace + (threads > 1 ? (size_t)omp_get_thread_num() : 0) * scratch_of(k));
    }
}

fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace) {
    if (p->op != NULL) return fri_dnnl_run(p->op, a, b, bias, c, workspace);
    run_own(p, a, b, bias, c, workspace);
    return FR_OK;
}
