/* test_linear.c - fully connected: golden values, gradients, refusals. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <string.h>

#include "backend/backend.h"
#include "support/op_suite.h"

static fr_status run(const golden *g, fr_tensor *const *in, fr_tensor **y) {
    (void)g;
    return fr_linear(in[0], in[1], in[2], y);
}

static const op_suite suite = {.op = "linear", .inputs = {"x", "w", "b"}, .run = run};

OP_SUITE_TESTS(linear)

/* Rows first .. first + n of t, or all of t, as a separate operand. */
static fr_tensor *rows_of(fr_tensor *t, int64_t first, int64_t n) {
    const size_t row = fr_tensor_nbytes(t) / (size_t)fr_tensor_shape(t)[0];
    fr_tensor *piece = NULL;
    must(fr_tensor_empty(2, (int64_t[]){n, fr_tensor_shape(t)[1]}, fr_tensor_dtype(t), FR_CPU, &piece));
    memcpy(fr_tensor_data(piece), (const char *)fr_tensor_data(t) + (size_t)first * row, (size_t)n * row);
    return piece;
}

typedef struct results {
    fr_tensor *y, *x; /* x holds dx */
} results;

static results both_passes(fr_tensor *x, fr_tensor *w, fr_tensor *b, fr_tensor *dy, int64_t first, int64_t n) {
    results r = {.x = rows_of(x, first, n)};
    fr_tensor *seed = rows_of(dy, first, n);
    must(fr_tensor_set_requires_grad(r.x, true));
    must(fr_linear(r.x, w, b, &r.y));
    must(fr_backward(r.y, seed));
    fr_tensor_release(&seed);
    return r;
}

static void expect_rows(fr_tensor *whole, fr_tensor *piece, int64_t first, const char *what) {
    const size_t row = fr_tensor_nbytes(piece) / (size_t)fr_tensor_shape(piece)[0];
    const char *at = (const char *)fr_tensor_data(whole) + (size_t)first * row;
    cr_expect_eq(memcmp(fr_tensor_data(piece), at, fr_tensor_nbytes(piece)), 0, "%s, %lld columns, rows %lld + %lld",
                 what, (long long)fr_tensor_shape(whole)[1], (long long)first, (long long)fr_tensor_shape(piece)[0]);
}

/* Every column of the last row. */
static void expect_last_row(fr_tensor *x, fr_tensor *w, fr_tensor *b, fr_tensor *y) {
    const int64_t in = fr_tensor_shape(w)[1], out = fr_tensor_shape(w)[0], row = fr_tensor_shape(x)[0] - 1;
    const float *from = (const float *)fr_tensor_data(x) + row * in, *weight = fr_tensor_data(w);
    const float *bias = fr_tensor_data(b), *made = (const float *)fr_tensor_data(y) + row * out;
    for (int64_t j = 0; j < out; j++) {
        double sum = bias[j];
        for (int64_t i = 0; i < in; i++) sum += (double)from[i] * weight[j * in + i];
        cr_expect_float_eq(made[j], sum, 1e-4, "y[%lld][%lld]", (long long)row, (long long)j);
    }
}

/* Rows of any piece of a batch equal rows of the whole, wherever the piece begins. */
static void pieces_of_a_batch(fr_dtype t, int64_t rows, int64_t in, int64_t out) {
    fr_tensor *w = NULL, *b = NULL, *x = NULL, *dy = NULL;
    must(fr_tensor_uniform(2, (int64_t[]){out, in}, -1, 1, t, FR_CPU, &w));
    must(fr_tensor_uniform(1, &out, -1, 1, t, FR_CPU, &b));
    must(fr_tensor_uniform(2, (int64_t[]){rows, in}, -1, 1, t, FR_CPU, &x));
    must(fr_tensor_uniform(2, (int64_t[]){rows, out}, -1, 1, t, FR_CPU, &dy));
    results whole = both_passes(x, w, b, dy, 0, rows);
    if (t == FR_F32) expect_last_row(x, w, b, whole.y);
    for (int64_t at = 0; at < rows; at += 5)
        for (int64_t n = 1; n <= 15 && at + n <= rows; n += n == 7 ? 4 : 1) {
            results piece = both_passes(x, w, b, dy, at, n);
            expect_rows(whole.y, piece.y, at, "y");
            expect_rows(fr_tensor_get_grad(whole.x), fr_tensor_get_grad(piece.x), at, "dx");
            fr_tensor_release(&piece.y);
            fr_tensor_release(&piece.x);
        }
    fr_tensor *const all[] = {whole.y, whole.x, dy, x, b, w};
    for (int i = 0; i < 6; i++) fr_tensor_release(&(fr_tensor *){all[i]});
}

Test(linear, y_and_dx_do_not_depend_on_the_batch) {
    static const int64_t sizes[] = {1, 9, 17, 128, 1000};
    for (int threads = 2; threads <= 8; threads += 6) {
        must(fr_threads_set(threads));
        for (int i = 0; i < 25; i++) pieces_of_a_batch(FR_F32, 37, sizes[i / 5], sizes[i % 5]);
        pieces_of_a_batch(FR_F16, 37, 128, 1000);
        pieces_of_a_batch(FR_BF16, 37, 1000, 128);
    }
    for (int i = 0; i < 3; i++) pieces_of_a_batch(FR_F32, 16, 1100 + 1000 * i, 1300); /* sums that a library may cut */
    pieces_of_a_batch(FR_F16, 2, 2500000, 2);                                         /* our own cut */
    expect_nothing_left();
}

Test(linear, a_bias_alone_saves_nothing) {
    fr_tensor *x = NULL, *w = NULL, *b = NULL, *y = NULL, *seed = NULL;
    fr_memory_stats stats;
    must(fr_tensor_zeros(2, (int64_t[]){3, 5}, FR_F32, test_device(), &x));
    must(fr_tensor_zeros(2, (int64_t[]){4, 5}, FR_F32, test_device(), &w));
    must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, test_device(), &b));
    must(fr_tensor_full(2, (int64_t[]){3, 4}, 2, FR_F32, test_device(), &seed));
    must(fr_tensor_set_requires_grad(b, true));
    must(fr_linear(x, w, b, &y));
    must(fr_memory_stats_get(test_device(), &stats));
    cr_expect_eq(stats.requested_by[FR_MEM_ACTIVATION], 0);
    must(fr_backward(y, seed));
    float db[4];
    must(fr_tensor_to_host(fr_tensor_get_grad(b), db));
    for (int i = 0; i < 4; i++) cr_expect_eq(db[i], 6);
    RELEASE_ALL(&x, &w, &b, &y, &seed);
    expect_nothing_left();
}

static fri_linear_workspace_fn *real_bytes;
static int asked, asked_with_bias;
static fr_status watched_bytes(const fri_linear_desc *d, size_t *bytes) {
    asked++;
    asked_with_bias += d->bias_gradient;
    return real_bytes(d, bytes);
}

/* A backend may sum db in scratch memory of the weight's kernel, so the kernel's workspace depends on db. */
Test(linear, workspace_of_the_weight_knows_of_the_bias) {
    fri_backend table = *fri_backend_get(FR_CPU);
    real_bytes = table.kernels.linear_backward_weight_workspace;
    table.kernels.linear_backward_weight_workspace = watched_bytes;
    fri_backend_override(FR_CPU, &table);
    for (int bias = 0; bias < 2; bias++) {
        fr_tensor *x = NULL, *w = NULL, *b = NULL, *y = NULL;
        asked = asked_with_bias = 0;
        must(fr_tensor_zeros(2, (int64_t[]){3, 5}, FR_F32, FR_CPU, &x));
        must(fr_tensor_zeros(2, (int64_t[]){4, 5}, FR_F32, FR_CPU, &w));
        must(fr_tensor_zeros(1, (int64_t[]){4}, FR_F32, FR_CPU, &b));
        must(fr_tensor_set_requires_grad(w, true));
        must(fr_tensor_set_requires_grad(b, bias));
        must(fr_linear(x, w, b, &y));
        must(fr_sum(y, &y));
        must(fr_backward(y, NULL));
        cr_expect_eq(asked, 1, "asked %d times", asked);
        cr_expect_eq(asked_with_bias, bias, "bias %d: told %d times", bias, asked_with_bias);
        RELEASE_ALL(&x, &w, &b, &y);
    }
    fri_backend_override(FR_CPU, NULL);
}
