/* test_session_end.c - a session keeps its training: the weights file, the averages and the report of a training that
 * ends by itself; a file of a program's own network; options as fields; sentences of callbacks. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/files.h"

enum { IMAGES = 24, SIZE = 8, CLASSES = 3, BATCH = 8, EPOCHS = 2, STEPS = EPOCHS * (IMAGES / BATCH) };

static const char *const names[CLASSES] = {"cat", "dog", "owl"};

typedef struct app {
    int64_t bad_image; /* number of the read that fails; -1: none */
    fr_status answer;  /* status of the failing read, of on_step at step 2, or of the loss */
    const char *sentence;
    bool two_results, loss_fails, step_fails;
} app;

static fr_status answer(const app *a) {
    return a->sentence != NULL ? fr_fail(a->answer, "%s", a->sentence) : a->answer;
}

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    const app *a = ctx;
    uint8_t *pixels = to;
    for (int i = 0; i < SIZE * SIZE * 3; i++)
        pixels[i] = (uint8_t)((index * 31 + i * 7 + (index % CLASSES) * 40) % 251);
    *(int64_t *)target = index % CLASSES;
    return index == a->bad_image ? answer(a) : FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    const app *a = ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3}), y[2];
    x = fr_net_conv2d(n, "conv1", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, "relu1", fr_net_batchnorm2d(n, "bn1", x, NULL));
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    y[0] = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    if (a->two_results) y[1] = fr_net_linear(n, "aux", x, 1, FR_BIAS);
    return fr_net_end(&n, y, a->two_results ? 2 : 1, out);
}

static fr_status on_step(void *ctx, const fr_session_info *now) {
    const app *a = ctx;
    return a->step_fails && now->step == 2 ? answer(a) : FR_OK;
}

static fr_status loss(void *ctx, fr_tensor *y, fr_tensor *targets, fr_tensor **out) {
    const app *a = ctx;
    return a->loss_fails ? answer(a) : fr_cross_entropy(y, targets, NULL, out);
}

static fr_dataset *frames(app *a, int64_t count) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.name = "camera",
                                                .count = count,
                                                .classes = CLASSES,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 3,
                                                .read = frame,
                                                .class_names = names,
                                                .ctx = a},
                           &d));
    return d;
}

static fr_session_opts options(app *a) {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.name = "owlnet";
    o.on_step = on_step;
    o.loss = loss;
    o.ctx = a;
    o.train.optim.epochs = EPOCHS;
    o.train.optim.batch_size = BATCH;
    o.train.device = FR_CPU;
    o.train.data.workers = 0;
    return o;
}

static fr_status create(app *a, const fr_session_opts *o, bool test, fr_session **s) {
    fr_dataset *x = frames(a, IMAGES), *y = test ? frames(a, BATCH) : NULL;
    fr_status status = fr_session_create(o, x, y, s);
    fr_dataset_release(&x);
    fr_dataset_release(&y);
    return status;
}

static char folder[64], path[128], text[1 << 15];

static void setup(void) {
    strcpy(folder, "/tmp/frugal-session-end-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *in_folder(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *content(const char *file) {
    FILE *f = fopen(file, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) fclose(f);
    return text;
}

static float bias(fr_module *m) {
    fr_tensor *t = fr_module_tensor(fr_module_find(m, "fc"), "bias");
    cr_assert_not_null(t);
    return *(const float *)fr_tensor_data(t);
}

TestSuite(session_end, .init = setup, .fini = teardown);

/* The weights of a training in a single call, in single steps, and with a test set. */
Test(session_end, a_training_that_ends_exports_its_weights) {
    for (int k = 0; k < 3; k++) {
        app a = {.bad_image = -1};
        fr_session_opts o = options(&a);
        char file[160], report[160];
        snprintf(file, sizeof file, "%s/w%d.safetensors", folder, k);
        snprintf(report, sizeof report, "%s/r%d.json", folder, k);
        o.train.files.export_weights = file;
        o.train.files.report = report;
        o.out = fopen(in_folder("said"), "w");
        fr_session *s = NULL;
        fr_module *m = NULL;
        MUST(create(&a, &o, k == 2, &s));
        for (int i = 0; k == 1 && i < STEPS; i++) {
            cr_expect_neq(access(file, F_OK), 0, "written after step %d", i);
            MUST(fr_session_run_steps(s, 1));
        }
        if (k != 1) MUST(fr_session_run(s));
        MUST(network(&a, FR_CPU, CLASSES, &m));
        MUST(fr_weights_load(m, file, NULL));
        cr_expect_eq(bias(m), bias(fr_session_module(s)));
        fr_session_release(&s);
        fclose(o.out);
        cr_expect_not_null(strstr(content(report), "\"interrupted\":\tfalse"), "case %d: %s", k, text);
        cr_expect_null(strstr(content(in_folder("said")), "signal"), "case %d: %s", k, text);
        fr_module_release(&m);
    }
}

/* The test computes the averages of a bias from its values after each step. */
Test(session_end, averages_are_what_a_training_leaves) {
    const double decay = 0.75;
    app a = {.bad_image = -1};
    fr_session_opts o = options(&a);
    fr_session *s = NULL;
    double average = 0;
    MUST(create(&a, &o, false, &s));
    for (int i = 0; i < STEPS; i++) {
        MUST(fr_session_run_steps(s, 1));
        const double now = bias(fr_session_module(s));
        average = i == 0 ? now : decay * average + (1 - decay) * now;
    }
    const double raw = bias(fr_session_module(s));
    fr_session_release(&s);
    o.train.optim.ema = decay;
    char file[160];
    snprintf(file, sizeof file, "%s/ema.safetensors", folder);
    o.train.files.export_weights = file;
    MUST(create(&a, &o, true, &s));
    MUST(fr_session_run(s));
    const double left = bias(fr_session_module(s));
    MUST(fr_session_run(s)); /* no step is left, and weights and averages do not change places again */
    cr_expect_eq(bias(fr_session_module(s)), (float)left);
    cr_expect(fabs(left - average) < 1e-5 && fabs(raw - average) > 1e-4, "left %g, average %g, raw %g", left, average,
              raw);
    fr_module *m = NULL;
    MUST(network(&a, FR_CPU, CLASSES, &m));
    MUST(fr_weights_load(m, file, NULL));
    cr_expect_eq(bias(m), (float)left);
    fr_module_release(&m);
    fr_session_release(&s);
}

/* Exports in the middle of a training write the averages, and the training goes on with its weights. */
Test(session_end, an_export_on_the_way_disturbs_nothing) {
    float end[2];
    for (int k = 0; k < 2; k++) {
        app a = {.bad_image = -1};
        fr_session_opts o = options(&a);
        fr_session *s = NULL;
        fr_classifier c = {0};
        o.train.optim.ema = 0.75;
        MUST(create(&a, &o, false, &s));
        MUST(fr_session_run_steps(s, 3));
        const float raw = bias(fr_session_module(s));
        if (k == 1) {
            MUST(fr_session_export(s, in_folder("way.safetensors")));
            MUST(fr_classifier_load_own(path, network, &a, FR_CPU, &c));
            cr_expect_eq(bias(fr_session_module(s)), raw);
            cr_expect_neq(bias(c.model), raw);
            fr_classifier_clear(&c);
        }
        MUST(fr_session_run(s));
        end[k] = bias(fr_session_module(s));
        fr_session_release(&s);
    }
    cr_expect_eq(end[0], end[1]);
}

Test(session_end, a_network_of_ones_own_loads_as_a_classifier) {
    app a = {.bad_image = -1};
    fr_session_opts o = options(&a);
    fr_session *s = NULL;
    fr_classifier c = {0};
    fr_loader_opts as;
    double there[CLASSES], here[CLASSES];
    uint8_t pixels[SIZE * SIZE * 3];
    const fr_image image = {.pixels = pixels, .height = SIZE, .width = SIZE, .channels = 3};
    for (int i = 0; i < SIZE * SIZE * 3; i++) pixels[i] = (uint8_t)(i * 5);
    MUST(create(&a, &o, false, &s));
    MUST(fr_session_run(s));
    MUST(fr_session_export(s, in_folder("own.safetensors")));
    MUST(fr_session_input(s, &as));
    MUST(fr_predict(fr_session_module(s), &image, &as, there, CLASSES));
    MUST(fr_classifier_load_own(path, network, &a, FR_CPU, &c));
    MUST(fr_predict(c.model, &image, &c.input, here, CLASSES));
    for (int i = 0; i < CLASSES; i++) cr_expect(fabs(here[i] - there[i]) < 1e-5, "%d: %g, %g", i, here[i], there[i]);
    cr_expect_str_eq(c.info.model, "owlnet");
    cr_expect_str_eq(c.info.class_name[2], "owl");
    /* without the function the network is unknown; a function of another network is refused by its tensors */
    cr_expect_eq(fr_classifier_load(path, FR_CPU, &c), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "fr_classifier_load_own"), "%s", fr_last_error());
    a.two_results = true;
    cr_expect_eq(fr_classifier_load_own(path, network, &a, FR_CPU, &c), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "aux"), "%s", fr_last_error());
    cr_expect_eq(fr_classifier_load_own(path, NULL, &a, FR_CPU, &c), FR_EINVAL);
    fr_classifier_clear(&c);
    fr_session_release(&s);
}

Test(session_end, mean_and_deviation_are_those_of_the_options) {
    app a = {.bad_image = -1};
    fr_session_opts o = options(&a);
    fr_session *s = NULL;
    fr_session_info i;
    fr_loader_opts as;
    const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    memcpy(o.mean, mean, sizeof mean);
    memcpy(o.std, std, sizeof std);
    MUST(create(&a, &o, false, &s));
    MUST(fr_session_info_get(s, &i));
    MUST(fr_session_input(s, &as));
    for (int c = 0; c < 3; c++)
        cr_expect(i.mean[c] == mean[c] && i.std[c] == std[c] && as.mean[c] == mean[c] && as.std[c] == std[c], "%d", c);
    fr_session_release(&s);
    o.std[1] = 0;
    cr_expect_eq(create(&a, &o, false, &s), FR_EINVAL);
    o.std[1] = NAN;
    cr_expect_eq(create(&a, &o, false, &s), FR_EINVAL);
}

/* Fields have the ranges of the flags, and sentences name fields. */
Test(session_end, options_out_of_range_are_refused_as_fields) {
    static const struct {
        size_t offset;
        char kind; /* of the field: i, r, z, c */
        double value;
        const char *says;
    } cases[] = {
        {offsetof(fr_train_opts, optim.momentum), 'r', 2, "train.optim.momentum 2: must be at least 0 and below 1"},
        {offsetof(fr_train_opts, optim.momentum), 'r', NAN, "train.optim.momentum nan"},
        {offsetof(fr_train_opts, optim.epochs), 'i', 0, "train.optim.epochs 0: must lie in 1.."},
        {offsetof(fr_train_opts, optim.epochs), 'i', -1, "train.optim.epochs -1: must lie in 1.."},
        {offsetof(fr_train_opts, optim.batch_size), 'i', 0, "train.optim.batch_size 0: must lie in 1.."},
        {offsetof(fr_train_opts, optim.batch_size), 'i', 1000,
         "train.optim.batch_size 1000: camera has 24 training images"},
        {offsetof(fr_train_opts, optim.lr), 'r', -2, "train.optim.lr -2: must be at least 0"},
        {offsetof(fr_train_opts, memory.budget), 'z', 0, "train.memory.budget 0: must be at least 1 byte"},
        {offsetof(fr_train_opts, memory.budget), 'z', 1, "train.memory.budget 1 B: nothing fits"},
        {offsetof(fr_train_opts, optim.optimizer), 'c', 77, "train.optim.optimizer 77: not one of the values"},
        {offsetof(fr_train_opts, memory.split_batch), 'i', 9,
         "train.memory.split_batch 9: at most 8, the images of a batch (train.optim.batch_size)"},
        {offsetof(fr_train_opts, files.save_every), 'i', 3, "train.files.save_every 3 needs train.files.save DIR"},
        {offsetof(fr_train_opts, plan), 'b', 1, "train.plan works in trainers only"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        app a = {.bad_image = -1};
        fr_session_opts o = options(&a);
        fr_session *s = NULL;
        char *field = (char *)&o.train + cases[i].offset;
        if (cases[i].kind == 'i') *(int64_t *)(void *)field = (int64_t)cases[i].value;
        if (cases[i].kind == 'r') *(double *)(void *)field = cases[i].value;
        if (cases[i].kind == 'z') *(size_t *)(void *)field = (size_t)cases[i].value;
        if (cases[i].kind == 'c') *(int *)(void *)field = (int)cases[i].value;
        if (cases[i].kind == 'b') *(bool *)field = true;
        fr_status status = create(&a, &o, false, &s);
        cr_expect(status == FR_EINVAL || status == FR_ENOMEM, "case %zu: %s", i, fr_status_name(status));
        cr_expect_not_null(strstr(fr_last_error(), cases[i].says), "case %zu: %s", i, fr_last_error());
        cr_expect_null(strstr(fr_last_error(), "--"), "case %zu: %s", i, fr_last_error());
        fr_session_release(&s);
    }
}

Test(session_end, an_empty_name_of_a_layer_is_refused) {
    const char *const empty[] = {""};
    for (int i = 0; i < 2; i++) {
        app a = {.bad_image = -1};
        fr_session_opts o = options(&a);
        fr_session *s = NULL;
        if (i == 0) o.train.model.freeze = empty, o.train.model.n_freeze = 1;
        if (i == 1) o.train.model.train_only = empty, o.train.model.n_train_only = 1;
        cr_expect_eq(create(&a, &o, false, &s), FR_EINVAL);
        cr_expect_not_null(strstr(fr_last_error(), "the name is empty"), "%s", fr_last_error());
        fr_session_release(&s);
    }
}

Test(session_end, steps_may_stand_for_epochs) {
    app a = {.bad_image = -1};
    fr_session_opts o = options(&a);
    fr_session *s = NULL;
    fr_session_info i;
    o.train.optim.epochs = FR_TRAIN_AUTO;
    o.train.optim.steps = 4;
    MUST(create(&a, &o, false, &s));
    MUST(fr_session_run(s));
    MUST(fr_session_info_get(s, &i));
    cr_expect(i.finished && i.step == 4, "step %lld", (long long)i.step);
    fr_session_release(&s);
}

Test(session_end, a_second_result_is_refused) {
    for (int k = 0; k < 2; k++) {
        app a = {.bad_image = -1, .two_results = true};
        fr_session_opts o = options(&a);
        fr_session *s = NULL;
        if (k == 1) o.train.precision.half = FR_TRAIN_AMP_BF16;
        cr_expect_eq(create(&a, &o, false, &s), FR_EINVAL);
        cr_expect_not_null(strstr(fr_last_error(), "several results"), "%s", fr_last_error());
    }
}

/* Each callback fails with a sentence and without; the sentence of an older failure is not shown. */
Test(session_end, failures_of_callbacks_have_a_sentence) {
    for (int k = 0; k < 6; k++) {
        app a = {.bad_image = k / 2 == 0 ? 5 : -1,
                 .step_fails = k / 2 == 1,
                 .loss_fails = k / 2 == 2,
                 .answer = FR_EIO,
                 .sentence = k % 2 == 0 ? NULL : "the lens is dirty"};
        static const char *const says[] = {"camera: image 5: read failed (FR_EIO)",
                                           "camera: image 5: the lens is dirty",
                                           "on_step failed (FR_EIO)",
                                           "the lens is dirty",
                                           "loss failed (FR_EIO)",
                                           "the lens is dirty"};
        fr_session_opts o = options(&a);
        fr_session *s = NULL;
        (void)fr_fail(FR_EINVAL, "an older failure");
        fr_status status = create(&a, &o, false, &s);
        if (status == FR_OK) status = fr_session_run(s);
        cr_expect_eq(status, FR_EIO, "case %d: %s", k, fr_status_name(status));
        cr_expect_str_eq(fr_last_error(), says[k], "case %d: %s", k, fr_last_error());
        fr_session_release(&s);
    }
}

/* ---- a stranger's program ------------------------------------------------------------------------------------- */

enum { KILLED = 4 }; /* the step after which the first process dies */

static fr_status dies(void *ctx, const fr_session_info *now) {
    (void)ctx;
    return now->step == KILLED ? (fr_status)raise(SIGKILL) : FR_OK;
}

/* The test writes photos of two classes below folder/photos/train. */
static void take_photos(void) {
    uint8_t rgb[SIZE * SIZE * 3], *bytes = NULL;
    char command[256], name[160];
    snprintf(command, sizeof command, "mkdir -p %s/photos/train/cat %s/photos/train/dog", folder, folder);
    cr_assert_eq(system(command), 0);
    for (int i = 0; i < IMAGES; i++) {
        for (int k = 0; k < SIZE * SIZE * 3; k++) rgb[k] = (uint8_t)(i % 2 * 90 + (i * 37 + k * 11) % 150);
        const size_t n = jpeg_bytes(JPEG_RGB, rgb, SIZE, SIZE, &bytes);
        snprintf(name, sizeof name, "%s/photos/train/%s/%d.jpg", folder, i % 2 == 0 ? "cat" : "dog", i);
        FILE *f = fopen(name, "wb");
        cr_assert(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
        free(bytes);
    }
}

/* Trains on the photos with averages, saved after each step. *p: the prediction for a photo at the end. */
static void train_on_photos(const char *weights, bool resume, bool die, double p[2]) {
    app a = {.bad_image = -1};
    fr_session_opts o = options(&a);
    fr_session *s = NULL;
    fr_dataset *d = NULL;
    fr_loader_opts as;
    fr_image image = {0};
    char photos[128], states[128], photo[160];
    snprintf(photos, sizeof photos, "%s/photos", folder);
    snprintf(states, sizeof states, "%s/states", folder);
    snprintf(photo, sizeof photo, "%s/train/dog/3.jpg", photos);
    o.loss = NULL;
    o.on_step = die ? dies : NULL;
    o.train.data.image_size = SIZE;
    o.train.optim.ema = 0.9;
    o.train.files.export_weights = weights;
    o.train.files.save_every = 1;
    if (die || resume)
        o.train.files.save = states;
    else
        o.train.files.save_every = FR_TRAIN_AUTO;
    if (resume) o.train.files.resume = states;
    MUST(fr_dataset_image_folder(photos, FR_SPLIT_TRAIN, &d));
    MUST(fr_session_create(&o, d, NULL, &s));
    MUST(fr_session_run(s));
    MUST(fr_session_input(s, &as));
    MUST(fr_image_read(photo, &image));
    MUST(fr_predict(fr_session_module(s), &image, &as, p, 2));
    fr_image_clear(&image);
    fr_session_release(&s);
    fr_dataset_release(&d);
}

/* A process trains and is killed; a second process resumes, exports and predicts; a third predicts from the file. */
Test(session_end, a_killed_training_of_photos_predicts_in_another_process) {
    char undisturbed[128], weights[128], photo[160];
    double whole[2], resumed[2];
    int ends[2], start[2], status = 0;
    take_photos();
    snprintf(undisturbed, sizeof undisturbed, "%s/whole.safetensors", folder);
    snprintf(weights, sizeof weights, "%s/resumed.safetensors", folder);
    snprintf(photo, sizeof photo, "%s/photos/train/dog/3.jpg", folder);
    cr_assert(pipe(ends) == 0 && pipe(start) == 0);
    const pid_t other = fork(); /* now: threads do not survive a fork */
    if (other == 0) {
        char go = 0;
        if (read(start[0], &go, 1) != 1) _exit(1);
        app a = {.bad_image = -1};
        fr_classifier c = {0};
        fr_image image = {0};
        double p[2] = {-1, -1};
        if (fr_classifier_load_own(weights, network, &a, FR_CPU, &c) == FR_OK &&
            fr_image_read(photo, &image) == FR_OK && strcmp(c.info.class_name[1], "dog") == 0)
            (void)fr_predict(c.model, &image, &c.input, p, 2);
        _exit(write(ends[1], p, sizeof p) == sizeof p ? 0 : 1);
    }
    pid_t child = fork();
    if (child == 0) {
        train_on_photos(weights, false, true, resumed);
        _exit(1);
    }
    cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_expect_neq(access(weights, F_OK), 0);
    train_on_photos(weights, true, false, resumed);
    train_on_photos(undisturbed, false, false, whole);
    cr_expect(resumed[0] == whole[0] && resumed[1] == whole[1], "%.9g, undisturbed %.9g", resumed[0], whole[0]);
    double there[2];
    cr_assert_eq(write(start[1], "g", 1), 1);
    cr_assert(read(ends[0], there, sizeof there) == sizeof there && waitpid(other, &status, 0) == other);
    for (int i = 0; i < 2; i++)
        cr_expect(fabs(there[i] - resumed[i]) < 1e-5, "class %d: %.9g, in the session %.9g", i, there[i], resumed[i]);
}
