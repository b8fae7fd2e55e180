/* test_gather.c - elements by index along a dimension: golden values, gradients with repeated indices, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *index = golden_tensor(g, "index", FR_I64, fr_tensor_device(in[0]));
    fr_status s = fr_gather(in[0], (int)golden_int(g, "dim", 0), index, y);
    fr_tensor_release(&index);
    return s;
}

static const op_suite suite = {.op = "gather", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(gather)

Test(gather, rejects_bad_args) {
    fr_tensor *x = NULL, *index = NULL, *wide = NULL, *flat = NULL, *y = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){3, 4}, FR_F32, test_device(), &x));
    must(fr_tensor_full(2, (int64_t[]){2, 4}, 3, FR_I64, test_device(), &index));
    must(fr_tensor_zeros(2, (int64_t[]){2, 5}, FR_I64, test_device(), &wide));
    must(fr_tensor_zeros(1, (int64_t[]){2}, FR_I64, test_device(), &flat));
    expect_bad_index(fr_gather(x, 0, index, &y), "index[0]", "0..2", &y);
    expect_refused(fr_gather(x, 2, index, &y), FR_EINVAL, "dimension 2", "rank 2", y);
    expect_refused(fr_gather(x, -3, index, &y), FR_EINVAL, "dimension -3", "rank 2", y);
    expect_refused(fr_gather(x, 0, wide, &y), FR_ESHAPE, "5 in dimension 1", "x has 4", y);
    expect_refused(fr_gather(x, 0, flat, &y), FR_ESHAPE, "rank 1", "rank 2", y);
    expect_refused(fr_gather(x, 0, x, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_gather(index, 0, index, &y), FR_EDTYPE, "i64", "x", y);
    must(fr_gather(x, -1, index, &y)); /* 3 is the last of four */
    RELEASE_ALL(&y, &x, &index, &wide, &flat);
    expect_nothing_left();
}
