/* random.c - tensors of uniform and normal numbers. Element i is a function of (seed, stream, i) alone. */
#include "cpu/cpu.h"

typedef struct span {
    real a, b; /* low and high, or mean and standard deviation */
    bool normal;
    fr_dtype t;
    uint64_t seed, stream;
    void *y;
} span;

/* n numbers from the 32-bit words u; u holds whole groups of four. */
FRI_CLONES static void uniform_row(const span *p, int64_t n, const uint32_t *u, real *y) {
    const real low = p->a, high = p->b;
    for (int64_t i = 0; i < n; i++) y[i] = fri_uniform_between(u[i], low, high);
}

FRI_CLONES static void normal_row(const span *p, int64_t n, const uint32_t *u, real *y) {
    const real mean = p->a, std = p->b;
    real even, odd;
    for (int64_t i = 0; i + 1 < n; i += 2) {
        fri_normal_pair(u[i], u[i + 1], &even, &odd);
        y[i] = even * std + mean;
        y[i + 1] = odd * std + mean;
    }
    if (n % 2 == 0) return;
    fri_normal_pair(u[n - 1], u[n], &even, &odd);
    y[n - 1] = even * std + mean;
}

/* FRI_BLOCK is divisible by 4: every block starts a counter. */
static void random_range(const void *context, int64_t first, int64_t last) {
    const span *p = context;
    for (int64_t i = first, count; i < last; i += count) {
        uint32_t u[FRI_BLOCK];
        real buf[FRI_BLOCK];
        count = fri_min_i64(FRI_BLOCK, last - i);
        real *out = fri_cpu_target(p->t, p->y, i, buf);
        fri_cpu_philox(p->seed, p->stream, (uint64_t)i / 4, fri_ceil_div(count, 4), u);
        (p->normal ? normal_row : uniform_row)(p, count, u, out);
        fri_cpu_store(p->t, p->y, i, count, out);
    }
}

static fr_status random_fill(const char *op, int64_t n, const span *p) {
    FRI_TRY(fri_cpu_accepts(op, p->t));
    fri_cpu_ranges(n, random_range, p);
    return FR_OK;
}

fr_status fri_cpu_uniform(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream, double low,
                          double high, void *y) {
    const span p = {(real)low, (real)high, false, dtype, seed, stream, y};
    return random_fill("uniform", n, &p);
}

fr_status fri_cpu_normal(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream, double mean,
                         double std, void *y) {
    const span p = {(real)mean, (real)std, true, dtype, seed, stream, y};
    return random_fill("normal", n, &p);
}
