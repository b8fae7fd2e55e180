/* 03_train_loop.c - a training loop by hand: modules, a loader, an optimizer, a step.
 *
 * The example trainers run this loop too, through the library frugal-cli. */
#include "digits.h"

#include <frugal/frugal.h>
#include <stdio.h>

enum { EPOCHS = 3, BATCH = 50 };

/* conv - relu - pool, twice, then a classifier. */
static fr_status make_model(fr_module **m) {
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 1});
    for (int i = 0; i < 2; i++) {
        x = fr_net_conv2d(n, NULL, x, i == 0 ? 16 : 32, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        x = fr_net_relu(n, NULL, x);
        x = fr_net_maxpool2d(n, NULL, x, 2, NULL);
    }
    x = fr_net_flatten(n, NULL, x, 1);
    x = fr_net_linear(n, NULL, x, 10, FR_BIAS);
    return fr_net_end(&n, &x, 1, m); /* reports the first error of any layer */
}

/* One step. The scope restores the thread state, also after an error; gradients are freed before the next forward. */
static fr_status train_step(fr_module *m, fr_optimizer *o, fr_tensor *images, fr_tensor *labels, double *value) {
    fr_tensor *y = NULL, *loss = NULL;
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    FR_TRY(s, fr_module_forward(m, images, &y));
    FR_TRY(s, fr_cross_entropy(y, labels, NULL, &loss));
    fr_tensor_release(&y);
    FR_TRY(s, fr_backward(loss, NULL));
    FR_TRY(s, fr_optimizer_step(o));
    FR_TRY(s, fr_tensor_item(loss, value));
done:
    fr_optimizer_zero_grad(o);
    fr_tensor_release(&y);
    fr_tensor_release(&loss);
    fr_step_end(&scope);
    return s;
}

int main(void) {
    fr_dataset *digits = NULL;
    fr_loader *loader = NULL;
    fr_module *m = NULL;
    fr_optimizer *o = NULL;
    fr_tensor *images = NULL, *labels = NULL;
    fr_memory_stats t;
    double loss = 0;
    fr_status s = FR_OK;
    fr_seed(1);
    FR_TRY(s, digits_dataset(FR_SPLIT_TRAIN, &digits));
    FR_TRY(s, fr_loader_create(digits, FR_LOADER_OPTS(.batch_size = BATCH, .channels = 1, .workers = 1), &loader));
    FR_TRY(s, make_model(&m));
    FR_TRY(s, fr_sgd(m, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9), &o));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        while ((s = fr_loader_next(loader, &images, &labels)) == FR_OK)
            FR_TRY(s, train_step(m, o, images, labels, &loss));
        if (s < 0) goto done; /* FR_END, which is positive, ends an epoch */
        printf("epoch %d, last loss %.9g\n", epoch + 1, loss);
    }
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &t));
    printf("peak memory %zu bytes\n", t.peak_allocated);
    s = FR_OK;
done:
    if (s < 0) fprintf(stderr, "03_train_loop: %s\n", fr_last_error());
    fr_tensor_release(&images);
    fr_tensor_release(&labels);
    fr_optimizer_release(&o);
    fr_module_release(&m);
    fr_loader_release(&loader);
    fr_dataset_release(&digits);
    return s < 0;
}
