/* product.c - divides products (igemm.h) among threads. */
#include "cpu/product.h"

#include "cpu/cpu.h"
#include "cpu/isa.h"

extern const fri_igemm_kernel fri_igemm_loops;
#if defined(__x86_64__)
extern const fri_igemm_kernel fri_igemm_loops_v3, fri_igemm_loops_v4;
#endif

/* Loops for the width of this processor's vectors. */
static const fri_igemm_kernel *loops(void) {
#if defined(__x86_64__)
    if (fri_cpu_lanes() == FRI_LANES_AVX512) return &fri_igemm_loops_v4;
    if (fri_cpu_lanes() == FRI_LANES_AVX2) return &fri_igemm_loops_v3;
#endif
    return &fri_igemm_loops;
}

static size_t scratch_of(const fri_igemm_kernel *k) {
    return (k->scratch + 63) / 64 * 64;
}

/* ---- indirect products ------------------------------------------------------------------------------------- */

size_t fri_igemm_bytes(void) {
    return scratch_of(loops()) * (size_t)fr_threads_get();
}

/* First and end of part i when n is divided into `parts` parts of whole tiles. */
static void cut(int64_t n, int64_t tile, int64_t i, int64_t parts, int64_t *first, int64_t *end) {
    const int64_t tiles = fri_ceil_div(n, tile);
    *first = fri_min_i64(n, i * tiles / parts * tile);
    *end = fri_min_i64(n, (i + 1) * tiles / parts * tile);
}

typedef struct igemm_loop {
    const fri_igemm *s;
    const fri_igemm_kernel *k;
    bool pixels, by_columns;
    int64_t rows, columns, parts;
    char *workspace;
} igemm_loop;

static void part_piece(const void *context, int64_t i, int thread) {
    const igemm_loop *l = context;
    fri_igemm_part part = {0, l->rows, 0, l->columns};
    if (l->by_columns)
        cut(l->columns, l->k->columns, i, l->parts, &part.column, &part.column_end);
    else
        cut(l->rows, l->k->rows, i, l->parts, &part.row, &part.row_end);
    (l->pixels ? l->k->run_pixels : l->k->run)(l->s, &part, l->workspace + (size_t)i * scratch_of(l->k));
}

void fri_igemm_run(const fri_igemm *s, bool pixels, char *workspace) {
    enum { LEAST = 1 << 18 }; /* multiplications for which another thread is worth waking */
    const fri_igemm_kernel *k = loops();
    const int64_t grid = s->images * s->grid_h * s->grid_w;
    const int64_t rows = pixels ? s->depth : grid, columns = pixels ? s->columns * s->taps : s->columns;
    const int64_t work = grid * s->depth * s->columns * s->taps;
    const int64_t row_tiles = fri_ceil_div(rows, k->rows), column_tiles = fri_ceil_div(columns, k->columns);
    int64_t parts = fri_min_i64(fr_threads_get(), fri_max_i64(1, work / LEAST));
    /* Each thread packs B for its own rows, or A for its own columns of a sum over pixels. */
    const bool few_rows = pixels ? row_tiles < 2 * parts : column_tiles >= row_tiles;
    const bool by_columns = few_rows || (!pixels && (column_tiles % parts == 0 || column_tiles >= 4 * parts));
    parts = fri_min_i64(parts, by_columns ? column_tiles : row_tiles);
    fri_parallel(parts, (int)parts, part_piece,
                 &(igemm_loop){s, k, pixels, by_columns, rows, columns, parts, workspace});
}

/* ---- products ---------------------------------------------------------------------------------------------- */

static int64_t batch_threads(void) {
    return fri_min_i64(fr_threads_get(), FRI_BATCH_THREADS);
}

fri_matmul_desc fri_product_of_layer(fri_pass pass, fr_dtype t, fr_dtype bias_t, int64_t rows, int64_t in,
                                     int64_t out) {
    fri_matmul_desc d = {t, t, t, bias_t, .m = rows, .n = in, .a_col = 1, .b_row = in, .b_col = 1, .c_row = in};
    switch (pass) {
    case FRI_PASS_FORWARD:
        d.bias = true;
        d.k = d.a_row = in, d.n = d.c_row = out, d.b_row = 1, d.b_col = in;
        break;
    case FRI_PASS_BACKWARD_INPUT: d.k = d.a_row = out; break;
    case FRI_PASS_BACKWARD_WEIGHT: d.k = rows, d.m = d.a_col = out, d.a_row = 1; break;
    }
    return d;
}

fr_status fri_product_plan(const fri_matmul_desc *d, fri_product *p) {
    const bool f32 = d->a_dtype == FR_F32 && d->b_dtype == FR_F32 && d->c_dtype == FR_F32;
    *p = (fri_product){.d = *d};
    p->possible = f32 && (!d->bias || d->bias_dtype == FR_F32) && (d->a_col == 1 || (d->b_col == 1 && !d->bias));
    const int64_t workers = d->alone ? 1 : d->batch > 0 ? batch_threads() : fr_threads_get();
    if (p->possible) p->bytes = scratch_of(loops()) * (size_t)workers;
    return FR_OK;
}

/* A matrix is a map of one row of pixels. If A is transposed, the sum runs over pixels, and B takes the place of A. */
static fri_igemm igemm_of(const fri_matmul_desc *d, const float *a, const float *b, const float *bias, float *c) {
    static const fri_igemm_tap here;
    const bool turned = d->a_col != 1;
    fri_igemm s = {.images = 1,
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

typedef struct batch_loop {
    const fri_matmul_desc *d;
    const float *a, *b, *bias;
    float *c;
    char *workspace;
} batch_loop;

static void batch_piece(const void *context, int64_t i, int thread) {
    const batch_loop *l = context;
    const fri_matmul_desc *d = l->d;
    const fri_igemm_kernel *k = loops();
    const fri_igemm s = igemm_of(d, l->a + i * d->a_batch, l->b + i * d->b_batch, l->bias, l->c + i * d->c_batch);
    const fri_igemm_part all = {0, d->m, 0, d->n};
    (d->a_col != 1 ? k->run_pixels : k->run)(&s, &all, l->workspace + (size_t)thread * scratch_of(k));
}

fr_status fri_product_run(const fri_product *p, const void *a, const void *b, const void *bias, void *c,
                          char *workspace) {
    const fri_matmul_desc *d = &p->d;
    if (d->batch == 0 && !d->alone) {
        const fri_igemm s = igemm_of(d, a, b, bias, c);
        fri_igemm_run(&s, d->a_col != 1, workspace);
        return FR_OK;
    }
    fri_parallel(fri_max_i64(1, d->batch), d->alone ? 1 : (int)batch_threads(), batch_piece,
                 &(batch_loop){d, a, b, bias, c, workspace});
    return FR_OK;
}
