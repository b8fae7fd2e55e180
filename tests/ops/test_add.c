/* test_add.c - elementwise sum: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_add(in[0], in[1], y);
}

static const op_suite suite = {.op = "add", .inputs = {"a", "b"}, .run = run};

Test(add, forward_golden) {
    suite_forward_golden(&suite);
}

Test(add, gradcheck) {
    suite_gradcheck(&suite);
}

Test(add, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(add, accumulates) {
    suite_accumulates(&suite);
}

Test(add, switches_agree) {
    suite_switches_agree(&suite);
}

Test(add, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_add(x, NULL, &y), FR_EINVAL, "add", "NULL", y);
    expect_refused(fr_add(x, other, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    expect_refused(fr_add(x, meta, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_add(integer, integer, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
