/* test_exp.c - ends of the vectorizable exponential, and silu against the C library's exp in f64 (elementary.c has the
 * rest). */
#include <criterion/criterion.h>

#include "backend/arith.h"

static double ulp(float of) {
    return (double)nextafterf(of, INFINITY) - (double)of;
}

Test(exp, ends) {
    cr_expect_eq(fri_exp(0.0f), 1.0f);
    cr_expect_eq(fri_exp(-0.0f), 1.0f);
    cr_expect_eq(fri_exp(-1000.0f), 0.0f);
    cr_expect_eq(fri_exp(-INFINITY), 0.0f);
    cr_expect_eq(fri_exp(INFINITY), INFINITY);
    cr_expect_eq(fri_exp(89.0f), INFINITY);
    cr_expect(isfinite(fri_exp(88.7f)));
    cr_expect(isnan(fri_exp(NAN)));
}

/* Errors in units of the last place of the exact value; of s (1 + |x|) for a gradient, where 1 - s cancels. x is off by
 * 3e-9 of itself: for e^-x, 0.05 units times x. */
Test(exp, of_silu) {
    double worst[2] = {0}, mean = 0;
    for (double at = -87.3; at < 87.3; at += 0.00037) {
        const double x = (double)(float)at, s = 1 / (1 + exp(-x)), bend = x * s * (1 - s),
                     bound = x < 0 ? -0.05 * x : 0;
        const double y = (double)fri_silu((float)x), dx = (double)fri_silu_gradient((float)x, 1);
        const double off[2] = {fabs(y - x * s) / ulp(fabsf((float)(x * s))),
                               fabs(dx - (s + bend)) / ulp((float)(s + s * fabs(x)))};
        for (int i = 0; i < 2; i++)
            if (off[i] > worst[i]) worst[i] = off[i];
        if (fabs(x) < 8) mean += off[0] * 0.00037 / 16;
        cr_assert_leq(off[0], 3.5 + bound, "silu(%g) = %.9g, not %.9g", x, y, x * s);
        cr_assert_leq(off[1], 3 + bound, "silu'(%g) = %.9g, not %.9g", x, dx, s + bend);
    }
    for (int i = 0; i < 2; i++) cr_expect_gt(worst[i], 0.4, "the sweep looks at nothing: %g", worst[i]);
    cr_expect_lt(mean, 0.455, "of the values: %g", mean);
}

Test(exp, ends_of_silu) {
    cr_expect_eq(fri_silu_sigmoid(-0.0f), 0.5f);
    cr_expect_eq(fri_silu_sigmoid(INFINITY), 1.0f);
    cr_expect_eq(fri_silu_sigmoid(-INFINITY), 0.0f);
    cr_expect_eq(fri_silu(3e38f), 3e38f);
    cr_expect_eq(fri_silu(INFINITY), INFINITY);
    cr_expect_eq(fri_silu(-3e38f), 0.0f);
    for (float x = -87.3f; x > -100; x -= 0.01f) {
        const float y = fri_silu(x), dx = fri_silu_gradient(x, 1);
        cr_expect(y <= 0 && y > -1.1e-36f, "silu(%g) = %g", (double)x, (double)y);
        cr_expect(dx <= 0 && dx > -1.1e-36f, "silu'(%g) = %g", (double)x, (double)dx);
        cr_expect_eq(fri_silu(-x), -x);
        cr_expect_eq(fri_silu_gradient(-x, 1), 1.0f);
    }
    cr_expect(isnan(fri_silu(NAN)));
    cr_expect(isnan(fri_silu(-NAN)));
    cr_expect(isnan(fri_silu_gradient(NAN, 1)));
    cr_expect(isnan(fri_silu_gradient(1, NAN)));
}
