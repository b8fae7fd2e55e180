/* adam.c - torch.optim.Adam and AdamW in one pass. m and v are real (f32 for half parameters). */
#include "backend/arith_optim.h"
#include "cpu/cpu.h"

FRI_CLONES static void adam_row(fri_adam_coef c, int64_t n, const real *grad, real *param, real *m, real *v) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) fri_adam_update(c, grad[i], &param[i], &m[i], &v[i]);
}

typedef struct adam_step {
    const fri_adam_desc *d;
    fri_adam_coef c;
    const fri_step_item *t;
} adam_step;

static void adam_range(const void *context, int64_t first, int64_t last) {
    const adam_step *s = context;
    const fri_adam_desc *d = s->d;
    real *m = s->t->state[0], *v = s->t->state[1];
    real pbuf[FRI_BLOCK], gbuf[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        const real *g = fri_cpu_load(d->grad_dtype, s->t->grad, i, n, gbuf);
        fri_cpu_load(d->dtype, s->t->param, i, n, pbuf);
        real *p = fri_cpu_target(d->dtype, s->t->param, i, pbuf);
        adam_row(s->c, n, g, p, m + i, v + i);
        fri_cpu_store(d->dtype, s->t->param, i, n, p);
    }
}

fr_status fri_cpu_adam(const fri_exec *e, const fri_adam_desc *d, int count, const fri_step_item *items,
                       const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("adam", d->dtype));
    FRI_TRY(fri_cpu_accepts("adam", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    const float scale = inv_scale != NULL ? *inv_scale : 1.0f;
    for (int i = 0; i < count; i++) {
        const adam_step step = {d, fri_adam_coef_of(d, *items[i].step, scale), &items[i]};
        fri_cpu_ranges(items[i].n, adam_range, &step);
    }
    return FR_OK;
}
