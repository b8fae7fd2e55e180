/* bce.c - binary cross-entropy of a sigmoid per class, and focal loss. Rows are divided into a fixed number of
 * groups, whose f64 sums are added in order, so the loss has equal bits for any number of threads. */
#include "cpu/cpu.h"

#include <string.h>

enum { GROUPS = 64 };

typedef struct group {
    double loss;
    int64_t counted, bad; /* rows; the first row with an impossible target, or -1 */
} group;

static real target_of(const fri_loss_desc *d, const void *target, int64_t row, int64_t j) {
    return d->shares ? ((const real *)target)[row * d->classes + j] : (real)(((const int64_t *)target)[row] == j);
}

static bool counts(const fri_loss_desc *d, const void *target, int64_t row, int64_t *bad) {
    const int64_t *classes = target;
    if (d->shares || (classes[row] >= 0 && classes[row] < d->classes))
        return d->shares || classes[row] != d->ignore_index;
    if (classes[row] != d->ignore_index && *bad < 0) *bad = row;
    return false;
}

typedef struct bce_loop {
    const fri_loss_desc *d;
    const void *x, *target;
    const real *weight;
    group *groups;
    real g;
    void *dx;
} bce_loop;

static void group_forward(const void *context, int64_t at, int thread) {
    const bce_loop *l = context;
    const fri_loss_desc *d = l->d;
    const void *target = l->target;
    const real *weight = l->weight;
    const int64_t rows = fri_ceil_div(d->rows, GROUPS), last = fri_min_i64(d->rows, (at + 1) * rows);
    real buf[FRI_BLOCK];
    group g = {.bad = -1};
    for (int64_t row = at * rows; row < last; row++) {
        if (!counts(d, target, row, &g.bad)) continue;
        g.counted++;
        for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
            int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j);
            const real *v = fri_cpu_load(d->dtype, l->x, row * d->classes + j, n, buf);
            for (int64_t i = 0; i < n; i++)
                g.loss +=
                    (double)fri_focal(v[i], target_of(d, target, row, j + i), weight != NULL ? weight[j + i] : 1, d);
        }
    }
    l->groups[at] = g;
}

size_t fri_cpu_bce_workspace(const fri_loss_desc *d) {
    return 0; /* the groups' sums are on the stack */
}

fr_status fri_cpu_bce_forward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                              const void *weight, void *loss, void *lse, void *factors, int64_t *bad) {
    group groups[GROUPS], all = {.bad = -1};
    FRI_TRY(fri_cpu_accepts("bce", d->dtype));
    fri_cpu_loss_pieces(d, GROUPS, group_forward, &(bce_loop){d, x, target, weight, groups});
    for (int i = 0; i < GROUPS; i++) {
        all.loss += groups[i].loss;
        all.counted += groups[i].counted;
        if (all.bad < 0) all.bad = groups[i].bad;
    }
    *(real *)factors = (real)(all.counted * d->classes);
    *(real *)loss = (real)(all.loss / (double)(all.counted * d->classes));
    *bad = all.bad;
    return FR_OK;
}

static void row_backward(const void *context, int64_t row, int thread) {
    const bce_loop *l = context;
    const fri_loss_desc *d = l->d;
    real xbuf[FRI_BLOCK], dxbuf[FRI_BLOCK];
    int64_t bad = 0;
    const bool counted = counts(d, l->target, row, &bad);
    for (int64_t j = 0; j < d->classes; j += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, d->classes - j), at = row * d->classes + j;
        const real *v = fri_cpu_load(d->dtype, l->x, at, n, xbuf);
        real *out = fri_cpu_target(d->dtype, l->dx, at, dxbuf);
        for (int64_t i = 0; i < n; i++) {
            const real w = l->weight != NULL ? l->weight[j + i] : 1;
            out[i] = counted ? l->g * fri_focal_gradient(v[i], target_of(d, l->target, row, j + i), w, d) : 0;
        }
        fri_cpu_store(d->dtype, l->dx, at, n, out);
    }
}

fr_status fri_cpu_bce_backward(const fri_exec *e, const fri_loss_desc *d, const void *x, const void *target,
                               const void *weight, const void *lse, const void *factors, const void *dloss, void *dx) {
    FRI_TRY(fri_cpu_accepts("bce", d->dtype));
    const real g = *(const real *)dloss / *(const real *)factors;
    fri_cpu_loss_pieces(d, d->rows, row_backward, &(bce_loop){d, x, target, weight, .g = g, .dx = dx});
    return FR_OK;
}
