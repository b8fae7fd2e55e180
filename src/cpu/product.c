/* product.c - divides products (igemm.h) among threads. */
#include "cpu/product.h"

#include "cpu/cpu.h"
#include "cpu/isa.h"

extern const fri_igemm_kernel fri_igemm_loops;
#if defined(__x86_64__)
extern const fri_igemm_kernel fri_igemm_loops_v3, fri_igemm_loops_v4, fri_igemm_loops_bf16;
#endif

bool fri_igemm_reads_bf16(void) {
#if defined(FRI_HAVE_BF16)
    return fri_cpu_isa() >= FRI_ISA_AVX512_BF16;
#else
    return false;
#endif
}

static const fri_igemm_kernel *bf16_loops(void) {
#if defined(FRI_HAVE_BF16)
    return &fri_igemm_loops_bf16;
#else
    return NULL;
#endif
}

/* Loops for the width of this processor's vectors. */
static const fri_igemm_kernel *loops(void) {
#if defined(__x86_64__)
    if (fri_cpu_lanes() == FRI_LANES_AVX512) return &fri_igemm_loops_v4;
    if (fri_cpu_lanes() == FRI_LANES_AVX2) return &fri_igemm_loops_v3;
#endif
    return &fri_igemm_loops;
}

static size_t scratch_of(const fri_igemm *s, bool pixels) {
    const fri_igemm_scratch n = fri_igemm_scratch_of(s, pixels);
    return ((size_t)n.pointers * sizeof(float *) + (size_t)(n.panel + n.left) * sizeof(float) + 63) / 64 * 64;
}

/* ---- indirect products ------------------------------------------------------------------------------------- */

/* The most tasks of a product. */
static int64_t tasks_of(const fri_igemm *s) {
    enum { MIN = 1 << 18 }; /* multiplications for which another thread is worth waking */
    const int64_t work = s->images * s->grid_h * s->grid_w * s->depth * s->columns * s->taps;
    return fri_min_i64(fr_threads_get(), fri_max_i64(1, work / MIN));
}

size_t fri_igemm_bytes(const fri_igemm *s, bool pixels) {
    return scratch_of(s, pixels) * (size_t)tasks_of(s);
}

size_t fri_igemm_room(int64_t rows, int64_t terms, int64_t columns, size_t limit) {
    enum { MAX = 8 << 20 };
    const size_t run = FRI_IGEMM_RUN, panel = FRI_IGEMM_COLUMNS;
    const size_t wide = ((size_t)columns + panel - 1) / panel * panel * sizeof(float);
    const size_t max = limit > 0 && limit < MAX ? limit : MAX;
    if (rows <= FRI_IGEMM_BLOCK) return 0;
    if ((size_t)terms * wide <= max) return (size_t)terms * wide;
    return max / (run * wide) * run * wide; /* slabs of whole runs */
}

/* First and end of part i when n is divided into `parts` parts of whole tiles. */
static void cut(int64_t n, int64_t tile, int64_t i, int64_t parts, int64_t *first, int64_t *end) {
    const int64_t tiles = fri_ceil_div(n, tile);
    *first = fri_min_i64(n, i * tiles / parts * tile);
    *end = fri_min_i64(n, (i + 1) * tiles / parts * tile);
}

/* A product on threads: each packs and computes its part of the columns, or computes its part of the rows. */
typedef struct igemm_loop {
    const fri_igemm *s;
    const fri_igemm_kernel *k;
    bool pixels, by_columns;
    int64_t rows, panels, parts;
    fri_igemm_part slab;
    char *scratch;
    size_t scratch_bytes;
} igemm_loop;

static void pack_piece(const void *context, int64_t i, int thread) {
    const igemm_loop *l = context;
    fri_igemm_part part = l->slab;
    cut(l->panels, 1, i, l->parts, &part.panel, &part.panel_end);
    l->k->pack(l->s, &part);
}

static void part_piece(const void *context, int64_t i, int thread) {
    const igemm_loop *l = context;
    fri_igemm_part part = l->slab;
    part.row = 0, part.row_end = l->rows, part.panel = 0, part.panel_end = l->panels;
    if (l->by_columns)
        cut(l->panels, 1, i, l->parts, &part.panel, &part.panel_end);
    else
        cut(l->rows, l->k->rows, i, l->parts, &part.row, &part.row_end);
    if (l->by_columns && part.packed != NULL) l->k->pack(l->s, &part);
    (l->pixels ? l->k->run_pixels : l->k->run)(l->s, &part, l->scratch + (size_t)i * l->scratch_bytes);
}

/* Computes in slabs: the runs whose weights fit the room. */
static void run_slabs(igemm_loop *l, size_t room, char *workspace) {
    const int64_t floats = (int64_t)(room / sizeof(float)), columns = fri_ceil_div(l->s->columns, FRI_IGEMM_COLUMNS);
    fri_igemm_chunk next = {0};
    l->slab.packed = (float *)(void *)workspace;
    for (bool more = fri_igemm_next(l->s, &next); more;) {
        int64_t taken = 0;
        fri_igemm_chunk last = l->slab.before;
        for (l->slab.chunks = 0; more; l->slab.chunks++) {
            taken += next.taps * next.depth * columns * FRI_IGEMM_COLUMNS;
            if (taken > floats) break;
            last = next;
            more = fri_igemm_next(l->s, &next);
        }
        if (!l->by_columns) fri_parallel(l->parts, (int)l->parts, pack_piece, l);
        fri_parallel(l->parts, (int)l->parts, part_piece, l);
        l->slab.before = last;
    }
}

void fri_igemm_run(const fri_igemm *s, bool pixels, size_t room, char *workspace) {
    const fri_igemm_kernel *k = s->bf16 ? bf16_loops() : loops();
    const int64_t grid = s->images * s->grid_h * s->grid_w;
    const int64_t rows = pixels ? s->depth : grid, columns = pixels ? s->columns * s->taps : s->columns;
    const int64_t row_tiles = fri_ceil_div(rows, k->rows), panels = fri_ceil_div(columns, k->columns);
    int64_t parts = tasks_of(s);
    const bool by_columns = row_tiles < 2 * parts || panels >= row_tiles || panels % parts == 0 || panels >= 4 * parts;
    parts = fri_max_i64(1, fri_min_i64(parts, by_columns ? panels : row_tiles));
    igemm_loop l =
        {s, k, pixels, by_columns, rows, panels, parts, {.chunks = INT64_MAX}, workspace + room, scratch_of(s, pixels)};
    const bool many = (by_columns ? rows : rows / parts) > FRI_IGEMM_BLOCK;
    if (room > 0 && many && !pixels && s->taps > 0)
        run_slabs(&l, room, workspace);
    else
        fri_parallel(parts, (int)parts, part_piece, &l);
}

/* ---- products ---------------------------------------------------------------------------------------------- */

static int64_t batch_threads(void) {
    return fri_min_i64(fr_threads_get(), FRI_BATCH_THREADS);
}

fri_matmul_desc fri_product_of_layer(fri_pass pass, int64_t rows, int64_t in, int64_t out) {
    fri_matmul_desc d = {.m = rows, .n = in, .a_col = 1, .b_row = in, .b_col = 1, .c_row = in};
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

void fri_product_plan(const fri_matmul_desc *d, fri_product *p) {
    *p = (fri_product){.d = *d};
    const fri_igemm s = igemm_of(d, NULL, NULL, NULL, NULL);
    const bool turned = d->a_col != 1, once = !d->alone && d->batch == 0 && !turned;
    p->scratch = scratch_of(&s, turned);
    p->room = once ? fri_igemm_room(d->m, d->k, d->n, 0) : 0;
    p->bytes = p->room + p->scratch * (size_t)(d->alone ? 1 : d->batch > 0 ? batch_threads() : tasks_of(&s));
}

typedef struct batch_loop {
    const fri_product *p;
    const float *a, *b, *bias;
    float *c;
    char *workspace;
} batch_loop;

static void batch_piece(const void *context, int64_t i, int thread) {
    const batch_loop *l = context;
    const fri_matmul_desc *d = &l->p->d;
    const fri_igemm_kernel *k = loops();
    const fri_igemm s = igemm_of(d, l->a + i * d->a_batch, l->b + i * d->b_batch, l->bias, l->c + i * d->c_batch);
    const fri_igemm_part all = {0, d->m, 0, fri_ceil_div(d->n, k->columns), .chunks = INT64_MAX};
    (d->a_col != 1 ? k->run_pixels : k->run)(&s, &all, l->workspace + (size_t)thread * l->p->scratch);
}

void fri_product_run(const fri_product *p, const float *a, const float *b, const float *bias, float *c,
                     char *workspace) {
    const fri_matmul_desc *d = &p->d;
    if (d->batch == 0 && !d->alone) {
        const fri_igemm s = igemm_of(d, a, b, bias, c);
        fri_igemm_run(&s, d->a_col != 1, p->room, workspace);
        return;
    }
    fri_parallel(fri_max_i64(1, d->batch), d->alone ? 1 : (int)batch_threads(), batch_piece,
                 &(batch_loop){p, a, b, bias, c, workspace});
}
