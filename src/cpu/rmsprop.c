/* rmsprop.c - torch.optim.RMSprop in one pass. The states are real (f32 for half parameters). */
#include "backend/arith_optim.h"
#include "cpu/cpu.h"

FRI_CLONES static void rmsprop_row(fri_rmsprop_coef c, int64_t n, const real *grad, real *param, real *square,
                                   real *buf, real *average) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        fri_rmsprop_update(c, grad[i], &param[i], &square[i], buf != NULL ? &buf[i] : NULL,
                           average != NULL ? &average[i] : NULL);
}

static void rmsprop_range(const fri_rmsprop_desc *d, fri_rmsprop_coef c, int64_t first, int64_t last,
                          const fri_step_item *t) {
    real *square = t->state[0], *buf = d->momentum != 0 ? t->state[1] : NULL,
         *average = d->centered ? t->state[1 + (d->momentum != 0)] : NULL;
    real pbuf[FRI_BLOCK], gbuf[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        const real *g = fri_cpu_load(d->grad_dtype, t->grad, i, n, gbuf);
        fri_cpu_load(d->dtype, t->param, i, n, pbuf);
        real *p = fri_cpu_target(d->dtype, t->param, i, pbuf);
        rmsprop_row(c, n, g, p, square + i, buf != NULL ? buf + i : NULL, average != NULL ? average + i : NULL);
        fri_cpu_store(d->dtype, t->param, i, n, p);
    }
}

static void rmsprop_item(const fri_rmsprop_desc *d, fri_rmsprop_coef c, const fri_step_item *t) {
#pragma omp parallel for schedule(static) if (t->n >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < t->n; i += FRI_CHUNK) rmsprop_range(d, c, i, fri_min_i64(t->n, i + FRI_CHUNK), t);
}

fr_status fri_cpu_rmsprop(const fri_exec *e, const fri_rmsprop_desc *d, int count, const fri_step_item *items,
                          const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("rmsprop", d->dtype));
    FRI_TRY(fri_cpu_accepts("rmsprop", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    const fri_rmsprop_coef c = fri_rmsprop_coef_of(d, inv_scale != NULL ? *inv_scale : 1.0f);
    for (int i = 0; i < count; i++) rmsprop_item(d, c, &items[i]);
    return FR_OK;
}
