/* test_recipes.c - what a training is made of beside its network: losses, weights of classes. On sessions over images
 * of three classes, one of which is frequent. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <string.h>

enum { IMAGES = 40, SIZE = 8, CLASSES = 3, BATCH = 8 };

#define MUST(call) cr_assert_eq((call), FR_OK, "%s: %s", #call, fr_last_error())

/* 20, 12 and 8 images. */
static int64_t class_of(int64_t index) {
    return index % 2 == 0 ? 0 : index % 5 < 3 ? 1 : 2;
}

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    uint8_t *pixels = to;
    (void)ctx;
    for (int i = 0; i < SIZE * SIZE; i++) pixels[i] = (uint8_t)((index * 31 + i * 7 + class_of(index) * 40) % 251);
    *(int64_t *)target = class_of(index);
    return FR_OK;
}

static fr_status numbers(void *ctx, int64_t index, void *to, void *target) {
    int64_t ignored = 0;
    for (int i = 0; i < CLASSES; i++) ((float *)target)[i] = (float)(index % 3);
    return frame(ctx, index, to, &ignored);
}

static fr_dataset *frames(fr_target target) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = IMAGES,
                                                .classes = CLASSES,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 1,
                                                .read = target == FR_TARGET_VECTOR ? numbers : frame,
                                                .target = target},
                           &d));
    return d;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 1});
    x = fr_net_conv2d(n, "conv", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_relu(n, "relu", x);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_session_opts options(void) {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.train.epochs = 2;
    o.train.batch_size = BATCH;
    o.train.device = FR_CPU;
    o.train.workers = 0;
    return o;
}

static fr_status add_bits(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *hash = ctx;
    const unsigned char *p = fr_tensor_data(t);
    (void)path, (void)is_parameter;
    for (size_t i = 0; i < fr_tensor_nbytes(t); i++) *hash = (*hash ^ p[i]) * UINT64_C(1099511628211);
    return FR_OK;
}

/* What the training comes to; planned as measured. */
static uint64_t trained(const fr_session_opts *o, fr_session_info *end) {
    uint64_t hash = UINT64_C(14695981039346656037);
    fr_session *s = NULL;
    fr_dataset *d = frames(FR_TARGET_CLASS);
    MUST(fr_session_create(o, d, d, &s));
    MUST(fr_session_run(s));
    MUST(fr_session_info_get(s, end));
    MUST(fr_module_each_tensor(fr_session_module(s), add_bits, &hash));
    cr_expect_eq(end->peak_reserved, end->planned, "planned %zu, reserved %zu", end->planned, end->peak_reserved);
    cr_expect(isfinite(end->loss) && isfinite(end->test_loss));
    fr_session_release(&s);
    fr_dataset_release(&d);
    return hash;
}

static void refused(const fr_session_opts *o, fr_target target, const char *sentence) {
    fr_session *s = NULL;
    fr_dataset *d = frames(target);
    cr_expect_eq(fr_session_create(o, d, NULL, &s), FR_EINVAL, "%s", sentence);
    cr_expect_not_null(strstr(fr_last_error(), sentence), "%s", fr_last_error());
    fr_session_release(&s);
    fr_dataset_release(&d);
}

/* By definition: 40 / (3 * 20), 40 / (3 * 12), 40 / (3 * 8). Evaluations do not know of them. */
Test(recipes, balanced_weights_are_those_numbers) {
    static const char *const balanced[] = {"auto"}, *const same[] = {"0.6666666666667", "1.1111111111111",
                                                                     "1.6666666666667"};
    static const char *const ones[] = {"1", "1", "1"};
    fr_session_info of_auto, of_same, of_ones, of_none;
    fr_session_opts o = options();
    const uint64_t none = trained(&o, &of_none);
    o.train.class_weights = balanced;
    o.train.n_class_weights = 1;
    const uint64_t by_auto = trained(&o, &of_auto);
    o.train.class_weights = same;
    o.train.n_class_weights = CLASSES;
    cr_expect_eq(trained(&o, &of_same), by_auto);
    cr_expect_neq(by_auto, none);
    o.train.lr = 0;
    (void)trained(&o, &of_same);
    o.train.class_weights = ones;
    (void)trained(&o, &of_ones);
    cr_expect_eq(of_same.test_loss, of_ones.test_loss);
    cr_expect_neq(of_same.loss, of_ones.loss);
}

Test(recipes, losses_train) {
    static const fr_train_loss losses[] = {FR_TRAIN_CROSS_ENTROPY, FR_TRAIN_BCE, FR_TRAIN_FOCAL, FR_TRAIN_DICE};
    fr_session_info first[4], last[4];
    for (int i = 0; i < 4; i++) {
        fr_session_opts o = options();
        o.train.loss = losses[i];
        o.train.epochs = 1;
        (void)trained(&o, &first[i]);
        o.train.epochs = 12;
        (void)trained(&o, &last[i]);
        cr_expect_lt(last[i].test_loss, first[i].test_loss, "loss %d: %g, then %g", i, first[i].test_loss,
                     last[i].test_loss);
        for (int k = 0; k < i; k++) cr_expect_neq(first[i].test_loss, first[k].test_loss);
    }
}

Test(recipes, of_another_loss) {
    static const char *const two[] = {"1", "2"}, *const word[] = {"1", "2", "x"}, *const balanced[] = {"auto"};
    fr_session_opts o = options();
    o.train.class_weights = two;
    o.train.n_class_weights = 2;
    refused(&o, FR_TARGET_CLASS, "--class-weights: 2 numbers for 3 classes");
    o.train.class_weights = word;
    o.train.n_class_weights = 3;
    refused(&o, FR_TARGET_CLASS, "--class-weights x: is no number from 0 to 1e6");
    o.train.class_weights = balanced;
    o.train.n_class_weights = 1;
    refused(&o, FR_TARGET_VECTOR, "--class-weights: are of classes");
    o.train.loss = FR_TRAIN_DICE;
    refused(&o, FR_TARGET_CLASS, "--class-weights: is of --loss cross-entropy");
    o = options();
    o.train.loss = FR_TRAIN_DICE;
    refused(&o, FR_TARGET_VECTOR, "--loss: is of classes, and this run has mean squared error");
    o.train.label_smoothing = 0.1;
    refused(&o, FR_TARGET_CLASS, "--label-smoothing 0.1: is of cross entropy, and this run has another --loss");
}
