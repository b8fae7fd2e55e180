/* test_backward.c - the walk over the graph: accumulation, order, hooks, misuse, long chains, failures in the
 * middle. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/frugal.h>
#include <string.h>

#include "memory/allocator.h"
#include "support/golden.h"

static fr_tensor *leaf(double value) {
    fr_tensor *x = NULL;
    must(fr_tensor_full(1, (int64_t[]){3}, value, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    return x;
}

static float gradient(fr_tensor *x) {
    float g[3];
    cr_assert_not_null(fr_tensor_get_grad(x));
    must(fr_tensor_to_host(fr_tensor_get_grad(x), g));
    return g[1];
}

Test(backward, diamonds_and_repeated_use_add_up) {
    fr_tensor *x = leaf(3), *a = NULL, *b = NULL, *s = NULL;
    must(fr_mul(x, x, &a));   /* x^2 */
    must(fr_scale(a, 2, &b)); /* 2 x^2 */
    must(fr_add(a, b, &b));   /* 3 x^2 */
    must(fr_mul(b, x, &b));   /* 3 x^3: gradient 9 x^2 = 81 */
    must(fr_sum(b, &s));
    must(fr_backward(s, NULL));
    cr_expect_float_eq(gradient(x), 81, 1e-4);
    RELEASE_ALL(&x, &a, &b, &s);
    expect_nothing_left();
}

/* x + x, twice: (2^23 + 2^23) + (1 + 1) is 2^24 + 2, where 1 added to 2^24 twice would be lost. */
Test(backward, what_one_backward_brings_is_added_up_first) {
    fr_tensor *x = leaf(3), *y = NULL, *s = NULL;
    for (int i = 0; i < 2; i++) {
        must(fr_add(x, x, &y));
        must(fr_scale(y, i == 0 ? 0x1p23 : 1, &y));
        must(fr_sum(y, &s));
        must(fr_backward(s, NULL));
    }
    cr_expect_eq(gradient(x), 0x1p24f + 2);
    RELEASE_ALL(&x, &y, &s);
    expect_nothing_left();
}

/* Three gradients at once: (1 + 1) + 2^24, youngest first, whether or not there was a gradient of 0 before. */
Test(backward, three_at_once_are_added_in_one_order) {
    static const double factor[] = {0x1p24, 1, 1};
    for (int before = 0; before < 2; before++) {
        fr_tensor *x = leaf(3), *y = NULL, *sum = NULL;
        for (int round = before ? 0 : 1; round < 2; round++) {
            for (int i = 0; i < 3; i++) {
                must(fr_scale(x, round == 0 ? 0 : factor[i], &y));
                must(fr_sum(y, &y));
                if (i > 0) must(fr_add(sum, y, &y));
                fr_tensor_release(&sum);
                sum = fr_tensor_retain(y);
            }
            must(fr_backward(sum, NULL));
            fr_tensor_release(&sum);
        }
        cr_expect_eq(gradient(x), 0x1p24f + 2, "%d: %.9g", before, (double)gradient(x));
        fr_tensor_release(&x);
        fr_tensor_release(&y);
    }
    expect_nothing_left();
}

Test(backward, misuse_is_a_status_and_a_sentence) {
    fr_tensor *x = leaf(2), *y = NULL, *s = NULL, *plain = NULL, *wrong = NULL;
    must(fr_scale(x, 2, &y));
    must(fr_sum(y, &s));
    must(fr_tensor_zeros(1, (int64_t[]){3}, FR_F32, test_device(), &plain));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, test_device(), &wrong));
    expect_refused(fr_backward(NULL, NULL), FR_EINVAL, "backward", "NULL", NULL);
    expect_refused(fr_backward(plain, NULL), FR_EUSAGE, "backward", "does not require grad", NULL);
    expect_refused(fr_backward(y, NULL), FR_ESHAPE, "[3]", "one element", NULL);
    expect_refused(fr_backward(y, wrong), FR_ESHAPE, "[3]", "[4]", NULL);
    must(fr_backward(s, NULL));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "already used", "sum", NULL);
    expect_refused(fr_backward(y, plain), FR_EUSAGE, "already used", "scale", NULL);
    expect_refused(fr_tensor_set_requires_grad(y, false), FR_EUSAGE, "result of op", "scale", NULL);
    expect_refused(fr_tensor_set_grad(x, wrong), FR_ESHAPE, "[3]", "[4]", NULL);
    /* A new op on the used part: the backward of the op runs, and meets the freed graph. */
    must(fr_sum(y, &s));
    expect_refused(fr_backward(s, NULL), FR_EUSAGE, "already used", "scale", NULL);
    RELEASE_ALL(&x, &y, &s, &plain, &wrong);
    expect_nothing_left();
}

struct hook_log {
    int calls;
    float gradient;
};

static fr_status hook(void *ctx, fr_tensor *t) {
    struct hook_log *log = ctx;
    log->calls++;
    log->gradient = gradient(t);
    return fr_tensor_set_grad(t, NULL);
}

/* The hook sees the complete gradient once per backward, and may free the gradient. */
Test(backward, hook_runs_when_the_gradient_is_complete) {
    fr_tensor *x = leaf(3), *a = NULL, *s = NULL;
    struct hook_log log = {0};
    must(fr_tensor_set_grad_hook(x, hook, &log));
    for (int pass = 1; pass <= 2; pass++) {
        must(fr_mul(x, x, &a));
        must(fr_add(a, x, &a));
        must(fr_sum(a, &s));
        must(fr_backward(s, NULL));
        cr_expect_eq(log.calls, pass);
        cr_expect_float_eq(log.gradient, 7, 1e-5);
        cr_expect_null(fr_tensor_get_grad(x));
    }
    RELEASE_ALL(&x, &a, &s);
    expect_nothing_left();
}

Test(backward, no_grad_and_detach_record_nothing) {
    fr_tensor *x = leaf(2), *y = NULL, *d = NULL;
    bool was = fr_no_grad_begin();
    must(fr_mul(x, x, &y));
    fr_no_grad_end(was);
    cr_expect(!fr_tensor_requires_grad(y));
    must(fr_mul(x, x, &y));
    must(fr_tensor_detach(y, &d));
    cr_expect(fr_tensor_requires_grad(y) && !fr_tensor_requires_grad(d));
    RELEASE_ALL(&x, &y, &d);
    expect_nothing_left();
}

/* Neither releasing nor walking a long graph recurses. */
Test(backward, long_chains) {
    for (int walk = 0; walk < 2; walk++) {
        fr_tensor *x = leaf(1), *y = NULL;
        must(fr_scale(x, 1, &y));
        for (int i = 0; i < 100000; i++) must(fr_scale(y, 1, &y));
        must(fr_sum(y, &y));
        if (walk) {
            must(fr_backward(y, NULL));
            cr_expect_float_eq(gradient(x), 1, 1e-6);
        }
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        expect_nothing_left();
    }
}

/* ---- every allocation of a step fails in turn -------------------------------------------------------------------- */

static fr_status step(fr_module *m, fr_optimizer *o) {
    fr_tensor *x = NULL, *target = NULL, *loss = NULL;
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    FR_TRY(s, fr_tensor_uniform(4, (int64_t[]){2, 32, 32, 3}, -1, 1, FR_F32, test_device(), &x));
    FR_TRY(s, fr_tensor_full(1, (int64_t[]){2}, 1, FR_I64, test_device(), &target));
    FR_TRY(s, fr_checkpoint_sequential(m, 4, x, &x));
    FR_TRY(s, fr_cross_entropy(x, target, NULL, &loss));
    FR_TRY(s, fr_backward(loss, NULL));
    FR_TRY(s, fr_optimizer_step(o));
done:
    fr_optimizer_zero_grad(o);
    RELEASE_ALL(&x, &target, &loss);
    fr_step_end(&scope);
    return s;
}

Test(backward, every_allocation_fails_in_turn, .timeout = 240) {
    fri_allocator *a = NULL;
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_memory_stats t;
    uint64_t n = 1;
    must(fri_allocator_get(test_device(), &a));
    must(fr_resnet(18, FR_MODEL_OPTS(.classes = 4, .image_size = 32, .device = test_device()), &m));
    must(fr_sgd(m, FR_SGD_OPTS(.lr = 0.01, .momentum = 0.9), &o));
    must(step(m, o)); /* optimizer state exists from here on */
    must(fr_memory_stats_get(test_device(), &t));
    size_t live = t.requested;
    uint64_t before = t.allocs;
    must(step(m, o));
    must(fr_memory_stats_get(test_device(), &t));
    uint64_t allocations = t.allocs - before;
    for (n = 1; n <= allocations; n += n < 40 ? 1 : 23) {
        fri_allocator_fail_at(a, n);
        fr_status s = step(m, o);
        fri_allocator_fail_at(a, 0);
        /* A mask without room to be encoded stays a tensor: some failures are absorbed. */
        cr_expect(s == FR_ENOMEM || s == FR_OK, "allocation %d of %d: %s: %s", (int)n, (int)allocations,
                  fr_status_name(s), fr_last_error());
        must(fr_memory_stats_get(test_device(), &t));
        cr_assert_eq(t.requested, live, "allocation %d of %d leaked %d bytes", (int)n, (int)allocations,
                     (int)(t.requested - live));
        cr_assert_eq(fr_graph_stats_get().nodes, 0u, "allocation %d left a graph", (int)n);
    }
    must(step(m, o));
    fr_optimizer_release(&o);
    fr_module_release(&m);
    expect_nothing_left();
}
