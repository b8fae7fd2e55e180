/* test_cross_entropy.c - softmax cross-entropy: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    const fr_dtype real = fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32;
    fr_tensor *target = golden_tensor(g, "target", real, fr_tensor_device(in[0]));
    fr_tensor *weight = golden_tensor(g, "weight", real, fr_tensor_device(in[0]));
    fr_status s =
        fr_cross_entropy(in[0], target,
                         FR_CROSS_ENTROPY_OPTS(.label_smoothing = golden_real(g, "label_smoothing"),
                                               .ignore_index = golden_int(g, "ignore_index", 0), .weight = weight),
                         y);
    fr_tensor_release(&target);
    fr_tensor_release(&weight);
    return s;
}

static const op_suite suite = {.op = "cross_entropy", .inputs = {"x"}, .run = run, .skip = "all_ignored"};

OP_SUITE_TESTS(cross_entropy)
