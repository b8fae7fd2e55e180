/* test_embedding.c - rows of a table: golden values with repeated indices, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *index = golden_tensor(g, "index", FR_I64, fr_tensor_device(in[0]));
    fr_status s = fr_embedding(index, in[0], y);
    fr_tensor_release(&index);
    return s;
}

static const op_suite suite = {.op = "embedding", .inputs = {"w"}, .run = run};

OP_SUITE_TESTS(embedding)
