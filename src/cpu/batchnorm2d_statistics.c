/* batchnorm2d_statistics.c - mean and variance of batch norm's channels.
 *
 * Statistics of a tile are merged from blocks of rows. A block stays in the cache between computing its mean and its
 * squared distances, so x is read once (Chan, Golub, LeVeque 1979). E[x*x] - E[x]^2 would cancel if |mean| >> std.
 * Blocks depend on the shape only. */
#include "cpu/batchnorm2d.h"

#include <string.h>

enum { BATCH_BLOCK = 8192 }; /* elements of a block: 32 KiB in f32 */

/* sum += x - shift. */
FRI_CLONES static void sum_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *shift,
                                real *restrict sum) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *x0 = x + i * ld, *x1 = x0 + ld, *x2 = x1 + ld, *x3 = x2 + ld;
        for (int64_t k = 0; k < 4; k++) fri_cpu_prefetch_bytes(x0 + k * ld, (size_t)width * sizeof *x);
        for (int64_t j = 0; j < width; j++)
            sum[j] += ((x0[j] - shift[j]) + (x1[j] - shift[j])) + ((x2[j] - shift[j]) + (x3[j] - shift[j]));
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < width; j++) sum[j] += x[i * ld + j] - shift[j];
}

/* sum += (x - center)^2. */
FRI_CLONES static void square_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *center,
                                   real *restrict sum) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *x0 = x + i * ld, *x1 = x0 + ld, *x2 = x1 + ld, *x3 = x2 + ld;
        for (int64_t j = 0; j < width; j++) {
            const real d0 = x0[j] - center[j], d1 = x1[j] - center[j], d2 = x2[j] - center[j], d3 = x3[j] - center[j];
            sum[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
        }
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < width; j++) {
            const real d0 = x[i * ld + j] - center[j];
            sum[j] += d0 * d0;
        }
}

/* Turns sum into the mean minus shift; center is the mean. */
FRI_CLONES static void mean_of(int64_t width, real rows, const real *shift, real *restrict sum, real *restrict center) {
    for (int64_t j = 0; j < width; j++) {
        sum[j] /= rows;
        center[j] = shift[j] + sum[j];
    }
}

/* Merges two means: mean + delta * share. Infinite means are added, because inf - inf is NaN. */
static inline __attribute__((always_inline)) real moved(real mean, real other, real delta, real share) {
    return delta - delta == 0 ? mean + delta * share : mean + other;
}

/* Merges a block of `rows` rows into the statistics of the rows before. The first block has no distance: a square
 * that overflows would give inf * 0. */
FRI_CLONES static void merge_block(int64_t width, real before, real rows, const real *block_mean,
                                   const real *block_squares, real *restrict mean, real *restrict squares) {
    const real share = rows / (before + rows), weight = before * share;
    for (int64_t j = 0; j < width; j++) {
        const real delta = block_mean[j] - mean[j];
        mean[j] = moved(mean[j], block_mean[j], delta, share);
        squares[j] += before > 0 ? block_squares[j] + delta * delta * weight : block_squares[j];
    }
}

/* Takes the first row (0 where infinite) as shift. The shift is within some deviations of the mean, so that sums of
 * rows minus shift lose little precision if |mean| >> std. */
static void set_shift(const fri_batchnorm2d_desc *d, const fri_batchnorm2d_part *part, real *shift) {
    for (int64_t i = 0; d->rows > 0 && i < fri_ceil_div(d->c, C_BLOCK); i++) {
        const tile t = tile_at(d, part, i);
        FOR_PARTS(&t, s) {
            real buf[TILE];
            const real *row = load_part(d, &s, 0, 1, buf);
            for (int64_t j = 0; j < s.width; j++) shift[s.c + j] = row[j] - row[j] == 0 ? row[j] : 0;
        }
    }
}

/* Rows of a tile that fit the cache together. */
static int64_t block_rows(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? BATCH_BLOCK / t->block : step_rows(d, t);
}

typedef struct stats_loop {
    const fri_batchnorm2d_desc *d;
    const fri_batchnorm2d_part *part;
    const scratch *w;
} stats_loop;

/* Mean minus shift (w->a) and squared distances of one part of a tile. */
static void stats_part(const stats_loop *l, const tile *t) {
    const fri_batchnorm2d_desc *d = l->d;
    const scratch *w = l->w;
    real buf[TILE], block_mean[C_BLOCK], center[C_BLOCK], block_squares[C_BLOCK];
    real *mean = w->partial_a + t->chunk * d->c + t->c, *squares = w->partial_b + t->chunk * d->c + t->c;
    const int64_t step = block_rows(d, t), ld = part_pitch(d, t);
    const size_t bytes = (size_t)t->width * sizeof *mean;
    memset(mean, 0, bytes);
    memset(squares, 0, bytes);
    for (int64_t i = 0; i < t->rows; i += step) {
        const int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = load_part(d, t, t->row + i, rows, buf);
        memset(block_mean, 0, bytes);
        memset(block_squares, 0, bytes);
        sum_rows(rows, t->width, ld, v, w->a + t->c, block_mean);
        mean_of(t->width, (real)rows, w->a + t->c, block_mean, center);
        square_rows(rows, t->width, ld, v, center, block_squares);
        merge_block(t->width, (real)i, (real)rows, block_mean, block_squares, mean, squares);
    }
}

static void stats_tile(const void *context, int64_t at, int thread) {
    const stats_loop *l = context;
    const tile t = tile_at(l->d, l->part, at);
    FOR_PARTS(&t, s) stats_part(l, &s);
}

/* Merges mean and squared distances of `rows` rows into those of the rows before. */
static inline __attribute__((always_inline)) void merge_one(double before, double rows, double mean, double squares,
                                                            double *all_mean, double *all_squares) {
    if (rows <= 0) return;
    const double share = rows / (before + rows), delta = mean - *all_mean;
    *all_mean = delta - delta == 0 ? *all_mean + delta * share : *all_mean + mean;
    *all_squares += before > 0 ? squares + delta * delta * (before * share) : squares;
}

/* Mean and squared distances of channels c .. c + width, merged over the chunks in order. */
FRI_CLONES static void merge_chunks(const fri_batchnorm2d_desc *d, const scratch *w, int64_t c, int64_t width,
                                    double *restrict mean, double *restrict squares) {
    memset(mean, 0, (size_t)width * sizeof *mean);
    memset(squares, 0, (size_t)width * sizeof *squares);
    for (int64_t i = 0; i < chunks(d); i++) {
        const int64_t before = i * chunk_rows(d), rows = fri_min_i64(chunk_rows(d), d->rows - before);
        const real *m = w->partial_a + i * d->c + c, *sq = w->partial_b + i * d->c + c;
        for (int64_t j = 0; j < width; j++)
            merge_one((double)before, (double)rows, (double)m[j], (double)sq[j], &mean[j], &squares[j]);
    }
}

/* Results of the statistics, per channel. */
typedef struct statistics {
    real *mean, *invstd, *running_mean, *running_var;
} statistics;

/* Statistics of 0 rows are 0 and leave running values unchanged. */
static void set_statistics(const fri_batchnorm2d_desc *d, const statistics *to, int64_t k, double rows, double mean,
                           double squares) {
    to->mean[k] = to->invstd[k] = 0;
    if (rows <= 0) return;
    to->mean[k] = (real)mean;
    to->invstd[k] = (real)(1 / sqrt(squares / rows + d->eps));
    fri_running_update(to->running_mean, k, d->momentum, (double)to->mean[k], 1);
    fri_running_update(to->running_var, k, d->momentum, squares, rows - 1);
}

/* Statistics of all processes, merged in the order of ranks. */
static fr_status sync_stats(const fri_batchnorm2d_desc *d, const scratch *w, const statistics *to) {
    const fri_statistics_sync *sync = d->sync;
    const int64_t n = 2 * d->c + 1;
    const double *all = NULL;
    double *mine = sync->room(sync->ctx, n);
    if (mine == NULL) return FR_ENOMEM;
    merge_chunks(d, w, 0, d->c, mine, mine + d->c);
    for (int64_t k = 0; k < d->c; k++) mine[k] += (double)w->a[k];
    mine[n - 1] = (double)d->rows;
    FRI_TRY(sync->gather(sync->ctx, n, &all));
    for (int64_t k = 0; k < d->c; k++) {
        double rows = 0, mean = 0, squares = 0;
        for (const double *of = all; of < all + sync->ranks * n; of += n) {
            merge_one(rows, of[n - 1], of[k], of[d->c + k], &mean, &squares);
            rows += of[n - 1];
        }
        set_statistics(d, to, k, rows, mean, squares);
    }
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_stats(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, void *mean,
                                    void *invstd, void *running_mean, void *running_var) {
    scratch w = {0};
    const statistics to = {mean, invstd, running_mean, running_var};
    double means[COMBINE], squares[COMBINE];
    const fri_batchnorm2d_part whole = {.c = d->c, .x = x}, *part = d->part != NULL ? d->part : &whole;
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    FRI_TRY(scratch_of(e, d, &w));
    set_shift(d, part, w.a);
    fri_cpu_pieces(d->rows * d->c, tiles(d), stats_tile, &(stats_loop){d, part, &w});
    if (d->batches != NULL) ++*d->batches;
    if (d->sync != NULL) return sync_stats(d, &w, &to);
    for (int64_t c = 0; c < d->c; c += COMBINE) {
        const int64_t width = fri_min_i64(COMBINE, d->c - c);
        merge_chunks(d, &w, c, width, means, squares);
        for (int64_t j = 0; j < width; j++)
            set_statistics(d, &to, c + j, (double)d->rows, (double)w.a[c + j] + means[j], squares[j]);
    }
    return FR_OK;
}

fr_status fri_cpu_batchnorm2d_invstd(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *var, void *invstd) {
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    for (int64_t j = 0; j < d->c; j++) ((real *)invstd)[j] = (real)(1 / sqrt((double)((const real *)var)[j] + d->eps));
    return FR_OK;
}
