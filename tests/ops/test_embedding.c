/* test_embedding.c - rows of a table: golden values with repeated indices, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/ops.h>

#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    fr_tensor *index = golden_tensor(g, "index", FR_I64, fr_tensor_device(in[0]));
    fr_status s = fr_embedding(index, in[0], y);
    fr_tensor_release(&index);
    return s;
}

static const op_suite suite = {.op = "embedding", .inputs = {"w"}, .run = run};

OP_SUITE_TESTS(embedding)

Test(embedding, rejects_bad_args) {
    fr_tensor *x = NULL, *other = NULL, *meta = NULL, *integer = NULL, *y = NULL;
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 7, 3}, FR_F32, test_device(), &other));
    must(fr_tensor_zeros(4, (int64_t[]){2, 5, 6, 3}, FR_I32, test_device(), &integer));
    must(fr_tensor_empty(4, (int64_t[]){2, 5, 6, 3}, FR_F32, FR_META, &meta));
    fr_tensor *w = NULL, *index = NULL;
    must(fr_tensor_zeros(2, (int64_t[]){4, 3}, FR_F32, test_device(), &w));
    must(fr_tensor_full(1, (int64_t[]){2}, 4, FR_I64, test_device(), &index));
    expect_bad_index(fr_embedding(index, w, &y), "index[0]", "0..3", &y);
    expect_refused(fr_embedding(x, w, &y), FR_EDTYPE, "f32", "i64", y);
    expect_refused(fr_embedding(index, x, &y), FR_ESHAPE, "[2, 5, 6, 3]", "rank 2", y);
    expect_refused(fr_embedding(index, NULL, &y), FR_EINVAL, "embedding", "NULL", y);
    RELEASE_ALL(&w, &index, &x, &other, &integer, &meta);
    expect_nothing_left();
}
