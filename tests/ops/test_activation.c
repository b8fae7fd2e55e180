/* test_activation.c - FRI_ACTIVATIONS and clamp: golden values, gradients, what is saved, in-place, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <math.h>
#include <string.h>

#include "backend/kernel_map.h"
#include "ops/op.h"
#include "support/op_suite.h"

#define ACTIVATION(name, saves, ...)                                                   \
    static fr_status run_##name(const golden *g, fr_tensor *const *x, fr_tensor **y) { \
        (void)g;                                                                       \
        return fr_##name(x[0], y);                                                     \
    }
FRI_ACTIVATIONS(ACTIVATION)

static fr_status run_clamp(const golden *g, fr_tensor *const *x, fr_tensor **y) {
    (void)g;
    return fr_clamp(x[0], -2.5, 3, y);
}

#define SUITE(name, saves, ...) {.op = #name, .inputs = {"x"}, .run = run_##name},
static const op_suite suites[] = {FRI_ACTIVATIONS(SUITE){.op = "clamp", .inputs = {"x"}, .run = run_clamp}};
enum { OPS = sizeof suites / sizeof suites[0] };

OP_SUITES_TESTS(activation, suites, OPS)

static bool saves_y(const op_suite *s) {
    return strcmp(s->op, "sigmoid") == 0 || strcmp(s->op, "tanh") == 0 || strcmp(s->op, "elu") == 0;
}

/* y = f(y) over the result of an earlier op; with a graph only where y is the saved value. Equal bits either way. */
Test(activation, writes_over_x_where_it_is_not_saved) {
    enum { COUNT = 1003 };
    for (int i = 0; i < OPS; i++) {
        float y[COUNT], dx[COUNT];
        for (int way = 0; way < 3; way++) { /* not in place, in place, without a graph */
            fr_tensor *x = NULL, *h = NULL, *s = NULL;
            fr_switches switches = fr_switches_default();
            switches.inplace = way > 0;
            fr_switches_set(switches);
            fr_seed(4);
            must(fr_tensor_normal(1, (int64_t[]){COUNT}, 0, 3, FR_F32, test_device(), &x));
            must(fr_tensor_set_requires_grad(x, way < 2));
            must(fr_scale(x, 1.5, &h));
            const void *was = fr_tensor_data(h);
            must(suites[i].run(NULL, &h, &h));
            cr_expect_eq(fr_tensor_data(h) == was, way == 2 || (way == 1 && saves_y(&suites[i])), "%s, way %d",
                         suites[i].op, way);
            if (way == 0) memcpy(y, host_of(h), sizeof y);
            cr_expect_eq(memcmp(host_of(h), y, sizeof y), 0, "%s, way %d: y differs", suites[i].op, way);
            if (way < 2) {
                must(fr_mul(h, h, &s));
                must(fr_sum(s, &s));
                must(fr_backward(s, NULL));
                if (way == 0) memcpy(dx, host_of(fr_tensor_get_grad(x)), sizeof dx);
                cr_expect_eq(memcmp(host_of(fr_tensor_get_grad(x)), dx, sizeof dx), 0, "%s: dx differs", suites[i].op);
            }
            RELEASE_ALL(&x, &h, &s);
        }
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* A single map stays for backward, x or y; y saved by the next op is rebuilt from x. */
Test(activation, saved_bytes) {
    enum { COUNT = 4096 };
    for (int i = 0; i < OPS; i++)
        for (int rebuild = 0; rebuild < 2; rebuild++) {
            fr_tensor *x = NULL, *h = NULL, *other = NULL;
            fr_memory_stats before, after;
            fr_switches switches = fr_switches_default();
            switches.rebuild = rebuild;
            fr_switches_set(switches);
            must(fr_tensor_zeros(1, (int64_t[]){COUNT}, FR_F32, test_device(), &x));
            must(fr_tensor_zeros(1, (int64_t[]){COUNT}, FR_F32, test_device(), &other));
            must(fr_tensor_set_requires_grad(x, true));
            must(fr_tensor_set_requires_grad(other, true));
            must(fr_memory_stats_get(test_device(), &before));
            must(fr_add(x, other, &h));
            must(suites[i].run(NULL, &h, &h));
            must(fr_mul(h, other, &h));
            must(fr_sum(h, &h));
            must(fr_memory_stats_get(test_device(), &after));
            const size_t map = COUNT * sizeof(float), sum = 512, got = after.requested - before.requested - sum;
            const size_t want = rebuild ? 0 : saves_y(&suites[i]) ? map : 2 * map;
            cr_expect_eq(got, want, "%s, rebuild %d: %zu bytes kept, not %zu", suites[i].op, rebuild, got, want);
            must(fr_backward(h, NULL));
            RELEASE_ALL(&x, &h, &other);
        }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* elu's gradient is y + 1 for exp(x), and y is rounded below 1: docs/ops/activation.md states the bound. */
Test(activation, the_gradient_of_elu_is_within_its_bound) {
    static const float at[] = {-0.5f, -1, -5, -10, -15, -16.5f, -20, -80};
    enum { COUNT = sizeof at / sizeof *at };
    fr_tensor *x = NULL, *y = NULL;
    must(fr_tensor_from_host(at, 1, (int64_t[]){COUNT}, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_elu(x, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    const float *dx = host_of(fr_tensor_get_grad(x));
    for (int i = 0; i < COUNT; i++)
        cr_expect(fabs(dx[i] - exp(at[i])) < 6e-8, "x %g: %g, not %g", (double)at[i], (double)dx[i], exp(at[i]));
    RELEASE_ALL(&x, &y);
    expect_nothing_left();
}

Test(activation, clamp_with_one_bound) {
    const float values[] = {-INFINITY, -2, 5, INFINITY}, below[] = {-INFINITY, -2, 1, 1}, above[] = {1, 1, 5, INFINITY};
    for (int i = 0; i < 2; i++) {
        fr_tensor *x = NULL, *y = NULL;
        must(fr_tensor_from_host(values, 1, (int64_t[]){4}, FR_F32, test_device(), &x));
        must(fr_clamp(x, i == 0 ? -INFINITY : 1, i == 0 ? 1 : INFINITY, &y));
        cr_expect_eq(memcmp(host_of(y), i == 0 ? below : above, sizeof below), 0);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}
