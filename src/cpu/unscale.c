/* unscale.c - for the loss scaler and gradient clipping: unscale with a check for inf and NaN, and the squared
 * norm. */
#include "cpu/cpu.h"

#include <stdatomic.h>

/* 1 if an element is inf or NaN: x - x is 0 for all others. */
FRI_CLONES static int bad_row(int64_t n, const real *x) {
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= x[i] - x[i] != 0;
    return bad;
}

FRI_CLONES static void multiply_row(int64_t n, real factor, const real *x, real *y) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

typedef struct unscale_pass {
    fr_dtype t;
    real factor;
    void *x;
    atomic_int *bad;
} unscale_pass;

static void unscale_range(const void *context, int64_t first, int64_t last) {
    const unscale_pass *p = context;
    const fr_dtype t = p->t;
    real buf[FRI_BLOCK];
    int bad = 0;
    for (int64_t i = first; i < last; i += FRI_BLOCK) {
        int64_t n = fri_min_i64(FRI_BLOCK, last - i);
        const real *in = fri_cpu_load(t, p->x, i, n, buf);
        bad |= bad_row(n, in);
        if (p->factor == 1) continue;
        real *out = fri_cpu_target(t, p->x, i, buf);
        multiply_row(n, p->factor, in, out);
        fri_cpu_store(t, p->x, i, n, out);
    }
    if (bad) atomic_store_explicit(p->bad, 1, memory_order_relaxed);
}

fr_status fri_cpu_unscale(const fri_exec *e, fr_dtype dtype, int count, const fri_array *arrays, const float *inv_scale,
                          float *found) {
    FRI_TRY(fri_cpu_accepts("unscale", dtype));
    atomic_int bad = 0;
    for (int i = 0; i < count; i++) {
        const unscale_pass p = {dtype, inv_scale != NULL ? (real)*inv_scale : 1, arrays[i].data, &bad};
        fri_cpu_ranges(arrays[i].n, unscale_range, &p);
    }
    if (bad) *found = 1;
    return FR_OK;
}

FRI_CLONES static double squares_row(const void *args, int64_t n, const real *x, const real *unused) {
    double lane[FRI_LANES] = {0};
    FRI_EACH_LANE(n, lane[l] += (double)x[i] * (double)x[i]);
    return fri_cpu_lane_total(lane);
}

_Static_assert((int)FRI_CHUNK == (int)FRI_NORM_UNIT, "a chunk of the reduction is a unit of the norm");

/* Arrays are processed one after the other in the same scratch. */
size_t fri_cpu_norm_squared_workspace(fr_dtype dtype, int count, const fri_array *arrays) {
    size_t max = 0;
    for (int i = 0; i < count; i++) {
        size_t own = fri_cpu_sum_workspace(dtype, arrays[i].n);
        if (own > max) max = own;
    }
    return max;
}

fr_status fri_cpu_norm_squared(const fri_exec *e, fr_dtype dtype, int count, const fri_array *arrays, double *out) {
    for (int i = 0; i < count; i++) {
        double total = 0;
        fr_status s =
            fri_cpu_reduce(e, "norm_squared", dtype, arrays[i].n, squares_row, NULL, arrays[i].data, NULL, &total);
        if (s < 0) return s;
        *out += total;
    }
    return FR_OK;
}
