/* cross_entropy.c - softmax and negative log-likelihood, fused: one pass over the logits in each direction.
 *
 * A row's maximum is subtracted before exp; sums are in f64. Rows are divided into a fixed number of groups, whose
 * sums are added in order, so the loss has equal bits for any number of threads. */

#include "cpu/cpu.h"
#include <string.h>

enum { GROUPS = 64 };

FRI_CLONES static real block_max(int64_t n, const real *v, real max) {
    real lane[FRI_LANES];
    for (int l = 0; l < FRI_LANES; l++) lane[l] = max;
    int64_t whole = n / FRI_LANES * FRI_LANES;
    for (int64_t i = 0; i < whole; i += FRI_LANES)
        for (int l = 0; l < FRI_LANES; l++) lane[l] = v[i + l] > lane[l] ? v[i + l] : lane[l];
    for (int64_t i = whole; i < n; i++) lane[0] = v[i] > lane[0] ? v[i] : lane[0];
    for (int l = 0; l < FRI_LANES; l++) max = lane[l] > max ? lane[l] : max;
    return max;
}

static real row_max(const fri_loss_desc *d, int64_t row, const void *x) {
    real buf[FRI_BLOCK], max = -(real)INFINITY;
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        const real *v = fri_cpu_load(d->dtype, x, row * d->classes + j, n, buf);
        max = block_max(n, v, max);
    }
    return max;
}

/* Adds f64 copies of n elements to the lanes of a sum. */
FRI_CLONES static void add_lanes(int64_t n, const real *v, double lane[FRI_LANES]) {
    double sum[FRI_LANES];
    memcpy(sum, lane, sizeof sum);
    FRI_EACH_LANE(n, sum[l] += (double)v[i]);
    memcpy(lane, sum, sizeof sum);
}

FRI_CLONES static void exp_block(int64_t n, const real *v, real max, real *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fri_exp(v[i] - max);
}

/* The row's loss; *lse = log(sum(exp(x))). NaN anywhere in the row makes both NaN. */
static double row_loss(const fri_loss_desc *d, int64_t row, const void *x, int64_t target, real *lse) {
    real buf[FRI_BLOCK], e[FRI_BLOCK], max = row_max(d, row, x);
    double exps[FRI_LANES] = {0}, sum[FRI_LANES] = {0}, at_target = 0;
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        const real *v = fri_cpu_load(d->dtype, x, row * d->classes + j, n, buf);
        exp_block(n, v, max, e);
        add_lanes(n, e, exps);
        if (d->label_smoothing > 0) add_lanes(n, v, sum);
        if (target >= j && target < j + n) at_target = (double)v[target - j];
    }
    double log_sum = (double)max + fri_ln64(fri_cpu_lane_total(exps));
    *lse = (real)log_sum;
    double loss = (1 - d->label_smoothing) * (log_sum - at_target);
    if (d->label_smoothing > 0) loss += d->label_smoothing * (log_sum - fri_cpu_lane_total(sum) / (double)d->classes);
    return loss;
}

double fri_cpu_log_sum_exp(const fri_loss_desc *d, int64_t row, const void *x) {
    real buf[FRI_BLOCK], e[FRI_BLOCK], max = row_max(d, row, x);
    double exps[FRI_LANES] = {0};
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        exp_block(n, fri_cpu_load(d->dtype, x, row * d->classes + j, n, buf), max, e);
        add_lanes(n, e, exps);
    }
    return (double)max + fri_ln64(fri_cpu_lane_total(exps));
}

/* Weights of the classes in a row. */
typedef struct targets {
    const void *target;
    const real *weight; /* NULL: all 1 */
    real kept, even;    /* fri_class_share */
} targets;

static targets targets_of(const fri_loss_desc *d, const void *target, const void *weight) {
    return (targets){target, weight, (real)(1 - d->label_smoothing), (real)(d->label_smoothing / (double)d->classes)};
}

static real share(const fri_loss_desc *d, const targets *t, int64_t row, int64_t j) {
    const real of =
        d->shares ? ((const real *)t->target)[row * d->classes + j] : (real)(((const int64_t *)t->target)[row] == j);
    return fri_class_share(of, t->weight != NULL ? t->weight[j] : 1, t->kept, t->even);
}

/* row_loss with weights or class probabilities. A class of probability 0 does not count, whatever its x. */
static double row_loss_of_shares(const fri_loss_desc *d, int64_t row, const void *x, const targets *t, real *lse) {
    real buf[FRI_BLOCK];
    const double log_sum = fri_cpu_log_sum_exp(d, row, x);
    double loss = 0;
    *lse = (real)log_sum;
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        const real *v = fri_cpu_load(d->dtype, x, row * d->classes + j, n, buf);
        for (int64_t i = 0; i < n; i++) {
            const real q = share(d, t, row, j + i);
            if (q != 0) loss += (double)q * (log_sum - (double)v[i]);
        }
    }
    return log_sum == log_sum ? loss : log_sum;
}

typedef struct group {
    double loss;
    double counted; /* sum of weights of the counted rows */
    int64_t bad;    /* first row with an impossible target, or -1 */
} group;

static bool counts(const fri_loss_desc *d, int64_t target) {
    return target != d->ignore_index && target >= 0 && target < d->classes;
}

typedef struct entropy_loop {
    const fri_loss_desc *d;
    const void *x;
    targets t;
    real *lse;
    group *groups;
    real g;
    void *dx;
} entropy_loop;

static void group_forward(const void *context, int64_t at, int thread) {
    const entropy_loop *l = context;
    const fri_loss_desc *d = l->d;
    const targets *t = &l->t;
    const void *x = l->x;
    const int64_t *classes = d->shares ? NULL : t->target, rows = fri_ceil_div(d->rows, GROUPS);
    real *lse = l->lse;
    group g = {.bad = -1};
    for (int64_t row = at * rows; row < fri_min_i64(d->rows, (at + 1) * rows); row++) {
        const bool plain = classes != NULL && t->weight == NULL, counted = classes == NULL || counts(d, classes[row]);
        const double loss =
            plain ? row_loss(d, row, x, classes[row], &lse[row]) : row_loss_of_shares(d, row, x, t, &lse[row]);
        if (counted) {
            g.loss += loss;
            g.counted += classes != NULL && t->weight != NULL ? (double)t->weight[classes[row]] : 1;
        } else if (classes[row] != d->ignore_index && g.bad < 0) {
            g.bad = row;
        }
    }
    l->groups[at] = g;
}

size_t fri_cpu_cross_entropy_workspace(const fri_loss_desc *d) {
    return 0; /* the groups' sums are on the stack */
}

fr_status fri_cpu_cross_entropy_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                        const void *weight, void *loss, void *lse, void *factors, int64_t *bad) {
    group groups[GROUPS];
    FRI_TRY(fri_cpu_accepts("cross_entropy", d->dtype));
    fri_cpu_loss_pieces(d, GROUPS, group_forward, &(entropy_loop){d, x, targets_of(d, target, weight), lse, groups});
    group all = {.bad = -1};
    for (int i = 0; i < GROUPS; i++) {
        all.loss += groups[i].loss;
        all.counted += groups[i].counted;
        if (all.bad < 0) all.bad = groups[i].bad;
    }
    *(real *)loss = (real)(all.loss / all.counted); /* NaN without counted rows, as in PyTorch */
    *(real *)factors = (real)all.counted;
    *bad = all.bad;
    return FR_OK;
}

/* fri_share_gradient of a block whose target is `q` everywhere, with sum 1. */
FRI_CLONES static void gradient_block(int64_t n, const real *v, real lse, real q, real g, real *dx) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = (fri_exp(v[i] - lse) - q) * g;
}

/* q_other is the smoothed target of the wrong classes, q_target of the right one. */
static void row_backward(const fri_loss_desc *d, int64_t row, const void *x, int64_t target, real lse, real g,
                         void *dx) {
    real xbuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    const real q_other = (real)(d->label_smoothing / (double)d->classes);
    const real q_target = (real)(1 - d->label_smoothing + d->label_smoothing / (double)d->classes);
    bool counted = counts(d, target);
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        const real *v = fri_cpu_load(d->dtype, x, at, n, xbuf);
        real *out = fri_cpu_target(d->dtype, dx, at, dxbuf);
        if (counted) {
            bool here = target >= j && target < j + n;
            real right = here ? (fri_exp(v[target - j] - lse) - q_target) * g : 0; /* before dx overwrites x */
            gradient_block(n, v, lse, q_other, g, out);
            if (here) out[target - j] = right;
        } else {
            memset(out, 0, (size_t)n * sizeof *out);
        }
        fri_cpu_store(d->dtype, dx, at, n, out);
    }
}

static void row_backward_of_shares(const fri_loss_desc *d, int64_t row, const void *x, const targets *t, real lse,
                                   real g, void *dx) {
    real xbuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    double all = 0;
    for (int64_t j = 0; j < d->classes; j++) all += (double)share(d, t, row, j);
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        const real *v = fri_cpu_load(d->dtype, x, at, n, xbuf);
        real *out = fri_cpu_target(d->dtype, dx, at, dxbuf);
        for (int64_t i = 0; i < n; i++) out[i] = fri_share_gradient(v[i], lse, (real)all, share(d, t, row, j + i), g);
        fri_cpu_store(d->dtype, dx, at, n, out);
    }
}

static void any_row_backward(const void *context, int64_t row, int thread) {
    const entropy_loop *l = context;
    const int64_t *classes = l->d->shares ? NULL : l->t.target;
    if (classes == NULL || (l->t.weight != NULL && counts(l->d, classes[row])))
        row_backward_of_shares(l->d, row, l->x, &l->t, l->lse[row], l->g, l->dx);
    else
        row_backward(l->d, row, l->x, classes[row], l->lse[row], l->g, l->dx);
}

fr_status fri_cpu_cross_entropy_backward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                         const void *weight, const void *lse, const void *factors, const void *dloss,
                                         void *dx) {
    FRI_TRY(fri_cpu_accepts("cross_entropy", d->dtype));
    const real g = *(const real *)dloss / *(const real *)factors;
    const entropy_loop l = {d, x, targets_of(d, target, weight), (real *)(uintptr_t)lse, NULL, g, dx};
    fri_cpu_loss_pieces(d, d->rows, any_row_backward, &l);
    return FR_OK;
}

/* The first largest element; NaN is larger than every number, as in torch.argmax. */
static int64_t row_argmax(const fri_loss_desc *d, int64_t row, const void *x) {
    real buf[FRI_BLOCK], max = 0;
    int64_t at = -1;
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        const real *v = fri_cpu_load(d->dtype, x, row * d->classes + j, n, buf);
        for (int64_t i = 0; i < n; i++)
            if (at < 0 || v[i] > max || (v[i] != v[i] && max == max)) {
                max = v[i];
                at = j + i;
            }
    }
    return at;
}

typedef struct hits_loop {
    const fri_loss_desc *d;
    const void *x;
    const int64_t *target;
    _Atomic int64_t *hits;
} hits_loop;

static void count_row(const void *context, int64_t row, int thread) {
    const hits_loop *l = context;
    if (counts(l->d, l->target[row]) && row_argmax(l->d, row, l->x) == l->target[row]) ++*l->hits;
}

fr_status fri_cpu_count_correct(const fri_exec *e, const fri_loss_desc *d, const void *x, const int64_t *target,
                                int64_t *correct) {
    FRI_TRY(fri_cpu_accepts("count_correct", d->dtype));
    _Atomic int64_t hits = 0;
    fri_cpu_pieces(d->rows * d->classes, d->rows, count_row, &(hits_loop){d, x, target, &hits});
    *correct = hits;
    return FR_OK;
}
