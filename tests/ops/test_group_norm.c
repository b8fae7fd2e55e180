/* test_group_norm.c - group norm and layer norm: golden values, gradients, images by themselves, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

#include <string.h>

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    const int64_t groups = golden_int(g, "groups", 0);
    const double eps = golden_real(g, "eps");
    const fr_dtype real = fr_tensor_dtype(in[0]) == FR_F64 ? FR_F64 : FR_F32; /* of gamma and beta */
    fr_tensor *gamma = NULL, *beta = NULL;
    fr_status s = fr_cast(in[1], real, &gamma);
    if (s == FR_OK) s = fr_cast(in[2], real, &beta);
    if (s == FR_OK)
        s = groups > 0 ? fr_group_norm(in[0], groups, gamma, beta, eps, y) : fr_layer_norm(in[0], gamma, beta, eps, y);
    fr_tensor_release(&gamma);
    fr_tensor_release(&beta);
    return s;
}

static const op_suite suite = {.op = "group_norm", .inputs = {"x", "gamma", "beta"}, .run = run, .skip = "constant"};

OP_SUITE_TESTS(group_norm)

/* The second half of a batch gives equal bits alone, forward and dx. */
Test(group_norm, an_image_does_not_see_the_others) {
    enum { N = 4, HW = 6, C = 8, HALF = N * HW * HW * C / 2 };
    for (int layer = 0; layer < 2; layer++) {
        float both[2][2 * HALF], alone[2][HALF];
        fr_tensor *gamma = NULL, *beta = NULL;
        must(fr_tensor_full(1, (int64_t[]){C}, 1.25, FR_F32, test_device(), &gamma));
        must(fr_tensor_full(1, (int64_t[]){C}, -0.5, FR_F32, test_device(), &beta));
        for (int half = 0; half < 2; half++) {
            const int64_t shape[] = {half ? N / 2 : N, HW, HW, C};
            float values[2 * HALF];
            fr_tensor *x = NULL, *dy = NULL, *y = NULL;
            for (int i = 0; i < 2 * HALF; i++) values[i] = (float)((i * 37) % 101) / 16 - 3;
            must(fr_tensor_from_host(values + (half ? HALF : 0), 4, shape, FR_F32, test_device(), &x));
            must(fr_tensor_from_host(values + (half ? HALF : 0), 4, shape, FR_F32, test_device(), &dy));
            must(fr_tensor_set_requires_grad(x, true));
            must(layer ? fr_layer_norm(x, gamma, beta, 1e-5, &y) : fr_group_norm(x, 2, gamma, beta, 1e-5, &y));
            must(fr_tensor_to_host(y, half ? alone[0] : both[0]));
            must(fr_backward(y, dy));
            must(fr_tensor_to_host(fr_tensor_get_grad(x), half ? alone[1] : both[1]));
            RELEASE_ALL(&x, &dy, &y);
        }
        for (int i = 0; i < 2; i++) cr_expect_eq(memcmp(both[i] + HALF, alone[i], sizeof alone[i]), 0);
        fr_tensor_release(&gamma);
        fr_tensor_release(&beta);
    }
    expect_nothing_left();
}

/* The kernel makes the gradients of gamma and beta together; the unwanted gradient is dropped. */
Test(group_norm, gamma_alone_has_a_gradient) {
    fr_tensor *x = NULL, *gamma = NULL, *beta = NULL, *y = NULL;
    must(fr_tensor_full(4, (int64_t[]){2, 3, 3, 4}, 2, FR_F32, test_device(), &x));
    must(fr_tensor_full(1, (int64_t[]){4}, 1, FR_F32, test_device(), &gamma));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, test_device(), &beta));
    must(fr_tensor_set_requires_grad(gamma, true));
    must(fr_group_norm(x, 2, gamma, beta, 1e-5, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    double sum = 1;
    fr_tensor *total = NULL;
    must(fr_sum(fr_tensor_get_grad(gamma), &total));
    must(fr_tensor_item(total, &sum));
    cr_expect_eq(sum, 0); /* xhat of equal values */
    RELEASE_ALL(&x, &gamma, &beta, &y, &total);
    expect_nothing_left();
}
