/* test_mul.c - elementwise product: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_mul(in[0], in[1], y);
}

static const op_suite suite = {.op = "mul", .inputs = {"a", "b"}, .run = run};

Test(mul, forward_golden) {
    suite_forward_golden(&suite);
}

Test(mul, gradcheck) {
    suite_gradcheck(&suite);
}

Test(mul, half_near_f32) {
    suite_half_near_f32(&suite);
}

Test(mul, accumulates) {
    suite_accumulates(&suite);
}

Test(mul, switches_agree) {
    suite_switches_agree(&suite);
}

Test(mul, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    expect_refused(fr_mul(x, NULL, &y), FR_EINVAL, "mul", "NULL", y);
    expect_refused(fr_mul(x, other, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    fr_tensor *image = NULL; /* factors of other images, and as the first input */
    must(fr_tensor_zeros(4, (int64_t[]){3, 1, 1, 3}, FR_F32, test_device(), &image));
    expect_refused(fr_mul(x, image, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[3, 1, 1, 3]", y);
    fr_tensor_release(&image);
    must(fr_tensor_zeros(4, (int64_t[]){2, 1, 1, 3}, FR_F32, test_device(), &image));
    expect_refused(fr_mul(image, x, &y), FR_ESHAPE, "[2, 1, 1, 3]", "[2, 5, 6, 3]", y);
    fr_tensor_release(&image);
    expect_refused(fr_mul(x, meta, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    expect_refused(fr_mul(integer, integer, &y), FR_EDTYPE, "i32", "float", y);
    fr_tensor_release(&x);
    fr_tensor_release(&other);
    fr_tensor_release(&integer);
    fr_tensor_release(&meta);
    expect_nothing_left();
}

/* One factor per image and channel, over many blocks: in f32 and, where a block is converted, in bf16. */
Test(mul, factors_of_images_in_blocks) {
    enum { N = 3, HW = 700, C = 1100, MAP = N * HW * C };
    for (int half = 0; half < 2; half++) {
        fr_tensor *a = NULL, *b = NULL, *y = NULL, *s = NULL;
        const fr_dtype t = half ? FR_BF16 : FR_F32;
        fr_seed(3);
        must(fr_tensor_uniform(4, (int64_t[]){N, HW / 7, 7, C}, 1, 2, t, test_device(), &a));
        must(fr_tensor_uniform(4, (int64_t[]){N, 1, 1, C}, 1, 2, t, test_device(), &b));
        must(fr_tensor_set_requires_grad(b, true));
        must(fr_mul(a, b, &y));
        must(fr_sum(y, &s));
        must(fr_backward(s, NULL));
        double *av = values_of(a), *bv = values_of(b), *yv = values_of(y), *db = values_of(fr_tensor_get_grad(b));
        for (int64_t i = 0; i < MAP; i++) {
            const double want = av[i] * bv[i / (HW * C) * C + i % C];
            cr_assert_float_eq(yv[i], want, want * (half ? 0.004 : 1e-7), "y[%lld] is %g, not %g", (long long)i, yv[i],
                               want);
        }
        for (int64_t k = 0; k < N * C; k++) {
            double sum = 0;
            for (int64_t r = 0; r < HW; r++) sum += av[(k / C * HW + r) * C + k % C];
            cr_assert_float_eq(db[k], sum, sum * (half ? 0.004 : 1e-6), "db[%lld] is %g, not %g", (long long)k, db[k],
                               sum);
        }
        free(av);
        free(bv);
        free(yv);
        free(db);
        fr_tensor_release(&a);
        fr_tensor_release(&b);
        fr_tensor_release(&y);
        fr_tensor_release(&s);
    }
    expect_nothing_left();
}

/* a *= b saves what it overwrites: fine while b is a constant, an error in backward when b wants a gradient. */
Test(mul, inplace_follows_pytorch) {
    for (int b_wants = 0; b_wants < 2; b_wants++) {
        fr_tensor *x = NULL, *b = NULL, *h = NULL, *s = NULL;
        must(fr_tensor_normal(1, (int64_t[]){10}, 0, 1, FR_F32, test_device(), &x));
        must(fr_tensor_normal(1, (int64_t[]){10}, 0, 1, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_tensor_set_requires_grad(b, b_wants));
        must(fr_scale(x, 2, &h));
        must(fr_mul_inplace(h, b));
        must(fr_sum(h, &s));
        if (b_wants)
            expect_refused(fr_backward(s, NULL), FR_EUSAGE, "mul", "modified in place", NULL);
        else
            must(fr_backward(s, NULL));
        fr_tensor_release(&x);
        fr_tensor_release(&b);
        fr_tensor_release(&h);
        fr_tensor_release(&s);
    }
    expect_nothing_left();
}
