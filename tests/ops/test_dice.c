/* test_dice.c - the Dice loss: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *target = golden_tensor(g, "target", FR_I64, fr_tensor_device(in[0]));
    fr_status s = fr_dice(in[0], target, FR_DICE_OPTS(.smooth = golden_real(g, "smooth")), y);
    fr_tensor_release(&target);
    return s;
}

static const op_suite suite = {.op = "dice", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(dice)
