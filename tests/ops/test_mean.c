/* test_mean.c - reduction to a scalar: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_mean(in[0], y);
}

static const op_suite suite = {.op = "mean", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(mean)
