/* adam8.c - Adam on 8-bit moments: per block of 256 elements widen, step, find the new scales, narrow. */
#include "cpu/codes.h"

enum { BLOCK = FRI_SCALE_BLOCK };

FRI_CLONES static void step_row(fri_adam_coef c, int64_t n, const real *grad, real *param, real *m, real *v) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) fri_adam_update(c, grad[i], &param[i], &m[i], &v[i]);
}

typedef struct adam8_step {
    const fri_adam_desc *d;
    fri_adam_coef c;
    fri_code_map maps[2];
    const fri_step_item *t;
} adam8_step;

static void step_block(const void *context, int64_t block, int thread) {
    const adam8_step *s = context;
    const fri_adam_desc *d = s->d;
    const fri_step_item *t = s->t;
    uint8_t *m_code = t->state[0], *v_code = t->state[2];
    float *m_absmax = t->state[1], *v_absmax = t->state[3];
    real pbuf[BLOCK], gbuf[BLOCK], m[BLOCK], v[BLOCK];
    int64_t first = block * BLOCK, n = fri_min_i64(BLOCK, t->n - first);
    const real *g = fri_cpu_load(d->grad_dtype, t->grad, first, n, gbuf);
    fri_cpu_load(d->dtype, t->param, first, n, pbuf);
    real *p = fri_cpu_target(d->dtype, t->param, first, pbuf);
    fri_codes_widen(&s->maps[0], n, m_code + first, m_absmax[block], m);
    fri_codes_widen(&s->maps[1], n, v_code + first, v_absmax[block], v);
    step_row(s->c, n, g, p, m, v);
    fri_cpu_store(d->dtype, t->param, first, n, p);
    m_absmax[block] = (float)fri_codes_largest(n, m);
    v_absmax[block] = (float)fri_codes_largest(n, v);
    fri_codes_narrow(&s->maps[0], n, m, m_absmax[block], m_code + first);
    fri_codes_narrow(&s->maps[1], n, v, v_absmax[block], v_code + first);
}

fr_status fri_cpu_adam8(const fri_exec *e, const fri_adam_desc *d, const float *maps, int count,
                        const fri_step_item *items, const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("adam8", d->dtype));
    FRI_TRY(fri_cpu_accepts("adam8", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    adam8_step s = {.d = d};
    for (int k = 0; k < 2; k++) fri_code_map_read(maps + k * 256, &s.maps[k]);
    for (int k = 0; k < count; k++) {
        s.c = fri_adam_coef_of(d, *items[k].step, inv_scale != NULL ? *inv_scale : 1.0f);
        s.t = &items[k];
        fri_cpu_pieces(items[k].n, fri_ceil_div(items[k].n, BLOCK), step_block, &s);
    }
    return FR_OK;
}
