/* test_mul.c - elementwise product: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_mul(in[0], in[1], y);
}

static const op_suite suite = {.op = "mul", .inputs = {"a", "b"}, .run = run};

Test(mul, forward_golden) {
    suite_forward_golden(&suite);
}

Test(mul, gradcheck) {
    suite_gradcheck(&suite);
}

Test(mul, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(mul, accumulates) {
    suite_accumulates(&suite);
}

Test(mul, switches_agree) {
    suite_switches_agree(&suite);
}

Test(mul, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_mul(x, NULL, &y), FR_EINVAL, "mul", "NULL", y);
    expect_refused(fr_mul(x, other, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    expect_refused(fr_mul(x, meta, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_mul(integer, integer, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}

/* a *= b saves what it overwrites: fine while b is a constant, an error in backward when b wants a gradient. */
Test(mul, inplace_follows_pytorch) {
    for (int b_wants = 0; b_wants < 2; b_wants++) {
        fr_tensor *x = NULL, *b = NULL, *h = NULL, *s = NULL;
        must(fr_tensor_normal(1, (int64_t[]){10}, 0, 1, FR_F32, test_device(), &x));
        must(fr_tensor_normal(1, (int64_t[]){10}, 0, 1, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_tensor_set_requires_grad(b, b_wants));
        must(fr_scale(x, 2, &h));
        must(fr_mul_inplace(h, b));
        must(fr_sum(h, &s));
        if (b_wants)
            expect_refused(fr_backward(s, NULL), FR_EUSAGE, "mul", "modified in place", NULL);
        else
            must(fr_backward(s, NULL));
        fr_tensor_release(&x);
        fr_tensor_release(&b);
        fr_tensor_release(&h);
        fr_tensor_release(&s);
    }
    expect_nothing_left();
}
