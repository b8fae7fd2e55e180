/* batchnorm2d.c - batch normalization over rows of channels.
 *
 *     x [rows, c] is cut into tiles:      row chunks x channel blocks of at most C_BLOCK
 *     partial sums [chunks][c] in real    one tile writes one piece of one row of it
 *     per channel, over the chunks        added in order, in f64
 *
 * Mean first, then squared distances: E[x*x] - E[x]^2 cancels where |mean| >> std. A chunk has at most 1024 rows, so
 * that an f32 sum never has more than 1024 terms; the number of chunks depends on the shape only. */
#include "cpu/cpu.h"

#include <string.h>

enum {
    C_BLOCK = 512, /* channels of a tile: their accumulators stay in L1 */
    TILE = 2048,   /* elements of half data converted at a time */
    COMBINE = 64,  /* channels whose partial sums one task adds up */
};

/* ---- tiles ----------------------------------------------------------------------------------------------- */

static int64_t chunk_rows(const fri_batchnorm2d_desc *d) {
    return fri_min_i64(1024, fri_max_i64(32, fri_ceil_div(d->rows, 64)));
}

static int64_t chunks(const fri_batchnorm2d_desc *d) {
    return fri_ceil_div(d->rows, chunk_rows(d));
}

typedef struct tile {
    int64_t row, rows; /* rows row .. row + rows */
    int64_t c, width;  /* channels c .. c + width */
    int64_t chunk;
} tile;

static int64_t tiles(const fri_batchnorm2d_desc *d) {
    return chunks(d) * fri_ceil_div(d->c, C_BLOCK);
}

static tile tile_at(const fri_batchnorm2d_desc *d, int64_t i) {
    int64_t blocks = fri_ceil_div(d->c, C_BLOCK);
    tile t = {.chunk = i / blocks, .c = i % blocks * C_BLOCK};
    t.row = t.chunk * chunk_rows(d);
    t.rows = fri_min_i64(chunk_rows(d), d->rows - t.row);
    t.width = fri_min_i64(C_BLOCK, d->c - t.c);
    return t;
}

/* Rows of a tile that are worked on at a time: all, or what fits the conversion buffer. */
static int64_t step_rows(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? t->rows : fri_max_i64(1, TILE / t->width);
}

/* Distance between rows of what load_rows answers. */
static int64_t pitch(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? d->c : t->width;
}

static const real *load_rows(const fri_batchnorm2d_desc *d, const tile *t, const void *x, int64_t row, int64_t rows,
                             real *buf) {
    if (d->dtype == FRI_REAL_DTYPE) return (const real *)x + row * d->c + t->c;
    if (t->width == d->c) return fri_cpu_load(d->dtype, x, row * d->c, rows * d->c, buf);
    for (int64_t i = 0; i < rows; i++) fri_cpu_load(d->dtype, x, (row + i) * d->c + t->c, t->width, buf + i * t->width);
    return buf;
}

static real *target_rows(const fri_batchnorm2d_desc *d, const tile *t, void *y, int64_t row, real *buf) {
    return d->dtype == FRI_REAL_DTYPE ? (real *)y + row * d->c + t->c : buf;
}

static void store_rows(const fri_batchnorm2d_desc *d, const tile *t, void *y, int64_t row, int64_t rows,
                       const real *values) {
    if (d->dtype == FRI_REAL_DTYPE) return; /* computed in place */
    if (t->width == d->c) {
        fri_cpu_store(d->dtype, y, row * d->c, rows * d->c, values);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        fri_cpu_store(d->dtype, y, (row + i) * d->c + t->c, t->width, values + i * t->width);
}

/* ---- workspace ------------------------------------------------------------------------------------------- */

/* [chunks][c] twice and [c] twice. */
size_t fri_cpu_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    return (size_t)(2 * (chunks(d) + 1) * d->c) * sizeof(real);
}

typedef struct scratch {
    real *partial_a, *partial_b; /* [chunks][c] */
    real *a, *b;                 /* [c] */
} scratch;

static fr_status scratch_of(const fri_exec *e, const fri_batchnorm2d_desc *d, scratch *w) {
    void *memory = NULL;
    FRI_TRY(fri_cpu_workspace(e, "batchnorm2d", fri_cpu_batchnorm2d_workspace(d), &memory));
    w->partial_a = memory;
    if (memory == NULL) return FR_OK; /* no elements */
    w->partial_b = w->partial_a + chunks(d) * d->c;
    w->a = w->partial_b + chunks(d) * d->c;
    w->b = w->a + d->c;
    return FR_OK;
}

/* total[j] = sum over the chunks of partial[.][c + j], width <= COMBINE. */
FRI_CLONES static void combine(int64_t n, int64_t c, int64_t width, int64_t ld, const real *partial, double *total) {
    memset(total, 0, (size_t)width * sizeof *total);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) total[j] += (double)partial[i * ld + c + j];
}

/* ---- statistics ------------------------------------------------------------------------------------------ */

FRI_CLONES static void sum_rows(int64_t rows, int64_t width, int64_t ld, const real *x, real *restrict sum) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *x0 = x + i * ld, *x1 = x0 + ld, *x2 = x1 + ld, *x3 = x2 + ld;
        for (int64_t j = 0; j < width; j++) sum[j] += (x0[j] + x1[j]) + (x2[j] + x3[j]);
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < width; j++) sum[j] += x[i * ld + j];
}

FRI_CLONES static void square_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *mean,
                                   real *restrict sum) {
    int64_t i = 0;
    for (; i + 2 <= rows; i += 2) {
        const real *x0 = x + i * ld, *x1 = x0 + ld;
        for (int64_t j = 0; j < width; j++) {
            real d0 = x0[j] - mean[j], d1 = x1[j] - mean[j];
            sum[j] += d0 * d0 + d1 * d1;
        }
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < width; j++) {
            real d0 = x[i * ld + j] - mean[j];
            sum[j] += d0 * d0;
        }
}

/* One tile's sums of x (mean NULL) or of squared distances from mean. */
static void stats_tile(const fri_batchnorm2d_desc *d, const tile *t, const void *x, const real *mean, real *partial) {
    real buf[TILE], *sum = partial + t->chunk * d->c + t->c;
    int64_t step = step_rows(d, t), ld = pitch(d, t);
    memset(sum, 0, (size_t)t->width * sizeof *sum);
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = load_rows(d, t, x, t->row + i, rows, buf);
        if (mean == NULL)
            sum_rows(rows, t->width, ld, v, sum);
        else
            square_rows(rows, t->width, ld, v, mean + t->c, sum);
    }
}

static void stats_pass(const fri_batchnorm2d_desc *d, const void *x, const real *mean, real *partial) {
#pragma omp parallel for schedule(static) if (d->rows * d->c >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < tiles(d); i++) {
        const tile t = tile_at(d, i);
        stats_tile(d, &t, x, mean, partial);
    }
}

/* Means and sums of squared distances of all processes, merged in the order of ranks (Chan, Golub, LeVeque 1979). */
static fr_status sync_stats(const fri_batchnorm2d_desc *d, const scratch *w, real *m, real *is, real *rm, real *rv) {
    const fri_statistics_sync *sync = d->sync;
    const int64_t n = 2 * d->c + 1;
    const double *all = NULL;
    double *mine = sync->room(sync->ctx, n);
    if (mine == NULL) return FR_ENOMEM;
    for (int64_t c = 0; c < d->c; c += COMBINE)
        combine(chunks(d), c, fri_min_i64(COMBINE, d->c - c), d->c, w->partial_a, mine + d->c + c);
    for (int64_t k = 0; k < d->c; k++) mine[k] = (double)m[k];
    mine[n - 1] = (double)d->rows;
    fr_status s = sync->gather(sync->ctx, n, &all);
    for (int64_t k = 0; k < d->c && s == FR_OK; k++) {
        double rows = 0, mean = 0, squares = 0;
        for (int r = 0; r < sync->ranks; r++) {
            const double *of = all + r * n;
            const double delta = of[k] - mean, together = rows + of[n - 1];
            mean += delta * (of[n - 1] / together);
            squares += of[d->c + k] + delta * delta * (rows * of[n - 1] / together);
            rows = together;
        }
        m[k] = (real)mean;
        is[k] = (real)(1 / sqrt(squares / rows + d->eps));
        fri_running_update(rm, k, d->momentum, (double)m[k], 1);
        fri_running_update(rv, k, d->momentum, squares, rows - 1);
    }
    return s;
}

fr_status fri_cpu_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, void *mean,
                                    void *invstd, void *running_mean, void *running_var) {
    scratch w = {0};
    real *m = mean, *is = invstd, *rm = running_mean, *rv = running_var;
    double total[COMBINE];
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    FRI_TRY(scratch_of(e, d, &w));
    const double rows = (double)d->rows;

    stats_pass(d, x, NULL, w.partial_a);
    for (int64_t c = 0; c < d->c; c += COMBINE) {
        int64_t width = fri_min_i64(COMBINE, d->c - c);
        combine(chunks(d), c, width, d->c, w.partial_a, total);
        for (int64_t j = 0; j < width; j++) m[c + j] = (real)(total[j] / rows);
    }
    stats_pass(d, x, m, w.partial_a);
    if (d->batches != NULL) ++*d->batches;
    if (d->sync != NULL) return sync_stats(d, &w, m, is, rm, rv);
    for (int64_t c = 0; c < d->c; c += COMBINE) {
        int64_t width = fri_min_i64(COMBINE, d->c - c);
        combine(chunks(d), c, width, d->c, w.partial_a, total);
        for (int64_t j = 0; j < width; j++) {
            int64_t k = c + j;
            is[k] = (real)(1 / sqrt(total[j] / rows + d->eps));
            fri_running_update(rm, k, d->momentum, (double)m[k], 1);
            fri_running_update(rv, k, d->momentum, total[j], rows - 1);
        }
    }
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_finalize(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *sums, void *mean,
                                       void *invstd, void *running_mean, void *running_var) {
    const real *sum = sums, *square = sum + d->c;
    real *m = mean, *is = invstd, *rm = running_mean, *rv = running_var;
    const double rows = (double)d->rows;
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    for (int64_t k = 0; k < d->c; k++) {
        const double variance = fri_batchnorm_variance((double)sum[k], (double)square[k], rows);
        m[k] = (real)((double)sum[k] / rows);
        is[k] = (real)(1 / sqrt(variance + d->eps));
        fri_running_update(rm, k, d->momentum, (double)m[k], 1);
        fri_running_update(rv, k, d->momentum, variance * rows, rows - 1);
    }
    if (d->batches != NULL) ++*d->batches;
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var, void *invstd) {
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    for (int64_t j = 0; j < d->c; j++) ((real *)invstd)[j] = (real)(1 / sqrt((double)((const real *)var)[j] + d->eps));
    return FR_OK;
}

/* ---- forward --------------------------------------------------------------------------------------------- */

FRI_CLONES static void apply_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *mean,
                                  const real *scale, const real *beta, fri_rectifier relu, real *y) {
    const real ceiling = fri_ceiling(relu);
    for (int64_t i = 0; i < rows; i++) {
        const real *v = x + i * ld;
        real *out = y + i * ld;
        if (relu) {
#pragma GCC ivdep
            for (int64_t j = 0; j < width; j++)
                out[j] = fri_relu_below(fri_batchnorm_apply(v[j], mean[j], scale[j], beta[j]), ceiling);
        } else {
#pragma GCC ivdep
            for (int64_t j = 0; j < width; j++) out[j] = fri_batchnorm_apply(v[j], mean[j], scale[j], beta[j]);
        }
    }
}

/* y = apply(x) + addend, for data that is read and written in place. */
FRI_CLONES static void apply_add_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *mean,
                                      const real *scale, const real *beta, const real *addend, fri_rectifier relu,
                                      real *y) {
    const real ceiling = fri_ceiling(relu);
    for (int64_t i = 0; i < rows; i++) {
        const real *v = x + i * ld, *a = addend + i * ld;
        real *out = y + i * ld;
        if (relu) {
#pragma GCC ivdep
            for (int64_t j = 0; j < width; j++)
                out[j] = fri_relu_below(fri_batchnorm_apply(v[j], mean[j], scale[j], beta[j]) + a[j], ceiling);
        } else {
#pragma GCC ivdep
            for (int64_t j = 0; j < width; j++) out[j] = fri_batchnorm_apply(v[j], mean[j], scale[j], beta[j]) + a[j];
        }
    }
}

FRI_CLONES static void add_values(int64_t n, const real *a, fri_rectifier relu, real *y) {
    const real ceiling = fri_ceiling(relu);
    if (relu) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) y[i] = fri_relu_below(y[i] + a[i], ceiling);
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) y[i] = y[i] + a[i];
    }
}

/* The same for half data: n normalized values are rounded to their type, as if they had been stored, before they join
 * the addend's. */
static void add_rounded(const fri_batchnorm2d_desc *d, int64_t n, const real *addend, fri_rectifier relu, real *y) {
    uint16_t stored[TILE];
    fri_cpu_narrow(d->dtype, n, y, stored);
    fri_cpu_widen(d->dtype, n, stored, y);
    add_values(n, addend, relu, y);
}

/* scale = invstd * gamma for a tile's channels; gamma or NULL (1). */
static void scale_of(const tile *t, const real *invstd, const real *gamma, real *scale) {
    for (int64_t j = 0; j < t->width; j++) scale[j] = fri_norm_scale(invstd, gamma, t->c + j);
}

static void apply_tile(const fri_batchnorm2d_desc *d, const tile *t, const void *x, const real *mean,
                       const real *invstd, const real *gamma, const real *beta, const void *addend, fri_rectifier relu,
                       void *y) {
    real scale[C_BLOCK], shift[C_BLOCK], xbuf[TILE], ybuf[TILE];
    int64_t step = step_rows(d, t), ld = pitch(d, t);
    scale_of(t, invstd, gamma, scale);
    for (int64_t j = 0; j < t->width; j++) shift[j] = beta != NULL ? beta[t->c + j] : 0;
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = load_rows(d, t, x, t->row + i, rows, xbuf);
        real *out = target_rows(d, t, y, t->row + i, ybuf);
        if (addend == NULL) {
            apply_rows(rows, t->width, ld, v, mean + t->c, scale, shift, relu, out);
        } else if (d->dtype == FRI_REAL_DTYPE) {
            apply_add_rows(rows, t->width, ld, v, mean + t->c, scale, shift,
                           load_rows(d, t, addend, t->row + i, rows, xbuf), relu, out);
        } else {
            apply_rows(rows, t->width, ld, v, mean + t->c, scale, shift, FRI_RECTIFY_NONE, out);
            add_rounded(d, rows * t->width, load_rows(d, t, addend, t->row + i, rows, xbuf), relu, out);
        }
        store_rows(d, t, y, t->row + i, rows, out);
    }
}

fr_status fri_cpu_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const void *mean,
                                    const void *invstd, const void *gamma, const void *beta, const void *addend,
                                    fri_rectifier relu, void *y) {
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
#pragma omp parallel for schedule(static) if (d->rows * d->c >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < tiles(d); i++) {
        const tile t = tile_at(d, i);
        apply_tile(d, &t, x, mean, invstd, gamma, beta, addend, relu, y);
    }
    return FR_OK;
}

/* ---- backward -------------------------------------------------------------------------------------------- */

FRI_CLONES static void reduce_rows(int64_t rows, int64_t width, int64_t ld, const real *x, int64_t ld_dy,
                                   const real *dy, const real *mean, real *restrict sum_dy, real *restrict sum_dyx) {
    int64_t i = 0;
    for (; i + 2 <= rows; i += 2) {
        const real *x0 = x + i * ld, *x1 = x0 + ld, *g0 = dy + i * ld_dy, *g1 = g0 + ld_dy;
        for (int64_t j = 0; j < width; j++) {
            sum_dy[j] += g0[j] + g1[j];
            sum_dyx[j] += g0[j] * (x0[j] - mean[j]) + g1[j] * (x1[j] - mean[j]);
        }
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < width; j++) {
            sum_dy[j] += dy[i * ld_dy + j];
            sum_dyx[j] += dy[i * ld_dy + j] * (x[i * ld + j] - mean[j]);
        }
}

/* Where a relu follows: which of a tile's dy it lets through follows from x. */
typedef struct gate {
    real scale[C_BLOCK], shift[C_BLOCK], zero;
} gate;

static void gate_of(const fri_batchnorm2d_desc *d, const tile *t, const real *invstd, const real *gamma,
                    const real *beta, gate *p) {
    p->zero = fri_largest_zero(d->dtype);
    scale_of(t, invstd, gamma, p->scale);
    for (int64_t j = 0; j < t->width; j++) p->shift[j] = beta != NULL ? beta[t->c + j] : 0;
}

/* x and dy in rows of ld; out, which may be dy, in rows of width. */
FRI_CLONES static void pass_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *dy,
                                 const real *mean, const gate *p, real *out) {
    for (int64_t i = 0; i < rows; i++) {
        const real *v = x + i * ld, *g = dy + i * ld;
        real *y = out + i * width;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++)
            y[j] = fri_batchnorm_relu_gradient(v[j], g[j], mean[j], p->scale[j], p->shift[j], p->zero);
    }
}

/* As step_rows, but what passes always fits the buffer; even, so that reduce_rows pairs the rows it would pair. */
static int64_t pass_step(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? TILE / t->width / 2 * 2 : step_rows(d, t);
}

/* p or NULL: no relu follows. */
static void reduce_tile(const fri_batchnorm2d_desc *d, const tile *t, const void *x, const real *mean, const gate *p,
                        const void *dy, const scratch *w) {
    real xbuf[TILE], dybuf[TILE];
    real *sum_dy = w->partial_a + t->chunk * d->c + t->c, *sum_dyx = w->partial_b + t->chunk * d->c + t->c;
    int64_t step = p != NULL ? pass_step(d, t) : step_rows(d, t), ld = pitch(d, t);
    memset(sum_dy, 0, (size_t)t->width * sizeof *sum_dy);
    memset(sum_dyx, 0, (size_t)t->width * sizeof *sum_dyx);
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = load_rows(d, t, x, t->row + i, rows, xbuf), *g = load_rows(d, t, dy, t->row + i, rows, dybuf);
        if (p != NULL) pass_rows(rows, t->width, ld, v, g, mean + t->c, p, dybuf);
        reduce_rows(rows, t->width, ld, v, p != NULL ? t->width : ld, p != NULL ? dybuf : g, mean + t->c, sum_dy,
                    sum_dyx);
    }
}

/* Writes to w->a and w->b what the gradient of x subtracts. */
static void set_means(const real *invstd, int64_t k, double dy, double dyx, double rows, const scratch *w) {
    const double is = (double)invstd[k];
    w->a[k] = (real)(dy / rows);
    w->b[k] = (real)(dyx / rows * is * is);
}

/* The sums of all processes, in the order of ranks. */
static fr_status sync_means(const fri_batchnorm2d_desc *d, const real *invstd, const scratch *w) {
    const fri_statistics_sync *sync = d->sync;
    const int64_t n = 2 * d->c + 1;
    const double *all = NULL;
    double *mine = sync->room(sync->ctx, n);
    if (mine == NULL) return FR_ENOMEM;
    for (int64_t c = 0; c < d->c; c += COMBINE) {
        const int64_t width = fri_min_i64(COMBINE, d->c - c);
        combine(chunks(d), c, width, d->c, w->partial_a, mine + c);
        combine(chunks(d), c, width, d->c, w->partial_b, mine + d->c + c);
    }
    mine[n - 1] = (double)d->rows;
    fr_status s = sync->gather(sync->ctx, n, &all);
    for (int64_t k = 0; k < d->c && s == FR_OK; k++) {
        double dy = 0, dyx = 0, rows = 0;
        for (int r = 0; r < sync->ranks; r++) {
            dy += all[r * n + k];
            dyx += all[r * n + d->c + k];
            rows += all[r * n + n - 1];
        }
        set_means(invstd, k, dy, dyx, rows, w);
    }
    return s;
}

/* dgamma and dbeta, and what the gradient of x needs. */
static void reduce_channels(const fri_batchnorm2d_desc *d, const real *invstd, const scratch *w, real *dgamma,
                            real *dbeta) {
    double dy[COMBINE], dyx[COMBINE];
    for (int64_t c = 0; c < d->c; c += COMBINE) {
        int64_t width = fri_min_i64(COMBINE, d->c - c);
        combine(chunks(d), c, width, d->c, w->partial_a, dy);
        combine(chunks(d), c, width, d->c, w->partial_b, dyx);
        for (int64_t j = 0; j < width; j++) {
            if (dbeta != NULL) dbeta[c + j] = (real)dy[j];
            if (dgamma != NULL) dgamma[c + j] = (real)(dyx[j] * (double)invstd[c + j]);
            set_means(invstd, c + j, dy[j], dyx[j], (double)d->rows, w);
        }
    }
}

FRI_CLONES static void gradient_rows(int64_t rows, int64_t width, int64_t ld, const real *x, int64_t ld_dy,
                                     const real *dy, const real *mean, const real *scale, const real *mean_dy,
                                     const real *slope, real *dx) {
    for (int64_t i = 0; i < rows; i++) {
        const real *v = x + i * ld, *g = dy + i * ld_dy;
        real *out = dx + i * ld;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++)
            out[j] = fri_batchnorm_gradient(v[j], g[j], mean[j], scale[j], mean_dy[j], slope[j]);
    }
}

FRI_CLONES static void scale_rows(int64_t rows, int64_t width, int64_t ld_dy, const real *dy, const real *scale,
                                  int64_t ld, real *dx) {
    for (int64_t i = 0; i < rows; i++) {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) dx[i * ld + j] = dy[i * ld_dy + j] * scale[j];
    }
}

/* w NULL: eval mode, the statistics are constants. p or NULL: no relu follows. */
static void gradient_tile(const fri_batchnorm2d_desc *d, const tile *t, const void *x, const real *mean,
                          const real *scale, const gate *p, const scratch *w, const void *dy, void *dx) {
    real xbuf[TILE], dybuf[TILE];
    int64_t step = p != NULL ? pass_step(d, t) : step_rows(d, t), ld = pitch(d, t), ld_dy = p != NULL ? t->width : ld;
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = w != NULL || p != NULL ? load_rows(d, t, x, t->row + i, rows, xbuf) : NULL;
        const real *g = load_rows(d, t, dy, t->row + i, rows, dybuf);
        real *out = target_rows(d, t, dx, t->row + i, dybuf);
        if (p != NULL) {
            pass_rows(rows, t->width, ld, v, g, mean + t->c, p, dybuf);
            g = dybuf;
        }
        if (w != NULL)
            gradient_rows(rows, t->width, ld, v, ld_dy, g, mean + t->c, scale, w->a + t->c, w->b + t->c, out);
        else
            scale_rows(rows, t->width, ld_dy, g, scale, ld, out);
        store_rows(d, t, dx, t->row + i, rows, out);
    }
}

static void reduce_all(const fri_batchnorm2d_desc *d, const void *x, const real *mean, const real *invstd,
                       const real *gamma, const real *beta, bool relu, const void *dy, const scratch *w, real *dgamma,
                       real *dbeta) {
#pragma omp parallel for schedule(static) if (d->rows * d->c >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < tiles(d); i++) {
        gate p;
        const tile t = tile_at(d, i);
        if (relu) gate_of(d, &t, invstd, gamma, beta, &p);
        reduce_tile(d, &t, x, mean, relu ? &p : NULL, dy, w);
    }
    reduce_channels(d, invstd, w, dgamma, dbeta);
}

static void gradient_all(const fri_batchnorm2d_desc *d, const void *x, const real *mean, const real *invstd,
                         const real *gamma, const real *beta, bool relu, const scratch *w, const void *dy, void *dx) {
#pragma omp parallel for schedule(static) if (d->rows * d->c >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < tiles(d); i++) {
        gate p;
        const tile t = tile_at(d, i);
        gate_of(d, &t, invstd, gamma, relu ? beta : NULL, &p);
        gradient_tile(d, &t, x, mean, p.scale, relu ? &p : NULL, w, dy, dx);
    }
}

fr_status fri_cpu_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                       const void *mean, const void *invstd, const void *gamma, const void *beta,
                                       bool relu, const void *dy, void *dx, void *dgamma, void *dbeta) {
    scratch w = {0};
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    if (train || dgamma != NULL || dbeta != NULL) {
        FRI_TRY(scratch_of(e, d, &w));
        reduce_all(d, x, mean, invstd, gamma, beta, relu, dy, &w, dgamma, dbeta);
        if (train && d->sync != NULL) FRI_TRY(sync_means(d, invstd, &w));
    }
    if (dx != NULL) gradient_all(d, x, mean, invstd, gamma, beta, relu, train ? &w : NULL, dy, dx);
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_backward_sums(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                            const void *mean, const void *invstd, const uint8_t *bits, const void *a,
                                            const void *b, void *dy, void *dgamma, void *dbeta, void *half) {
    scratch w = {0};
    fr_status s = scratch_of(e, d, &w);
    if (s == FR_OK) s = fri_cpu_add_mask(e, d->dtype, d->rows * d->c, bits, a, b, dy);
    if (s < 0) return s;
    w.a = half;
    w.b = w.a + d->c;
    reduce_all(d, x, mean, invstd, NULL, NULL, false, dy, &w, dgamma, dbeta);
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_backward_rest(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x,
                                            const void *mean, const void *invstd, const void *gamma, const void *half,
                                            const void *dy, void *dx) {
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    const scratch w = {.a = (real *)(uintptr_t)half, .b = (real *)(uintptr_t)half + d->c}; /* only read */
    (void)e;
    gradient_all(d, x, mean, invstd, gamma, NULL, false, &w, dy, dx);
    return FR_OK;
}
