/* random.c - tensors of uniform and normal numbers. Element i is a function of (seed, stream, i) alone. */
#include "cpu/cpu.h"

typedef struct span {
    real a, b; /* low and high, or mean and standard deviation */
    bool normal;
} span;

/* n numbers from the 32-bit words u; u holds whole groups of four. */
FRI_CLONES static void uniform_row(const span *p, int64_t n, const uint32_t *u, real *y) {
    const real low = p->a, high = p->b;
    for (int64_t i = 0; i < n; i++) y[i] = fri_uniform_between(u[i], low, high);
}

static void normal_row(const span *p, int64_t n, const uint32_t *u, real *y) {
    for (int64_t i = 0; i < n; i += 2) {
        real even, odd;
        fri_normal_pair(u[i], u[i + 1], &even, &odd);
        y[i] = even * p->b + p->a;
        if (i + 1 < n) y[i + 1] = odd * p->b + p->a;
    }
}

static fr_status random_fill(const char *op, fr_dtype t, int64_t n, uint64_t seed, uint64_t stream, const span *p,
                             void *y) {
    FRI_TRY(fri_cpu_accepts(op, t));
    int64_t blocks = fri_ceil_div(n, FRI_BLOCK); /* FRI_BLOCK is divisible by 4: every block starts a counter */
#pragma omp parallel for schedule(static) if (n >= FRI_PARALLEL_MIN)
    for (int64_t i = 0; i < blocks; i++) {
        uint32_t u[FRI_BLOCK];
        real buf[FRI_BLOCK];
        int64_t first = i * FRI_BLOCK, count = fri_min_i64(FRI_BLOCK, n - first);
        real *out = fri_cpu_target(t, y, first, buf);
        fri_cpu_philox(seed, stream, (uint64_t)first / 4, fri_ceil_div(count, 4), u);
        if (p->normal)
            normal_row(p, count, u, out);
        else
            uniform_row(p, count, u, out);
        fri_cpu_store(t, y, first, count, out);
    }
    return FR_OK;
}

fr_status fri_cpu_uniform(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream, double low,
                          double high, void *y) {
    const span p = {.a = (real)low, .b = (real)high, .normal = false};
    return random_fill("uniform", dtype, n, seed, stream, &p, y);
}

fr_status fri_cpu_normal(const fri_exec *e, fr_dtype dtype, int64_t n, uint64_t seed, uint64_t stream, double mean,
                         double std, void *y) {
    const span p = {.a = (real)mean, .b = (real)std, .normal = true};
    return random_fill("normal", dtype, n, seed, stream, &p, y);
}
