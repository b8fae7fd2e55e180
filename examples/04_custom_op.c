/* 04_custom_op.c - writing an op: swish, y = x * sigmoid(x) (Ramachandran et al., 2017).
 *
 *   backward   dx = dy * (q + y * (1 - q)),  q = sigmoid(x)
 *
 * The description names operands and a kernel per pass. Checks, the saved x, gradients, rebuild, plans, budgets and
 * checkpoints follow from the description. */
#include <frugal/frugal.h>

#include <frugal/extend.h>
#include <math.h>
#include <stdio.h>

/* Words: "x > y". */
static fr_status forward(const fr_kernel_call *c) {
    const float *x = fr_tensor_data(c->t[0]);
    float *y = fr_tensor_data(c->t[1]);
    for (int64_t i = 0; i < fr_tensor_numel(c->t[0]); i++) y[i] = x[i] / (1 + expf(-x[i]));
    return FR_OK;
}

/* Words: "x dy > dx"; dx may be dy. */
static fr_status backward(const fr_kernel_call *c) {
    const float *x = fr_tensor_data(c->t[0]), *dy = fr_tensor_data(c->t[1]);
    float *dx = fr_tensor_data(c->t[2]);
    for (int64_t i = 0; i < fr_tensor_numel(c->t[0]); i++) {
        const float q = 1 / (1 + expf(-x[i]));
        dx[i] = dy[i] * (q + x[i] * q * (1 - q));
    }
    return FR_OK;
}

static const fr_kernel swish_forward = {.name = "swish_forward", .run = forward, .flops = 4};
static const fr_kernel swish_backward = {.name = "swish_backward", .run = backward, .flops = 7};
static fr_described swish = {.op = {.name = "swish", .autocast = FR_AUTOCAST_F32},
                             .operands = "x[*] > y[*]=x",
                             .forward = {{"x > y", &swish_forward}},
                             .backward = {{"x dy > dx=dy", &swish_backward}},
                             .rebuilds = true};

int main(void) {
    fr_tensor *x = NULL, *y = NULL;
    double sum = 0, slope = 0;
    fr_status s = FR_OK;
    FR_TRY(s, fr_tensor_full(1, (int64_t[]){100}, 1, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_tensor_set_requires_grad(x, true));
    FR_TRY(s, fr_op_call(&swish, &x, 1, NULL, 0, &y));
    FR_TRY(s, fr_sum(y, &y));
    FR_TRY(s, fr_backward(y, NULL));
    FR_TRY(s, fr_tensor_item(y, &sum));
    FR_TRY(s, fr_mean(fr_tensor_get_grad(x), &y));
    FR_TRY(s, fr_tensor_item(y, &slope));
    printf("swish(1) = %.4f, slope %.4f\n", sum / 100, slope); /* 0.7311, 0.9277 */
done:
    if (s < 0) fprintf(stderr, "04_custom_op: %s\n", fr_last_error());
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    return s < 0;
}
