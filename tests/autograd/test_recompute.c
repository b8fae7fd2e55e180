/* test_recompute.c - edges of the contract of fr_checkpoint: slots, early stop, generator state, outputs used alone,
 * functions whose runs differ. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <string.h>

#include "base/rng.h"
#include "support/golden.h"

enum { N = 4 };

static fr_tensor *leaf(double value) {
    fr_tensor *x = NULL;
    must(fr_tensor_full(1, (int64_t[]){N}, value, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    return x;
}

static float first_gradient(fr_tensor *x) {
    float g[N];
    cr_assert_not_null(fr_tensor_get_grad(x));
    must(fr_tensor_to_host(fr_tensor_get_grad(x), g));
    return g[0];
}

struct context {
    int calls, freed, reached; /* how far the last call came */
    int outputs_at_entry;      /* slots that were not empty, over all calls */
    bool fail, shorter;        /* shorter: leaves an op out from the second call on */
};

static void context_free(void *p) {
    ((struct context *)p)->freed++;
}

/* out[0] = x x x; the later the op, the later backward needs its result first. */
static fr_status cube(void *p, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    struct context *c = p;
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    c->calls++;
    c->reached = 0;
    c->outputs_at_entry += out[0] != NULL;
    FR_TRY(s, fr_mul(in[0], in[0], out));
    c->reached = 1;
    FR_TRY(s, fr_mul(*out, in[0], out));
    c->reached = 2;
    FR_TRY(s, fr_scale(*out, 2, out)); /* saves nothing: the second run does not need the scaled value */
    c->reached = 3;
    if (c->fail) s = FR_EINVAL;
done:
    return s;
}

/* x = checkpoint(x): a slot is input and output, and the function still sees an empty slot. */
Test(recompute, a_slot_may_be_input_and_output) {
    fr_tensor *x = leaf(3), *y = fr_tensor_retain(x);
    struct context c = {0};
    must(fr_checkpoint(cube, &c, context_free, &y, 1, &y, 1));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    cr_expect_float_eq(first_gradient(x), 54, 1e-4, "2 * 3 x^2");
    cr_expect_eq(c.outputs_at_entry, 0);
    cr_expect_eq(c.calls, 2);
    cr_expect_eq(c.freed, 1);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

Test(recompute, stops_after_the_last_tensor_that_is_needed) {
    fr_tensor *x = leaf(3), *y = NULL;
    struct context c = {0};
    must(fr_checkpoint(cube, &c, context_free, &x, 1, &y, 1));
    cr_expect_eq(c.reached, 3);
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    cr_expect_eq(c.calls, 2);
    cr_expect_eq(c.reached, 1, "the second run came to op %d", c.reached);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* Results that the function made before it failed are not seen by the caller. */
Test(recompute, a_function_that_fails_leaves_the_slots_alone) {
    for (int grad = 0; grad < 2; grad++) {
        fr_tensor *x = leaf(3), *y = leaf(7), *held = fr_tensor_retain(y), *none = NULL;
        struct context c = {.fail = true};
        bool was = grad ? true : fr_no_grad_begin();
        cr_expect_eq(fr_checkpoint(cube, &c, context_free, &x, 1, &y, 1), FR_EINVAL);
        cr_expect_eq(fr_checkpoint(cube, &c, context_free, &x, 1, &none, 1), FR_EINVAL);
        fr_no_grad_end(was);
        cr_expect_eq(y, held);
        cr_expect_null(none);
        cr_expect_eq(c.freed, 2);
        RELEASE_ALL(&x, &y, &held);
        expect_nothing_left();
    }
    struct context c = {0};
    cr_expect_eq(fr_checkpoint(NULL, &c, context_free, NULL, 0, NULL, 0), FR_EINVAL);
    cr_expect_eq(c.freed, 1);
}

/* a and b, both saved by the second op, are made by two ops; the second run leaves out an op. */
static fr_status two_products(void *p, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    struct context *c = p;
    fr_tensor *a = NULL, *b = NULL;
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    c->calls++;
    FR_TRY(s, fr_mul(in[0], in[0], &a));
    FR_TRY(s, fr_mul(a, a, &b));
    if (c->calls == 1 || !c->shorter) FR_TRY(s, fr_mul(b, b, &b));
    fr_tensor_release(out);
    *out = b;
    b = NULL;
done:
    fr_tensor_release(&a);
    fr_tensor_release(&b);
    return s;
}

Test(recompute, a_missing_op_is_named) {
    fr_tensor *x = leaf(1), *y = NULL;
    struct context c = {.shorter = true};
    must(fr_checkpoint(two_products, &c, context_free, &x, 1, &y, 1));
    must(fr_sum(y, &y));
    expect_refused(fr_backward(y, NULL), FR_EUSAGE, "checkpoint", "mul", NULL);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    cr_expect_eq(c.freed, 1);
    expect_nothing_left();
}

/* A segment with an overwritten input cannot run again. */
Test(recompute, an_overwritten_input_is_an_error) {
    fr_tensor *x = leaf(3), *h = NULL, *y = NULL;
    struct context c = {0};
    must(fr_scale(x, 1, &h));
    must(fr_checkpoint(cube, &c, context_free, &h, 1, &y, 1));
    must(fr_scale_inplace(h, 2));
    must(fr_sum(y, &y));
    expect_refused(fr_backward(y, NULL), FR_EUSAGE, "modified in place", "scale", NULL);
    RELEASE_ALL(&x, &h, &y);
    cr_expect_eq(c.freed, 1);
    expect_nothing_left();
}

/* Running again uses the forward's random numbers, and gives the generator back as it was. */
static fr_status drop(void *p, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    (void)p;
    (void)n_in;
    (void)n_out;
    fr_status s = FR_OK;
    FR_TRY(s, fr_mul(in[0], in[0], out));
    FR_TRY(s, fr_dropout(*out, 0.5, true, out));
    FR_TRY(s, fr_mul(*out, *out, out));
done:
    return s;
}

Test(recompute, the_generator_goes_on_as_if_nothing_had_happened) {
    fr_tensor *x = leaf(3), *y = NULL;
    fr_seed(4);
    must(fr_checkpoint(drop, NULL, NULL, &x, 1, &y, 1));
    must(fr_dropout(y, 0.5, true, &y));
    must(fr_sum(y, &y));
    fr_rng before = fr_rng_get();
    must(fr_backward(y, NULL));
    fr_rng after = fr_rng_get();
    cr_expect(before.seed == after.seed && before.next_stream == after.next_stream);
    cr_expect_eq(after.next_stream, 2u);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    expect_nothing_left();
}

/* ---- an output alive after its segment --------------------------------------------------------------------------- */

/* Outputs: r = relu(x - x^2), and the square of a max pool of r. */
static fr_status relu_and_pool(void *p, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_tensor *r = NULL, *pooled = NULL, *square = NULL;
    fr_status s = FR_OK;
    (void)p;
    (void)n_in;
    (void)n_out;
    FR_TRY(s, fr_mul(in[0], in[0], &r));
    FR_TRY(s, fr_scale(r, -1, &r));
    FR_TRY(s, fr_add(r, in[0], &r));
    FR_TRY(s, fr_relu(r, &r));
    FR_TRY(s, fr_maxpool2d(r, 2, NULL, &pooled));
    FR_TRY(s, fr_mul(pooled, pooled, &square));
    fr_tensor_release(&out[0]);
    fr_tensor_release(&out[1]);
    out[0] = fr_tensor_retain(r);
    out[1] = fr_tensor_retain(square);
done:
    fr_tensor_release(&r); /* while the pool's output is still alive */
    fr_tensor_release(&pooled);
    fr_tensor_release(&square);
    return s;
}

/* The pool seems in the second run to be the only reader of the relu, and could take the mask over. But the program
 * still holds the relu's first output, and starts backward at that output. */
Test(recompute, a_mask_is_not_given_away_while_the_output_can_be_used) {
    const float values[N] = {-1, 0.25f, 0.75f, 2}, dy[N] = {1, 1, 1, 1};
    float want[N], got[N];
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        fr_tensor *x = NULL, *out[2] = {0}, *g = NULL;
        must(fr_tensor_from_host(values, 4, (int64_t[]){1, 2, 2, 1}, FR_F32, test_device(), &x));
        must(fr_tensor_from_host(dy, 4, (int64_t[]){1, 2, 2, 1}, FR_F32, test_device(), &g));
        must(fr_tensor_set_requires_grad(x, true));
        if (checkpoint)
            must(fr_checkpoint(relu_and_pool, NULL, NULL, &x, 1, out, 2));
        else
            must(relu_and_pool(NULL, &x, 1, out, 2));
        must(fr_backward(out[0], g));
        must(fr_tensor_to_host(fr_tensor_get_grad(x), checkpoint ? got : want));
        fr_tensor_release(&x);
        fr_tensor_release(&g);
        fr_tensor_release(&out[0]);
        fr_tensor_release(&out[1]);
        expect_nothing_left();
    }
    cr_expect_eq(want[0], 0.0f);
    cr_expect_eq(memcmp(want, got, sizeof want), 0, "%g %g %g %g, not %g %g %g %g", got[0], got[1], got[2], got[3],
                 want[0], want[1], want[2], want[3]);
}

/* Backward through the outputs in turn: the second finds the shared part used by the first. */
Test(recompute, one_output_at_a_time) {
    fr_tensor *x = NULL, *out[2] = {0}, *s = NULL;
    must(fr_tensor_full(4, (int64_t[]){1, 2, 2, 1}, 0.5, FR_F32, test_device(), &x));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_checkpoint(relu_and_pool, NULL, NULL, &x, 1, out, 2));
    fr_tensor_release(&out[0]);
    must(fr_sum(out[1], &s));
    must(fr_backward(s, NULL));
    expect_refused(fr_backward(out[1], NULL), FR_EUSAGE, "already used", "mul", NULL);
    fr_tensor_release(&x);
    fr_tensor_release(&out[1]);
    fr_tensor_release(&s);
    expect_nothing_left();
}
