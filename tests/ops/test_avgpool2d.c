/* test_avgpool2d.c - average pooling: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_avgpool2d(in[0], golden_int(g, "kernel", 0),
                        FR_POOL2D_OPTS(.kernel_w = golden_int(g, "kernel", 1), .stride = golden_int(g, "stride", 0),
                                       .stride_w = golden_int(g, "stride", 1), .padding = golden_int(g, "padding", 0),
                                       .padding_w = golden_int(g, "padding", 1),
                                       .count_include_pad = golden_int(g, "count_include_pad", 0) != 0),
                        y);
}

static const op_suite suite = {.op = "avgpool2d", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(avgpool2d)

Test(avgpool2d, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_avgpool2d(NULL, 2, NULL, &y), FR_EINVAL, "avgpool2d", "NULL", y);
    expect_refused(fr_avgpool2d(x, 0, NULL, &y), FR_EINVAL, "kernel 0", ">= 1", y);
    expect_refused(fr_avgpool2d(x, 7, NULL, &y), FR_ESHAPE, "[2, 5, 6, 3]", "7 x 7", y);
    expect_refused(fr_avgpool2d(x, 2, FR_POOL2D_OPTS(.padding = 2), &y), FR_EINVAL, "padding 2", "half", y);
    expect_refused(fr_avgpool2d(integer, 2, NULL, &y), FR_EDTYPE, "i32", "float", y);
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}
