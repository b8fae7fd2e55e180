/* test_bce.c - binary cross-entropy and the focal loss: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    const fr_dtype real = fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32;
    fr_tensor *target = golden_tensor(g, "target", real, fr_tensor_device(in[0]));
    fr_tensor *weight = golden_tensor(g, "pos_weight", real, fr_tensor_device(in[0]));
    fr_status s =
        fr_bce(in[0], target,
               FR_BCE_OPTS(.pos_weight = weight, .gamma = golden_real(g, "gamma"), .alpha = golden_real(g, "alpha"),
                           .ignore_index = golden_int(g, "ignore_index", 0)),
               y);
    fr_tensor_release(&target);
    fr_tensor_release(&weight);
    return s;
}

static const op_suite suite = {.op = "bce", .inputs = {"x"}, .run = run};

OP_SUITE_TESTS(bce)

Test(bce, rejects_bad_args) {
    fr_tensor *x = NULL, *target = NULL, *shares = NULL, *weight = NULL, *y = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){3, 5}, FR_F32, test_device(), &x));
    must(fr_tensor_full(1, (int64_t[]){3}, 5, FR_I64, test_device(), &target));
    must(fr_tensor_zeros(2, (int64_t[]){3, 4}, FR_F32, test_device(), &shares));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, test_device(), &weight));
    expect_refused(fr_bce(x, NULL, NULL, &y), FR_EINVAL, "bce", "NULL", y);
    expect_bad_index(fr_bce(x, target, NULL, &y), "row 0", "0..4", &y);
    expect_refused(fr_bce(x, shares, NULL, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_bce(x, x, FR_BCE_OPTS(.pos_weight = weight), &y), FR_ESHAPE, "weight", "[5]", y);
    expect_refused(fr_bce(x, x, FR_BCE_OPTS(.gamma = -1), &y), FR_EINVAL, "gamma", "-1", y);
    RELEASE_ALL(&x, &target, &shares, &weight);
    expect_nothing_left();
}
