/* 07_own_network.c - your own network: plans its training, trains within three quarters of the memory, names an image.
 *
 * The network is a list of layers. A session plans the training to the byte before it allocates memory. With a budget
 * the session chooses which activations to keep and which to recompute: plan() and train() below. */
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include("digits.h") /* beside the examples; elsewhere noise of the same shape */
#include "digits.h"
#else
static fr_status digits_dataset(fr_split split, fr_dataset **out) {
    return fr_dataset_synthetic(split == FR_SPLIT_TRAIN ? 1500 : 297, 10, 8, 8, 1, (uint64_t)split, out);
}
#endif

enum { SIDE = 8, CLASSES = 10, EPOCHS = 3 };

/* MobileNetV2's block: expand, depthwise convolution, project; the input is added where the shapes agree. */
static fr_value block(fr_net *n, const char *name, fr_value x, int64_t out, int64_t stride) {
    const int64_t wide = 4 * fr_net_dim(n, x, -1);
    fr_value y = x;
    fr_net_scope_begin(n, "%s", name);
    y = fr_net_conv2d(n, NULL, y, wide, 1, NULL, FR_NO_BIAS);
    y = fr_net_relu6(n, NULL, fr_net_batchnorm2d(n, NULL, y, NULL));
    y = fr_net_conv2d(n, NULL, y, wide, 3, FR_CONV2D_OPTS(.stride = stride, .padding = 1, .groups = wide), FR_NO_BIAS);
    y = fr_net_relu6(n, NULL, fr_net_batchnorm2d(n, NULL, y, NULL));
    y = fr_net_conv2d(n, NULL, y, out, 1, NULL, FR_NO_BIAS);
    y = fr_net_batchnorm2d(n, NULL, y, NULL);
    if (stride == 1 && fr_net_dim(n, x, -1) == out) y = fr_net_add(n, NULL, y, x);
    fr_net_scope_end(n);
    return y;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIDE, SIDE, 1});
    x = fr_net_conv2d(n, "stem", x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = block(n, "block1", x, 16, 1);
    x = block(n, "block2", x, 32, 2);
    x = block(n, "block3", x, 32, 1);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_session_opts options(void) {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.train.optim.epochs = EPOCHS;
    o.train.data.image_size = SIDE;
    o.train.optim.lr = 0.1;
    o.train.optim.seed = 1;
    return o;
}

/* Plans the bytes of the training without running a step. */
static fr_status plan(fr_dataset *digits, size_t *bytes) {
    const fr_session_opts o = options();
    fr_session *session = NULL;
    fr_session_info info;
    fr_status s = fr_session_create(&o, digits, NULL, &session);
    if (s == FR_OK) s = fr_session_info_get(session, &info);
    if (s == FR_OK) *bytes = info.planned;
    fr_session_release(&session);
    return s;
}

/* Trains within a budget and saves the weights, with the network's name, size and normalization. */
static fr_status train(fr_dataset *digits, fr_dataset *test, size_t budget, const char *path) {
    fr_session_opts o = options();
    fr_session *session = NULL;
    fr_session_info i;
    fr_weights_info about = {.model = "own", .classes = CLASSES, .channels = 1, .height = SIDE, .width = SIDE};
    fr_status s = FR_OK;
    o.train.memory.budget = budget;
    FR_TRY(s, fr_session_create(&o, digits, test, &session));
    FR_TRY(s, fr_session_run(session));
    FR_TRY(s, fr_session_info_get(session, &i));
    printf("trained in %zu bytes: loss %.9g, test accuracy %.9g\n", i.planned, i.epoch_loss, i.test_accuracy);
    memcpy(about.mean, i.mean, sizeof about.mean);
    memcpy(about.std, i.std, sizeof about.std);
    FR_TRY(s, fr_weights_save(fr_session_module(session), path, FR_WEIGHTS_OPTS(.info = &about)));
done:
    fr_session_release(&session);
    return s;
}

/* Names an image as another program would: from the network and the file. */
static fr_status predict(fr_dataset *test, const char *path) {
    uint8_t pixels[8 * 8];
    fr_image image = {.pixels = pixels, .height = 8, .width = 8, .channels = 1};
    fr_weights_info about = {0};
    fr_loader_opts as;
    fr_module *m = NULL;
    double p[CLASSES];
    int64_t label = 0;
    fr_status s = FR_OK;
    FR_TRY(s, fr_weights_info_read(path, &about));
    FR_TRY(s, network(NULL, FR_CPU, about.classes, &m));
    FR_TRY(s, fr_weights_load(m, path, NULL));
    FR_TRY(s, fr_dataset_read(test, 0, pixels, sizeof pixels, NULL, NULL, NULL));
    FR_TRY(s, fr_dataset_label(test, 0, &label));
    fr_weights_input(&about, &as);
    FR_TRY(s, fr_predict(m, &image, &as, p, CLASSES));
    printf("the first test image is a %d with probability %.2f\n", (int)label, p[label]);
done:
    fr_module_release(&m);
    fr_weights_info_clear(&about);
    return s;
}

int main(void) {
    char path[] = "/tmp/own_networkXXXXXX";
    fr_dataset *digits = NULL, *test = NULL;
    size_t bytes = 0;
    int file = mkstemp(path);
    fr_status s = FR_OK;
    FR_TRY(s, file >= 0 ? FR_OK : fr_fail(FR_EIO, "%s cannot be made", path));
    FR_TRY(s, digits_dataset(FR_SPLIT_TRAIN, &digits));
    FR_TRY(s, digits_dataset(FR_SPLIT_TEST, &test));
    FR_TRY(s, plan(digits, &bytes));
    printf("training needs %zu bytes\n", bytes);
    FR_TRY(s, train(digits, test, bytes / 4 * 3, path));
    FR_TRY(s, predict(test, path));
done:
    if (s < 0) fprintf(stderr, "07_own_network: %s\n", fr_last_error());
    if (file >= 0) {
        unlink(path);
        close(file);
    }
    fr_dataset_release(&digits);
    fr_dataset_release(&test);
    return s < 0;
}
