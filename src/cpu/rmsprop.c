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

typedef struct rmsprop_step {
    const fri_rmsprop_desc *d;
    fri_rmsprop_coef c;
    const fri_step_item *t;
} rmsprop_step;

static void rmsprop_range(const void *context, int64_t first, int64_t last) {
    const rmsprop_step *s = context;
    const fri_rmsprop_desc *d = s->d;
    const fri_step_item *t = s->t;
    real *square = t->state[0], *buf = d->momentum != 0 ? t->state[1] : NULL,
         *average = d->centered ? t->state[1 + (d->momentum != 0)] : NULL;
    real pbuf[FRI_BLOCK], gbuf[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        const real *g = fri_cpu_load(d->grad_dtype, t->grad, i, n, gbuf);
        fri_cpu_load(d->dtype, t->param, i, n, pbuf);
        real *p = fri_cpu_target(d->dtype, t->param, i, pbuf);
        rmsprop_row(s->c, n, g, p, square + i, buf != NULL ? buf + i : NULL, average != NULL ? average + i : NULL);
        fri_cpu_store(d->dtype, t->param, i, n, p);
    }
}

fr_status fri_cpu_rmsprop(const fri_exec *e, const fri_rmsprop_desc *d, int count, const fri_step_item *items,
                          const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("rmsprop", d->dtype));
    FRI_TRY(fri_cpu_accepts("rmsprop", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    rmsprop_step s = {.d = d, .c = fri_rmsprop_coef_of(d, inv_scale != NULL ? *inv_scale : 1.0f)};
    for (s.t = items; s.t < items + count; s.t++) fri_cpu_ranges(s.t->n, rmsprop_range, &s);
    return FR_OK;
}
