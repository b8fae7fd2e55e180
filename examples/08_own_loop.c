/* 08_own_loop.c - a training loop of your own with everything in it: autocast, loss scale, accumulation, clipping,
 * schedule, averages, checkpoints, evaluation, and states from which a later run continues. docs/loop.md shows the loop
 * beside PyTorch's, and tests/train/own_loop.py trains both from the same weights.
 *
 * Usage: 08_own_loop [f32|f16] [FOLDER]     FOLDER keeps the first weights and the states; default: a temporary one */
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include("digits.h") /* beside the examples; elsewhere noise of the same shape */
#include "digits.h"
#define LEARNS true
#else
#define LEARNS false
static fr_status digits_dataset(fr_split split, fr_dataset **out) {
    return fr_dataset_synthetic(split == FR_SPLIT_TRAIN ? 1500 : 297, 10, 8, 8, 1, (uint64_t)split, out);
}
#endif

enum { STEPS = 10, ACCUMULATE = 2, BATCH = 50, SAVED_AT = 5, CLASSES = 10 };

typedef struct training {
    fr_module *model;
    fr_optimizer *optimizer;
    fr_grad_scaler *scaler;
    fr_loader *loader;
    fr_schedule schedule;
    bool half;
} training;

static fr_status network(fr_module **m) {
    fr_net *n = fr_net_begin(FR_CPU);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 8, 8, 1});
    for (int i = 0; i < 4; i++) {
        x = fr_net_conv2d(n, NULL, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
        x = fr_net_relu(n, NULL, fr_net_group_norm(n, NULL, x, 4, 1e-5));
    }
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 4, 4), 1);
    x = fr_net_linear(n, NULL, x, CLASSES, FR_BIAS);
    return fr_net_end(&n, &x, 1, m);
}

static fr_status begin(training *t, fr_dataset *digits, bool half) {
    fr_status s = FR_OK;
    *t = (training){.schedule = {FR_SCHEDULE_COSINE, .lr = 0.1, .warmup = 3, .total = STEPS}, .half = half};
    FR_TRY(s, fr_loader_create(digits, FR_LOADER_OPTS(.batch_size = BATCH, .shuffle = false), &t->loader));
    FR_TRY(s, network(&t->model));
    FR_TRY(s, fr_sgd(t->model, FR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4), &t->optimizer));
    FR_TRY(s, fr_optimizer_ema(t->optimizer, 0.8));
    FR_TRY(s, fr_grad_scaler_create(FR_GRAD_SCALER_OPTS(.enabled = half), FR_CPU, &t->scaler));
done:
    return s;
}

static void end(training *t) {
    fr_grad_scaler_release(&t->scaler);
    fr_optimizer_release(&t->optimizer);
    fr_module_release(&t->model);
    fr_loader_release(&t->loader);
}

/* Forward and backward of one batch; gradients add up over the batches of a step. */
static fr_status batch(training *t, double *loss) {
    fr_tensor *images = NULL, *labels = NULL, *y = NULL, *l = NULL;
    fr_autocast_state was;
    double value = 0;
    fr_status s = fr_loader_next(t->loader, &images, &labels);
    if (s == FR_END) s = fr_loader_next(t->loader, &images, &labels); /* the first batch of the next epoch */
    if (t->half) FR_TRY(s, fr_autocast_begin(FR_F16, &was));
    FR_TRY(s, fr_checkpoint_sequential(t->model, 2, images, &y)); /* without checkpoints: fr_module_forward */
    fr_tensor_release(&images);                                   /* from here on only the graph holds them */
    FR_TRY(s, fr_cross_entropy(y, labels, NULL, &l));
    fr_tensor_release(&y);
    if (t->half) fr_autocast_end(was);
    FR_TRY(s, fr_scale(l, 1.0 / ACCUMULATE, &l));
    FR_TRY(s, fr_tensor_item(l, &value));
    *loss += value;
    FR_TRY(s, fr_grad_scaler_scale(t->scaler, l, &l));
    FR_TRY(s, fr_backward(l, NULL));
done:
    fr_tensor_release(&images);
    fr_tensor_release(&labels);
    fr_tensor_release(&y);
    fr_tensor_release(&l);
    return s;
}

/* One step of the optimizer. fr_step_end restores the thread's modes, also autocast after an error in between. */
static fr_status step(training *t, int64_t number, double *loss) {
    fr_step_scope scope;
    fr_status s = fr_step_begin(&scope);
    *loss = 0;
    for (int i = 0; i < ACCUMULATE; i++) FR_TRY(s, batch(t, loss));
    FR_TRY(s, fr_grad_scaler_unscale(t->scaler, t->optimizer));
    FR_TRY(s, fr_clip_grad_norm(t->model, 1.0, NULL));
    fr_optimizer_set_lr(t->optimizer, fr_schedule_lr(&t->schedule, number));
    FR_TRY(s, fr_grad_scaler_step(t->scaler, t->optimizer)); /* updates the averages, too */
    FR_TRY(s, fr_grad_scaler_update(t->scaler, NULL));
done:
    fr_optimizer_zero_grad(t->optimizer);
    fr_step_end(&scope);
    return s;
}

/* Mean loss of the test images with the averaged weights. Every begin has its end, also after a failure. */
static fr_status evaluate(training *t, fr_dataset *test, double *mean) {
    fr_loader *loader = NULL;
    fr_tensor *x = NULL, *labels = NULL;
    double value = 0, sum = 0, images = 0;
    const bool grad = fr_no_grad_begin();
    fr_status s = fr_optimizer_ema_swap(t->optimizer);
    const bool swapped = s == FR_OK;
    fr_module_evaluation_begin(t->model);
    FR_TRY(s,
           fr_loader_create(test, FR_LOADER_OPTS(.batch_size = BATCH, .shuffle = false, .drop_last = false), &loader));
    while ((s = fr_loader_next(loader, &x, &labels)) == FR_OK) {
        const double n = (double)fr_tensor_dim(labels, 0);
        FR_TRY(s, fr_module_forward(t->model, x, &x));
        FR_TRY(s, fr_cross_entropy(x, labels, NULL, &x));
        FR_TRY(s, fr_tensor_item(x, &value));
        sum += n * value;
        images += n;
    }
    if (s == FR_END) s = FR_OK;
    *mean = sum / images;
done:
    fr_module_evaluation_end(t->model);
    if (swapped) (void)fr_optimizer_ema_swap(t->optimizer);
    fr_no_grad_end(grad);
    fr_tensor_release(&x);
    fr_tensor_release(&labels);
    fr_loader_release(&loader);
    return s;
}

static fr_state parts(const training *t, int64_t number) {
    return (fr_state){.model = t->model,
                      .optimizer = t->optimizer,
                      .scaler = t->half ? t->scaler : NULL,
                      .loader = t->loader,
                      .model_name = "08_own_loop",
                      .step = number,
                      .schedule = t->schedule};
}

/* Trains the steps from `first` on. */
static fr_status train(training *t, int64_t first, const char *folder, double loss[STEPS]) {
    fr_status s = FR_OK;
    for (int64_t i = first; i < STEPS; i++) {
        FR_TRY(s, step(t, i, &loss[i]));
        if (first > 0) continue;
        printf("step %d loss %.9g\n", (int)i + 1, loss[i]);
        const fr_state now = parts(t, i + 1);
        if (i + 1 == SAVED_AT) FR_TRY(s, fr_state_save(folder, &now, 1, NULL));
    }
done:
    return s;
}

/* A later run: other objects, filled from the newest state, go on with the numbers of an undisturbed run. */
static fr_status resume(fr_dataset *digits, bool half, const char *folder, double loss[STEPS]) {
    char path[FR_STATE_PATH_BYTES];
    training t;
    fr_state state;
    fr_status s = begin(&t, digits, half);
    FR_TRY(s, s);
    state = parts(&t, 0);
    FR_TRY(s, fr_state_find_latest(folder, path, NULL, NULL));
    FR_TRY(s, fr_state_load(path, &state));
    t.schedule = state.schedule;
    FR_TRY(s, train(&t, state.step, folder, loss));
done:
    end(&t);
    return s;
}

static fr_status run(bool half, const char *folder) {
    char first[FR_STATE_PATH_BYTES];
    fr_dataset *digits = NULL, *test = NULL;
    training t = {0};
    fr_memory_stats memory;
    double loss[STEPS], again[STEPS], mean = 0;
    fr_status s = FR_OK;
    fr_seed(1);
    FR_TRY(s, digits_dataset(FR_SPLIT_TRAIN, &digits));
    FR_TRY(s, digits_dataset(FR_SPLIT_TEST, &test));
    FR_TRY(s, begin(&t, digits, half));
    snprintf(first, sizeof first, "%s/first.safetensors", folder);
    FR_TRY(s, fr_weights_save(t.model, first, NULL));
    FR_TRY(s, fr_memory_reset_peak(FR_CPU));
    FR_TRY(s, train(&t, 0, folder, loss));
    FR_TRY(s, fr_memory_stats_get(FR_CPU, &memory));
    printf("peak memory %zu bytes\n", memory.peak_requested);
    FR_TRY(s, evaluate(&t, test, &mean));
    printf("test loss of the averages %.9g\n", mean);
    FR_TRY(s, resume(digits, half, folder, again));
    for (int i = SAVED_AT; i < STEPS; i++)
        if (again[i] != loss[i]) FR_TRY(s, fr_fail(FR_EINTERNAL, "step %d: %.9g after a resume", i + 1, again[i]));
    printf("resumed at step %d: the same losses to the last bit\n", SAVED_AT);
    if (LEARNS && loss[STEPS - 1] >= loss[0]) s = fr_fail(FR_EINTERNAL, "the loss does not fall");
done:
    end(&t);
    fr_dataset_release(&digits);
    fr_dataset_release(&test);
    return s;
}

static void empty(const char *folder) {
    char path[FR_STATE_PATH_BYTES];
    if (fr_state_find_latest(folder, path, NULL, NULL) == FR_OK) unlink(path);
    snprintf(path, sizeof path, "%s/first.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

int main(int argc, char **argv) {
    char own[] = "/tmp/own_loopXXXXXX";
    const bool half = argc > 1 && strcmp(argv[1], "f16") == 0;
    const char *folder = argc > 2 ? argv[2] : mkdtemp(own);
    if (argc > 3 || (argc > 1 && !half && strcmp(argv[1], "f32") != 0) || folder == NULL) {
        fprintf(stderr, "usage: 08_own_loop [f32|f16] [FOLDER]\n");
        return 2;
    }
    const fr_status s = run(half, folder);
    if (s < 0) fprintf(stderr, "08_own_loop: %s\n", fr_last_error());
    if (argc <= 2) empty(own);
    return s < 0;
}
