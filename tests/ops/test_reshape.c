/* test_reshape.c - views: shared bytes, gradients through them, refusals. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/ops.h>

#include "support/golden.h"

static fr_status flatten_and_square(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)ctx;
    (void)n_in;
    (void)n_out;
    fr_tensor *flat = NULL;
    fr_status s = fr_flatten(in[0], 1, &flat);
    if (s == FR_OK) s = fr_mul(flat, flat, out);
    fr_tensor_release(&flat);
    return s;
}

Test(reshape, gradcheck) {
    cpu_only("gradient checks are in f64, which CUDA does not compute");
    fr_tensor *x = NULL;
    fr_seed(8);
    must(fr_tensor_normal(4, (int64_t[]){2, 3, 2, 4}, 0, 1, FR_F64, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_gradcheck(flatten_and_square, NULL, &x, 1, NULL));
    fr_tensor_release(&x);
    expect_nothing_left();
}

Test(reshape, shares_bytes) {
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 3, 2, 4}, FR_F32, test_device(), &x));
    must(fr_reshape(x, 3, (int64_t[]){6, -1, 2}, &y));
    cr_expect_eq(fr_tensor_dim(y, 1), 4);
    cr_expect_eq(fr_tensor_data(x), fr_tensor_data(y));
    must(fr_flatten(x, 2, &y));
    cr_expect_eq(fr_tensor_rank(y), 3);
    cr_expect_eq(fr_tensor_dim(y, -1), 8);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

Test(reshape, rejects_bad_args) {
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){4, 6}, FR_F32, test_device(), &x));
    expect_refused(fr_reshape(NULL, 1, (int64_t[]){24}, &y), FR_EINVAL, "reshape", "NULL", y);
    expect_refused(fr_reshape(x, 2, (int64_t[]){5, -1}, &y), FR_ESHAPE, "[4, 6]", "[5, -1]", y);
    expect_refused(fr_reshape(x, 2, (int64_t[]){-1, -1}, &y), FR_ESHAPE, "[4, 6]", "[-1, -1]", y);
    expect_refused(fr_reshape(x, 1, (int64_t[]){25}, &y), FR_ESHAPE, "[4, 6]", "[25]", y);
    expect_refused(fr_flatten(x, 2, &y), FR_ESHAPE, "2", "0..1", y);
    fr_tensor_release(&x);
    expect_nothing_left();
}
