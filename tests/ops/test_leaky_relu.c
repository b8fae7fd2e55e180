/* test_leaky_relu.c - leaky rectifier: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_leaky_relu(in[0], golden_real(g, "slope"), y);
}

static const op_suite suite = {.op = "leaky_relu", .inputs = {"x"}, .run = run, .kink = 0.02, .not_half = "special"};

OP_SUITE_TESTS(leaky_relu)
