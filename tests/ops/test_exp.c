/* test_exp.c - the vectorizable exponential against the C library's in f64. */
#include <criterion/criterion.h>

#include "backend/arith.h"

static double ulp(float of) {
    return (double)nextafterf(of, INFINITY) - (double)of;
}

Test(exp, within_one_and_a_half_units_in_the_last_place) {
    double worst = 0;
    for (double x = -87.3; x < 88.7; x += 0.00037) {
        double want = exp((double)(float)x), got = (double)fri_exp((float)x);
        double off = fabs(got - want) / ulp((float)want);
        if (off > worst) worst = off;
        cr_assert_leq(off, 1.5, "exp(%g) = %g, not %g", x, got, want);
    }
    cr_expect_gt(worst, 0.4, "the sweep looks at nothing: %g", worst);
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

/* Its x is off by 3e-9 of itself, 0.05 units of the result where that is e^-x. */
Test(exp, of_silus_divisor) {
    double worst = 0;
    for (double x = -88.37; x < 87.3; x += 0.00037) {
        double want = 1 + exp(-(double)(float)x), got = (double)fri_silu_divisor((float)x);
        double off = fabs(got - want) / ulp((float)want);
        if (off > worst) worst = off;
        cr_assert_leq(off, 1.5 + (x < 0 ? -0.05 * x : 0), "1 + exp(-%g) = %.9g, not %.9g", x, got, want);
    }
    cr_expect_gt(worst, 0.4, "the sweep looks at nothing: %g", worst);
    cr_expect_eq(fri_silu_divisor(-0.0f), 2.0f);
    cr_expect_eq(fri_silu_divisor(INFINITY), 1.0f);
    cr_expect(isfinite(fri_silu_divisor(-88.37f)));
    cr_expect_eq(fri_silu_divisor(-88.4f), INFINITY);
    cr_expect_eq(fri_silu_divisor(-INFINITY), INFINITY);
    cr_expect(isnan(fri_silu(NAN)));
    cr_expect(isnan(fri_silu(-NAN)));
    cr_expect(isnan(fri_silu_gradient(NAN, 1)));
}
