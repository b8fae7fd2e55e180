/* test_conv2d_constant.c - convolutions with constant weights, laid out once, and their sums and rectifiers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/support.h"
#include "ops/conv2d.h"
#include "support/golden.h"

/* ---- the op ---------------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t n, h, w, c, k, kernel, stride, padding, groups;
} shape;

/* Packed and unpacked channels, strides, windows in the padding, groups and depthwise, and maps for Winograd (28 x 28
 * and more), with no multiple of a tile among them. */
static const shape shapes[] = {{2, 5, 7, 3, 5, 3, 1, 1, 1},      {1, 14, 14, 96, 40, 1, 1, 0, 1},
                               {2, 9, 9, 17, 70, 3, 2, 1, 1},    {1, 30, 29, 64, 64, 3, 1, 1, 1},
                               {2, 33, 31, 48, 130, 3, 1, 1, 1}, {1, 12, 12, 32, 32, 3, 1, 1, 32},
                               {2, 8, 8, 12, 24, 3, 1, 1, 4},    {1, 1, 1, 64, 10, 1, 1, 0, 1}};

/* Largest difference over largest value. */
static double distance(const fr_tensor *a, const fr_tensor *b) {
    double *x = values_of(a), *y = values_of(b), most = 0, apart = 0;
    cr_assert_eq(fr_tensor_numel(a), fr_tensor_numel(b));
    for (int64_t i = 0; i < fr_tensor_numel(a); i++) {
        most = fmax(most, fabs(y[i]));
        apart = fmax(apart, fabs(x[i] - y[i]));
        cr_assert(isfinite(x[i]) && isfinite(y[i]));
    }
    free(x);
    free(y);
    cr_assert_gt(most, 0);
    return apart / most;
}

static fr_tensor *separate(fri_constant_conv2d *k, fr_tensor *x, fr_tensor *addend) {
    fr_tensor *y = NULL;
    must(fr_conv2d(x, k->w, k->b, &k->opts, &y));
    if (addend != NULL) must(fr_add(y, addend, &y));
    if (k->relu == FRI_ACTIVATION_RELU) must(fr_relu(y, &y));
    if (k->relu == FRI_ACTIVATION_RELU6) must(fr_relu6(y, &y));
    return y;
}

static fri_constant_conv2d constant(const shape *s, fri_activation relu) {
    fri_constant_conv2d k = {.w = uniform_tensor(4, (int64_t[]){s->k, s->kernel, s->kernel, s->c / s->groups}),
                             .b = uniform_tensor(1, &s->k),
                             .opts = *FR_CONV2D_OPTS(.stride = s->stride, .padding = s->padding, .groups = s->groups),
                             .relu = relu};
    must(fr_tensor_set_requires_grad(k.w, false));
    return k;
}

static void check(const shape *s, fri_activation relu, bool add, bool shared) {
    fri_constant_conv2d k = constant(s, relu);
    fr_tensor *x = uniform_tensor(4, (int64_t[]){s->n, s->h, s->w, s->c}), *y[3] = {NULL}, *addend = NULL, *kept = NULL;
    const bool grad = fr_no_grad_begin();
    y[0] = separate(&k, x, NULL);
    if (add) {
        addend = uniform_tensor(4, (int64_t[]){s->n, fr_tensor_dim(y[0], 1), fr_tensor_dim(y[0], 2), s->k});
        must(fr_tensor_clone(addend, &kept));
        fr_tensor_release(&y[0]);
        y[0] = separate(&k, x, addend);
    }
    for (int turn = 1; turn < 3; turn++) { /* the weights of the second call are laid out already */
        fr_tensor *take = NULL;
        if (add && shared)
            take = fr_tensor_retain(addend);
        else if (add)
            must(fr_tensor_clone(kept, &take));
        must(fri_conv2d_constant(&k, x, add ? &take : NULL, &y[turn]));
        cr_expect_null(take);
        cr_expect_lt(distance(y[turn], y[0]), 3e-5, "%lldx%lld, %lld -> %lld, relu %d, add %d: %g", (long long)s->h,
                     (long long)s->w, (long long)s->c, (long long)s->k, relu, add, distance(y[turn], y[0]));
    }
    expect_same_values(y[1], y[2], "a second run");
    if (add) expect_same_values(addend, kept, "an addend that others have");
    fr_no_grad_end(grad);
    for (int i = 0; i < 3; i++) fr_tensor_release(&y[i]);
    RELEASE_ALL(&addend, &kept, &x);
    fri_constant_conv2d_release(&k);
}

Test(conv2d_constant, one_call_convolves_adds_and_rectifies) {
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int relu = FRI_ACTIVATION_NONE; relu <= FRI_ACTIVATION_RELU6; relu++)
            for (int how = 0; how < 3; how++) check(&shapes[i], (fri_activation)relu, how > 0, how > 1);
    expect_nothing_left();
}

/* Bits depend neither on threads nor on the batch of an image, as in training. */
Test(conv2d_constant, bits_are_those_of_one_thread_and_of_one_image) {
    cpu_only("threads are the CPU's");
    const int threads = fr_threads_get();
    for (size_t i = 0; i < COUNT(shapes); i++) {
        shape s = shapes[i];
        s.n = 2;
        fri_constant_conv2d k = constant(&s, FRI_ACTIVATION_RELU);
        fr_tensor *x = uniform_tensor(4, (int64_t[]){s.n, s.h, s.w, s.c}), *first = NULL, *y[3] = {NULL};
        must(fr_tensor_narrow0(x, 0, 1, &first));
        must(fri_conv2d_constant(&k, x, NULL, &y[0]));
        must(fr_threads_set(1));
        must(fri_conv2d_constant(&k, x, NULL, &y[1]));
        must(fri_conv2d_constant(&k, first, NULL, &y[2]));
        must(fr_threads_set(threads));
        expect_same_values(y[0], y[1], "on one thread");
        cr_expect_eq(memcmp(host_of(y[0]), host_of(y[2]), fr_tensor_nbytes(y[2])), 0, "shape %zu: alone in a batch", i);
        for (int n = 0; n < 3; n++) fr_tensor_release(&y[n]);
        fr_tensor_release(&first);
        fr_tensor_release(&x);
        fri_constant_conv2d_release(&k);
    }
    expect_nothing_left();
}

/* The sum goes over an addend without a second handle, so no memory is allocated. */
Test(conv2d_constant, a_sum_goes_over_its_addend) {
    cpu_only("cuda adds in a pass of its own");
    const shape s = {1, 30, 29, 64, 64, 3, 1, 1, 1};
    fri_constant_conv2d k = constant(&s, FRI_ACTIVATION_RELU);
    fr_tensor *x = uniform_tensor(4, (int64_t[]){1, 30, 29, 64}),
              *addend = uniform_tensor(4, (int64_t[]){1, 30, 29, 64});
    fr_tensor *y = NULL;
    const void *at = host_of(addend);
    must(fri_conv2d_constant(&k, x, &addend, &y));
    cr_expect_eq(host_of(y), at);
    fr_tensor_release(&y);
    addend = uniform_tensor(4, (int64_t[]){1, 30, 28, 64});
    expect_refused(fri_conv2d_constant(&k, x, &addend, &y), FR_ESHAPE, "30, 28", "30, 29", y);
    fr_tensor_release(&x);
    fri_constant_conv2d_release(&k);
    expect_nothing_left();
}
