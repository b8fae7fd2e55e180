/* test_relu_follows.c - a relu that batch norm or add has taken over: the same bits, one kernel fewer, and only where
 * nobody can tell (Note [Relu in the kernel before it]). */
#include <criterion/criterion.h>
#include <frugal/nn.h>
#include <frugal/ops.h>
#include <math.h>
#include <string.h>

#include "autograd/state.h"
#include "backend/backend.h"
#include "support/golden.h"
#include "support/kernels_run.h"
#include "tensor/tensor.h"

enum { N = 3, H = 4, W = 5, C = 6, COUNT = N * H * W * C };

/* ---- what goes in ---------------------------------------------------------------------------------------------- */

/* Both signs, zeros of both signs, subnormals, and with `special` infinities and NaN. */
static fr_tensor *image(fr_dtype t, int seed, bool special) {
    static const float odd[] = {0.0f, -0.0f, 1e-7f, -1e-7f, 6e-8f, -3e-8f, 1e-40f, -1e-40f};
    static const float wild[] = {INFINITY, -INFINITY, NAN};
    float v[COUNT];
    fr_tensor *f = NULL, *x = NULL;
    for (int i = 0; i < COUNT; i++) v[i] = (float)(((i + seed) * 2654435761u >> 12) % 2001) / 500.0f - 2.0f;
    for (int i = 0; i < 8; i++) v[i * 37 + seed % 5] = odd[i];
    for (int i = 0; special && i < 3; i++) v[i * 101 + 3] = wild[i];
    must(fr_tensor_from_host(v, 4, (int64_t[]){N, H, W, C}, FR_F32, test_device(), &f));
    must(fr_cast(f, t, &x));
    fr_tensor_release(&f);
    return x;
}

static char *bytes_of(const fr_tensor *t) {
    char *p = malloc(fri_nbytes(t));
    must(fr_tensor_to_host(t, p));
    return p;
}

static void expect_equal(const fr_tensor *a, const fr_tensor *b, const char *what) {
    char *p = bytes_of(a), *q = bytes_of(b);
    cr_assert_eq(fri_nbytes(a), fri_nbytes(b));
    cr_expect_eq(memcmp(p, q, fri_nbytes(a)), 0, "%s differs (%s)", what, fr_dtype_name(a->dtype));
    free(p);
    free(q);
}

/* ---- batch norm ------------------------------------------------------------------------------------------------ */

typedef struct result {
    fr_tensor *y, *dx, *dgamma, *dbeta;
} result;

static void release(result *r) {
    fr_tensor_release(&r->y);
    fr_tensor_release(&r->dx);
    fr_tensor_release(&r->dgamma);
    fr_tensor_release(&r->dbeta);
}

static fr_tensor *grad_of(fr_tensor *t) {
    cr_assert_not_null(fr_tensor_get_grad(t));
    return fr_tensor_retain(fr_tensor_get_grad(t));
}

/* relu(batch norm(x)) by a Sequential, forward and backward. Gamma and beta have both signs. */
static result run(fr_dtype t, bool train, fr_switches switches) {
    result r = {0};
    fr_module *m = NULL, *bn = NULL, *relu = NULL;
    fr_tensor *x = image(t, 1, false), *dy = image(t, 7, false);
    fr_switches was = fr_switches_get();
    fr_switches_set(switches);
    must(fr_nn_sequential(&m));
    must(fr_nn_batchnorm2d(C, test_device(), &bn));
    fr_tensor *gamma = fr_tensor_retain(fr_module_tensor(bn, "weight"));
    fr_tensor *beta = fr_tensor_retain(fr_module_tensor(bn, "bias"));
    fr_seed(3);
    must(fr_init_uniform(gamma, -1, 1));
    must(fr_init_uniform(beta, -0.5, 0.5));
    must(fr_nn_append(m, &bn));
    must(fr_nn_relu(&relu));
    must(fr_nn_append(m, &relu));
    fr_module_train(m, train);
    must(fr_tensor_set_requires_grad(x, true));
    kernels_watch();
    must(fr_module_forward(m, x, &r.y));
    kernels_unwatch();
    must(fr_backward(r.y, dy));
    r.dx = grad_of(x);
    r.dgamma = grad_of(gamma);
    r.dbeta = grad_of(beta);
    fr_switches_set(was);
    fr_tensor_release(&gamma);
    fr_tensor_release(&beta);
    fr_tensor_release(&x);
    fr_tensor_release(&dy);
    fr_module_release(&m);
    return r;
}

static const fr_dtype types[] = {FR_F32, FR_F16, FR_BF16};

Test(relu_follows, batch_norm_rectifies_with_the_bits_of_the_two_passes) {
    for (int i = 0; i < 3; i++)
        for (int train = 0; train < 2; train++) {
            result two = run(types[i], train, fr_switches_all_off());
            cr_expect_eq(kernels_run("relu_forward"), 1, "without permission the relu runs");
            result one = run(types[i], train, fr_switches_default());
            cr_expect_eq(kernels_run("relu_forward"), 0, "%d relu kernels", kernels_run("relu_forward"));
            cr_expect_eq(kernels_run("batchnorm2d_apply"), 1);
            expect_equal(one.y, two.y, "y");
            expect_equal(one.dx, two.dx, "dx");
            expect_equal(one.dgamma, two.dgamma, "dgamma");
            expect_equal(one.dbeta, two.dbeta, "dbeta");
            release(&one);
            release(&two);
        }
    expect_nothing_left();
}

Test(relu_follows, rebuild_and_encodings_see_no_difference) {
    fr_switches s = fr_switches_default();
    for (int i = 0; i < 4; i++) {
        result two = run(FR_F16, true, fr_switches_all_off());
        s.encode = i & 1;
        s.rebuild = i & 2;
        result one = run(FR_F16, true, s);
        expect_equal(one.y, two.y, "y");
        expect_equal(one.dx, two.dx, "dx");
        release(&one);
        release(&two);
    }
    expect_nothing_left();
}

/* ---- add ------------------------------------------------------------------------------------------------------- */

Test(relu_follows, add_rectifies_with_the_bits_of_the_two_passes) {
    for (int i = 0; i < 3; i++) {
        fr_tensor *a = image(types[i], 2, true), *b = image(types[i], 9, true), *one = NULL, *two = NULL;
        must(fr_add(a, b, &two));
        must(fr_relu(two, &two));
        kernels_watch();
        fri_relu_follows(true);
        must(fr_add(a, b, &one));
        must(fr_relu(one, &one));
        kernels_unwatch();
        cr_expect_eq(kernels_run("add_relu"), 1);
        cr_expect_eq(kernels_run("add") + kernels_run("relu_forward"), 0);
        expect_equal(one, two, "relu(a + b)");
        fr_tensor_release(&a);
        fr_tensor_release(&b);
        fr_tensor_release(&one);
        fr_tensor_release(&two);
    }
    expect_nothing_left();
}

/* ---- only where nobody can tell ---------------------------------------------------------------------------------- */

/* What was said holds for one op: the second add is not followed by a relu. */
Test(relu_follows, it_is_said_for_one_op_only) {
    fr_tensor *a = image(FR_F32, 2, false), *b = image(FR_F32, 9, false), *y = NULL;
    fri_relu_follows(true);
    must(fr_add(a, b, &y));
    kernels_watch();
    must(fr_add(a, b, &y));
    kernels_unwatch();
    cr_expect_eq(kernels_run("add"), 1);
    cr_expect_eq(kernels_run("add_relu"), 0);
    fr_tensor_release(&a);
    fr_tensor_release(&b);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* A relu out of place computes: its result is another tensor. Relu of a rectified tensor is that tensor. */
Test(relu_follows, a_relu_out_of_place_still_runs) {
    fr_tensor *a = image(FR_F32, 2, false), *b = image(FR_F32, 9, false), *y = NULL, *z = NULL, *want = NULL;
    must(fr_add(a, b, &want));
    must(fr_relu(want, &want));
    fri_relu_follows(true);
    must(fr_add(a, b, &y));
    kernels_watch();
    must(fr_relu(y, &z));
    kernels_unwatch();
    cr_expect_eq(kernels_run("relu_forward"), 1);
    expect_equal(z, want, "z");
    fr_tensor_release(&a);
    fr_tensor_release(&b);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    fr_tensor_release(&want);
    expect_nothing_left();
}

/* Somebody wrote in between: the mark is of an older version. */
Test(relu_follows, what_was_written_over_is_rectified_again) {
    fr_tensor *a = image(FR_F32, 2, false), *b = image(FR_F32, 9, false), *y = NULL;
    float got[COUNT];
    fri_relu_follows(true);
    must(fr_add(a, b, &y));
    must(fr_scale_inplace(y, -1));
    kernels_watch();
    must(fr_relu(y, &y));
    kernels_unwatch();
    cr_expect_eq(kernels_run("relu_forward"), 1);
    must(fr_tensor_to_host(y, got));
    for (int i = 0; i < COUNT; i++) cr_assert_eq(got[i], 0.0f, "element %d is %g", i, (double)got[i]);
    fr_tensor_release(&a);
    fr_tensor_release(&b);
    fr_tensor_release(&y);
    expect_nothing_left();
}
