/* test_relu.c - rectifier: golden values, gradients, in-place, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <math.h>
#include <string.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_relu(in[0], y);
}

static const op_suite suite = {.op = "relu", .inputs = {"x"}, .run = run, .kink = 0.02, .not_half = "special"};

OP_SUITE_TESTS(relu)

/* Arrays that the CPU cuts into several tasks, the last one short: values, signs in bits, gradients, a fill. */
Test(relu, arrays_of_several_tasks) {
    enum { COUNT = 3 * 16384 + 5 };
    static float x[COUNT], y[COUNT], dx[COUNT];
    fr_tensor *t = NULL, *h = NULL, *s = NULL;
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i % 7 - 3);
    must(fr_tensor_from_host(x, 1, (int64_t[]){COUNT}, FR_F32, test_device(), &t));
    must(fr_tensor_set_requires_grad(t, true));
    must(fr_scale(t, 1, &h));
    must(fr_relu(h, &h));
    must(fr_tensor_to_host(h, y));
    must(fr_sum(h, &s));
    fr_tensor_release(&h);
    must(fr_backward(s, NULL));
    must(fr_tensor_to_host(fr_tensor_get_grad(t), dx));
    for (int i = 0; i < COUNT; i++) {
        cr_assert_float_eq(y[i], x[i] > 0 ? x[i] : 0, 0, "y[%d] of %g is %g", i, (double)x[i], (double)y[i]);
        cr_assert_float_eq(dx[i], x[i] > 0, 0, "dx[%d] of %g is %g", i, (double)x[i], (double)dx[i]);
    }
    must(fr_tensor_fill(fr_tensor_get_grad(t), 2));
    must(fr_tensor_to_host(fr_tensor_get_grad(t), dx));
    for (int i = 0; i < COUNT; i++) cr_assert_float_eq(dx[i], 2, 0, "element %d is %g", i, (double)dx[i]);
    fr_tensor_release(&s);
    fr_tensor_release(&t);
}

Test(relu, inplace_equals_plain) {
    suite_inplace_equals_plain(fr_relu, fr_relu_inplace, 0, 1);
}

/* A saved tensor overwritten afterwards: backward names both ops. */
Test(relu, overwriting_what_was_saved_fails) {
    fr_tensor *x = NULL, *h = NULL, *p = NULL, *s = NULL;
    must(fr_tensor_normal(1, (int64_t[]){64}, 0, 1, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_scale(x, 2, &h));
    must(fr_mul(h, h, &p));
    must(fr_relu_inplace(h));
    must(fr_sum(p, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "mul", "relu", NULL);
    RELEASE_ALL(&x, &h, &p, &s);
    expect_nothing_left();
}

/* The gradient passes where y is NaN, whether y or its mask is kept; every bit of a byte counts. */
Test(relu, nan_passes_the_gradient_however_it_is_kept) {
    for (int encode = 0; encode < 2; encode++) {
        enum { COUNT = 19 };
        const float each[] = {NAN, -1, 2, 0, 3};
        float values[COUNT];
        for (int i = 0; i < COUNT; i++) values[i] = each[i % 5];
        fr_switches switches = fr_switches_default();
        fr_tensor *x = NULL, *y = NULL;
        switches.encode = encode;
        fr_switches_set(switches);
        must(fr_tensor_from_host(values, 1, (int64_t[]){COUNT}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_relu(x, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        const float want[] = {1, 0, 1, 0, 1}, *got = host_of(fr_tensor_get_grad(x));
        for (int i = 0; i < COUNT; i++)
            cr_expect_eq(got[i], want[i % 5], "encode %d: dx is %g where x is %g", encode, got[i], values[i]);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        expect_nothing_left();
    }
}
