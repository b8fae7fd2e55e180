/* dice.c - the Dice loss. Rows are divided into a fixed number of groups, whose f64 sums per class are added in
 * order, so the loss has equal bits for any number of threads. */
#include "cpu/cpu.h"

#include <string.h>

enum { GROUPS = 64 };

/* Sums of a class over rows: p t, p and t. */
typedef struct class_sums {
    double both, p, t;
} class_sums;

static bool counts(const fri_loss_desc *d, int64_t target) {
    return target != d->ignore_index && target >= 0 && target < d->classes;
}

typedef struct dice_loop {
    const fri_loss_desc *d;
    const void *x;
    const int64_t *target;
    real *lse;
    class_sums *sums;
    int64_t *bad; /* per group: the first row with an impossible target, or -1 */
    const real *factors;
    real g;
    void *dx;
} dice_loop;

static void group_forward(const void *context, int64_t at, int thread) {
    const dice_loop *l = context;
    const fri_loss_desc *d = l->d;
    const int64_t *target = l->target, rows = fri_ceil_div(d->rows, GROUPS);
    class_sums *sum = l->sums + at * d->classes;
    real buf[FRI_BLOCK], *lse = l->lse;
    int64_t bad = -1;
    memset(sum, 0, (size_t)d->classes * sizeof *sum);
    for (int64_t row = at * rows; row < fri_min_i64(d->rows, (at + 1) * rows); row++) {
        lse[row] = (real)fri_cpu_log_sum_exp(d, row, l->x);
        if (!counts(d, target[row])) {
            if (target[row] != d->ignore_index && bad < 0) bad = row;
            continue;
        }
        for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
            int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
            const real *v = fri_cpu_load(d->dtype, l->x, row * d->classes + j, n, buf);
            for (int64_t i = 0; i < n; i++) {
                const double p = (double)fri_exp(v[i] - lse[row]);
                sum[j + i].p += p;
                if (j + i != target[row]) continue;
                sum[j + i].both += p;
                sum[j + i].t++;
            }
        }
    }
    l->bad[at] = bad;
}

size_t fri_cpu_dice_workspace(const fri_loss_desc *d) {
    return GROUPS * (size_t)d->classes * sizeof(class_sums);
}

/* Adds up the groups; other and own as in fri_dice. */
static double finish(const fri_loss_desc *d, const class_sums *sums, real *other, real *own) {
    double loss = 0;
    for (int64_t c = 0; c < d->classes; c++) {
        class_sums all = {0};
        for (int64_t i = 0; i < GROUPS; i++) {
            const class_sums *g = &sums[i * d->classes + c];
            all.both += g->both;
            all.p += g->p;
            all.t += g->t;
        }
        loss += fri_dice(all.both, all.p, all.t, d, &other[c], &own[c]);
    }
    return loss;
}

fr_status fri_cpu_dice_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                               const void *weight, void *loss, void *lse, void *factors, int64_t *bad) {
    int64_t bad_of[GROUPS];
    void *sums = NULL;
    fr_status s = fri_cpu_accepts("dice", d->dtype);
    if (s == FR_OK) s = fri_cpu_workspace(e, "dice", fri_cpu_dice_workspace(d), &sums);
    if (s < 0) return s;
    fri_cpu_loss_pieces(d, GROUPS, group_forward, &(dice_loop){d, x, target, lse, sums, bad_of});
    *bad = -1;
    for (int i = 0; i < GROUPS; i++)
        if (*bad < 0) *bad = bad_of[i];
    *(real *)loss = (real)finish(d, sums, factors, (real *)factors + d->classes);
    return FR_OK;
}

static void row_backward(const void *context, int64_t row, int thread) {
    const dice_loop *l = context;
    const fri_loss_desc *d = l->d;
    const int64_t target = l->target[row];
    const real lse = l->lse[row], g = l->g, *factors = l->factors;
    real xbuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    const bool counted = counts(d, target);
    double mean = 0; /* of dloss/dp, weighted by the probabilities */
    for (int64_t j = 0; j < d->classes && counted; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
        const real *v = fri_cpu_load(d->dtype, l->x, row * d->classes + j, n, xbuf);
        for (int64_t i = 0; i < n; i++)
            mean += (double)(fri_exp(v[i] - lse) * fri_dice_slope(factors, d->classes, j + i, target));
    }
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        const real *v = fri_cpu_load(d->dtype, l->x, at, n, xbuf);
        real *out = fri_cpu_target(d->dtype, l->dx, at, dxbuf);
        for (int64_t i = 0; i < n; i++)
            out[i] = counted
                         ? fri_exp(v[i] - lse) * (fri_dice_slope(factors, d->classes, j + i, target) - (real)mean) * g
                         : 0;
        fri_cpu_store(d->dtype, l->dx, at, n, out);
    }
}

fr_status fri_cpu_dice_backward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                                const void *weight, const void *lse, const void *factors, const void *dloss, void *dx) {
    FRI_TRY(fri_cpu_accepts("dice", d->dtype));
    fri_cpu_loss_pieces(d, d->rows, row_backward,
                        &(dice_loop){d, x, target, (real *)(uintptr_t)lse, /* only read */
                                     .factors = factors, .g = *(const real *)dloss, .dx = dx});
    return FR_OK;
}
