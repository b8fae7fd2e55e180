/* test_leaky_relu.c - leaky rectifier: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_leaky_relu(in[0], golden_real(g, "slope"), y);
}

static const op_suite suite = {.op = "leaky_relu", .inputs = {"x"}, .run = run, .kink = 0.02, .not_half = "special"};

OP_SUITE_TESTS(leaky_relu)

Test(leaky_relu, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_leaky_relu(NULL, 0.1, &y), FR_EINVAL, "leaky_relu", "NULL", y);
    expect_refused(fr_leaky_relu(x, -0.1, &y), FR_EINVAL, "-0.1", ">= 0", y);
    expect_refused(fr_leaky_relu(integer, 0.1, &y), FR_EDTYPE, "i32", "float", y);
    must(fr_tensor_set_requires_grad(x, true));
    cr_expect_eq(fr_leaky_relu_inplace(x, 0.1), FR_EUSAGE, "a leaf was changed in place");
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}
