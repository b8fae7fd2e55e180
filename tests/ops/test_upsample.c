/* test_upsample.c - resizing: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_upsample(in[0], golden_int(g, "output_size", 0), golden_int(g, "output_size", 1),
                       golden_int(g, "bilinear", 0) ? FR_UPSAMPLE_BILINEAR : FR_UPSAMPLE_NEAREST,
                       golden_int(g, "align_corners", 0) != 0, y);
}

static const op_suite suite = {.op = "upsample", .inputs = {"x"}, .run = run};

Test(upsample, forward_golden) {
    suite_forward_golden(&suite);
}

Test(upsample, gradcheck) {
    suite_gradcheck(&suite);
}

Test(upsample, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(upsample, accumulates) {
    suite_accumulates(&suite);
}

Test(upsample, switches_agree) {
    suite_switches_agree(&suite);
}

Test(upsample, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_upsample(NULL, 2, 2, FR_UPSAMPLE_NEAREST, false, &y), FR_EINVAL, "upsample", "NULL", y);
    expect_refused(fr_upsample(x, 0, 2, FR_UPSAMPLE_NEAREST, false, &y), FR_EINVAL, "0 x 2", ">= 1", y);
    expect_refused(fr_upsample(integer, 2, 2, FR_UPSAMPLE_NEAREST, false, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}
