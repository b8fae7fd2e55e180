/* test_own_data.c - sessions over data of the program's own: f32 images of several channels, pixel classes, vectors, a
 * ring; their default losses, losses and metrics of the program's own; planned as measured, saved and resumed. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGES = 40, TESTS = 14, SIZE = 8, CHANNELS = 4, BATCH = 8, EPOCHS = 3, STEPS = EPOCHS * IMAGES / BATCH };

#define MUST(call) cr_assert_eq((call), FR_OK, "%s: %s", #call, fr_last_error())

static fr_target kind; /* of the running test */
static bool map;       /* its network gives a map, whatever the kind */

static float value(int64_t index, int64_t p, int64_t c) {
    return (float)(100 * sin((double)(index * 131 + p * 17 + c * 71)) + 60 * cos((double)(3 * index + c)));
}

/* The class is the largest channel, every fifth pixel is ignored; the vector is the mean of the first two channels. */
static fr_status read_image(void *ctx, int64_t index, void *pixels, void *target) {
    float *to = pixels, *vector = target, sum[2] = {0};
    index += ctx != NULL ? IMAGES : 0;
    for (int64_t p = 0; p < SIZE * SIZE; p++) {
        int64_t largest = 0;
        for (int64_t c = 0; c < CHANNELS; c++) {
            to[p * CHANNELS + c] = value(index, p, c);
            if (c < 2) sum[c] += to[p * CHANNELS + c];
            if (to[p * CHANNELS + c] > to[p * CHANNELS + largest]) largest = c;
        }
        if (kind == FR_TARGET_PIXELS) ((uint8_t *)target)[p] = p % 5 == 0 ? FR_MASK_IGNORED : (uint8_t)largest;
    }
    for (int c = 0; c < 2 && kind == FR_TARGET_VECTOR; c++) vector[c] = sum[c] / (SIZE * SIZE) / 100;
    if (kind == FR_TARGET_CLASS) *(int64_t *)target = index % CHANNELS;
    return FR_OK;
}

static fr_dataset *images(bool test) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.name = "scans",
                                                .count = test ? TESTS : IMAGES,
                                                .classes = kind == FR_TARGET_VECTOR ? 2 : CHANNELS,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = CHANNELS,
                                                .read = read_image,
                                                .ctx = test ? &kind : NULL,
                                                .f32 = true,
                                                .target = kind},
                           &d));
    return d;
}

static fr_status network(void *ctx, fr_device device, int64_t outputs, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, CHANNELS});
    x = fr_net_relu(n, "relu", fr_net_conv2d(n, "conv1", x, 16, 1, NULL, FR_BIAS));
    if (kind == FR_TARGET_PIXELS || map) {
        x = fr_net_conv2d(n, "conv2", x, outputs, 1, NULL, FR_BIAS);
    } else {
        x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
        x = fr_net_linear(n, "fc", x, outputs, FR_BIAS);
    }
    return fr_net_end(&n, &x, 1, out);
}

static fr_session_opts options(void) {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.train.device = FR_CPU;
    o.train.optim.epochs = EPOCHS;
    o.train.optim.batch_size = BATCH;
    o.train.optim.warmup = 0;
    return o;
}

static fr_session *session(const fr_session_opts *o) {
    fr_session *s = NULL;
    fr_dataset *train = images(false), *test = images(true);
    MUST(fr_session_create(o, train, test, &s));
    fr_dataset_release(&train);
    fr_dataset_release(&test);
    return s;
}

static fr_session_info info(const fr_session *s) {
    fr_session_info i;
    MUST(fr_session_info_get(s, &i));
    return i;
}

static fr_status add_bits(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    const unsigned char *p = fr_tensor_data(t);
    (void)path, (void)is_parameter;
    for (size_t i = 0; i < fr_tensor_nbytes(t); i++) *(uint64_t *)ctx = (*(uint64_t *)ctx ^ p[i]) * 1099511628211U;
    return FR_OK;
}

static uint64_t weights(const fr_session *s) {
    uint64_t hash = 1;
    MUST(fr_module_each_tensor(fr_session_module(s), add_bits, &hash));
    return hash;
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* All pixels that count are right in the end, so the ignored fifth is in no sum. */
Test(own_data, pixel_classes_train_by_cross_entropy_and_ignored_ones_count_for_nothing) {
    kind = FR_TARGET_PIXELS;
    fr_session_opts o = options();
    o.train.optim.epochs = 60;
    o.train.optim.lr = 0.5;
    fr_session *s = session(&o);
    MUST(fr_session_run(s));
    cr_expect_gt(info(s).test_accuracy, 0.95, "%g", info(s).test_accuracy);
    cr_expect_gt(info(s).epoch_accuracy, 0.95, "%g", info(s).epoch_accuracy);
    cr_expect_gt(info(s).planned, 0);
    cr_expect_eq(info(s).peak_reserved, info(s).planned, "%zu, %zu", info(s).peak_reserved, info(s).planned);
    fr_session_release(&s);
}

/* Mean squared and mean absolute error of the test images, computed with the network. */
static void errors(const fr_session *s, double *squared, double *absolute) {
    fr_dataset *d = images(true);
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL, *y = NULL;
    fr_loader_opts o = *FR_LOADER_OPTS(.batch_size = TESTS, .shuffle = false, .workers = 0);
    fr_session_info i = info(s);
    bool grad = fr_no_grad_begin();
    memcpy(o.mean, i.mean, sizeof o.mean);
    memcpy(o.std, i.std, sizeof o.std);
    for (int c = CHANNELS; c < FR_CHANNELS_MAX; c++) o.std[c] = 1;
    MUST(fr_loader_create(d, &o, &l));
    MUST(fr_loader_next(l, &x, &t));
    MUST(fr_module_forward(fr_session_module(s), x, &y));
    *squared = *absolute = 0;
    for (int k = 0; k < 2 * TESTS; k++) {
        double e = (double)((float *)fr_tensor_data(y))[k] - ((float *)fr_tensor_data(t))[k];
        *squared += e * e / (2 * TESTS);
        *absolute += fabs(e) / (2 * TESTS);
    }
    fr_no_grad_end(grad);
    fr_tensor_release(&x), fr_tensor_release(&t), fr_tensor_release(&y);
    fr_loader_release(&l);
    fr_dataset_release(&d);
}

Test(own_data, vectors_train_by_mean_squared_error) {
    double squared, absolute;
    kind = FR_TARGET_VECTOR;
    fr_session_opts o = options();
    o.train.optim.epochs = 30;
    o.train.optim.lr = 0.05;
    fr_session *s = session(&o);
    MUST(fr_session_run_steps(s, 1));
    const double first = info(s).loss;
    MUST(fr_session_run(s));
    errors(s, &squared, &absolute);
    cr_expect_lt(info(s).loss, first / 4, "%g, then %g", first, info(s).loss);
    cr_expect(fabs(info(s).test_loss - squared) < 1e-5 * squared, "%g, not %g", info(s).test_loss, squared);
    cr_expect(isnan(info(s).test_accuracy) && isnan(info(s).epoch_accuracy), "there is nothing to count");
    cr_expect_eq(info(s).peak_reserved, info(s).planned);
    fr_session_release(&s);
    o.train.optim.label_smoothing = 0.1;
    fr_dataset *d = images(false);
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "mean squared error"), "%s", fr_last_error());
    fr_dataset_release(&d);
}

Test(own_data, a_network_that_does_not_fit_its_targets_is_refused) {
    kind = FR_TARGET_VECTOR;
    fr_dataset *d = images(false), *of_pixels = NULL;
    fr_session *s = NULL;
    fr_session_opts o = options();
    map = true;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "are [8, 8, 8, 2], but the loss needs [8, 2]"), "%s", fr_last_error());
    map = false;
    o = options();
    map = true;
    kind = FR_TARGET_PIXELS;
    of_pixels = images(true);
    cr_expect_eq(fr_session_create(&o, d, of_pixels, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "must be equal"), "%s", fr_last_error());
    fr_dataset_release(&d);
    fr_dataset_release(&of_pixels);
}

/* ---- in parts, saved, resumed, in a budget ----------------------------------------------------------------------- */

static uint64_t whole_run(const fr_session_opts *o) {
    fr_session *s = session(o);
    MUST(fr_session_run(s));
    uint64_t hash = weights(s);
    fr_session_release(&s);
    return hash;
}

Test(own_data, every_kind_of_target_resumes_to_the_same_bits_at_any_number_of_workers) {
    for (int i = FR_TARGET_CLASS; i <= FR_TARGET_VECTOR; i++) {
        kind = (fr_target)i;
        fr_session_opts o = options();
        char folder[] = "/tmp/frugal-own-XXXXXX";
        cr_assert_not_null(mkdtemp(folder));
        o.train.data.augment = FR_TRAIN_AUGMENT_LIGHT;
        const uint64_t want = whole_run(&o);
        o.train.data.workers = 4;
        cr_expect_eq(whole_run(&o), want, "kind %d: 4 workers", i);
        o.train.data.workers = 0;
        o.train.files.save = folder;
        fr_session *s = session(&o);
        MUST(fr_session_run_steps(s, 7));
        fr_session_release(&s);
        o.train.files.resume = "latest";
        s = session(&o);
        cr_expect_eq(info(s).step, 7, "saved when it was stopped");
        MUST(fr_session_run(s));
        cr_expect_eq(weights(s), want, "kind %d: resumed", i);
        fr_session_release(&s);
        char command[64];
        snprintf(command, sizeof command, "rm -r %s", folder);
        cr_expect_eq(system(command), 0);
    }
}

Test(own_data, a_budget_holds_for_maps_too) {
    kind = FR_TARGET_PIXELS;
    fr_session_opts o = options();
    fr_dataset *d = images(false);
    fr_session *s = NULL;
    size_t smallest = 0;
    o.smallest_budget = &smallest;
    o.train.memory.budget = 4096;
    cr_assert_eq(fr_session_create(&o, d, NULL, &s), FR_ENOMEM);
    o.train.memory.budget = smallest;
    MUST(fr_session_create(&o, d, NULL, &s));
    MUST(fr_session_run(s));
    cr_expect_leq(info(s).peak_reserved, smallest);
    fr_session_release(&s);
    fr_dataset_release(&d);
}

Test(own_data, a_ring_trains_while_frames_come_in_and_resumes) {
    char folder[] = "/tmp/frugal-own-XXXXXX", command[64];
    float pixels[SIZE * SIZE * CHANNELS];
    fr_dataset *ring = NULL;
    fr_session *s = NULL;
    kind = FR_TARGET_CLASS;
    fr_session_opts o = options();
    cr_assert_not_null(mkdtemp(folder));
    o.train.files.save = folder;
    MUST(fr_dataset_create(&(fr_dataset_source){"camera", IMAGES, CHANNELS, SIZE, SIZE, CHANNELS, NULL, .f32 = true},
                           &ring));
    for (int64_t i = 0; i <= 3 * IMAGES; i++) { /* the last image takes the first one's place, after the last step */
        int64_t label;
        MUST(read_image(NULL, i, pixels, &label));
        MUST(fr_dataset_push(ring, pixels, &label));
        if (i == IMAGES / 2) MUST(fr_session_create(&o, ring, NULL, &s));
        if (i > IMAGES / 2 && i % 15 == 1) MUST(fr_session_run_steps(s, 1));
    }
    cr_expect_gt(info(s).step, 4);
    fr_session_release(&s);
    o.train.files.resume = "latest"; /* its images differ now */
    MUST(fr_session_create(&o, ring, NULL, &s));
    MUST(fr_session_run(s));
    cr_expect(info(s).finished);
    fr_session_release(&s);
    fr_dataset_release(&ring);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

/* ---- a loss and metrics of the program's own --------------------------------------------------------------------- */

typedef struct calls {
    int loss, metrics;
    bool scalar;
} calls;

static fr_status own_loss(void *ctx, fr_tensor *y, fr_tensor *targets, fr_tensor **loss) {
    calls *c = ctx;
    c->loss++;
    return c->scalar ? fr_mse(y, targets, loss) : fr_relu(y, loss);
}

static fr_status own_metrics(void *ctx, fr_tensor *y, fr_tensor *targets, double *values) {
    const float *a = fr_tensor_data(y), *b = fr_tensor_data(targets);
    int64_t n = fr_tensor_numel(y);
    ((calls *)ctx)->metrics++;
    cr_assert_not_null(a, "never on meta");
    for (int64_t i = 0; i < n; i++) values[0] += fabs((double)a[i] - b[i]) / (double)n;
    values[1] = (double)fr_tensor_dim(y, 0);
    return FR_OK;
}

static bool file_has(const char *path, const char *words) {
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return strstr(text, words) != NULL;
}

Test(own_data, own_loss_and_metrics_are_planned_summed_and_reported) {
    static const char *const names[] = {"mae", "batch"};
    char log[] = "/tmp/frugal-own-XXXXXX", report[] = "/tmp/frugal-own-XXXXXX";
    double squared, absolute;
    calls c = {.scalar = true};
    close(mkstemp(log)), close(mkstemp(report));
    kind = FR_TARGET_VECTOR;
    fr_session_opts o = options();
    const uint64_t want = whole_run(&o);
    o.loss = own_loss, o.metrics = own_metrics, o.metric_names = names, o.n_metrics = 2, o.ctx = &c;
    o.train.files.log = log, o.train.files.report = report;
    fr_session *s = session(&o);
    cr_expect_gt(c.loss, 0, "planned");
    cr_expect_eq(c.metrics, 0);
    cr_expect(isnan(info(s).metrics[0]));
    MUST(fr_session_run(s));
    cr_expect_eq(weights(s), want, "the same loss, the same bits");
    cr_expect_eq(c.metrics, 2 * EPOCHS, "%d calls for batches of 8 and 6", c.metrics);
    errors(s, &squared, &absolute);
    cr_expect(fabs(info(s).metrics[0] - absolute) < 1e-6 * absolute, "%g, not %g", info(s).metrics[0], absolute);
    cr_expect_eq(info(s).metrics[1], (8.0 * 8 + 6 * 6) / TESTS, "weighted by images: %g", info(s).metrics[1]);
    cr_expect_eq(info(s).peak_reserved, info(s).planned);
    fr_session_release(&s);
    cr_expect(file_has(log, "\"test/mae\""));
    cr_expect(file_has(report, "\"metrics\""));
    cr_expect(file_has(report, "\"mae\""));
    remove(log), remove(report);
}

Test(own_data, what_is_no_loss_or_metric_is_refused) {
    static const char *const names[] = {"mae"};
    calls c = {0};
    kind = FR_TARGET_VECTOR;
    fr_dataset *d = images(false);
    fr_session *s = NULL;
    fr_session_opts o = options();
    o.loss = own_loss, o.ctx = &c;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "own loss returns 16 elements; 1 is needed"), "%s", fr_last_error());
    o.loss = NULL;
    o.n_metrics = 1, o.metric_names = names;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    o.metrics = own_metrics, o.n_metrics = FR_METRICS_MAX + 1;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "at most 8"), "%s", fr_last_error());
    fr_dataset_release(&d);
}
