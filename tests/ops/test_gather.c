/* test_gather.c - elements by index along a dimension: golden values, gradients with repeated indices, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *index = golden_tensor(g, "index", FR_I64, fr_tensor_device(in[0]));
    fr_status s = fr_gather(in[0], (int)golden_int(g, "dim", 0), index, y);
    fr_tensor_release(&index);
    return s;
}

static const op_suite suite = {.op = "gather", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(gather)
