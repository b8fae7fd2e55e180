/* adam8.c - Adam on 8-bit moments: per block of 256 elements widen, step, find the new scales, narrow.
 *
 * A block is one task's unit whatever the number of threads, so the bits do not depend on it. Everything between the
 * two codes of an element stays on the stack. */
#include "cpu/cpu.h"

#include <math.h>

enum { BLOCK = FRI_ADAM8_BLOCK, CODES = 256 };

struct maps {
    real value[2][CODES], midpoint[2][CODES - 1];
};

FRI_CLONES static void widen(const real *value, int64_t n, const uint8_t *code, real absmax, real *x) {
    for (int64_t i = 0; i < n; i++) x[i] = value[code[i]] * absmax;
}

FRI_CLONES static void step_row(fri_adam_coef c, int64_t n, const real *grad, real *param, real *m, real *v) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) fri_adam_update(c, grad[i], &param[i], &m[i], &v[i]);
}

/* The largest magnitude. A NaN is passed over, as by fmax: the parameter shows it. */
FRI_CLONES static real largest(int64_t n, const real *x) {
    real most = 0;
    for (int64_t i = 0; i < n; i++) {
        real a = x[i] < 0 ? -x[i] : x[i];
        most = a > most ? a : most;
    }
    return most;
}

/* A block of zeros gets the codes of 0. */
FRI_CLONES static void narrow(const real *midpoint, int64_t n, const real *x, float absmax, uint8_t *code) {
    real divisor = absmax > 0 ? (real)absmax : 1;
    int32_t nearest[BLOCK];
    for (int64_t i = 0; i < n; i++) nearest[i] = fri_nearest_code(midpoint, x[i] / divisor);
    for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)nearest[i];
}

static void step_block(const fri_adam_desc *d, fri_adam_coef c, const struct maps *maps, int64_t block,
                       const fri_step_item *t) {
    uint8_t *m_code = t->state[0], *v_code = t->state[2];
    float *m_absmax = t->state[1], *v_absmax = t->state[3];
    real pbuf[BLOCK], gbuf[BLOCK], m[BLOCK], v[BLOCK];
    int64_t first = block * BLOCK, n = fri_min_i64(BLOCK, t->n - first);
    const real *g = fri_cpu_load(d->grad_dtype, t->grad, first, n, gbuf);
    fri_cpu_load(d->dtype, t->param, first, n, pbuf);
    real *p = fri_cpu_target(d->dtype, t->param, first, pbuf);
    widen(maps->value[0], n, m_code + first, m_absmax[block], m);
    widen(maps->value[1], n, v_code + first, v_absmax[block], v);
    step_row(c, n, g, p, m, v);
    fri_cpu_store(d->dtype, t->param, first, n, p);
    m_absmax[block] = (float)largest(n, m);
    v_absmax[block] = (float)largest(n, v);
    narrow(maps->midpoint[0], n, m, m_absmax[block], m_code + first);
    narrow(maps->midpoint[1], n, v, v_absmax[block], v_code + first);
}

static void read_maps(const float *from, struct maps *to) {
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < CODES; i++) to->value[k][i] = from[k * CODES + i];
        for (int i = 0; i + 1 < CODES; i++) to->midpoint[k][i] = (to->value[k][i] + to->value[k][i + 1]) * (real)0.5;
    }
}

fr_status fri_cpu_adam8(const fri_exec *e, const fri_adam_desc *d, const float *maps, int count,
                        const fri_step_item *items, const float *inv_scale, const float *found) {
    fr_status s = fri_cpu_accepts("adam8", d->dtype);
    if (s < 0) return s;
    s = fri_cpu_accepts("adam8", d->grad_dtype);
    if (s < 0) return s;
    if (found != NULL && *found != 0) return FR_OK;
    struct maps wide;
    read_maps(maps, &wide);
    for (int k = 0; k < count; k++) {
        const fri_adam_coef c = fri_adam_coef_of(d, *items[k].step, inv_scale != NULL ? *inv_scale : 1.0f);
        int64_t blocks = fri_ceil_div(items[k].n, BLOCK);
#pragma omp parallel for schedule(static) if (items[k].n >= FRI_PARALLEL_MIN)
        for (int64_t i = 0; i < blocks; i++) step_block(d, c, &wide, i, &items[k]);
    }
    return FR_OK;
}
