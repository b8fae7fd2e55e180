/* test_session.c - a run as an object (session.h): planned as measured, stopped anywhere and continued to the same
 * bits, reported, within its budget; afterwards the thread's settings are the old ones. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/container.h"

enum { IMAGES = 40, TESTS = 12, SIZE = 12, CLASSES = 3, BATCH = 8, EPOCHS = 3, STEPS = EPOCHS * (IMAGES / BATCH) };

#define MUST(call) cr_assert_eq((call), FR_OK, "%s: %s", #call, fr_last_error())

typedef struct app {
    int reads, steps, epochs;
    int64_t stop_at; /* on_step returns FR_END there; 0: never */
    fr_status fail;  /* on_step returns the status at the first step; FR_OK: never */
    fr_session *cancel;
    int cancel_read; /* number of the read that cancels; 0: none */
    double last_loss, last_accuracy;
    int64_t released;
    int notes;
    char note[2048]; /* last sentence, as o.out gets the text */
} app;

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    app *a = ctx;
    uint8_t *pixels = to;
    if (++a->reads == a->cancel_read) fr_session_cancel(a->cancel);
    for (int i = 0; i < SIZE * SIZE; i++) pixels[i] = (uint8_t)((index * 31 + i * 7 + (index % CLASSES) * 40) % 251);
    *(int64_t *)target = index % CLASSES;
    return FR_OK;
}

static void released(void *ctx) {
    ((app *)ctx)->released++;
}

static fr_dataset *frames_of(app *a, int64_t count, int64_t classes) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = count,
                                                .classes = classes,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 1,
                                                .read = frame,
                                                .release = released,
                                                .ctx = a},
                           &d));
    return d;
}

static fr_dataset *frames(app *a, int64_t count) {
    return frames_of(a, count, CLASSES);
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 1});
    x = fr_net_conv2d(n, "conv1", x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
    x = fr_net_relu(n, "relu1", fr_net_batchnorm2d(n, "bn1", x, NULL));
    x = fr_net_conv2d(n, "conv2", x, 16, 3, FR_CONV2D_OPTS(.padding = 1, .stride = 2), FR_NO_BIAS);
    x = fr_net_relu(n, "relu2", fr_net_batchnorm2d(n, "bn2", x, NULL));
    x = fr_net_dropout(n, "drop", x, 0.25);
    x = fr_net_flatten(n, "flatten", fr_net_adaptive_avgpool2d(n, "avgpool", x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status on_step(void *ctx, const fr_session_info *now) {
    app *a = ctx;
    a->steps++;
    a->last_loss = now->loss;
    if (a->fail < 0) return fr_fail(a->fail, "the camera is gone");
    if (a->cancel != NULL) fr_session_cancel(a->cancel);
    return now->step == a->stop_at ? FR_END : FR_OK;
}

static fr_status on_epoch(void *ctx, const fr_session_info *now) {
    app *a = ctx;
    a->epochs++;
    a->last_accuracy = now->test_accuracy;
    return FR_OK;
}

static fr_session_opts options(app *a) {
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.on_step = on_step;
    o.on_epoch = on_epoch;
    o.ctx = a;
    o.train.optim.epochs = EPOCHS;
    o.train.optim.batch_size = BATCH;
    o.train.data.augment = FR_TRAIN_AUGMENT_LIGHT;
    o.train.device = FR_CPU;
    return o;
}

static fr_session *session(app *a, const fr_session_opts *o, bool test) {
    fr_session *s = NULL;
    fr_dataset *x = frames(a, IMAGES), *y = test ? frames(a, TESTS) : NULL;
    MUST(fr_session_create(o, x, y, &s));
    fr_dataset_release(&x);
    fr_dataset_release(&y);
    return s;
}

typedef struct bits {
    uint64_t hash;
    int64_t tensors;
} bits;

static fr_status add_bits(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    bits *b = ctx;
    const unsigned char *p = fr_tensor_data(t);
    (void)path, (void)is_parameter;
    for (size_t i = 0; i < fr_tensor_nbytes(t); i++) b->hash = (b->hash ^ p[i]) * UINT64_C(1099511628211);
    b->tensors++;
    return FR_OK;
}

static uint64_t weights(const fr_session *s) {
    bits b = {UINT64_C(14695981039346656037), 0};
    MUST(fr_module_each_tensor(fr_session_module(s), add_bits, &b));
    cr_assert_gt(b.tensors, 5);
    return b.hash;
}

static fr_session_info info(const fr_session *s) {
    fr_session_info i;
    MUST(fr_session_info_get(s, &i));
    return i;
}

/* Result of a run without a stop. */
static uint64_t undisturbed(fr_session_info *end) {
    app a = {0};
    fr_session_opts o = options(&a);
    fr_session *s = session(&a, &o, true);
    MUST(fr_session_run(s));
    uint64_t hash = weights(s);
    *end = info(s);
    fr_session_release(&s);
    cr_assert_eq(a.steps, STEPS);
    cr_assert_eq(a.epochs, EPOCHS);
    cr_assert_eq(a.released, 2, "both datasets are given up");
    return hash;
}

Test(session, trains_and_tells) {
    fr_session_info end;
    (void)undisturbed(&end);
    cr_expect(end.finished);
    cr_expect_eq(end.step, STEPS);
    cr_expect_eq(end.steps, STEPS);
    cr_expect(isfinite(end.loss) && isfinite(end.test_loss) && end.test_accuracy > 0.2);
    cr_expect_gt(end.planned, 0, "it runs in an arena");
    cr_expect_eq(end.peak_reserved, end.planned, "planned %zu, reserved %zu", end.planned, end.peak_reserved);
}

/* Nothing moves: the first evaluation stays the best, and the second evaluation ends the training, for good. */
Test(session, patience_finishes_it) {
    static const char *const head[] = {"fc"};
    app a = {0};
    fr_session_opts o = options(&a);
    o.train.optim.lr = 0;
    o.train.model.train_only = head;
    o.train.model.n_train_only = 1;
    o.train.optim.patience = 1;
    o.train.optim.ema = 0.5;
    fr_session *s = session(&a, &o, true);
    for (int i = 0; i < 2; i++) {
        MUST(fr_session_run(s));
        cr_expect(info(s).finished);
        cr_expect_eq(info(s).step, 2 * (STEPS / EPOCHS), "step %d", (int)info(s).step);
    }
    fr_session_release(&s);
    s = NULL;
    fr_dataset *train = frames(&a, IMAGES);
    cr_expect_eq(fr_session_create(&o, train, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "needs test images"), "%s", fr_last_error());
    fr_dataset_release(&train);
}

/* The state has the count of evaluations, and a resumed run makes the evaluation that its state lacks: the first is the
 * best, and three more end the training, as without a state. */
Test(session, patience_goes_on_with_a_state) {
    static const char *const head[] = {"fc"};
    char folder[] = "/tmp/frugal-patience-XXXXXX", command[64];
    app a = {0};
    fr_session_opts o = options(&a);
    cr_assert_not_null(mkdtemp(folder));
    o.train.optim.lr = 0;
    o.train.model.train_only = head;
    o.train.model.n_train_only = 1;
    o.train.optim.patience = 3;
    o.train.optim.epochs = 2;
    o.train.files.save = folder;
    fr_session *s = session(&a, &o, true);
    MUST(fr_session_run(s));
    fr_session_release(&s);
    o.train.optim.epochs = 9;
    o.train.files.save = NULL;
    o.train.files.resume = folder;
    s = session(&a, &o, true);
    MUST(fr_session_run(s));
    cr_expect_eq(info(s).step, 4 * (STEPS / EPOCHS), "step %d", (int)info(s).step);
    fr_session_release(&s);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

/* A stop in the middle of an epoch, at its end, after a step; by a count, a callback, cancel. */
Test(session, stopped_and_gone_on_with_is_the_same_run) {
    fr_session_info end, now;
    const uint64_t want = undisturbed(&end);
    const int64_t counts[] = {1, 2, 5, 7, 0, 0}, at[] = {0, 0, 0, 0, 6, 10};
    for (int how = 0; how < 6; how++) {
        app a = {.stop_at = at[how]};
        fr_session_opts o = options(&a);
        fr_session *s = session(&a, &o, true);
        int calls = 0;
        for (now = info(s); !now.finished && calls < 100; now = info(s), calls++) {
            int64_t before = now.step;
            if (counts[how] > 0)
                MUST(fr_session_run_steps(s, counts[how]));
            else
                MUST(fr_session_run(s));
            now = info(s);
            if (counts[how] > 0 && !now.finished) cr_expect_eq(now.step, before + counts[how]);
            if (at[how] > 0 && calls == 0) cr_expect_eq(now.step, at[how]);
        }
        cr_expect_eq(weights(s), want, "way %d: other weights", how);
        cr_expect_eq(now.test_loss, end.test_loss, "way %d: test loss %g, not %g", how, now.test_loss, end.test_loss);
        cr_expect_eq(a.epochs, EPOCHS, "way %d: %d epochs", how, a.epochs);
        cr_expect_eq(now.peak_reserved, end.peak_reserved, "way %d", how);
        MUST(fr_session_run(s)); /* no step is left */
        cr_expect_eq(a.steps, STEPS);
        fr_session_release(&s);
    }
}

Test(session, cancel_ends_after_the_step) {
    app a = {0};
    fr_session_opts o = options(&a);
    fr_session *s = session(&a, &o, false);
    a.cancel = s;
    MUST(fr_session_run(s));
    cr_expect_eq(info(s).step, 1);
    cr_expect_not(info(s).finished);
    a.cancel = NULL;
    fr_session_cancel(s); /* before a call: run returns at once, after a step at most */
    MUST(fr_session_run(s));
    cr_expect_leq(info(s).step, 2);
    MUST(fr_session_run(s));
    cr_expect(info(s).finished);
    cr_expect(isnan(info(s).test_accuracy), "there is no test set");
    fr_session_release(&s);
}

Test(session, the_thread_has_what_it_had) {
    app a = {0};
    fr_session_opts o = options(&a);
    fr_memory_stats before, after;
    fr_switches switches = fr_switches_get();
    fr_seed(42);
    MUST(fr_memory_stats_get(FR_CPU, &before));
    o.train.memory.switches.encode = !switches.encode;
    fr_session *s = session(&a, &o, false);
    MUST(fr_session_run_steps(s, 3));
    fr_switches now = fr_switches_get();
    cr_expect_arr_eq(&now, &switches, sizeof now);
    cr_expect_eq(fr_rng_get().seed, 42);
    cr_expect_eq(fr_rng_get().next_stream, 0);
    MUST(fr_memory_stats_get(FR_CPU, &after));
    cr_expect_eq(after.allocs, before.allocs, "nothing came from the thread's own pool");
    fr_session_release(&s);
    MUST(fr_memory_stats_get(FR_CPU, &after));
    cr_expect_eq(after.allocated, before.allocated);
}

Test(session, a_budget_is_kept_or_refused_with_a_number) {
    app a = {0};
    fr_session_opts o = options(&a);
    fr_dataset *d = frames(&a, IMAGES);
    fr_session *s = NULL;
    size_t smallest = 0;
    o.smallest_budget = &smallest;
    o.train.memory.budget = 4096;
    cr_assert_eq(fr_session_create(&o, d, NULL, &s), FR_ENOMEM);
    cr_expect_gt(smallest, 4096);
    cr_expect_not_null(strstr(fr_last_error(), "smallest budget"), "%s", fr_last_error());
    o.train.memory.budget = smallest;
    MUST(fr_session_create(&o, d, NULL, &s));
    MUST(fr_session_run(s));
    cr_expect_leq(info(s).peak_reserved, smallest);
    fr_session_release(&s);
    fr_dataset_release(&d);
}

static void heard(void *ctx, const char *sentence) {
    app *a = ctx;
    a->notes++;
    snprintf(a->note, sizeof a->note, "note: %s\n", sentence);
}

/* Text that a session prints to opts.out at its creation; on_note gets an equal text. */
static const char *said(fr_session_opts o, fr_dataset *d) {
    static char text[2048];
    fr_session *s = NULL;
    app *a = o.ctx;
    o.out = tmpfile();
    cr_assert_not_null(o.out);
    o.on_note = heard;
    a->notes = 0;
    a->note[0] = '\0';
    MUST(fr_session_create(&o, d, NULL, &s));
    rewind(o.out);
    text[fread(text, 1, sizeof text - 1, o.out)] = '\0';
    cr_expect_str_eq(a->note, text);
    cr_expect_eq(a->notes, text[0] != '\0');
    fr_session_release(&s);
    fclose(o.out);
    return text;
}

/* Notes are in words of the session's fields, although train.quiet is set. */
Test(session, notes_of_fresh_heads_and_replaced_switches_are_told) {
    char file[] = "/tmp/frugal-session-XXXXXX.safetensors";
    app a = {0};
    fr_session_opts o = options(&a);
    fr_dataset *same = frames(&a, IMAGES), *more = frames_of(&a, IMAGES, CLASSES + 1);
    cr_assert_geq(close(mkstemps(file, 12)), 0);
    fr_session *s = session(&a, &o, false);
    MUST(fr_session_export(s, file));
    fr_session_release(&s);
    o.train.files.weights = file;
    cr_expect_str_eq(said(o, same), "");
    cr_expect_str_eq(said(o, more), "note: train.files.weights: fc has another size there and starts fresh; everything "
                                    "else is the file's\n");
    unlink(file);
    o = options(&a);
    o.train.memory.budget = (size_t)1 << 30;
    cr_expect_str_eq(said(o, same), "");
    o.train.memory.switches.encode = false;
    o.train.memory.checkpoint_segments = 2;
    cr_expect_str_eq(said(o, same), "note: train.memory.budget chooses by itself and replaces "
                                    "train.memory.switches.encode = false, train.memory.checkpoint_segments 2; to keep "
                                    "them, set train.memory.fit_switches to false\n");
    fr_dataset_release(&same);
    fr_dataset_release(&more);
}

static void write_text(const char *folder, const char *name, const char *text) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
}

/* A run may start where the host can swap. */
Test(session, a_plan_above_the_containers_limit_is_refused) {
    app a = {0};
    fr_session_opts o = options(&a);
    fr_session *s = session(&a, &o, true);
    const size_t planned = info(s).planned, limits[] = {planned, planned - 1};
    struct sysinfo host;
    fr_session_release(&s);
    cr_assert_eq(sysinfo(&host), 0);
    for (int below = 0; below < 2; below++) {
        char root[] = "/tmp/frugal-session-XXXXXX", groups[64], both[2][64];
        fr_dataset *d = frames(&a, IMAGES), *test = frames(&a, TESTS);
        cr_assert_not_null(mkdtemp(root));
        snprintf(groups, sizeof groups, "%s/groups", root);
        snprintf(both[0], sizeof both[0], "%zu\n", limits[below]);
        snprintf(both[1], sizeof both[1], "(%zu bytes), but the container's limit is", planned);
        write_text(root, "groups", "0::/\n");
        write_text(root, "memory.max", both[0]);
        fri_container_use(groups, root);
        const bool refused = below == 1 && host.totalswap == 0;
        const fr_status status = fr_session_create(&o, d, test, &s);
        cr_expect_eq(status, refused ? FR_ENOMEM : FR_OK, "limit %zu: %s", limits[below], fr_last_error());
        snprintf(groups, sizeof groups, "(%zu bytes), above which", limits[below]);
        if (refused)
            cr_expect(strstr(fr_last_error(), both[1]) && strstr(fr_last_error(), groups), "%s", fr_last_error());
        fr_session_release(&s);
        fr_dataset_release(&d);
        fr_dataset_release(&test);
        snprintf(groups, sizeof groups, "%s/groups", root);
        unlink(groups);
        snprintf(groups, sizeof groups, "%s/memory.max", root);
        unlink(groups);
        rmdir(root);
    }
}

Test(session, failures_of_callbacks_end_the_run) {
    app a = {.fail = FR_EIO};
    fr_session_opts o = options(&a);
    fr_session *s = session(&a, &o, false);
    cr_expect_eq(fr_session_run(s), FR_EIO);
    cr_expect_not_null(strstr(fr_last_error(), "the camera is gone"), "%s", fr_last_error());
    a.fail = FR_OK;
    cr_expect_eq(fr_session_run(s), FR_EUSAGE);
    fr_session_release(&s);
}

Test(session, what_is_no_session_is_refused) {
    app a = {0};
    fr_dataset *d = frames(&a, IMAGES);
    fr_session *s = NULL;
    fr_session_info i;
    fr_session_opts o = options(&a);
    o.model = NULL;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    o = options(&a);
    o.train.plan = true;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "train.plan"), "%s", fr_last_error());
    o = options(&a);
    o.train.data.dataset = FR_TRAIN_SYNTHETIC;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    o = options(&a);
    o.train.optim.batch_size = 1000;
    cr_expect_eq(fr_session_create(&o, d, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "lower it or set train.data.keep_last"), "%s", fr_last_error());
    o = options(&a);
    fr_dataset *one = frames_of(&a, IMAGES, 1);
    cr_expect_eq(fr_session_create(&o, one, NULL, &s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "a single class"), "%s", fr_last_error());
    fr_dataset_release(&one);
    cr_expect_eq(fr_session_create(NULL, d, NULL, &s), FR_EINVAL);
    cr_expect_eq(fr_session_create(&o, NULL, NULL, &s), FR_EINVAL);
    cr_expect_eq(fr_session_run(NULL), FR_EINVAL);
    cr_expect_eq(fr_session_info_get(NULL, &i), FR_EINVAL);
    cr_expect_null(fr_session_module(NULL));
    fr_session_cancel(NULL);
    fr_session_release(NULL);
    fr_session_release(&s);
    cr_expect_null(s);
    fr_dataset_release(&d);
}

/* SGD's rate where none is given: 0.1 for 64 images, in proportion below; 30 epochs where no number is given. */
Test(session, the_rate_follows_the_batch) {
    static const double given[] = {FR_TRAIN_AUTO, 0.1 * BATCH / 64, 0.1};
    uint64_t hash[3];
    fr_session_info info;
    for (int i = 0; i < 3; i++) {
        app a = {0};
        fr_session_opts o = options(&a);
        o.train.optim.lr = given[i];
        o.train.optim.epochs = fr_session_opts_default().train.optim.epochs;
        fr_session *s = session(&a, &o, false);
        MUST(fr_session_run_steps(s, 1));
        MUST(fr_session_info_get(s, &info));
        cr_expect_eq(info.epochs, 30);
        hash[i] = weights(s);
        fr_session_release(&s);
    }
    cr_expect_eq(hash[0], hash[1]);
    cr_expect_neq(hash[0], hash[2]);
}
