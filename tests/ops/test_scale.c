/* test_scale.c - multiplication by a constant, addition of one: golden values, gradients, in-place, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_scale(in[0], golden_real(g, "alpha"), y);
}

static fr_status run_add(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_add_scalar(in[0], golden_real(g, "alpha"), y);
}

static const op_suite suites[] = {{.op = "scale", .inputs = {"x"}, .run = run},
                                  {.op = "add_scalar", .inputs = {"x"}, .run = run_add}};

#define EACH for (int i = 0; i < 2; i++)

OP_SUITES_TESTS(scale, suites, 2)

/* Nothing is saved, and the result lies over x where allowed; always if demanded in place. */
Test(scale, goes_over_x) {
    EACH {
        fr_tensor *x = NULL, *h = NULL;
        must(fr_tensor_zeros(1, (int64_t[]){300}, FR_F32, test_device(), &x));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_scale(x, 2, &h));
        const void *was = fr_tensor_data(h);
        must(i == 0 ? fr_scale(h, 3, &h) : fr_add_scalar(h, 3, &h));
        cr_expect_eq(fr_tensor_data(h), was);
        must(i == 0 ? fr_scale_inplace(h, 3) : fr_add_scalar_inplace(h, 3));
        cr_expect_eq(((const float *)host_of(h))[299], i == 0 ? 0 : 6);
        expect_refused(i == 0 ? fr_scale_inplace(x, 3) : fr_add_scalar_inplace(x, 3), FR_EUSAGE, suites[i].op, "leaf",
                       NULL);
        must(fr_sum(h, &h));
        must(fr_backward(h, NULL));
        cr_expect_eq(((const float *)host_of(fr_tensor_get_grad(x)))[0], i == 0 ? 18 : 2);
        fr_tensor_release(&x);
        fr_tensor_release(&h);
    }
    expect_nothing_left();
}
