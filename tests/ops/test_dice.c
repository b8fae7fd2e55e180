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

Test(dice, rejects_bad_args) {
    fr_tensor *x = NULL, *target = NULL, *y = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){3, 5}, FR_F32, test_device(), &x));
    must(fr_tensor_full(1, (int64_t[]){3}, 5, FR_I64, test_device(), &target));
    expect_refused(fr_dice(x, NULL, NULL, &y), FR_EINVAL, "dice", "NULL", y);
    expect_bad_index(fr_dice(x, target, NULL, &y), "row 0", "0..4", &y);
    expect_refused(fr_dice(x, x, NULL, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_dice(x, target, FR_DICE_OPTS(.smooth = -1), &y), FR_EINVAL, "smooth", "-1", y);
    fr_tensor_release(&x);
    fr_tensor_release(&target);
    expect_nothing_left();
}
