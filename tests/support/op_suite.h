/* op_suite.h - test kinds for every op, generated from golden cases.
 *
 * Programs linked with this file run with FRUGAL_POISON: results and workspaces are NaN until written by a kernel. A
 * test file names the input fields and calls the op; each kind is then a single line. */
#ifndef TESTS_SUPPORT_OP_SUITE_H
#define TESTS_SUPPORT_OP_SUITE_H

#include "support/golden.h"

enum { OP_INPUTS = 4 };

/* y = op(in) with the options of the current case. in[i] is NULL where the case lacks the field. */
typedef fr_status op_run_fn(const golden *g, fr_tensor *const *in, fr_tensor **y);

typedef struct op_suite {
    const char *op;
    const char *inputs[OP_INPUTS]; /* differentiable fields */
    op_run_fn *run;
    double kink;          /* gradcheck keeps |value| of inputs above this */
    const char *skip;     /* cases without gradcheck, separated by spaces: NaN, ties, infinities */
    const char *not_half; /* cases whose values do not survive rounding to half: subnormal on the way */
} op_suite;

void suite_forward_golden(const op_suite *s); /* y and every gradient, f32 */
void suite_gradcheck(const op_suite *s);      /* f64, signed, per element */
void suite_half_near_f32(const op_suite *s);  /* f16 and bf16 against the golden values */
void suite_accumulates(const op_suite *s);    /* two backward passes give twice the gradient, bit for bit */
void suite_switches_agree(const op_suite *s); /* y and gradients: all switches off, and all on, bit for bit */

/* Runs an op on another op's result, with the in-place switch off and on, and its in-place form: y and dx must be
 * equal bit for bit. x is normal with this mean and deviation. */
void suite_inplace_equals_plain(fr_status (*op)(fr_tensor *x, fr_tensor **y), fr_status (*in_place)(fr_tensor *x),
                                double mean, double deviation);

/* The five tests of each of n op suites; OP is the name of the Criterion suite. */
#define OP_SUITES_TESTS(OP, suites, n)                                  \
    Test(OP, forward_golden) {                                          \
        for (int i = 0; i < (n); i++) suite_forward_golden(&suites[i]); \
    }                                                                   \
    Test(OP, gradcheck) {                                               \
        for (int i = 0; i < (n); i++) suite_gradcheck(&suites[i]);      \
    }                                                                   \
    Test(OP, half_near_f32) {                                           \
        for (int i = 0; i < (n); i++) suite_half_near_f32(&suites[i]);  \
    }                                                                   \
    Test(OP, accumulates) {                                             \
        for (int i = 0; i < (n); i++) suite_accumulates(&suites[i]);    \
    }                                                                   \
    Test(OP, switches_agree) {                                          \
        for (int i = 0; i < (n); i++) suite_switches_agree(&suites[i]); \
    }
#define OP_SUITE_TESTS(OP) OP_SUITES_TESTS(OP, (&suite), 1)

#endif
