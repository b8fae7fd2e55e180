/* test_concat.c - concatenation of channels: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>
#include <stdlib.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    return fr_concat(in, (int)golden_int(g, "n_inputs", 0), y);
}

static const op_suite suite = {.op = "concat", .inputs = {"x0", "x1", "x2", "x3"}, .run = run};

OP_SUITE_TESTS(concat)

/* torch.cat promotes, also under autocast: y is in the widest type, and a gradient in its input's. */
Test(concat, the_widest_type) {
    static const fr_dtype type[][3] = {{FR_F16, FR_F32, FR_F32}, {FR_F32, FR_BF16, FR_F32}, {FR_F16, FR_BF16, FR_F32}};
    for (int cast = 0; cast < 2; cast++)
        for (int i = 0; i < 3; i++) {
            fr_autocast_state was;
            fr_tensor *in[2] = {NULL}, *y = NULL;
            for (int k = 0; k < 2; k++) {
                must(fr_tensor_full(2, (int64_t[]){2, 3}, 1 + k, type[i][k], test_device(), &in[k]));
                must(fr_tensor_set_requires_grad(in[k], true));
            }
            if (cast) must(fr_autocast_begin(FR_BF16, &was));
            must(fr_concat(in, 2, &y));
            if (cast) fr_autocast_end(was);
            cr_expect_eq(fr_tensor_dtype(y), type[i][2], "case %d: %s", i, fr_dtype_name(fr_tensor_dtype(y)));
            double *v = values_of(y);
            cr_expect(v[0] == 1 && v[3] == 2 && v[11] == 2, "case %d: %g %g %g", i, v[0], v[3], v[11]);
            free(v);
            must(fr_sum(y, &y));
            must(fr_backward(y, NULL));
            for (int k = 0; k < 2; k++) {
                cr_expect_eq(fr_tensor_dtype(fr_tensor_get_grad(in[k])), type[i][k]);
                fr_tensor_release(&in[k]);
            }
            fr_tensor_release(&y);
        }
    expect_nothing_left();
}

Test(concat, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *two[] = {x, other}, *mixed[] = {x, integer}, *devices[] = {x, meta}, *hole[] = {x, NULL};
    expect_refused(fr_concat(two, 0, &y), FR_EINVAL, "0 inputs", "at least 1", y);
    expect_refused(fr_concat(hole, 2, &y), FR_EINVAL, "input 1", "NULL", y);
    expect_refused(fr_concat(two, 2, &y), FR_ESHAPE, "[2, 5, 6, 3]", "[2, 5, 7, 3]", y);
    expect_refused(fr_concat(mixed, 2, &y), FR_EDTYPE, "f32", "i32", y);
    expect_refused(fr_concat(devices, 2, &y), FR_EDEVICE, fr_device_name(test_device()), "meta", y);
    RELEASE_ALL(&x, &other, &integer, &meta);
    expect_nothing_left();
}
