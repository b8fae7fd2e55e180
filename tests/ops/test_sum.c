/* test_sum.c - reduction to a scalar: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_sum(in[0], y);
}

static const op_suite suite = {.op = "sum", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(sum)

Test(sum, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_sum(NULL, &y), FR_EINVAL, "sum", "NULL", y);
    expect_refused(fr_sum(integer, &y), FR_EDTYPE, "i32", "float", y);
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}
