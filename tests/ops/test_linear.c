/* test_linear.c - fully connected: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <string.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_linear(in[0], in[1], in[2], y);
}

static const op_suite suite = {.op = "linear", .inputs = {"x", "w", "b"}, .run = run};

Test(linear, forward_golden) {
    suite_forward_golden(&suite);
}

Test(linear, gradcheck) {
    suite_gradcheck(&suite);
}

Test(linear, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(linear, accumulates) {
    suite_accumulates(&suite);
}

Test(linear, switches_agree) {
    suite_switches_agree(&suite);
}

Test(linear, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *flat = NULL, *w = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){2, 90}, FR_F32, test_device(), &flat));
    must(fr_tensor_zeros(2, (int64_t[]){4, 80}, FR_F32, test_device(), &w));
    expect_refused(fr_linear(flat, NULL, NULL, &y), FR_EINVAL, "linear", "NULL", y);
    expect_refused(fr_linear(flat, w, NULL, &y), FR_ESHAPE, "90", "80", y);
    expect_refused(fr_linear(x, w, NULL, &y), FR_ESHAPE, "[2, 5, 6, 3]", "80", y);
    expect_refused(fr_linear(flat, x, NULL, &y), FR_ESHAPE, "[2, 5, 6, 3]", "rank 2", y);
    must(fr_tensor_zeros(0, NULL, FR_F32, test_device(), &other));
    expect_refused(fr_linear(other, w, NULL, &y), FR_ESHAPE, "scalar", "[4, 80]", y);
    expect_refused(fr_linear(x, meta, NULL, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_linear(integer, w, NULL, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&flat);
    fr_tensor_release(&w);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}

/* Rows of any piece of a batch are those of the whole, wherever the piece begins. */
Test(linear, y_does_not_depend_on_the_batch) {
    static const int64_t outs[] = {9, 64, 1000}, ins[] = {7, 128, 512};
    enum { ROWS = 37 };
    for (int i = 0; i < 9; i++) {
        const int64_t out = outs[i / 3], in = ins[i % 3];
        fr_tensor *w = NULL, *x = NULL, *y = NULL;
        cr_assert_eq(fr_tensor_uniform(2, (int64_t[]){out, in}, -1, 1, FR_F32, FR_CPU, &w), FR_OK);
        cr_assert_eq(fr_tensor_uniform(2, (int64_t[]){ROWS, in}, -1, 1, FR_F32, FR_CPU, &x), FR_OK);
        cr_assert_eq(fr_linear(x, w, NULL, &y), FR_OK);
        for (int64_t at = 0; at < ROWS; at += 5)
            for (int64_t n = 1; n <= 7 && at + n <= ROWS; n++) {
                fr_tensor *piece = NULL;
                cr_assert_eq(fr_tensor_uniform(2, (int64_t[]){n, in}, 0, 1, FR_F32, FR_CPU, &piece), FR_OK);
                memcpy(fr_tensor_data(piece), (const float *)fr_tensor_data(x) + at * in, fr_tensor_nbytes(piece));
                cr_assert_eq(fr_linear(piece, w, NULL, &piece), FR_OK);
                cr_expect_eq(memcmp(fr_tensor_data(piece), (const float *)fr_tensor_data(y) + at * out,
                                    fr_tensor_nbytes(piece)),
                             0, "%lld x %lld, rows %lld + %lld", (long long)in, (long long)out, (long long)at,
                             (long long)n);
                fr_tensor_release(&piece);
            }
        fr_tensor_release(&y);
        fr_tensor_release(&x);
        fr_tensor_release(&w);
    }
}
