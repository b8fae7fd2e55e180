/* test_mse.c - mean squared error: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_mse(in[0], in[1], y);
}

static const op_suite suite = {.op = "mse", .inputs = {"x", "t"}, .run = run};

Test(mse, forward_golden) {
    suite_forward_golden(&suite);
}

Test(mse, gradcheck) {
    suite_gradcheck(&suite);
}

Test(mse, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(mse, accumulates) {
    suite_accumulates(&suite);
}

Test(mse, switches_agree) {
    suite_switches_agree(&suite);
}

Test(mse, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_mse(x, NULL, &y), FR_EINVAL, "mse", "NULL", y);
    expect_refused(fr_mse(x, other, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    expect_refused(fr_mse(x, meta, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_mse(integer, integer, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
