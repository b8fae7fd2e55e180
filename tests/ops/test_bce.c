/* test_bce.c - binary cross-entropy and the focal loss: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    const fr_dtype real = fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32;
    fr_tensor *target = golden_tensor(g, "target", real, fr_tensor_device(in[0]));
    fr_tensor *weight = golden_tensor(g, "pos_weight", real, fr_tensor_device(in[0]));
    fr_status s =
        fr_bce(in[0], target,
               FR_BCE_OPTS(.pos_weight = weight, .gamma = golden_real(g, "gamma"), .alpha = golden_real(g, "alpha"),
                           .ignore_index = golden_int(g, "ignore_index", 0)),
               y);
    fr_tensor_release(&target);
    fr_tensor_release(&weight);
    return s;
}

static const op_suite suite = {.op = "bce", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(bce)
