/* batchnorm2d.c - batch normalization over rows of channels: forward and backward; statistics are made by
 * batchnorm2d_statistics.c, tiles by batchnorm2d.h. */
#include "cpu/batchnorm2d.h"

#include <string.h>

#include "cpu/stream.h"

/* [chunks][c] twice and [c] twice. */
size_t fri_cpu_batchnorm2d_workspace(const fri_batchnorm2d_desc *d) {
    return (size_t)(2 * (chunks(d) + 1) * d->c) * sizeof(real);
}

static real *target_rows(const fri_batchnorm2d_desc *d, const tile *t, void *y, int64_t row, real *buf) {
    return d->dtype == FRI_REAL_DTYPE ? (real *)y + row * d->c + t->c : buf;
}

/* Inverse of load_values, for half data: other data is computed in place. */
static void store_values(const fri_batchnorm2d_desc *d, void *y, int64_t at, int64_t ld, int64_t rows, int64_t width,
                         const real *values) {
    if (d->dtype == FRI_REAL_DTYPE) return;
    if (width == ld) {
        fri_cpu_store(d->dtype, y, at, rows * ld, values);
        return;
    }
    for (int64_t i = 0; i < rows; i++) fri_cpu_store(d->dtype, y, at + i * ld, width, values + i * width);
}

static void store_rows(const fri_batchnorm2d_desc *d, const tile *t, void *y, int64_t row, int64_t rows,
                       const real *values) {
    store_values(d, y, row * d->c + t->c, d->c, rows, t->width, values);
}

/* total[j] = sum over the chunks of partial[.][c + j], width <= COMBINE. */
FRI_CLONES static void combine(int64_t n, int64_t c, int64_t width, int64_t ld, const real *partial, double *total) {
    memset(total, 0, (size_t)width * sizeof *total);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) total[j] += (double)partial[i * ld + c + j];
}

/* ---- forward --------------------------------------------------------------------------------------------- */

/* Each activation has its own loops, inlined with constants so that they vectorize. A row has at most C_BLOCK
 * channels. */
#define ROWS static inline __attribute__((always_inline)) void

static inline void ahead(const real *row, int64_t width) {
    fri_cpu_prefetch_bytes(row, (size_t)width * sizeof *row);
}

ROWS apply(int64_t rows, int64_t width, int64_t ld_x, const real *x, const real *mean, const real *scale,
           const real *beta, const real *addend, fri_activation act, int64_t ld, real *y) {
    for (int64_t i = 0; i < rows * ld; i += ld, x += ld_x) {
        ahead(x, width);
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            const real v = fri_batchnorm_apply(x[j], mean[j], scale[j], beta[j]);
            y[i + j] = fri_activate(act, addend != NULL ? v + addend[i + j] : v);
        }
        ahead(y + i, width);
    }
}

/* y = act(apply(x) + addend), addend or NULL, on f32 or f64 data; x in rows of ld_x, addend and y in rows of ld. */
FRI_CLONES static void apply_rows(int64_t rows, int64_t width, int64_t ld_x, const real *x, const real *mean,
                                  const real *scale, const real *beta, const real *addend, fri_activation act,
                                  int64_t ld, real *y) {
    switch (act) {
#define APPLY(word)                                                                                           \
    case FRI_ACTIVATION_##word:                                                                               \
        addend != NULL ? apply(rows, width, ld_x, x, mean, scale, beta, addend, FRI_ACTIVATION_##word, ld, y) \
                       : apply(rows, width, ld_x, x, mean, scale, beta, NULL, FRI_ACTIVATION_##word, ld, y);  \
        break;
        FRI_FUSED_ACTIVATIONS(APPLY)
    }
}

void fri_cpu_norm_rows(int64_t rows, int64_t width, int64_t ld, const real *x, const real *mean, const real *scale,
                       const real *shift, fri_activation act, real *y) {
    apply_rows(rows, width, ld, x, mean, scale, shift, NULL, act, ld, y);
}

ROWS finish(int64_t n, const real *addend, fri_activation act, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_activate(act, addend != NULL ? y[i] + addend[i] : y[i]);
}

FRI_CLONES static void finish_values(int64_t n, const real *addend, fri_activation act, real *y) {
    switch (act) {
#define FINISH(word)                                                                                              \
    case FRI_ACTIVATION_##word:                                                                                   \
        addend != NULL ? finish(n, addend, FRI_ACTIVATION_##word, y) : finish(n, NULL, FRI_ACTIVATION_##word, y); \
        break;
        FRI_FUSED_ACTIVATIONS(FINISH)
    }
}

/* Rounds n values as storing would; at most TILE values of half data. */
static void round_values(const fri_batchnorm2d_desc *d, int64_t n, real *values) {
    uint16_t stored[TILE];
    if (d->dtype == FRI_REAL_DTYPE) return;
    fri_cpu_narrow(d->dtype, n, values, stored);
    fri_cpu_widen(d->dtype, n, stored, values);
}

/* scale = invstd * gamma for a tile's channels; gamma or NULL (1). */
static void scale_of(const tile *t, const real *invstd, const real *gamma, real *scale) {
    for (int64_t j = 0; j < t->width; j++) scale[j] = fri_norm_scale(invstd, gamma, t->c + j);
}

/* True if y is written past the caches. In-place results are in the cache already. */
static bool streams(const fri_batchnorm2d_desc *d, const tile *t, const void *x, const void *addend, const void *y) {
    return d->dtype == FRI_REAL_DTYPE && t->width == d->c && y != x && y != addend &&
           fri_may_stream(y, (size_t)d->c * sizeof(real), d->rows * d->c * (int64_t)sizeof(real));
}

/* A pass over the tiles. */
typedef struct norm_loop {
    const fri_batchnorm2d_desc *d;
    const fri_batchnorm2d_part *part; /* parts of x and dx */
    const real *mean, *invstd, *gamma, *beta;
    const void *in; /* NULL, an addend or dy */
    fri_activation act;
    void *out;        /* y or dz */
    const scratch *w; /* backward: sums of the channels. NULL: the statistics are constants */
} norm_loop;

static void norm_pieces(fri_piece *piece, const norm_loop *l) {
    fri_cpu_pieces(l->d->rows * l->d->c, tiles(l->d), piece, l);
}

static void apply_tile(const void *context, int64_t at, int thread) {
    const norm_loop *l = context;
    const fri_batchnorm2d_desc *d = l->d;
    const tile own = tile_at(d, l->part, at), *t = &own;
    const real *beta = l->beta;
    const void *x = l->part->x, *addend = l->in;
    const fri_activation act = l->act;
    void *y = l->out;
    _Alignas(FRI_LINE) real scale[C_BLOCK], shift[C_BLOCK], xbuf[TILE], ybuf[TILE];
    const bool stream = streams(d, t, x, addend, y);
    int64_t step = stream ? TILE / t->width : step_rows(d, t), ld = pitch(d, t);
    const bool once = d->dtype == FRI_REAL_DTYPE || (addend == NULL && !fri_reads_x(act)); /* no rounding in between */
    scale_of(t, l->invstd, l->gamma, scale);
    for (int64_t j = 0; j < t->width; j++) shift[j] = beta != NULL ? beta[t->c + j] : 0;
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        real *out = stream ? ybuf : target_rows(d, t, y, t->row + i, ybuf);
        const real *plus = once ? load_rows(d, t, addend, t->row + i, rows, xbuf) : NULL;
        FOR_PARTS(t, s) {
            const int64_t k = s.c - t->c;
            apply_rows(rows, s.width, part_pitch(d, &s), load_part(d, &s, t->row + i, rows, xbuf), l->mean + s.c,
                       scale + k, shift + k, plus != NULL ? plus + k : NULL, once ? act : FRI_ACTIVATION_NONE, ld,
                       out + k);
        }
        if (!once) {
            round_values(d, rows * t->width, out);
            finish_values(rows * t->width, load_rows(d, t, addend, t->row + i, rows, xbuf), act, out);
        }
        if (stream)
            fri_stream_copy((real *)y + (t->row + i) * d->c, out, (size_t)(rows * d->c) * sizeof *out);
        else
            store_rows(d, t, y, t->row + i, rows, out);
    }
    fri_stream_end(stream);
}

fr_status fri_cpu_batchnorm2d_apply(const fri_exec *e, const fri_batchnorm2d_desc *d, const void *x, const void *mean,
                                    const void *invstd, const void *gamma, const void *beta, const void *addend,
                                    fri_activation act, void *y) {
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    const fri_batchnorm2d_part whole = {.c = d->c, .x = x};
    norm_pieces(apply_tile,
                &(norm_loop){d, d->part != NULL ? d->part : &whole, mean, invstd, gamma, beta, addend, act, y, NULL});
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

/* Gradient of an activation after the norm, computed from x and a tile's dy. */
typedef struct norm_act {
    _Alignas(FRI_LINE) real scale[C_BLOCK], shift[C_BLOCK];
    fri_activation act;
    real zero;
} norm_act;

static void norm_act_of(const fri_batchnorm2d_desc *d, const tile *t, const real *invstd, const real *gamma,
                        const real *beta, fri_activation act, norm_act *p) {
    p->act = act;
    p->zero = fri_largest_zero(d->dtype);
    scale_of(t, invstd, gamma, p->scale);
    for (int64_t j = 0; j < t->width; j++) p->shift[j] = beta != NULL ? beta[t->c + j] : 0;
}

ROWS mask_rows(int64_t rows, int64_t width, int64_t ld_x, const real *x, int64_t ld, const real *dy, const real *mean,
               const norm_act *p, fri_activation act, int64_t ld_out, real *out) {
    for (int64_t i = 0; i < rows; i++, x += ld_x, dy += ld, out += ld_out) {
        ahead(x, width);
        ahead(dy, width);
#pragma GCC ivdep
#pragma GCC unroll 4
        for (int64_t j = 0; j < width; j++)
            out[j] =
                act == FRI_ACTIVATION_RELU
                    ? fri_batchnorm_relu_gradient(x[j], dy[j], mean[j], p->scale[j], p->shift[j], p->zero)
                    : fri_activate_gradient(act, fri_batchnorm_apply(x[j], mean[j], p->scale[j], p->shift[j]), dy[j]);
    }
}

/* x in rows of ld_x, dy in rows of ld; out, which may be dy, in rows of ld_out. */
FRI_CLONES static void pass_rows(int64_t rows, int64_t width, int64_t ld_x, const real *x, int64_t ld, const real *dy,
                                 const real *mean, const norm_act *p, int64_t ld_out, real *out) {
    switch (p->act) {
#define MASK_ROWS(word)                                                                       \
    case FRI_ACTIVATION_##word:                                                               \
        mask_rows(rows, width, ld_x, x, ld, dy, mean, p, FRI_ACTIVATION_##word, ld_out, out); \
        break;
        FRI_FUSED_ACTIVATIONS(MASK_ROWS)
    }
}

ROWS act_gradient(int64_t n, const real *z, const real *dy, fri_activation act, real *dz) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dz[i] = fri_activate_gradient(act, z[i], dy[i]);
}

FRI_CLONES static void act_gradients(int64_t n, const real *z, const real *dy, fri_activation act, real *dz) {
    switch (act) {
#define ACT_GRADIENT(word) \
    case FRI_ACTIVATION_##word: act_gradient(n, z, dy, FRI_ACTIVATION_##word, dz); break;
        FRI_FUSED_ACTIVATIONS(ACT_GRADIENT)
    }
}

/* Computes the gradient for any data type; z and dz are rounded as stored values are. */
static void pass(const fri_batchnorm2d_desc *d, int64_t rows, int64_t width, int64_t ld_x, const real *x, int64_t ld,
                 const real *dy, const real *mean, const norm_act *p, int64_t ld_out, real *out) {
    _Alignas(FRI_LINE) real z[TILE];
    if (d->dtype == FRI_REAL_DTYPE || p->act == FRI_ACTIVATION_RELU) {
        pass_rows(rows, width, ld_x, x, ld, dy, mean, p, ld_out, out);
        return;
    }
    apply_rows(rows, width, ld_x, x, mean, p->scale, p->shift, NULL, FRI_ACTIVATION_NONE, width, z);
    round_values(d, rows * width, z);
    act_gradients(rows * width, z, dy, p->act, out);
    round_values(d, rows * width, out);
}

/* Rows per step that fit the buffer: an even number, so that reduce_rows adds the pairs of step_rows. */
static int64_t pass_step(const fri_batchnorm2d_desc *d, const tile *t) {
    return d->dtype == FRI_REAL_DTYPE ? TILE / t->width / 2 * 2 : step_rows(d, t);
}

/* out (NULL, or dy): receives the gradient before the activation. */
static void reduce_part(const norm_loop *l, const tile *t) {
    const fri_batchnorm2d_desc *d = l->d;
    const real *mean = l->mean;
    const scratch *w = l->w;
    void *dz = l->out;
    norm_act terms, *p = l->act ? &terms : NULL;
    if (l->act) norm_act_of(d, t, l->invstd, l->gamma, l->beta, l->act, p);
    _Alignas(FRI_LINE) real xbuf[TILE], dybuf[TILE];
    real *sum_dy = w->partial_a + t->chunk * d->c + t->c, *sum_dyx = w->partial_b + t->chunk * d->c + t->c;
    int64_t step = p != NULL ? pass_step(d, t) : step_rows(d, t), ld_x = part_pitch(d, t), ld = pitch(d, t);
    int64_t ld_dy = p != NULL && dz == NULL ? t->width : ld;
    memset(sum_dy, 0, (size_t)t->width * sizeof *sum_dy);
    memset(sum_dyx, 0, (size_t)t->width * sizeof *sum_dyx);
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i);
        const real *v = load_part(d, t, t->row + i, rows, xbuf), *g = load_rows(d, t, l->in, t->row + i, rows, dybuf);
        real *out = dz != NULL ? target_rows(d, t, dz, t->row + i, dybuf) : dybuf;
        if (p != NULL) pass(d, rows, t->width, ld_x, v, ld, g, mean + t->c, p, ld_dy, out);
        reduce_rows(rows, t->width, ld_x, v, ld_dy, p != NULL ? out : g, mean + t->c, sum_dy, sum_dyx);
        if (dz != NULL) store_rows(d, t, dz, t->row + i, rows, out);
    }
}

static void reduce_tile(const void *context, int64_t at, int thread) {
    const norm_loop *l = context;
    const tile t = tile_at(l->d, l->part, at);
    FOR_PARTS(&t, s) reduce_part(l, &s);
}

/* Writes the terms subtracted in dx to w->a and w->b. */
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

/* Computes dgamma and dbeta, and the terms of dx. */
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
                                     const real *slope, int64_t ld_dx, real *dx) {
    for (int64_t i = 0; i < rows; i++) {
        const real *v = x + i * ld, *g = dy + i * ld_dy;
        real *out = dx + i * ld_dx;
        ahead(v, width);
        ahead(g, width);
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

/* sum += values, in rows of `width` values. */
FRI_CLONES static void add_rows(int64_t rows, int64_t width, const real *values, int64_t ld, real *sum) {
    for (int64_t i = 0; i < rows; i++)
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) sum[i * ld + j] += values[i * width + j];
}

/* Adds a gradient to that of the part, as the sum of two tensors would. */
static void add_to_part(const fri_batchnorm2d_desc *d, const tile *t, int64_t row, int64_t rows, real *values) {
    real buf[TILE];
    void *dx = t->part->dx;
    const int64_t at = part_at(t, row), ld = t->part->c;
    round_values(d, rows * t->width, values);
    (void)load_values(d, dx, at, ld, rows, t->width, buf);
    add_rows(rows, t->width, values, part_pitch(d, t), d->dtype == FRI_REAL_DTYPE ? (real *)dx + at : buf);
    store_values(d, dx, at, ld, rows, t->width, buf);
}

static void gradient_part(const norm_loop *l, const tile *t) {
    const fri_batchnorm2d_desc *d = l->d;
    const real *mean = l->mean;
    const scratch *w = l->w;
    void *dx = t->part->dx;
    const bool adds = t->part->adds, buffered = adds || d->dtype != FRI_REAL_DTYPE;
    if (dx == NULL) return;
    norm_act terms, *p = l->act ? &terms : NULL; /* NULL: no activation follows */
    norm_act_of(d, t, l->invstd, l->gamma, l->act ? l->beta : NULL, l->act, &terms);
    _Alignas(FRI_LINE) real xbuf[TILE], dybuf[TILE];
    int64_t step = p != NULL || adds ? pass_step(d, t) : step_rows(d, t), ld = pitch(d, t), ld_x = part_pitch(d, t);
    int64_t ld_dy = p != NULL ? t->width : ld, ld_dx = buffered ? t->width : t->part->c;
    for (int64_t i = 0; i < t->rows; i += step) {
        int64_t rows = fri_min_i64(step, t->rows - i), at = part_at(t, t->row + i);
        const real *v = w != NULL || p != NULL ? load_part(d, t, t->row + i, rows, xbuf) : NULL;
        const real *g = load_rows(d, t, l->in, t->row + i, rows, dybuf);
        real *out = buffered ? dybuf : (real *)dx + at;
        if (p != NULL) {
            pass(d, rows, t->width, ld_x, v, ld, g, mean + t->c, p, t->width, dybuf);
            g = dybuf;
        }
        if (w != NULL)
            gradient_rows(rows, t->width, ld_x, v, ld_dy, g, mean + t->c, terms.scale, w->a + t->c, w->b + t->c, ld_dx,
                          out);
        else
            scale_rows(rows, t->width, ld_dy, g, terms.scale, ld_dx, out);
        if (adds)
            add_to_part(d, t, t->row + i, rows, out);
        else
            store_values(d, dx, at, t->part->c, rows, t->width, out);
    }
}

static void gradient_tile(const void *context, int64_t at, int thread) {
    const norm_loop *l = context;
    const tile t = tile_at(l->d, l->part, at);
    FOR_PARTS(&t, s) gradient_part(l, &s);
}

fr_status fri_cpu_batchnorm2d_backward(const fri_exec *e, const fri_batchnorm2d_desc *d, bool train, const void *x,
                                       const void *mean, const void *invstd, const void *gamma, const void *beta,
                                       fri_activation act, const void *dy, void *dx, void *dgamma, void *dbeta) {
    scratch w = {0};
    void *dz = d->part == NULL && fri_reads_x(act) ? dx : NULL; /* computed once for both passes */
    const fri_batchnorm2d_part whole = {.c = d->c, .x = x, .dx = dx}, *part = d->part != NULL ? d->part : &whole;
    FRI_TRY(fri_cpu_accepts("batchnorm2d", d->dtype));
    if (train || dgamma != NULL || dbeta != NULL) {
        FRI_TRY(scratch_of(e, d, &w));
        norm_pieces(reduce_tile, &(norm_loop){d, part, mean, invstd, gamma, beta, dy, act, dz, &w});
        reduce_channels(d, invstd, &w, dgamma, dbeta);
        if (dz != NULL) dy = dz, act = FRI_ACTIVATION_NONE;
        if (train && d->sync != NULL) FRI_TRY(sync_means(d, invstd, &w));
    }
    const norm_loop l = {d, part, mean, invstd, gamma, beta, dy, act, .w = train ? &w : NULL};
    if (dx != NULL || d->part != NULL) norm_pieces(gradient_tile, &l);
    return FR_OK;
}
