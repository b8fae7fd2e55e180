/* test_adaptive_avgpool2d.c - adaptive average pooling: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_adaptive_avgpool2d(in[0], golden_int(g, "output_size", 0), golden_int(g, "output_size", 1), y);
}

static const op_suite suite = {.op = "adaptive_avgpool2d", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(adaptive_avgpool2d)

Test(adaptive_avgpool2d, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_adaptive_avgpool2d(NULL, 1, 1, &y), FR_EINVAL, "adaptive_avgpool2d", "NULL", y);
    expect_refused(fr_adaptive_avgpool2d(x, 0, 1, &y), FR_EINVAL, "0 x 1", ">= 1", y);
    expect_refused(fr_adaptive_avgpool2d(integer, 1, 1, &y), FR_EDTYPE, "i32", "float", y);
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}
