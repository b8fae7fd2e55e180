/* sgd.c - torch.optim.SGD in one pass over parameter, gradient and momentum, one parameter after the other. */
#include "backend/arith_optim.h"
#include "cpu/cpu.h"

FRI_CLONES static void plain_row(fri_sgd_coef c, int64_t n, const real *grad, real *param) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) param[i] -= c.lr * fri_sgd_gradient(c, param[i], grad[i]);
}

FRI_CLONES static void momentum_row(fri_sgd_coef c, int64_t n, const real *grad, real *param, real *buf) {
#pragma GCC ivdep
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i++) {
        real g = fri_sgd_gradient(c, param[i], grad[i]);
        real b = fri_sgd_momentum(c, g, buf[i]);
        param[i] = fri_sgd_step(c, param[i], g, b);
        buf[i] = b;
    }
}

typedef struct sgd_pass {
    const fri_sgd_desc *d;
    fri_sgd_coef c;
    const fri_step_item *t;
} sgd_pass;

static void sgd_range(const void *context, int64_t first, int64_t last) {
    const sgd_pass *s = context;
    const fri_sgd_desc *d = s->d;
    void *param = s->t->param, *buf = s->t->state[0];
    real pbuf[FRI_BLOCK], gbuf[FRI_BLOCK], bbuf[FRI_BLOCK];
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        const real *g = fri_cpu_load(d->grad_dtype, s->t->grad, i, n, gbuf);
        fri_cpu_load(d->dtype, param, i, n, pbuf);
        real *p = fri_cpu_target(d->dtype, param, i, pbuf);
        if (buf == NULL) {
            plain_row(s->c, n, g, p);
        } else {
            if (!s->c.first) fri_cpu_load(d->dtype, buf, i, n, bbuf);
            real *b = fri_cpu_target(d->dtype, buf, i, bbuf);
            momentum_row(s->c, n, g, p, b);
            fri_cpu_store(d->dtype, buf, i, n, b);
        }
        fri_cpu_store(d->dtype, param, i, n, p);
    }
}

fr_status fri_cpu_sgd(const fri_exec *e, const fri_sgd_desc *d, int count, const fri_step_item *items,
                      const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("sgd", d->dtype));
    FRI_TRY(fri_cpu_accepts("sgd", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    sgd_pass s = {.d = d, .c = fri_sgd_coef_of(d, inv_scale != NULL ? *inv_scale : 1.0f)};
    for (s.t = items; s.t < items + count; s.t++) fri_cpu_ranges(s.t->n, sgd_range, &s);
    return FR_OK;
}
