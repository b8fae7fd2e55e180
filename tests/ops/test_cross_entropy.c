/* test_cross_entropy.c - softmax cross-entropy: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    const fr_dtype real = fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32;
    fr_tensor *target = golden_tensor(g, "target", real, fr_tensor_device(in[0]));
    fr_tensor *weight = golden_tensor(g, "weight", real, fr_tensor_device(in[0]));
    fr_status s =
        fr_cross_entropy(in[0], target,
                         FR_CROSS_ENTROPY_OPTS(.label_smoothing = golden_real(g, "label_smoothing"),
                                               .ignore_index = golden_int(g, "ignore_index", 0), .weight = weight),
                         y);
    fr_tensor_release(&target);
    fr_tensor_release(&weight);
    return s;
}

static const op_suite suite = {.op = "cross_entropy", .inputs = {"x"}, .run = run, .skip = "all_ignored"};

OP_SUITE_TESTS(cross_entropy)

Test(cross_entropy, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *logits = NULL, *target = NULL, *wrong = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){3, 5}, FR_F32, test_device(), &logits));
    must(fr_tensor_full(1, (int64_t[]){3}, 5, FR_I64, test_device(), &target));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_I64, test_device(), &wrong));
    expect_bad_index(fr_cross_entropy(logits, target, NULL, &y), "row 0", "0..4", &y);
    expect_refused(fr_cross_entropy(logits, wrong, NULL, &y), FR_ESHAPE, "[3, 5]", "[4]", y);
    expect_refused(fr_cross_entropy(logits, x, NULL, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_cross_entropy(logits, NULL, NULL, &y), FR_EINVAL, "cross_entropy", "NULL", y);
    expect_refused(fr_cross_entropy(logits, target, FR_CROSS_ENTROPY_OPTS(.label_smoothing = 2), &y), FR_EINVAL,
                   "label_smoothing", "0..1", y);
    expect_refused(fr_cross_entropy(logits, target, FR_CROSS_ENTROPY_OPTS(.weight = x), &y), FR_ESHAPE, "weight", "[5]",
                   y);
    expect_refused(fr_count_correct(logits, logits, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_count_correct(logits, wrong, &y), FR_ESHAPE, "[3, 5]", "[4]", y);
    RELEASE_ALL(&logits, &target, &wrong, &x, &other, &integer, &meta);
    expect_nothing_left();
}
