/* test_planted.c - the checkers themselves: a flipped sign, a dropped term and a transposed axis are caught.
 *
 * The op is z = a * b + c * a with a backward that is right, or wrong in one of the three ways. */
#include <criterion/criterion.h>
#include <frugal/extend.h>
#include <frugal/ops.h>
#include <string.h>

#include "support/golden.h"

enum { ROWS = 3, COLUMNS = 3 };

typedef enum bug { RIGHT, FLIPPED_SIGN, DROPPED_TERM, TRANSPOSED } bug;

/* g [r, c] of the product's gradient: dy * b, possibly wrong. */
static void gradient_of_a(bug kind, const double *dy, const double *b, double *g) {
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            int i = r * COLUMNS + c, j = kind == TRANSPOSED ? c * COLUMNS + r : i;
            double term = dy[i] * b[j];
            g[i] = (kind == FLIPPED_SIGN ? -term : term) + (kind == DROPPED_TERM ? 0 : dy[i]);
        }
}

static fr_status backward(fr_node *node, fr_tensor **dy) {
    fr_tensor *b = NULL, *da = NULL;
    fr_status s = FR_OK;
    FR_TRY(s, fr_node_saved(node, 0, &b));
    FR_TRY(s, fr_tensor_empty(2, (int64_t[]){ROWS, COLUMNS}, FR_F64, test_device(), &da));
    gradient_of_a(*(const bug *)fr_node_params(node), fr_tensor_data(*dy), fr_tensor_data(b), fr_tensor_data(da));
    FR_TRY(s, fr_node_grad(node, 0, &da));
done:
    fr_tensor_release(&b);
    fr_tensor_release(&da);
    return s;
}

static const fr_op planted = {.name = "planted", .backward = backward};

/* y = a * b + a */
static fr_status forward(void *ctx, fr_tensor *const *in, int n_in, fr_tensor **out, int n_out) {
    fr_tensor *y = NULL;
    fr_status s = FR_OK;
    (void)n_in;
    (void)n_out;
    FR_TRY(s, fr_tensor_empty(2, (int64_t[]){ROWS, COLUMNS}, FR_F64, test_device(), &y));
    const double *a = fr_tensor_data(in[0]), *b = fr_tensor_data(in[1]);
    for (int i = 0; i < ROWS * COLUMNS; i++) ((double *)fr_tensor_data(y))[i] = a[i] * b[i] + a[i];
    fr_save save = {in[1], FR_SAVE_VALUE};
    FR_TRY(s, fr_op_record(&planted, ctx, sizeof(bug), in, 1, &save, 1, y));
    fr_tensor_release(out);
    *out = y;
    y = NULL;
done:
    fr_tensor_release(&y);
    return s;
}

static fr_status check(bug kind) {
    fr_tensor *in[2] = {0};
    fr_seed(9);
    for (int i = 0; i < 2; i++)
        must(fr_tensor_normal(2, (int64_t[]){ROWS, COLUMNS}, 0, 1, FR_F64, test_device(), &in[i]));
    must(fr_tensor_set_requires_grad(in[0], true));
    fr_status s = fr_gradcheck(forward, &kind, in, 2, NULL);
    for (int i = 0; i < 2; i++) fr_tensor_release(&in[i]);
    return s;
}

Test(planted, gradcheck_catches_each) {
    cpu_only("gradient checks are in f64, which CUDA does not compute");
    must(check(RIGHT));
    for (bug kind = FLIPPED_SIGN; kind <= TRANSPOSED; kind++) {
        cr_expect_eq(check(kind), FR_EINVAL, "bug %d slipped through", (int)kind);
        cr_expect(strstr(fr_last_error(), "numeric") != NULL, "%s", fr_last_error());
    }
    expect_nothing_left();
}
