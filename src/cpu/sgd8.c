/* sgd8.c - SGD on an 8-bit momentum: per block of 256 elements widen, step, find the new scale, narrow. */
#include "cpu/codes.h"

enum { BLOCK = FRI_SCALE_BLOCK };

FRI_CLONES static void step_row(fri_sgd_coef c, int64_t n, const real *grad, real *param, real *buf) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        real g = fri_sgd_gradient(c, param[i], grad[i]);
        real b = fri_sgd_momentum(c, g, buf[i]);
        param[i] = fri_sgd_step(c, param[i], g, b);
        buf[i] = b;
    }
}

static void step_block(const fri_sgd_desc *d, fri_sgd_coef c, const fri_code_map *map, int64_t block,
                       const fri_step_item *t) {
    uint8_t *code = t->state[0];
    float *absmax = t->state[1];
    real pbuf[BLOCK], gbuf[BLOCK], buf[BLOCK];
    int64_t first = block * BLOCK, n = fri_min_i64(BLOCK, t->n - first);
    const real *g = fri_cpu_load(d->grad_dtype, t->grad, first, n, gbuf);
    fri_cpu_load(d->dtype, t->param, first, n, pbuf);
    real *p = fri_cpu_target(d->dtype, t->param, first, pbuf);
    fri_codes_widen(map, n, code + first, absmax[block], buf);
    step_row(c, n, g, p, buf);
    fri_cpu_store(d->dtype, t->param, first, n, p);
    absmax[block] = (float)fri_codes_largest(n, buf);
    fri_codes_narrow(map, n, buf, absmax[block], code + first);
}

fr_status fri_cpu_sgd8(const fri_exec *e, const fri_sgd_desc *d, const float *map, int count,
                       const fri_step_item *items, const float *inv_scale, const float *found) {
    FRI_TRY(fri_cpu_accepts("sgd8", d->dtype));
    FRI_TRY(fri_cpu_accepts("sgd8", d->grad_dtype));
    if (found != NULL && *found != 0) return FR_OK;
    const fri_sgd_coef c = fri_sgd_coef_of(d, inv_scale != NULL ? *inv_scale : 1.0f);
    fri_code_map wide;
    fri_code_map_read(map, &wide);
    for (int k = 0; k < count; k++) {
        int64_t blocks = fri_ceil_div(items[k].n, BLOCK);
#pragma omp parallel for schedule(static) if (items[k].n >= FRI_PARALLEL_MIN)
        for (int64_t i = 0; i < blocks; i++) step_block(d, c, &wide, i, &items[k]);
    }
    return FR_OK;
}
