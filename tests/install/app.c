/* app.c - a program outside the tree: trains a small network for some steps, prints the version and the last loss. */
#include <frugal/frugal.h>
#include <stdio.h>

static fr_status train(fr_module *m, fr_optimizer *o, double *value) {
    fr_tensor *x = NULL, *y = NULL, *loss = NULL;
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    FR_TRY(s, fr_tensor_uniform(4, (int64_t[]){4, 8, 8, 3}, 0, 1, FR_F32, FR_CPU, &x));
    FR_TRY(s, fr_module_forward(m, x, &y));
    FR_TRY(s, fr_mse(y, x, &loss));
    FR_TRY(s, fr_backward(loss, NULL));
    FR_TRY(s, fr_optimizer_step(o));
    FR_TRY(s, fr_tensor_item(loss, value));
done:
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_step_end(&scope);
    return s;
}

int main(void) {
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_status s = FR_OK;
    double loss = 0;
    fr_seed(7);
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 3});
    x = fr_net_relu(n, NULL, fr_net_conv2d(n, NULL, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_conv2d(n, NULL, x, 3, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    FR_TRY(s, fr_net_end(&n, &x, 1, &m));
    FR_TRY(s, fr_adam(m, FR_ADAM_OPTS(.lr = 0.01), &o));
    for (int step = 0; step < 5; step++) FR_TRY(s, train(m, o, &loss));
    printf("frugal %s, loss %.9g\n", fr_version(), loss);
done:
    if (s < 0) fprintf(stderr, "app: %s\n", fr_last_error());
    fr_optimizer_release(&o);
    fr_module_release(&m);
    return s < 0;
}
