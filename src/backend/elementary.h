/* elementary.h - exponentials, logarithms, tanh, the normal distribution, sine, cosine and powers, for both backends.
 *
 * Functions of f32 are polynomials without branches or calls, so compilers vectorize loops around them. Operations are
 * plain multiplications, additions and divisions, which no file contracts: all compilers, instruction sets and C
 * libraries give equal bits. Errors are in units of the result's last place (tests/ops/elementary.c looks at all
 * floats). A file compiled with FRI_REAL_F64 has the C library's functions under the same names. */
#ifndef FRI_BACKEND_ELEMENTARY_H
#define FRI_BACKEND_ELEMENTARY_H

#include "base/philox.h"

#include <math.h>
#include <stdbool.h>

/* ---- double, one number at a time -------------------------------------------------------------------------------- */

typedef union fri_double_bits {
    double value;
    uint64_t bits;
} fri_double_bits;

/* x times 2^n, for a product within the normal numbers; n from -1022 to 1023. */
static inline FRI_HOST_DEVICE double fri_scaled(double x, int64_t n) {
    fri_double_bits power;
    power.bits = (uint64_t)(n + 1023) << 52;
    return x * power.value;
}

/* exp(x) within 1 unit: 2^n exp(r), exp(r) from Taylor's series. 0 below -708. */
static inline FRI_HOST_DEVICE double fri_exp64(double x) {
    if (!(x >= -708)) return x == x ? 0 : x;
    if (x > 709.782712893384) return INFINITY;
    const double n = floor(x * 1.4426950408889634 + 0.5);
    const double r = x - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    double sum = 1;
    for (int k = 14; k > 0; k--) sum = 1 + sum * r * (1.0 / k);
    return 2 * fri_scaled(sum, (int64_t)n - 1);
}

/* log(x) within 1 unit: n log(2) + log(m), m from 0.7 to 1.4, log(m) = 2 artanh(s). */
static inline FRI_HOST_DEVICE double fri_ln64(double x) {
    if (!(x > 0) || x > 1.7976931348623157e308) return x == 0 ? -INFINITY : x > 0 || x != x ? x : NAN;
    const int64_t small = x < 0x1p-1000 ? 54 : 0;
    fri_double_bits m;
    m.value = small > 0 ? x * 0x1p54 : x;
    const int64_t n = (int64_t)((m.bits + (UINT64_C(0x3ff) << 52) - UINT64_C(0x3fe6a09e667f3bcd)) >> 52) - 1023;
    m.bits -= (uint64_t)n << 52;
    const double f = m.value - 1, s = f / (2 + f), w = s * s;
    double sum = 0;
    for (int k = 21; k > 1; k -= 2) sum = w * (2.0 / k + sum);
    const double e = (double)(n - small), half = 0.5 * f * f;
    return e * 0.693147180369123816490 + (f - (half - (s * (half + sum) + e * 1.90821492927058770002e-10)));
}

/* Sine and cosine within 1e-16 of 1, for |x| up to 1e5. */
static inline FRI_HOST_DEVICE void fri_sin_cos64(double x, double *sine, double *cosine) {
    const double n = floor(x * 0.63661977236758134308 + 0.5);
    const double r = x - n * 1.57079632673412561417 - n * 6.07710050650619224932e-11, w = r * r;
    const int64_t quarter = (int64_t)n & 3;
    double s = 1, c = 1;
    for (int k = 18; k > 0; k -= 2) {
        s = 1 - s * w * (1.0 / (k * (k + 1)));
        c = 1 - c * w * (1.0 / (k * (k - 1)));
    }
    s *= r;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

/* x to the power y. Powers of whole numbers are products. */
static inline FRI_HOST_DEVICE double fri_power64(double x, double y) {
    if (!(fabs(y) < 0x1p31) || (double)(int64_t)y != y) return fri_exp64(y * fri_ln64(x));
    double power = 1;
    for (int64_t n = (int64_t)fabs(y); n > 0; n >>= 1, x *= x) power = n & 1 ? power * x : power;
    return y < 0 ? 1 / power : power;
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

#ifdef FRI_REAL_F64
typedef double fri_real;
#define fri_exp   exp
#define fri_ln    log
#define fri_expm1 expm1
#define fri_log1p log1p
#define fri_tanh  tanh
#define fri_power pow
static inline FRI_HOST_DEVICE fri_real fri_silu_sigmoid(fri_real x) {
    return x == x ? 1 / (1 + exp(-x)) : 1;
}
static inline FRI_HOST_DEVICE fri_real fri_normal_below(fri_real x) {
    return 0.5 * erfc(x * -0.70710678118654752440);
}
static inline FRI_HOST_DEVICE void fri_sin_cos(fri_real x, fri_real *sine, fri_real *cosine) {
    *sine = sin(x);
    *cosine = cos(x);
}
#else
typedef float fri_real;

typedef union fri_float_bits {
    float value;
    uint32_t bits;
    int32_t ordered; /* as for non-negative floats */
} fri_float_bits;

#define FRI_EXP_LOW  (-87.33654f) /* between these results are normal and finite */
#define FRI_EXP_HIGH 88.72283f

/* 1.5 * 2^23: an addend is rounded to the nearest integer, in the lowest bits. */
#define FRI_ROUNDING 12582912.0f

/* x = n ln 2 + r, |r| <= ln 2 / 2: returns r; the lowest bits of *sum are n. */
static inline FRI_HOST_DEVICE float fri_exp_split(float x, fri_float_bits *sum) {
    sum->value = x * 1.44269504f + FRI_ROUNDING;
    const float turns = sum->value - FRI_ROUNDING;
    return x - turns * 0.693359375f + turns * 2.12194440e-4f;
}

/* e^r - 1, a polynomial of degree 6 (Cephes' expf, S. L. Moshier). */
static inline FRI_HOST_DEVICE float fri_exp_rest(float r) {
    float y = 1.9875691500e-4f * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    return y * (r * r) + r;
}

/* y times 2^n: a normal result's exponent is a sum. */
static inline FRI_HOST_DEVICE float fri_exp_scale(float y, fri_float_bits sum) {
    fri_float_bits scaled;
    scaled.value = y;
    scaled.bits += sum.bits << 23;
    return scaled.value;
}

/* exp(x) = 2^n exp(r), n the nearest integer to x / ln 2: within 1.5 units where the result is normal; 0 where the
 * result would be subnormal; infinity and NaN as expf. */
static inline FRI_HOST_DEVICE float fri_exp(float x) {
    fri_float_bits sum;
    const float r = fri_exp_split(x, &sum);
    float y = fri_exp_scale(fri_exp_rest(r) + 1, sum);
    y = x >= FRI_EXP_LOW ? y : 0;
    y = x <= FRI_EXP_HIGH ? y : (float)INFINITY;
    return x == x ? y : x;
}

/* 1 / (1 + e^-x), for NaN something in 0..1, in as few instructions as possible, because instructions bound silu. With
 * n and r of -x as above e^r = (c + r) / (c - r), c = r coth(r / 2), here 2 + a polynomial in r^2 (relative error of
 * e^r 6e-10): a single division is enough. Multiplications and additions are fused (processors without fused
 * instructions compute equal bits, slowly), ln 2 is a single number (a relative error of 3e-9 in x, a twentieth of x's
 * rounding), and the rounding constant also adds 127, so the sum's lowest bits, shifted, are 2^n. Limits are compared
 * as integers: x <= 87.33; then as unsigned numbers, larger for negative x, x >= -88.5. Below -87.68 the result may be
 * 0. */
static inline FRI_HOST_DEVICE float fri_silu_sigmoid(float x) {
    const float rounding = FRI_ROUNDING + 127;
    fri_float_bits from, sum, power;
    from.value = x;
    from.ordered = from.ordered < 0x42aeac50 ? from.ordered : 0x42aeac50;
    from.bits = from.bits < 0xc2b10000u ? from.bits : 0xc2b10000u;
    sum.value = fmaf(from.value, -1.44269504f, rounding);
    power.bits = sum.bits << 23;
    const float r = fmaf(sum.value - rounding, -0.693147182f, -from.value), w = r * r;
    const float c = fmaf(fmaf(w, -2.7659754e-3f, 1.66666180e-1f), w, 2), below = c - r;
    return below / fmaf(c + r, power.value, below);
}

/* exp(x) - 1 within 2 units: 2^n (e^r - 1) + (2^n - 1), halved for n = 128. */
static inline FRI_HOST_DEVICE float fri_expm1(float x) {
    fri_float_bits sum, half;
    const float rest = fri_exp_rest(fri_exp_split(x > -30 ? x : -30, &sum)); /* -1, as for all smaller x */
    half.bits = (sum.bits + 126) << 23;
    const float y = 2 * (half.value * rest + (half.value - 0.5f));
    return x <= FRI_EXP_HIGH ? y : x == x ? (float)INFINITY : x;
}

/* log of (1 + f) 2^e, 1 + f from sqrt(1/2) to sqrt(2). */
static inline FRI_HOST_DEVICE float fri_ln_parts(float f, float e) {
    const float w = f * f;
    float y = -7.63575062e-2f * f + 1.27618611e-1f;
    y = y * f - 1.31596833e-1f;
    y = y * f + 1.42016277e-1f;
    y = y * f - 1.66234076e-1f;
    y = y * f + 2.00012401e-1f;
    y = y * f - 2.50008196e-1f;
    y = y * f + 3.33333313e-1f;
    y = y * (w * f) + e * -2.12194440e-4f;
    return f + (y - 0.5f * w) + e * 0.693359375f;
}

/* log(x) within 2 units. */
static inline FRI_HOST_DEVICE float fri_ln(float x) {
    fri_float_bits m;
    m.value = x < 0x1p-126f ? x * 0x1p23f : x;
    const int32_t e = (int32_t)(m.bits - 0x3f3504f3u) >> 23;
    m.bits -= (uint32_t)e << 23;
    float y = fri_ln_parts(m.value - 1, (float)(x < 0x1p-126f ? e - 23 : e));
    y = x < (float)INFINITY ? y : x; /* NaN too */
    y = x == 0 ? -(float)INFINITY : y;
    return x < 0 ? (float)NAN : y;
}

/* log(1 + x) within 2 units: with 2^e of the rounded 1 + x, f = x 2^-e + (2^-e - 1) has only one rounding. 2^-e may be
 * subnormal, and is the product of two powers. */
static inline FRI_HOST_DEVICE float fri_log1p(float x) {
    fri_float_bits sum, half, rest;
    sum.value = 1 + x;
    const int32_t e = (int32_t)(sum.bits - 0x3f3504f3u) >> 23, part = e >> 1;
    half.bits = (uint32_t)(127 - part) << 23;
    rest.bits = (uint32_t)(127 - (e - part)) << 23;
    float y = fri_ln_parts(x * half.value * rest.value + (half.value * rest.value - 1), (float)e);
    y = x < (float)INFINITY ? y : x; /* NaN too */
    y = x == -1 ? -(float)INFINITY : y;
    return x < -1 ? (float)NAN : y;
}

/* tanh(x) within 2 units: an odd polynomial below 0.625, else 1 - 2 / (exp(2 |x|) + 1). NaN stays. */
static inline FRI_HOST_DEVICE float fri_tanh(float x) {
    const float size = x < 0 ? -x : x, w = x * x;
    const float far = 1 - 2 / (fri_exp(2 * size) + 1);
    float near = -5.69486525e-3f * w + 2.06300709e-2f;
    near = near * w - 5.37369512e-2f;
    near = near * w + 1.33314088e-1f;
    near = near * w - 3.33332807e-1f;
    near = near * w * x + x;
    return size < 0.625f ? near : x < 0 ? -far : far;
}

/* The share of the standard normal distribution below x, within 2 units above -0.75, 4 units below; 0 below -12.9. For
 * |x| < 1 it is 1/2 + x times a polynomial in x^2; else, with a = |x|, exp(-a^2 / 2) / (a + k) times a polynomial in
 * (a - k) / (a + k), or 1 minus that. a^2 is the square of a's upper half, which is exact, and a rest. */
static inline FRI_HOST_DEVICE float fri_normal_below(float x) {
    fri_float_bits a, top, sum;
    a.value = x < 0 ? -x : x;
    a.value = a.value < 12.9f ? a.value : 12.9f;
    top.bits = a.bits & 0xfffff000u;
    const float low = (a.value - top.value) * (a.value + top.value) * -0.5f;
    const float rest = fri_exp_rest(fri_exp_split(-0.5f * top.value * top.value, &sum) + low);
    const float above = a.value + 3.03125f, s = (a.value - 3.03125f) / above, w = x * x;
    float y = -1.02677883e-3f * s + 6.74188370e-4f;
    y = y * s + 7.28747947e-3f;
    y = y * s - 9.29191336e-3f;
    y = y * s - 5.13435416e-2f;
    y = y * s + 2.35756248e-1f;
    y = y * s - 5.13348699e-1f;
    y = y * s + 7.30214834e-1f;
    y /= above;
    y = fri_exp_scale(y * rest + y, sum);
    y = x < 0 ? x > -12.9f ? y : 0 : 1 - y;
    float near = -8.16961619e-6f * w + 1.15018884e-4f;
    near = near * w - 1.18801999e-3f;
    near = near * w + 9.97416303e-3f;
    near = near * w - 6.64905384e-2f;
    near = near * w + 3.98942292e-1f;
    y = w < 1 ? near * x + 0.5f : y;
    return x == x ? y : x;
}

/* Sine and cosine for x from 0 to 6.2832, within 2^-23 of the value. */
static inline FRI_HOST_DEVICE void fri_sin_cos(float x, float *sine, float *cosine) {
    fri_float_bits sum;
    sum.value = x * 0.636619772f + FRI_ROUNDING;
    const float n = sum.value - FRI_ROUNDING;
    const float r = x - n * 1.5703125f - n * 4.83826792e-4f, w = r * r;
    const float s = ((-1.94959677e-4f * w + 8.33198242e-3f) * w - 1.66666508e-1f) * (w * r) + r;
    const float c = ((2.44306702e-5f * w - 1.38873013e-3f) * w + 4.16666456e-2f) * (w * w) - 0.5f * w + 1;
    const bool odd = sum.bits & 1, second = sum.bits & 2, third = (sum.bits + 1) & 2;
    const float u = odd ? c : s, v = odd ? s : c;
    *sine = second ? -u : u;
    *cosine = third ? -v : v;
}

/* x to the power y within 1 unit. */
static inline FRI_HOST_DEVICE float fri_power(float x, float y) {
    return (float)fri_power64((double)x, (double)y);
}
#endif

#endif
