/* test_scale.c - multiplication by a constant: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_scale(in[0], golden_real(g, "alpha"), y);
}

static const op_suite suite = {.op = "scale", .inputs = {"x"}, .run = run};

Test(scale, forward_golden) {
    suite_forward_golden(&suite);
}

Test(scale, gradcheck) {
    suite_gradcheck(&suite);
}

Test(scale, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(scale, accumulates) {
    suite_accumulates(&suite);
}

Test(scale, switches_agree) {
    suite_switches_agree(&suite);
}

Test(scale, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_scale(NULL, 2, &y), FR_EINVAL, "scale", "NULL", y);
    expect_refused(fr_scale(integer, 2, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
