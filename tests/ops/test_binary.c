/* test_binary.c - sum, difference, product, quotient: golden values, gradients, a value for a run of dimensions,
 * saved bytes, in-place, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "backend/arith.h"
#include "ops/op.h"
#include "support/op_suite.h"

#define RUN(name, kind, sign)                                                           \
    static fr_status run_##name(const golden *g, fr_tensor *const *in, fr_tensor **y) { \
        (void)g;                                                                        \
        return fr_##name(in[0], in[1], y);                                              \
    }
FRI_BINARIES(RUN)

#define SUITE(name_, kind_, sign) \
    {.op = #name_, .inputs = {"a", "b"}, .run = run_##name_, .kink = FRI_BINARY_##kind_ == FRI_BINARY_DIV ? 0.5 : 0},
static const op_suite suites[] = {FRI_BINARIES(SUITE)};

#define EACH for (int i = 0; i < (int)(sizeof suites / sizeof suites[0]); i++)

OP_SUITES_TESTS(binary, suites, (int)(sizeof suites / sizeof suites[0]))

Test(binary, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    EACH {
        fr_status (*const run)(const golden *, fr_tensor *const *, fr_tensor **) = suites[i].run;
        expect_refused(run(NULL, (fr_tensor *[]){x, NULL}, &y), FR_EINVAL, suites[i].op, "NULL", y);
        expect_refused(run(NULL, (fr_tensor *[]){x, other}, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
        expect_refused(run(NULL, (fr_tensor *[]){integer, integer}, &y), FR_EDTYPE, "i32", "float", y);
    }
    fr_tensor *gaps = NULL; /* ones in two runs */
    must(fr_tensor_zeros(4, (int64_t[]){1, 5, 1, 3}, FR_F32, test_device(), &gaps));
    expect_refused(fr_add(x, gaps, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[1, 5, 1, 3]", y);
    fr_tensor_release(&gaps);
    fr_tensor *image = NULL; /* factors of images of a different size, and as the first input */
    must(fr_tensor_zeros(4, (int64_t[]){3, 1, 1, 3}, FR_F32, test_device(), &image));
    expect_refused(fr_mul(x, image, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[3, 1, 1, 3]", y);
    fr_tensor_release(&image);
    must(fr_tensor_zeros(4, (int64_t[]){2, 1, 1, 3}, FR_F32, test_device(), &image));
    expect_refused(fr_mul(image, x, &y), FR_ESHAPE, "[2, 1, 1, 3]", "[2, 5, 6, 3]", y);
    fr_tensor_release(&image);
    fr_tensor *half = NULL; /* in place no type is promoted, and the type is told before the shape */
    must(fr_tensor_zeros(1, (int64_t[]){3}, FR_F16, test_device(), &half));
    expect_refused(fr_add_inplace(x, half), FR_EDTYPE, "f32", "f16", NULL);
    fr_tensor_release(&half);
    expect_refused(fr_mul(x, meta, &y), FR_EDEVICE, "meta", fr_device_name(test_device()), y);
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}

/* b with a's elements and fewer dimensions: the gradient has b's shape, also where the gradient is dy. */
Test(binary, an_operand_of_fewer_dimensions_and_all_elements) {
    static const struct {
        int a_rank, b_rank;
        int64_t a[4], b[4];
    } shape[] = {{4, 1, {1, 1, 1, 4}, {4}}, {2, 1, {1, 4}, {4}}, {4, 1, {1, 1, 1, 1}, {1}},
                 {4, 0, {1, 1, 1, 1}, {0}}, {1, 0, {1}, {0}},    {4, 3, {1, 2, 2, 1}, {2, 2, 1}}};
    const double db[] = {1, -1, 6, -1.5}; /* of a = 6, b = 2 */
    for (int k = 0; k < (int)(sizeof shape / sizeof *shape); k++)
        for (int how = 0; how < 3; how++) EACH {
                fr_tensor *a = NULL, *b = NULL, *y = NULL;
                fr_switches_set(how == 0 ? fr_switches_all_off() : fr_switches_default());
                must(fr_tensor_full(shape[k].a_rank, shape[k].a, 6, FR_F32, test_device(), &a));
                must(fr_tensor_full(shape[k].b_rank, shape[k].b, 2, FR_F32, test_device(), &b));
                must(fr_tensor_set_requires_grad(a, how != 1)); /* else b does not share dy */
                must(fr_tensor_set_requires_grad(b, true));
                must(suites[i].run(NULL, (fr_tensor *[]){a, b}, &y));
                must(fr_sum(y, &y));
                must(fr_backward(y, NULL));
                fr_tensor *g = fr_tensor_get_grad(b);
                cr_assert_eq(fr_tensor_rank(g), shape[k].b_rank, "%s, shapes %d", suites[i].op, k);
                double *v = values_of(g);
                cr_expect_eq(v[0], db[i], "%s, shapes %d: db is %g, not %g", suites[i].op, k, v[0], db[i]);
                free(v);
                RELEASE_ALL(&a, &b, &y);
            }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

/* A sum that backward computes again has the shape of a, also where b has fewer dimensions and could be overwritten. */
Test(binary, a_rebuilt_sum_of_fewer_dimensions_keeps_its_shape) {
    const int64_t shape[] = {1, 4};
    fr_tensor *a = NULL, *b = NULL, *w = NULL, *y = NULL;
    must(fr_tensor_full(2, shape, 6, FR_F32, test_device(), &a));
    must(fr_tensor_full(1, shape + 1, 2, FR_F32, test_device(), &b));
    must(fr_tensor_full(2, shape, 3, FR_F32, test_device(), &w));
    must(fr_tensor_set_requires_grad(w, true));
    must(fr_tensor_set_requires_grad(a, true));
    must(fr_scale(b, 2, &b)); /* no leaf, so its memory may be used again */
    must(fr_add(a, b, &y));
    fr_tensor_release(&b);
    must(fr_mul(y, w, &y));
    must(fr_sum(y, &y));
    must(fr_backward(y, NULL));
    fr_tensor *g = fr_tensor_get_grad(w);
    cr_assert_eq(fr_tensor_rank(g), 2);
    for (int i = 0; i < 4; i++) cr_expect_eq(((float *)fr_tensor_data(g))[i], 10);
    fr_switches_set(fr_switches_default());
    RELEASE_ALL(&a, &w, &y);
    expect_nothing_left();
}

/* A factor per image and channel, over many blocks: in f32 and, where a block is converted, in bf16. */
Test(binary, factors_of_images_in_blocks) {
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
        RELEASE_ALL(&a, &b, &y, &s);
    }
    expect_nothing_left();
}

/* Broadcasts equal a b that is written out, also in place over a, at all blocks that the loops cut. */
Test(binary, a_run_is_as_if_written_out) {
    static const struct {
        int64_t a[4], b[4];
    } shapes[] = {{{2, 33, 7, 5}, {2, 1, 1, 5}},
                  {{1, 70, 600, 1}, {1, 1, 600, 1}},
                  {{3, 9, 11, 20}, {1, 1, 1, 20}},
                  {{2, 40, 30, 24}, {2, 40, 30, 1}},
                  {{1, 90, 50, 40}, {1, 1, 1, 1}}};
    EACH for (int k = 0; k < 5; k++) {
        fr_tensor *a = NULL, *b = NULL, *written = NULL, *want = NULL;
        fr_seed(9);
        must(fr_tensor_normal(4, shapes[k].a, 0, 1, FR_F32, test_device(), &a));
        must(fr_tensor_uniform(4, shapes[k].b, 1, 2, FR_F32, test_device(), &b));
        must(fr_tensor_zeros(4, shapes[k].a, FR_F32, test_device(), &written));
        must(fr_add(written, b, &written));
        must(suites[i].run(NULL, (fr_tensor *[]){a, written}, &want));
        const void *was = fr_tensor_data(a);
        must(suites[i].run(NULL, (fr_tensor *[]){a, b}, &a));
        cr_expect_eq(fr_tensor_data(a), was, "%s %d: not over a", suites[i].op, k);
        expect_same_values(a, want, suites[i].op);
        RELEASE_ALL(&a, &b, &written, &want);
    }
    expect_nothing_left();
}

/* Bytes that stay for backward of y = (2 a) op (2 b), by the inputs that want a gradient: in maps of a. */
Test(binary, saved_bytes) {
    enum { COUNT = 4096, ADD = 0, MUL = 2, DIV = 3 };
    EACH for (int wants = 1; wants < 4; wants++) {
        fr_tensor *a = NULL, *b = NULL, *ha = NULL, *hb = NULL, *y = NULL;
        fr_memory_stats before, after;
        fr_switches switches = fr_switches_default();
        switches.rebuild = false;
        fr_switches_set(switches);
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 2, FR_F32, test_device(), &a));
        must(fr_tensor_full(1, (int64_t[]){COUNT}, 3, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(a, wants & 1));
        must(fr_tensor_set_requires_grad(b, wants & 2));
        must(fr_memory_stats_get(test_device(), &before));
        must(fr_scale(a, 2, &ha));
        must(fr_scale(b, 2, &hb));
        must(suites[i].run(NULL, (fr_tensor *[]){ha, hb}, &y));
        fr_tensor_release(&ha);
        fr_tensor_release(&hb);
        must(fr_sum(y, &y));
        must(fr_memory_stats_get(test_device(), &after));
        const size_t want = i < MUL ? 0 : (i == DIV || (wants & 1)) + (wants >> 1);
        cr_expect_eq(after.requested - before.requested, want * COUNT * 4 + 512, "%s, wants %d: %zu bytes are kept",
                     suites[i].op, wants, after.requested - before.requested);
        must(fr_backward(y, NULL));
        RELEASE_ALL(&a, &b, &y);
    }
    fr_switches_set(fr_switches_default());
    expect_nothing_left();
}

typedef fr_status inplace_fn(fr_tensor *a, fr_tensor *b);

/* a *= b saves the overwritten a: fine while b is a constant, an error in backward when b wants a gradient. */
Test(binary, inplace_follows_pytorch) {
    static inplace_fn *const inplace[] = {fr_add_inplace, fr_sub_inplace, fr_mul_inplace, fr_div_inplace};
    EACH for (int b_wants = 0; b_wants < 2; b_wants++) {
        fr_tensor *x = NULL, *b = NULL, *h = NULL, *s = NULL, *want = NULL;
        must(fr_tensor_normal(1, (int64_t[]){10}, 0, 1, FR_F32, test_device(), &x));
        must(fr_tensor_normal(1, (int64_t[]){10}, 4, 1, FR_F32, test_device(), &b));
        must(fr_tensor_set_requires_grad(x, true));
        must(fr_tensor_set_requires_grad(b, b_wants));
        must(fr_scale(x, 2, &h));
        must(suites[i].run(NULL, (fr_tensor *[]){h, b}, &want));
        must(inplace[i](h, b));
        expect_same_values(h, want, suites[i].op);
        must(fr_sum(h, &s));
        if (b_wants && i >= FRI_BINARY_MUL)
            expect_refused(fr_backward(s, NULL), FR_EUSAGE, suites[i].op, "modified in place", NULL);
        else
            must(fr_backward(s, NULL));
        RELEASE_ALL(&x, &b, &h, &s, &want);
    }
    expect_nothing_left();
}
