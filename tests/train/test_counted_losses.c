/* test_counted_losses.c - losses divide by counted targets: a batch or part whose targets are all ignored, or weigh
 * nothing, is a step of loss 0. Parts of a batch add up to the loss and gradients of the batch. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>

enum { IMAGES = 8, SIZE = 6, CLASSES = 3, STEPS = 4 };

#define MUST(call) cr_assert_eq((call), FR_OK, "%s: %s", #call, fr_last_error())

typedef struct app {
    bool labels;     /* of images, not of pixels */
    int64_t ignored; /* the image whose pixels are all ignored, or whose class is 0; -1: none */
    double loss[STEPS];
} app;

/* Each image ignores a different share of its pixels. */
static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    const app *a = ctx;
    uint8_t *pixels = to, *mask = target;
    for (int i = 0; i < SIZE * SIZE * 3; i++) pixels[i] = (uint8_t)((index * 53 + i * i * 7) % 251);
    if (a->labels) return *(int64_t *)target = index == a->ignored ? 0 : 1 + index % 2, FR_OK;
    for (int i = 0; i < SIZE * SIZE; i++)
        mask[i] = index == a->ignored || i < index * 4 ? 255 : (uint8_t)((index + i) % CLASSES);
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    const app *a = ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3});
    x = fr_net_relu(n, "relu1", fr_net_conv2d(n, "conv1", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_conv2d(n, "conv2", x, classes, 1, NULL, FR_BIAS);
    if (a->labels) x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "pool", x, 1, 1), 1);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status on_step(void *ctx, const fr_session_info *now) {
    ((app *)ctx)->loss[now->step - 1] = now->loss;
    return FR_OK;
}

static float weight_of(const fr_session *s) {
    return *(const float *)fr_tensor_data(fr_module_tensor(fr_module_child(fr_session_module(s), 0), "weight"));
}

typedef struct run {
    fr_train_loss loss;
    int64_t batch, parts;
    const double *weights; /* of classes; NULL: none */
    fr_train_fused fused;
    fr_train_amp amp;
} run;

/* Trains STEPS steps; *weight is a number of the network after the steps. */
static fr_status train(app *a, run how, float *weight) {
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *d = NULL;
    fr_session *s = NULL;
    o.model = network;
    o.on_step = on_step;
    o.ctx = a;
    o.train.optim.epochs = FR_TRAIN_AUTO;
    o.train.optim.steps = STEPS;
    o.train.optim.batch_size = how.batch;
    o.train.memory.split_batch = how.parts;
    o.train.optim.loss = how.loss;
    o.train.optim.class_weights = how.weights;
    o.train.optim.n_class_weights = how.weights != NULL ? CLASSES : 0;
    o.train.memory.fused_step = how.fused;
    o.train.precision.amp = how.amp;
    o.train.optim.warmup = 0;
    o.train.device = FR_CPU;
    o.train.data.workers = 0;
    MUST(fr_dataset_create(&(fr_dataset_source){.name = "masks",
                                                .count = IMAGES,
                                                .classes = CLASSES,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 3,
                                                .read = frame,
                                                .target = a->labels ? FR_TARGET_CLASS : FR_TARGET_PIXELS,
                                                .ctx = a},
                           &d));
    fr_status status = fr_session_create(&o, d, NULL, &s);
    if (status == FR_OK) status = fr_session_run(s);
    if (status == FR_OK) *weight = weight_of(s);
    fr_session_release(&s);
    fr_dataset_release(&d);
    return status;
}

static const double weights[CLASSES] = {1, 20, 0.5}, none_of_0[CLASSES] = {0, 1, 2};

/* Cases: a batch of a single image, parts of a single image, and both. */
Test(counted_losses, an_image_of_ignored_pixels_is_a_loss_of_0) {
    static const run runs[] = {
        {FR_TRAIN_CROSS_ENTROPY, 1, 1},
        {FR_TRAIN_CROSS_ENTROPY, 2, 2},
        {FR_TRAIN_CROSS_ENTROPY, 1, 1, weights},
        {FR_TRAIN_CROSS_ENTROPY, 2, 2, weights},
        {FR_TRAIN_BCE, 1, 1},
        {FR_TRAIN_FOCAL, 2, 2},
        {FR_TRAIN_DICE, 1, 1},
        {FR_TRAIN_CROSS_ENTROPY, 1, 1, NULL, FR_TRAIN_FUSED_ON},
        {FR_TRAIN_CROSS_ENTROPY, 1, 1, NULL, FR_TRAIN_FUSED_TWO_PASS, FR_TRAIN_AMP_FP16},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int empty = 0;
        for (int64_t ignored = 0; ignored < IMAGES; ignored++) { /* an ignored image is in the steps */
            app a = {.ignored = ignored};
            float weight = NAN;
            MUST(train(&a, runs[i], &weight));
            cr_expect(isfinite(weight), "run %zu: %g", i, weight);
            for (int k = 0; k < STEPS; k++) {
                cr_expect(isfinite(a.loss[k]), "run %zu, step %d: loss %g", i, k, a.loss[k]);
                empty += a.loss[k] == 0;
            }
        }
        cr_expect_eq(empty, runs[i].batch == 1 ? STEPS : 0, "run %zu: %d steps of loss 0", i, empty);
    }
}

Test(counted_losses, classes_without_weight_are_a_loss_of_0) {
    for (int64_t parts = 1; parts <= 2; parts++)
        for (int64_t ignored = 0; ignored < IMAGES; ignored++) {
            app a = {.labels = true, .ignored = ignored};
            float weight = NAN;
            MUST(train(&a, (run){FR_TRAIN_CROSS_ENTROPY, parts, parts, none_of_0}, &weight));
            cr_expect(isfinite(weight), "%g", weight);
            for (int k = 0; k < STEPS; k++) cr_expect(isfinite(a.loss[k]), "step %d: %g", k, a.loss[k]);
        }
}

/* The network has no batch norm: a batch in parts is the whole batch. */
Test(counted_losses, parts_weigh_what_their_losses_divide_by) {
    static const struct {
        bool labels;
        fr_train_loss loss;
        const double *weights;
    } cases[] = {
        {true, FR_TRAIN_CROSS_ENTROPY, NULL},
        {true, FR_TRAIN_CROSS_ENTROPY, weights},
        {false, FR_TRAIN_CROSS_ENTROPY, NULL},
        {false, FR_TRAIN_CROSS_ENTROPY, weights},
        {false, FR_TRAIN_BCE, NULL},
        {false, FR_TRAIN_FOCAL, NULL},
        {false, FR_TRAIN_CROSS_ENTROPY, none_of_0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t parts = 2; parts <= IMAGES; parts += 3) {
            app whole = {.labels = cases[i].labels, .ignored = 5}, apart = whole;
            float a = NAN, b = NAN;
            MUST(train(&whole, (run){cases[i].loss, IMAGES, 1, cases[i].weights}, &a));
            MUST(train(&apart, (run){cases[i].loss, IMAGES, parts, cases[i].weights}, &b));
            for (int k = 0; k < STEPS; k++)
                cr_expect(fabs(whole.loss[k] - apart.loss[k]) <= 2e-6 * fabs(whole.loss[k]),
                          "case %zu, %d parts, step %d: %.9g, in parts %.9g", i, (int)parts, k, whole.loss[k],
                          apart.loss[k]);
            cr_expect(fabs(a - b) <= 1e-5, "case %zu, %d parts: %.9g, in parts %.9g", i, (int)parts, (double)a,
                      (double)b);
        }
}

Test(counted_losses, dice_is_refused_in_parts) {
    app a = {.ignored = -1};
    float weight = 0;
    cr_expect_eq(train(&a, (run){FR_TRAIN_DICE, 4, 2}, &weight), FR_EINVAL);
    cr_expect_str_eq(fr_last_error(), "train.memory.split_batch with train.optim.loss dice: the Dice loss of a batch "
                                      "is no mean over its parts; choose one");
}
