/* test_scatter.c - elements to where an index says: golden values, gradients, in place, repeated indices, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>
#include <string.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *index = golden_tensor(g, "index", FR_I64, fr_tensor_device(in[0]));
    int dim = (int)golden_int(g, "dim", 0);
    fr_status s =
        golden_int(g, "add", 0) ? fr_scatter_add(in[0], dim, index, in[1], y) : fr_scatter(in[0], dim, index, in[1], y);
    fr_tensor_release(&index);
    return s;
}

static const op_suite suite = {.op = "scatter", .inputs = {"x", "src"}, .run = run};

OP_SUITE_TESTS(scatter)

typedef fr_status scatter_fn(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src, fr_tensor **y);
typedef fr_status inplace_fn(fr_tensor *x, int dim, fr_tensor *index, fr_tensor *src);

static const struct {
    scatter_fn *plain;
    inplace_fn *inplace;
} forms[] = {{fr_scatter, fr_scatter_inplace}, {fr_scatter_add, fr_scatter_add_inplace}};

/* x = scatter(x, ...) goes over x, the in-place form in any case, and all three have equal results and gradients. */
Test(scatter, in_place) {
    for (int form = 0; form < 2; form++)
        for (int dim = 0; dim < 2; dim++) {
            fr_tensor *leaf = uniform_tensor(2, (int64_t[]){4, 4}), *src = uniform_tensor(2, (int64_t[]){3, 3});
            fr_tensor *index = NULL, *y[3] = {NULL}, *loss = NULL, *dx[3] = {NULL}, *dsrc[3] = {NULL};
            must(fr_tensor_from_host((int64_t[]){3, 0, 2, 1, 3, 0, 2, 1, 3}, 2, (int64_t[]){3, 3}, FR_I64,
                                     test_device(), &index));
            must(fr_tensor_set_requires_grad(leaf, true));
            must(fr_tensor_set_requires_grad(src, true));
            for (int how = 0; how < 3; how++) {
                fr_tensor *x = NULL;
                must(fr_scale(leaf, 2, &x));
                const void *place = fr_tensor_data(x);
                if (how == 0) must(forms[form].plain(x, dim, index, src, &y[how]));
                if (how == 1) must(forms[form].plain(x, dim, index, src, &x));
                if (how == 2) must(forms[form].inplace(x, dim, index, src));
                if (how > 0) {
                    cr_expect_eq(fr_tensor_data(x), place, "form %d, how %d: not over x", form, how);
                    y[how] = fr_tensor_retain(x);
                }
                fr_tensor_release(&x);
                must(fr_mul(y[how], y[how], &x)); /* a gradient that differs from element to element */
                must(fr_sum(x, &loss));
                fr_tensor_release(&x);
                must(fr_backward(loss, NULL));
                dx[how] = fr_tensor_retain(fr_tensor_get_grad(leaf));
                dsrc[how] = fr_tensor_retain(fr_tensor_get_grad(src));
                must(fr_tensor_set_grad(leaf, NULL));
                must(fr_tensor_set_grad(src, NULL));
                fr_tensor_release(&loss);
                expect_same_values(y[how], y[0], "result");
                expect_same_values(dx[how], dx[0], "dx");
                expect_same_values(dsrc[how], dsrc[0], "dsrc");
            }
            for (int how = 0; how < 3; how++) {
                fr_tensor_release(&y[how]);
                fr_tensor_release(&dx[how]);
                fr_tensor_release(&dsrc[how]);
            }
            RELEASE_ALL(&leaf, &src, &index);
        }
    expect_nothing_left();
}

/* Last of equal places along the dimension wins, and an index out of range leaves x as it was. */
Test(scatter, order_and_range) {
    fr_tensor *x = NULL, *src = NULL, *index = NULL;
    must(fr_tensor_zeros(1, (int64_t[]){3}, FR_F32, test_device(), &x));
    must(fr_tensor_from_host((float[]){1, 2, 3, 4}, 1, (int64_t[]){4}, FR_F32, test_device(), &src));
    must(fr_tensor_from_host((int64_t[]){1, 0, 1, 0}, 1, (int64_t[]){4}, FR_I64, test_device(), &index));
    must(fr_scatter_inplace(x, 0, index, src));
    cr_expect_eq(memcmp(host_of(x), (float[]){4, 3, 0}, 12), 0);
    must(fr_scatter_add_inplace(x, 0, index, src));
    cr_expect_eq(memcmp(host_of(x), (float[]){10, 7, 0}, 12), 0);
    host_to(index, (int64_t[]){1, 0, 3, 0});
    fr_tensor *none = NULL;
    expect_bad_index(fr_scatter_inplace(x, 0, index, src), "position 2", "0..2", &none);
    if (test_device() == FR_CPU) cr_expect_eq(memcmp(host_of(x), (float[]){10, 7, 0}, 12), 0);
    RELEASE_ALL(&x, &src, &index);
    expect_nothing_left();
}

/* Tensors saved for backward are not written over unseen, and a tensor may be its own source. */
Test(scatter, knows_who_reads_x) {
    fr_tensor *leaf = uniform_tensor(1, (int64_t[]){3}), *x = NULL, *y = NULL, *loss = NULL, *index = NULL;
    must(fr_tensor_from_host((int64_t[]){1, 0, 0}, 1, (int64_t[]){3}, FR_I64, test_device(), &index));
    must(fr_tensor_set_requires_grad(leaf, true));
    must(fr_scale(leaf, 2, &x));
    must(fr_mul(x, x, &y));
    must(fr_scatter_inplace(x, 0, index, leaf));
    must(fr_sum(y, &loss));
    cr_expect_eq(fr_backward(loss, NULL), FR_EUSAGE, "backward read what was written over");
    fr_tensor_release(&x);
    must(fr_tensor_from_host((float[]){1, 2, 3}, 1, (int64_t[]){3}, FR_F32, test_device(), &x));
    host_to(index, (int64_t[]){1, 2, 0});
    must(fr_scatter(x, 0, index, x, &x));
    cr_expect_eq(memcmp(host_of(x), (float[]){3, 1, 2}, 12), 0);
    RELEASE_ALL(&leaf, &x, &y, &loss, &index);
    expect_nothing_left();
}

/* Autocast brings x and src to the wider type, as torch.scatter_add does; without autocast they are refused, as in
 * torch. */
Test(scatter, the_wider_type_under_autocast) {
    fr_autocast_state was;
    fr_tensor *x = NULL, *src = NULL, *index = NULL, *y = NULL;
    must(fr_tensor_full(2, (int64_t[]){2, 3}, 1, FR_BF16, test_device(), &x));
    must(fr_tensor_full(2, (int64_t[]){2, 1}, 1.0 / 512, FR_F32, test_device(), &src));
    must(fr_tensor_zeros(2, (int64_t[]){2, 1}, FR_I64, test_device(), &index));
    must(fr_tensor_set_requires_grad(x, true));
    must(fr_tensor_set_requires_grad(src, true));
    expect_refused(fr_scatter_add(x, 1, index, src, &y), FR_EDTYPE, "f32", "bf16", y);
    for (int add = 0; add < 2; add++) {
        must(fr_autocast_begin(FR_BF16, &was));
        must(add ? fr_scatter_add(x, 1, index, src, &y) : fr_scatter(x, 1, index, src, &y));
        fr_autocast_end(was);
        cr_expect_eq(fr_tensor_dtype(y), FR_F32);
        double *v = values_of(y);
        cr_expect(v[0] == add + 1.0 / 512 && v[1] == 1, "%g, %g", v[0], v[1]);
        free(v);
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        cr_expect_eq(fr_tensor_dtype(fr_tensor_get_grad(x)), FR_BF16);
        fr_tensor_release(&y);
    }
    RELEASE_ALL(&x, &src, &index);
    expect_nothing_left();
}
