/* test_linear_epilogue.c - requests to cuBLASLt for the bias of a linear layer and its gradient, and the way without
 * the epilogue. On a fake runtime and a fake cuBLASLt; the sums themselves are checked on a GPU. */
#include <criterion/criterion.h>

#include "cuda/fake_cublaslt.h"
#include "cuda/kernels.h"
#include "support/golden.h"

TestSuite(linear_epilogue, .init = fake_cublaslt_begin);

static _Alignas(512) char x[4096], w[4096], y[4096], vector[512], scratch[1 << 20];

static fri_linear_desc layer(fr_dtype bias_dtype) {
    return (
        fri_linear_desc){.dtype = FR_F16, .bias_dtype = bias_dtype, .n = 4, .in = 16, .out = 8, .bias_gradient = true};
}

static void forward(fr_dtype bias_dtype, const void *b) {
    fri_linear_desc d = layer(bias_dtype);
    fri_exec e = {.workspace = scratch};
    must(fri_cuda_linear_forward_workspace(&d, &e.workspace_bytes));
    must(fri_cuda_linear_forward(&e, &d, x, w, b, y));
}

static void backward_weight(fr_dtype bias_dtype, void *db) {
    fri_linear_desc d = layer(bias_dtype);
    fri_exec e = {.workspace = scratch};
    d.bias_gradient = db != NULL;
    must(fri_cuda_linear_backward_weight_workspace(&d, &e.workspace_bytes));
    must(fri_cuda_linear_backward_weight(&e, &d, x, y, w, db));
}

static void expect_product(cublasLtEpilogue_t epilogue, const void *bias, int heuristics) {
    cr_expect_eq(fake_lt.products, 1, "%d products", fake_lt.products);
    cr_expect_eq(fake_lt.epilogue, epilogue, "epilogue %d", (int)fake_lt.epilogue);
    cr_expect_eq(fake_lt.bias, bias);
    cr_expect_eq(fake_lt.heuristics, heuristics, "%d questions", fake_lt.heuristics);
    cr_expect_eq(fake_lt.descriptors, 0, "%d descriptors are left", fake_lt.descriptors);
    fake_lt.products = fake_lt.heuristics = 0;
}

Test(linear_epilogue, without_memory_for_cublaslt_the_sentence_says_what_is_free) {
    fri_linear_desc d = layer(FR_F16);
    fri_exec e = {.workspace = scratch};
    must(fri_cuda_linear_forward_workspace(&d, &e.workspace_bytes));
    fake.memory = 3 << 20;
    fake_lt.product = CUBLAS_STATUS_ALLOC_FAILED;
    cr_expect_eq(fri_cuda_linear_forward(&e, &d, x, w, vector, y), FR_ENOMEM);
    cr_expect_not_null(strstr(fr_last_error(), "cuBLASLt needs memory beside the engine's"), "%s", fr_last_error());
    cr_expect_not_null(strstr(fr_last_error(), "3 of the device's 1024 MiB are free"), "%s", fr_last_error());
    fake_lt.product = CUBLAS_STATUS_EXECUTION_FAILED;
    cr_expect_eq(fri_cuda_linear_forward(&e, &d, x, w, vector, y), FR_ELIBRARY);
}

Test(linear_epilogue, bias_ends_the_forward_product) {
    forward(FR_F16, vector);
    expect_product(CUBLASLT_EPILOGUE_BIAS, vector, 1);
    forward(FR_F16, vector);
    expect_product(CUBLASLT_EPILOGUE_BIAS, vector, 0);
    forward(FR_F16, NULL);
    expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, 1);
}

/* dw^T [in, out] = x^T (dy^T)^T: dy is B, and the sum over K = n has an element per column of D. */
Test(linear_epilogue, the_bias_gradient_ends_the_product_of_the_weight_gradient) {
    backward_weight(FR_F16, vector);
    cr_expect_eq(fake_lt.a, x);
    cr_expect_eq(fake_lt.b, y);
    cr_expect_eq(fake_lt.d, w);
    expect_product(CUBLASLT_EPILOGUE_BGRADB, vector, 1);
    backward_weight(FR_F16, NULL);
    expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, 1);
}

Test(linear_epilogue, a_bias_of_another_type_is_not_the_librarys) {
    forward(FR_F32, vector);
    expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, 1);
    backward_weight(FR_F32, vector);
    expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, 1);
}

/* Refused in either way: the product runs without the epilogue, and the question is not repeated. */
Test(linear_epilogue, without_an_algorithm_the_product_runs_alone) {
    static const cublasStatus_t refusals[] = {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED,
                                              CUBLAS_STATUS_INVALID_VALUE};
    for (int i = 0; i < 3; i++) {
        char *moved = vector + (256 >> i); /* a new alignment, so a new question */
        fake_lt.refusal = refusals[i];
        fake_lt.without = CUBLASLT_EPILOGUE_BGRADB;
        backward_weight(FR_F16, moved);
        expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, i == 0 ? 2 : 1);
        backward_weight(FR_F16, moved);
        expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, 0);
        fake_lt.without = CUBLASLT_EPILOGUE_BIAS;
        forward(FR_F16, moved);
        expect_product(CUBLASLT_EPILOGUE_DEFAULT, NULL, i == 0 ? 2 : 1);
    }
}

Test(linear_epilogue, without_any_algorithm_it_is_an_error) {
    fri_linear_desc d = layer(FR_F16);
    fri_exec e = {.workspace = scratch, .workspace_bytes = sizeof scratch};
    fake_lt.without = CUBLASLT_EPILOGUE_DEFAULT;
    cr_expect_eq(fri_cuda_linear_backward_input(&e, &d, w, y, x), FR_EUNSUPPORTED);
    cr_expect_not_null(strstr(fr_last_error(), "cuBLASLt has no algorithm"), "%s", fr_last_error());
    cr_expect_eq(fake_lt.descriptors, 0);
}

Test(linear_epilogue, scratch_is_enough_for_either_way) {
    fri_linear_desc d = {.dtype = FR_F16, .bias_dtype = FR_F16, .n = 100000, .in = 1, .out = 3};
    size_t without, with;
    must(fri_cuda_linear_backward_weight_workspace(&d, &without));
    d.bias_gradient = true;
    must(fri_cuda_linear_backward_weight_workspace(&d, &with));
    cr_expect_eq(with, fri_cuda_bias_workspace(FR_F16, d.n, d.out));
    cr_expect_gt(with, without);
}
