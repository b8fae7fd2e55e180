/* test_concat.c - concatenation of channels: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_concat(in, (int)golden_int(g, "n_inputs", 0), y);
}

static const op_suite suite = {.op = "concat", .inputs = {"x0", "x1", "x2", "x3"}, .run = run};

Test(concat, forward_golden) {
    suite_forward_golden(&suite);
}

Test(concat, gradcheck) {
    suite_gradcheck(&suite);
}

Test(concat, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(concat, accumulates) {
    suite_accumulates(&suite);
}

Test(concat, switches_agree) {
    suite_switches_agree(&suite);
}

Test(concat, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *two[] = {x, other}, *mixed[] = {x, integer}, *devices[] = {x, meta}, *hole[] = {x, NULL};
    expect_refused(fr_concat(two, 0, &y), FR_EINVAL, "0 inputs", "at least 1", y);
    expect_refused(fr_concat(hole, 2, &y), FR_EINVAL, "input 1", "NULL", y);
    expect_refused(fr_concat(two, 2, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    expect_refused(fr_concat(mixed, 2, &y), FR_EDTYPE, "f32", "i32", y);
    expect_refused(fr_concat(devices, 2, &y), FR_EDEVICE, fr_device_name(test_device()), "meta", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
