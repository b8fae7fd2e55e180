/* test_recipes.c - a training beside the network: losses, weights of classes, sampling, mixing, classes in
 * evaluations. Sessions are over the frames of frames.h. */
#include "data/frames.h"

#include <frugal/addon.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    o.train.optim.epochs = 2;
    o.train.optim.batch_size = BATCH;
    o.train.device = FR_CPU;
    o.train.data.workers = 0;
    return o;
}

static fr_status add_bits(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    uint64_t *hash = ctx;
    const unsigned char *p = fr_tensor_data(t);
    (void)path, (void)is_parameter;
    for (size_t i = 0; i < fr_tensor_nbytes(t); i++) *hash = (*hash ^ p[i]) * UINT64_C(1099511628211);
    return FR_OK;
}

/* A hash of the trained weights; planned as measured. */
static uint64_t trained(const fr_session_opts *o, fr_session_info *end) {
    uint64_t hash = UINT64_C(14695981039346656037);
    fr_session *s = NULL;
    fr_dataset *d = frames_make(FR_TARGET_CLASS);
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
    fr_dataset *d = frames_make(target);
    cr_expect_eq(fr_session_create(o, d, NULL, &s), FR_EINVAL, "%s", sentence);
    cr_expect_not_null(strstr(fr_last_error(), sentence), "%s", fr_last_error());
    fr_session_release(&s);
    fr_dataset_release(&d);
}

/* The definition: 40 / (3 * 20), 40 / (3 * 12), 40 / (3 * 8). Evaluations do not weigh. */
Test(recipes, balanced_weights_are_those_numbers) {
    static const double same[] = {40.0 / 60, 40.0 / 36, 40.0 / 24}, ones[] = {1, 1, 1};
    fr_session_info of_auto, of_same, of_ones, of_none;
    fr_session_opts o = options();
    const uint64_t none = trained(&o, &of_none);
    o.train.optim.balanced_weights = true;
    const uint64_t by_auto = trained(&o, &of_auto);
    o.train.optim.balanced_weights = false;
    o.train.optim.class_weights = same;
    o.train.optim.n_class_weights = CLASSES;
    cr_expect_eq(trained(&o, &of_same), by_auto);
    cr_expect_neq(by_auto, none);
    o.train.optim.lr = 0;
    (void)trained(&o, &of_same);
    o.train.optim.class_weights = ones;
    (void)trained(&o, &of_ones);
    cr_expect_eq(of_same.test_loss, of_ones.test_loss);
    cr_expect_neq(of_same.loss, of_ones.loss);
}

Test(recipes, losses_train) {
    static const fr_train_loss losses[] = {FR_TRAIN_CROSS_ENTROPY, FR_TRAIN_BCE, FR_TRAIN_FOCAL, FR_TRAIN_DICE};
    fr_session_info first[4], last[4];
    for (int i = 0; i < 4; i++) {
        fr_session_opts o = options();
        o.train.optim.loss = losses[i];
        o.train.optim.epochs = 1;
        (void)trained(&o, &first[i]);
        o.train.optim.epochs = 12;
        (void)trained(&o, &last[i]);
        cr_expect_lt(last[i].test_loss, first[i].test_loss, "loss %d: %g, then %g", i, first[i].test_loss,
                     last[i].test_loss);
        for (int k = 0; k < i; k++) cr_expect_neq(first[i].test_loss, first[k].test_loss);
    }
}

Test(recipes, of_another_loss) {
    static const double two[] = {1, 2}, below[] = {1, 2, -1};
    fr_session_opts o = options();
    o.train.optim.class_weights = two;
    o.train.optim.n_class_weights = 2;
    refused(&o, FR_TARGET_CLASS, "train.optim.class_weights has 2 numbers; 3 are needed");
    o.train.optim.class_weights = below;
    o.train.optim.n_class_weights = 3;
    refused(&o, FR_TARGET_CLASS, "train.optim.class_weights: -1 is not between 0 and 1e6");
    o.train.optim.balanced_weights = true;
    refused(&o, FR_TARGET_CLASS, "train.optim.balanced_weights counts the images of each class, and");
    o.train.optim.class_weights = NULL;
    refused(&o, FR_TARGET_VECTOR,
            "train.optim.class_weights are for cross entropy, and this run has mean squared error");
    o.train.optim.loss = FR_TRAIN_DICE;
    refused(&o, FR_TARGET_CLASS,
            "train.optim.class_weights are for cross entropy, and this run has another train.optim.loss");
    o = options();
    o.train.optim.loss = FR_TRAIN_DICE;
    refused(&o, FR_TARGET_VECTOR, "train.optim.loss is for classification, and this run has mean squared error");
    o.train.optim.label_smoothing = 0.1;
    refused(&o, FR_TARGET_CLASS,
            "train.optim.label_smoothing 0.1 is for cross entropy, and this run has another train.optim.loss");
}

/* ---- sampling and mixing --------------------------------------------------------------------------------------- */

/* 40,000 draws. torch's WeightedRandomSampler with these weights is binomial, too: 13,333 +- 94 of each class and
 * 667, 1,111, 1,667 of an image of the three; with seed 0 it gave 13,376, 13,183, 13,441. */
Test(recipes, balanced_draws_are_a_weighted_samplers) {
    enum { EPOCHS = 1000 };
    int64_t of_class[CLASSES] = {0}, of_image[IMAGES] = {0};
    fr_tensor *x = NULL, *t = NULL;
    fr_loader *l = frames_loader(FR_LOADER_OPTS(.batch_size = BATCH, .balanced = true, .workers = 0, .seed = 3));
    fr_status s = FR_OK;
    for (int e = 0; e < EPOCHS; e++)
        while ((s = fr_loader_next(l, &x, &t)) != FR_END) {
            MUST(s);
            for (int i = 0; i < BATCH; i++) {
                const float *pixels = (const float *)fr_tensor_data(x) + i * SIZE * SIZE;
                const int64_t class = ((const int64_t *)fr_tensor_data(t))[i];
                int64_t index = 0;
                of_class[class]++;
                while (index < IMAGES &&
                       (frames_class(index) != class || lroundf(pixels[0] * 255) != (index * 31 + class * 40) % 251))
                    index++;
                cr_assert_lt(index, IMAGES);
                of_image[index]++;
            }
        }
    for (int c = 0; c < CLASSES; c++)
        cr_expect_lt(fabs((double)of_class[c] - 40000 / 3.0), 5 * 94, "class %d: %d", c, (int)of_class[c]);
    for (int64_t i = 0; i < IMAGES; i++) {
        const double want = 40000.0 / 3 / (frames_class(i) == 0 ? 20 : frames_class(i) == 1 ? 12 : 8);
        cr_expect_lt(fabs((double)of_image[i] - want), 5 * sqrt(want), "image %d: %d", (int)i, (int)of_image[i]);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
}

/* Whatever the workers, from wherever the epoch is entered, and drawn anew in each. */
Test(recipes, a_function_of_seed_epoch_and_batch) {
    static float a[NUMBERS], b[NUMBERS], s[BATCHES * BATCH * CLASSES], t[BATCHES * BATCH * CLASSES];
    fr_loader_opts o = *FR_LOADER_OPTS(.balanced = true, .random_crop = true, .padding = 2);
    o.batch_size = BATCH;
    o.workers = 0;
    frames_collect(o, 0, BATCHES, a, s);
    o.workers = 3;
    frames_collect(o, 0, BATCHES, b, t);
    cr_expect_arr_eq(a, b, sizeof a);
    cr_expect_arr_eq(s, t, sizeof s);
    frames_collect(o, 3, BATCHES, b, t);
    cr_expect_arr_eq(a + 3 * BATCH * SIZE * SIZE, b, 2 * BATCH * SIZE * SIZE * sizeof *a);
    o.group = 2, o.every = 2, o.first = 1; /* the second of two ranks: its batch of the epoch's first two is 1 */
    frames_collect(o, 0, 1, b, t);
    cr_expect_arr_eq(a + BATCH * SIZE * SIZE, b, BATCH * SIZE * SIZE * sizeof *a);
    cr_expect_arr_eq(s + BATCH * CLASSES, t, BATCH * CLASSES * sizeof *s);
    o.seed = 1;
    frames_collect(o, 0, 1, a, s);
    cr_expect_neq(memcmp(a, b, BATCH * SIZE * SIZE * sizeof *a), 0);
}

/* An image that an epoch draws twice is varied twice. */
Test(recipes, what_is_drawn_twice_is_varied_twice) {
    static float x[NUMBERS], plain[NUMBERS], s[BATCHES * BATCH * CLASSES];
    int twice = 0, alike = 0;
    fr_loader_opts o = *FR_LOADER_OPTS(.batch_size = BATCH, .balanced = true, .workers = 0);
    enum { N = SIZE * SIZE };
    frames_collect(o, 0, BATCHES, plain, s);
    o.random_crop = true;
    o.padding = 4;
    frames_collect(o, 0, BATCHES, x, s);
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < i; k++)
            if (memcmp(plain + i * N, plain + k * N, N * sizeof *x) == 0) {
                twice++;
                alike += memcmp(x + i * N, x + k * N, N * sizeof *x) == 0;
            }
    cr_expect_gt(twice, 5);
    cr_expect_lt(alike, 3, "%d of %d", alike, twice);
}

Test(recipes, balanced_trainings_run_as_planned) {
    fr_session_info end, plain;
    fr_session_opts o = options();
    const uint64_t none = trained(&o, &plain);
    cr_expect(isfinite(plain.epoch_accuracy));
    o.train.data.balanced_sampling = true;
    cr_expect_neq(trained(&o, &end), none);
    refused(&o, FR_TARGET_VECTOR, "train.data.balanced_sampling needs images with one class each");
    o.train.data.shuffle_window = 5;
    refused(&o, FR_TARGET_CLASS, "train.data.balanced_sampling with train.data.shuffle_window 5");
}

/* A program's own augmentation: an image is of all classes alike. */
static void even(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares, float *spare) {
    (void)a, (void)images, (void)spare;
    for (int64_t i = 0; i < in->n * in->classes; i++) shares[i] = 1 / (float)in->classes;
}

Test(recipes, mixed_trainings_run_as_planned) {
    fr_session_info end;
    fr_session_opts o = options();
    const fr_augmentation own = {.batch = even};
    o.train.data.augment = FR_TRAIN_AUGMENT_STRONG;
    if (fr_addon_find("augment") == NULL) {
        fr_session *s = NULL;
        fr_dataset *d = frames_make(FR_TARGET_CLASS);
        EXPECT_FAIL(fr_session_create(&o, d, d, &s), FR_EUNSUPPORTED,
                    "--augment strong needs the add-on augment: build with -Daugment=enabled");
        fr_dataset_release(&d);
        cr_skip("built without the add-on augment");
    }
    o.train.optim.label_smoothing = 0.1;
    const uint64_t strong = trained(&o, &end);
    cr_expect(isnan(end.epoch_accuracy), "steps have no right answers");
    cr_expect(isfinite(end.test_accuracy));
    o.train.data.augmentation = &own;
    cr_expect_neq(trained(&o, &end), strong);
    o.train.optim.label_smoothing = 0;
    refused(&o, FR_TARGET_VECTOR, "use it with image classes");
    o.train.optim.loss = FR_TRAIN_DICE;
    refused(&o, FR_TARGET_CLASS, "train.data.augmentation mixes classes");
    o.train.data.augmentation = NULL;
    (void)trained(&o, &end); /* Dice takes no shares, so strong leaves mixing out */
}

/* Fields without a flag: each changes the training, or leaves its bits, and runs as planned. */
Test(recipes, fields_without_a_flag_train_as_planned) {
    enum { EMA, SMOOTHING, NESTEROV, HEAD, DECAY, LAST, SAME, PREFETCH = SAME, CASTS, FIELDS };
    fr_session_info end;
    for (int i = 0; i < FIELDS; i++) {
        fr_session_opts o = options();
        if (i == CASTS) o.train.precision.amp = FR_TRAIN_AMP_BF16;
        if (i == LAST) o.train.optim.batch_size = 12;
        const uint64_t plain = trained(&o, &end);
        if (i == EMA) o.train.optim.ema = 0.5;
        if (i == SMOOTHING) o.train.optim.label_smoothing = 0.1;
        if (i == NESTEROV) o.train.optim.nesterov = true;
        if (i == HEAD) o.train.optim.head_lr_scale = 3;
        if (i == DECAY) o.train.optim.no_norm_decay = true;
        if (i == LAST) o.train.data.keep_last = true;
        if (i == PREFETCH) o.train.data.prefetch = 3;
        if (i == CASTS) o.train.memory.switches.cache_casts = true;
        cr_expect_eq(trained(&o, &end) == plain, i >= SAME, "field %d", i);
    }
}

Test(recipes, fields_without_a_flag_are_refused_by_their_names) {
    fr_session_opts o = options();
    o.train.optim.nesterov = true, o.train.optim.momentum = 0;
    refused(&o, FR_TARGET_CLASS, "train.optim.nesterov needs train.optim.optimizer sgd");
    o = options();
    o.train.data.prefetch = 65;
    refused(&o, FR_TARGET_CLASS, "train.data.prefetch 65: must lie in 1..64");
    o = options();
    o.train.data.keep_last = true, o.train.memory.accumulate = 2;
    refused(&o, FR_TARGET_CLASS, "train.data.keep_last with train.memory.accumulate");
}

/* ---- classes --------------------------------------------------------------------------------------------------- */

/* numpy's numbers of the matrix in the report; the test set is the training set, 20, 12 and 8 images. */
Test(recipes, evaluations_count_classes) {
    char path[] = "/tmp/frugal-recipes-XXXXXX", text[1 << 14] = "";
    const int file = mkstemp(path);
    fr_session_info end;
    fr_session_opts o = options();
    cr_assert_geq(file, 0);
    o.train.optim.per_class = true;
    o.train.files.report = path;
    o.train.optim.epochs = 6;
    (void)trained(&o, &end);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    cr_assert_gt(fread(text, 1, sizeof text - 1, f), 0);
    fclose(f);
    unlink(path);
    close(file);
    const char *at = strstr(text, "\"confusion\":\t["); /* not the flag */
    cr_assert_not_null(at, "%s", text);
    double m[9], right = 0, mean = 0, all[3] = {20, 12, 8};
    for (int i = 0; i < 9; i++) {
        at += strcspn(at, "0123456789");
        m[i] = strtod(at, (char **)&at);
    }
    for (int c = 0; c < 3; c++) {
        const double said = m[c] + m[3 + c] + m[6 + c];
        cr_expect_eq(m[3 * c] + m[3 * c + 1] + m[3 * c + 2], all[c]);
        right += m[4 * c];
        mean += m[4 * c] / (all[c] + said - m[4 * c]) / 3;
    }
    cr_expect_float_eq(right / 40, end.test_accuracy, 1e-12);
    at = strstr(text, "\"mean_iou\":");
    cr_assert_not_null(at);
    cr_expect_float_eq(strtod(at + strlen("\"mean_iou\":"), NULL), mean, 1e-9);
    at = strstr(text, "\"classes\":\t{");
    cr_assert_not_null(at);
    at = strstr(at, "\"accuracy\":");
    at += strcspn(at, "0123456789");
    cr_expect_float_eq(strtod(at, NULL), m[0] / 20, 1e-9);
}
