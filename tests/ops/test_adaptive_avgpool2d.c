/* test_adaptive_avgpool2d.c - adaptive average pooling: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_adaptive_avgpool2d(in[0], golden_int(g, "output_size", 0), golden_int(g, "output_size", 1), y);
}

static const op_suite suite = {.op = "adaptive_avgpool2d", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(adaptive_avgpool2d)
