/* exp.h - an exponential that loops can vectorize.
 *
 * f32: exp(x) = 2^n exp(r), n the nearest integer to x / ln 2, |r| <= ln 2 / 2, a polynomial of degree 6 in r (Cephes'
 * expf, S. L. Moshier). Within 1.5 units in the last place where the result is normal; 0 where it would be subnormal;
 * infinity and NaN as expf. Plain multiplications and additions, so every instruction set gives the same bits. */
#ifndef FRI_CPU_EXP_H
#define FRI_CPU_EXP_H

#include "cpu/cpu.h"

#ifdef FRI_REAL_F64
static inline real fri_cpu_exp(real x) {
    return exp(x);
}
#else
static inline float fri_cpu_power_of_two(int32_t n) { /* -126 <= n <= 127 */
    union {
        int32_t bits;
        float value;
    } u = {.bits = (n + 127) << 23};
    return u.value;
}

static inline real fri_cpu_exp(real x) {
    const float low = -87.33654f, high = 88.72283f; /* where results are normal and finite */
    float at = x >= low ? x : low;
    at = at <= high ? at : high;
    float turns = at * 1.44269504f + 12582912.0f - 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    int32_t n = (int32_t)turns;
    float r = at - turns * 0.693359375f - turns * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1;
    int32_t half = n / 2; /* in two factors: n may be 128, which alone is no exponent */
    y = y * fri_cpu_power_of_two(half) * fri_cpu_power_of_two(n - half);
    y = x >= low ? y : 0;
    y = x <= high ? y : (float)INFINITY;
    return x == x ? y : x;
}
#endif

#endif
