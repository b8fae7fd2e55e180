/* test_avgpool2d.c - average pooling: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_avgpool2d(in[0], golden_int(g, "kernel", 0),
                        FR_POOL2D_OPTS(.kernel_w = golden_int(g, "kernel", 1), .stride = golden_int(g, "stride", 0),
                                       .stride_w = golden_int(g, "stride", 1), .padding = golden_int(g, "padding", 0),
                                       .padding_w = golden_int(g, "padding", 1),
                                       .count_include_pad = golden_int(g, "count_include_pad", 0) != 0),
                        y);
}

static const op_suite suite = {.op = "avgpool2d", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(avgpool2d)
