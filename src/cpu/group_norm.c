/* group_norm.c - normalization over groups of channels of one image, or over the channels of one row.
 *
 *     a group          hw rows of c / groups channels; sums in f64 lanes, mean first, then squared distances
 *     gamma and beta   partial sums [chunks][c] in f64, a chunk of the n after the other; added up in order
 *
 * Chunks depend on the shape only. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { CHUNKS = 64 };

static int64_t chunk_of(const fri_group_norm_desc *d) {
    return fri_max_i64(1, fri_ceil_div(d->n, CHUNKS));
}

static int64_t chunks(const fri_group_norm_desc *d) {
    return fri_ceil_div(d->n, chunk_of(d));
}

size_t fri_cpu_group_norm_workspace(const fri_group_norm_desc *d) {
    return (size_t)(2 * chunks(d) * d->c) * sizeof(double);
}

/* ---- one stretch of at most FRI_BLOCK channels ---------------------------------------------------------------- */

typedef struct group {
    const fri_group_norm_desc *d;
    int64_t n, g, width; /* index of image and group; channels per group */
} group;

static group group_at(const fri_group_norm_desc *d, int64_t i) {
    return (group){d, i / d->groups, i % d->groups, d->c / d->groups};
}

/* Offset in x of row r, channel j of the group; channel in gamma. */
static int64_t element(const group *g, int64_t r, int64_t j) {
    return (g->n * g->d->hw + r) * g->d->c + g->g * g->width + j;
}

static int64_t channel(const group *g, int64_t j) {
    return g->g * g->width + j;
}

#define EACH_STRETCH(g, r, j, w)             \
    for (int64_t r = 0; r < (g)->d->hw; r++) \
        for (int64_t j = 0, w; j < (g)->width && (w = fri_min_i64(FRI_BLOCK, (g)->width - j), true); j += FRI_BLOCK)

FRI_CLONES static void add_distances(int64_t n, const real *x, double from, double lane[FRI_LANES]) {
    FRI_EACH_LANE(n, lane[l] += (double)x[i] - from);
}

FRI_CLONES static void add_squares(int64_t n, const real *x, double from, double lane[FRI_LANES]) {
    FRI_EACH_LANE(n, lane[l] += ((double)x[i] - from) * ((double)x[i] - from));
}

/* ---- forward -------------------------------------------------------------------------------------------------- */

static double mean_of(const group *g, const void *x, double from, bool squares) {
    double lane[FRI_LANES] = {0};
    real buf[FRI_BLOCK];
    EACH_STRETCH(g, r, j, w)
    (squares ? add_squares : add_distances)(w, fri_cpu_load(g->d->dtype, x, element(g, r, j), w, buf), from, lane);
    return fri_cpu_lane_total(lane) / (double)(g->d->hw * g->width);
}

FRI_CLONES static void normalize(int64_t n, const real *x, real mean, real invstd, const real *gamma, const real *beta,
                                 real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fri_batchnorm_apply(x[i], mean, invstd * gamma[i], beta[i]);
}

typedef struct forward {
    const fri_group_norm_desc *d;
    const void *x;
    const real *gamma, *beta;
    void *y;
    real *mean, *invstd;
} forward;

static void group_forward(const void *context, int64_t i, int thread) {
    const forward *f = context;
    const fr_dtype t = f->d->dtype;
    const group g = group_at(f->d, i);
    real buf[FRI_BLOCK], out[FRI_BLOCK];
    const double m = mean_of(&g, f->x, 0, false);
    f->mean[i] = (real)m;
    f->invstd[i] = (real)(1 / sqrt(mean_of(&g, f->x, m, true) + f->d->eps));
    EACH_STRETCH(&g, r, j, w) {
        const int64_t at = element(&g, r, j), c = channel(&g, j);
        real *to = fri_cpu_target(t, f->y, at, out);
        normalize(w, fri_cpu_load(t, f->x, at, w, buf), f->mean[i], f->invstd[i], f->gamma + c, f->beta + c, to);
        fri_cpu_store(t, f->y, at, w, to);
    }
}

fr_status fri_cpu_group_norm_forward(const fri_exec *e, const fri_group_norm_desc *d, const void *x, const void *gamma,
                                     const void *beta, void *y, void *mean, void *invstd) {
    FRI_TRY(fri_cpu_accepts("group_norm", d->dtype));
    const forward f = {d, x, gamma, beta, y, mean, invstd};
    fri_cpu_pieces(d->n * d->hw * d->c, d->n * d->groups, group_forward, &f);
    return FR_OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------- */

/* Sums of gamma * dy, and of gamma * dy * xhat. */
typedef struct sums {
    double plain[FRI_LANES], normalized[FRI_LANES];
} sums;

FRI_CLONES static void add_sums(int64_t n, const real *x, real mean, real invstd, const real *gamma, const real *dy,
                                sums *to) {
    FRI_EACH_LANE(n, const double a = (double)gamma[i] * (double)dy[i]; to->plain[l] += a;
                  to->normalized[l] += a * (double)((x[i] - mean) * invstd));
}

FRI_CLONES static void add_vectors(int64_t n, const real *x, real mean, real invstd, const real *dy, double *dgamma,
                                   double *dbeta) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        dgamma[i] += (double)dy[i] * (double)((x[i] - mean) * invstd);
        dbeta[i] += (double)dy[i];
    }
}

FRI_CLONES static void propagate(int64_t n, const real *x, real mean, real invstd, const real *gamma, const real *dy,
                                 real plain, real normalized, real *dx) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        dx[i] = fri_group_norm_gradient(x[i], dy[i], mean, invstd, gamma[i], plain, normalized);
}

typedef struct backward {
    const fri_group_norm_desc *d;
    const void *x, *dy;
    const real *gamma, *mean, *invstd;
    void *dx;
    double *dgamma, *dbeta; /* [chunks][c] */
} backward;

static void group_backward(const backward *b, int64_t i, double *dgamma, double *dbeta) {
    const group g = group_at(b->d, i);
    const fr_dtype t = b->d->dtype;
    const double size = (double)(b->d->hw * g.width);
    real xbuf[FRI_BLOCK], dybuf[FRI_BLOCK], out[FRI_BLOCK];
    sums of = {{0}, {0}};
    EACH_STRETCH(&g, r, j, w) {
        const int64_t at = element(&g, r, j), c = channel(&g, j);
        const real *x = fri_cpu_load(t, b->x, at, w, xbuf), *dy = fri_cpu_load(t, b->dy, at, w, dybuf);
        if (b->dx != NULL) add_sums(w, x, b->mean[i], b->invstd[i], b->gamma + c, dy, &of);
        if (dgamma != NULL) add_vectors(w, x, b->mean[i], b->invstd[i], dy, dgamma + c, dbeta + c);
    }
    if (b->dx == NULL) return;
    const real plain = (real)(fri_cpu_lane_total(of.plain) / size),
               normalized = (real)(fri_cpu_lane_total(of.normalized) / size);
    EACH_STRETCH(&g, r, j, w) {
        const int64_t at = element(&g, r, j);
        real *to = fri_cpu_target(t, b->dx, at, out);
        propagate(w, fri_cpu_load(t, b->x, at, w, xbuf), b->mean[i], b->invstd[i], b->gamma + channel(&g, j),
                  fri_cpu_load(t, b->dy, at, w, dybuf), plain, normalized, to);
        fri_cpu_store(t, b->dx, at, w, to);
    }
}

/* Groups of the images of chunk k. */
static void chunk_backward(const void *context, int64_t k, int thread) {
    const backward *b = context;
    const fri_group_norm_desc *d = b->d;
    const int64_t end = fri_min_i64((k + 1) * chunk_of(d), d->n) * d->groups;
    double *dgamma = b->dgamma != NULL ? b->dgamma + k * d->c : NULL;
    double *dbeta = b->dgamma != NULL ? b->dbeta + k * d->c : NULL;
    for (int64_t i = k * chunk_of(d) * d->groups; i < end; i++) group_backward(b, i, dgamma, dbeta);
}

static void add_chunks(const fri_group_norm_desc *d, const double *partial, real *to) {
    for (int64_t c = 0; c < d->c; c++) {
        double sum = 0;
        for (int64_t i = 0; i < chunks(d); i++) sum += partial[i * d->c + c];
        to[c] = (real)sum;
    }
}

fr_status fri_cpu_group_norm_backward(const fri_exec *e, const fri_group_norm_desc *d, const void *x, const void *gamma,
                                      const void *mean, const void *invstd, const void *dy, void *dx, void *dgamma,
                                      void *dbeta) {
    backward b = {d, x, dy, gamma, mean, invstd, dx, NULL, NULL};
    void *memory = NULL;
    fr_status s = fri_cpu_accepts("group_norm", d->dtype);
    if (s == FR_OK && dgamma != NULL) s = fri_cpu_workspace(e, "group_norm", fri_cpu_group_norm_workspace(d), &memory);
    if (s < 0) return s;
    if (dgamma != NULL && memory != NULL) {
        memset(memory, 0, fri_cpu_group_norm_workspace(d));
        b.dgamma = memory;
        b.dbeta = b.dgamma + chunks(d) * d->c;
    }
    fri_cpu_pieces(d->n * d->hw * d->c, chunks(d), chunk_backward, &b);
    if (dgamma != NULL) {
        add_chunks(d, b.dgamma, dgamma);
        add_chunks(d, b.dbeta, dbeta);
    }
    return FR_OK;
}
