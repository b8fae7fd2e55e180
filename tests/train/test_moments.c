/* test_moments.c - a training in several processes is the training in one: a run that is killed, cancelled, limited or
 * extended at any moment and resumed has the best evaluation, the count since, the log, the calls of on_epoch and the
 * exported weights of an undisturbed run, and reserves what was planned. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "data/files.h"
#include "io/session_files.h"

enum {
    IMAGES = 24,
    TESTS = 20,
    SIZE = 8,
    CLASSES = 3,
    BATCH = 4,
    PER_EPOCH = IMAGES / BATCH,
    EPOCHS = 6,
    TEXT = 1 << 14
};

/* A moment at which a process ends. */
enum { NEVER, IN_STEP, IN_EVALUATION, IN_EPOCH };

typedef struct app {
    int moment;
    int64_t at; /* step, or number of the evaluation or epoch, from 1 */
    bool cancels;
    int evaluations, epochs;
    int64_t step, eval_every;
    fr_session *session;
} app;

static fr_status reached(const app *a, int moment, int64_t at) {
    if (moment != a->moment || at != a->at) return FR_OK;
    if (!a->cancels) raise(SIGKILL);
    fr_session_cancel(a->session);
    return FR_OK;
}

static fr_status on_step(void *ctx, const fr_session_info *now) {
    ((app *)ctx)->step = now->step;
    return reached(ctx, IN_STEP, now->step);
}

/* Appends the numbers of an evaluated epoch to a file shared by all processes of a training. */
static fr_status on_epoch(void *ctx, const fr_session_info *now) {
    if ((now->epoch + 1) % ((app *)ctx)->eval_every != 0) return FR_OK;
    FILE *f = fopen(files_path("epochs"), "a");
    fprintf(f, "%d: %.9g %.9g %.9g %.9g\n", (int)now->epoch, now->loss, now->epoch_loss, now->test_loss,
            now->test_accuracy);
    fclose(f);
    return reached(ctx, IN_EPOCH, ((app *)ctx)->epochs = (int)now->epoch + 1);
}

/* A batch of the test images; the second of each evaluation may end the process. */
static fr_status metric(void *ctx, fr_tensor *y, fr_tensor *targets, double *value) {
    app *a = ctx;
    (void)y, (void)targets;
    *value = 1;
    return ++a->evaluations % (TESTS / BATCH) == 2 ? reached(a, IN_EVALUATION, (a->step + PER_EPOCH - 1) / PER_EPOCH)
                                                   : FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 3});
    x = fr_net_relu(n, NULL, fr_net_conv2d(n, NULL, x, 8, 3, FR_CONV2D_OPTS(.stride = 2), FR_BIAS));
    x = fr_net_linear(n, NULL, fr_net_flatten(n, NULL, x, 1), classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

/* Rows of the table. */
typedef struct kind {
    const char *name;
    int64_t save_every, patience, eval_every;
    double ema;
} kind;

static const kind kinds[] = {
    {"states each epoch", FR_TRAIN_AUTO, FR_TRAIN_AUTO, 1, 0},
    {"states each step", 1, FR_TRAIN_AUTO, 1, 0},
    {"states every 7 steps", 7, FR_TRAIN_AUTO, 1, 0},
    {"patience, states each epoch", FR_TRAIN_AUTO, 2, 1, 0},
    {"patience, states every 7 steps", 7, 2, 1, 0},
    {"averages, states each epoch", FR_TRAIN_AUTO, FR_TRAIN_AUTO, 1, 0.9},
    {"averages, states every 7 steps", 7, FR_TRAIN_AUTO, 1, 0.9},
    {"evaluations every 2 epochs", 1, FR_TRAIN_AUTO, 2, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Remains of a training. */
typedef struct result {
    double best, since_best;
    char log[TEXT], epochs[TEXT], weights[TEXT];
    size_t bytes;
    int64_t step;
} result;

/* Trains up to the moment of a. calls: steps of the call; 0: all. */
static fr_status train(app *a, const kind *k, int64_t steps, int64_t epochs, int64_t calls, bool resume) {
    static const char *const names[] = {"one"};
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *x = NULL, *y = NULL;
    fr_session_info now;
    fr_session *session = NULL;
    fr_status s = FR_OK;
    char states[600], log[600], best[600];
    strcpy(states, files_path("states")), strcpy(log, files_path("log")), strcpy(best, files_path("best"));
    o.model = network, o.on_step = on_step, o.on_epoch = on_epoch, o.ctx = a;
    o.metrics = metric, o.metric_names = names, o.n_metrics = 1;
    o.train.threads = 1, o.train.device = FR_CPU, o.train.data.workers = 0;
    o.train.optim.batch_size = BATCH, o.train.optim.lr = 0.02, o.train.optim.schedule = FR_SCHEDULE_CONSTANT;
    o.train.optim.epochs = epochs, o.train.optim.steps = steps, o.train.optim.ema = k->ema;
    o.train.optim.patience = k->patience, o.train.optim.eval_every = k->eval_every;
    o.train.files.save = states, o.train.files.save_every = k->save_every;
    o.train.files.resume = resume ? "latest" : NULL;
    o.train.files.log = log;
    o.train.files.export_weights = best, o.train.files.keep_best = true;
    FR_TRY(s, fr_dataset_synthetic(IMAGES, CLASSES, SIZE, SIZE, 3, 1, &x));
    FR_TRY(s, fr_dataset_synthetic(TESTS, CLASSES, SIZE, SIZE, 3, 2, &y));
    FR_TRY(s, fr_session_create(&o, x, y, &session));
    FR_TRY(s, fr_session_info_get(session, &now));
    a->session = session;
    a->step = now.step;
    a->eval_every = k->eval_every;
    FR_TRY(s, calls > 0 ? fr_session_run_steps(session, calls) : fr_session_run(session));
    FR_TRY(s, fr_session_info_get(session, &now));
    if (now.planned == 0 || now.peak_reserved != now.planned)
        s = fr_fail(FR_EINTERNAL, "planned %zu, peak %zu", now.planned, now.peak_reserved);
    if (now.finished && now.epoch != (now.step + PER_EPOCH - 1) / PER_EPOCH)
        s = fr_fail(FR_EINTERNAL, "step %d is the end of epoch %d", (int)now.step, (int)now.epoch);
done:
    fr_session_release(&session);
    fr_dataset_release(&x);
    fr_dataset_release(&y);
    return s;
}

/* Trains in a child process, because no process may be forked after the first use of a device. */
static void run(app a, const kind *k, int64_t steps, int64_t epochs, int64_t calls, bool resume) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        const fr_status s = train(&a, k, steps, epochs, calls, resume);
        if (s < 0) fprintf(stderr, "%s\n", fr_last_error());
        _exit(s < 0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0, "%s: moment %d, %d: failed",
              k->name, a.moment, (int)a.at);
}

static void run_to(app a, const kind *k, bool resume) {
    run(a, k, FR_TRAIN_AUTO, EPOCHS, 0, resume);
}

static size_t content(const char *name, char *to) {
    FILE *f = fopen(files_path(name), "rb");
    const size_t n = f != NULL ? fread(to, 1, TEXT - 1, f) : 0;
    if (f != NULL) fclose(f);
    to[n] = '\0';
    return n;
}

/* Removes speed and memory from the log, and repeated calls from the list of epochs. */
static void clean(result *r) {
    char *to = r->epochs, *last = NULL, *end = NULL;
    for (char *line = strtok_r(r->epochs, "\n", &end); line != NULL; line = strtok_r(NULL, "\n", &end)) {
        if (last != NULL && strcmp(last, line) == 0) continue;
        const size_t n = strlen(line);
        last = memmove(to, line, n + 1);
        to += n + 1;
    }
    if (to > r->epochs) to[-1] = '\0';
    for (char *p = r->epochs; p + 1 < to; p++)
        if (*p == '\0') *p = '\n';
    for (char *p = r->log; (p = strstr(p, ",\"images_per_second\"")) != NULL;)
        memmove(p, strchr(p, '}'), strlen(strchr(p, '}')) + 1);
}

static void read_result(result *r) {
    char path[FR_STATE_PATH_BYTES];
    const fr_state_number numbers[] = {{"best", &r->best, false}, {"since_best", &r->since_best, false}};
    MUST(fr_state_find_latest(files_path("states"), path, NULL, NULL));
    MUST(fri_state_numbers_read(path, &r->step, numbers, 2));
    content("log", r->log);
    content("epochs", r->epochs);
    r->bytes = content("best", r->weights);
    clean(r);
}

static void begin(void) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf %s/*", files_root);
    cr_assert_eq(system(command), 0);
}

/* Goes on to the end, and once more with nothing left to do; then compares. */
static void expect_same(const kind *k, const result *want, const char *how, int64_t at) {
    static result r;
    for (int i = 0; i < 2; i++) {
        const size_t told = content("epochs", r.epochs);
        run_to((app){0}, k, true);
        cr_expect(i == 0 || content("epochs", r.epochs) == told,
                  "%s, %s %d: a training that ended tells an epoch again", k->name, how, (int)at);
        read_result(&r);
        cr_expect_eq(r.step, want->step, "%s, %s %d: step %d, not %d", k->name, how, (int)at, (int)r.step,
                     (int)want->step);
        cr_expect(r.best == want->best && r.since_best == want->since_best,
                  "%s, %s %d: best %g and %g since, not %g and %g", k->name, how, (int)at, r.best, r.since_best,
                  want->best, want->since_best);
        cr_expect_str_eq(r.log, want->log, "%s, %s %d: another log:\n%s\nnot\n%s", k->name, how, (int)at, r.log,
                         want->log);
        cr_expect_str_eq(r.epochs, want->epochs, "%s, %s %d: other epochs:\n%s\nnot\n%s", k->name, how, (int)at,
                         r.epochs, want->epochs);
        cr_expect(r.bytes == want->bytes && memcmp(r.weights, want->weights, r.bytes) == 0, "%s, %s %d: other weights",
                  k->name, how, (int)at);
    }
}

static void undisturbed(const kind *k, result *r) {
    begin();
    run_to((app){0}, k, false);
    read_result(r);
    cr_assert(r->bytes > 0 && isfinite(r->best));
    cr_expect(k->patience == FR_TRAIN_AUTO || r->step < EPOCHS * PER_EPOCH, "patience ends nothing");
}

/* Each state is synced to its disk, so files in memory make the tests ten times as fast. */
static void files_in_memory(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    files_begin();
}

TestSuite(moments, .init = files_in_memory, .fini = files_end);

/* A process ends in a step: killed, cancelled, limited by a call, and limited by the option. */
Test(moments, any_step_is_a_good_end) {
    static const int64_t steps[] = {1, PER_EPOCH, 7, 8, 3 * PER_EPOCH};
    static result want;
    for (const kind *k = kinds; k < kinds + KINDS; k++) {
        undisturbed(k, &want);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            const int64_t at = steps[i];
            begin();
            run_to((app){.moment = IN_STEP, .at = at}, k, false);
            expect_same(k, &want, "killed in step", at);
            begin();
            run_to((app){.moment = IN_STEP, .at = at, .cancels = true}, k, false);
            expect_same(k, &want, "cancelled in step", at);
            begin();
            run((app){0}, k, FR_TRAIN_AUTO, EPOCHS, at, false);
            expect_same(k, &want, "run_steps", at);
            begin();
            run((app){0}, k, at, EPOCHS, 0, false);
            expect_same(k, &want, "--steps", at);
        }
    }
}

/* A process ends in an evaluation or after the evaluation; the next process ends there, too. */
Test(moments, any_evaluation_is_a_good_end) {
    static result want;
    for (const kind *k = kinds; k < kinds + KINDS; k++) {
        undisturbed(k, &want);
        for (int64_t at = 1; at <= want.step / PER_EPOCH; at += 2)
            for (int moment = IN_EVALUATION; moment <= IN_EPOCH; moment++) {
                const char *how = moment == IN_EPOCH ? "after epoch" : "in evaluation";
                begin();
                run_to((app){.moment = moment, .at = at}, k, false);
                expect_same(k, &want, how, at);
                begin();
                run_to((app){.moment = moment, .at = at}, k, false);
                run_to((app){.moment = moment, .at = at}, k, true);
                expect_same(k, &want, how, at);
                begin();
                run_to((app){.moment = moment, .at = at, .cancels = true}, k, false);
                expect_same(k, &want, how, at);
            }
    }
}

/* A process for each epoch. */
Test(moments, an_epoch_at_a_time_is_the_training) {
    static result want;
    for (const kind *k = kinds; k < kinds + KINDS; k++) {
        if (k->eval_every != 1) continue; /* each end of a training evaluates */
        undisturbed(k, &want);
        begin();
        for (int64_t epochs = 1; epochs < EPOCHS; epochs++) run((app){0}, k, FR_TRAIN_AUTO, epochs, 0, epochs > 1);
        expect_same(k, &want, "epochs one at a time", 0);
    }
}

/* Hides a number's name in the newest state, as in a state of version 0.2.0. */
static void hide_number(const char *name) {
    char path[FR_STATE_PATH_BYTES];
    static char bytes[1 << 18];
    MUST(fr_state_find_latest(files_path("states"), path, NULL, NULL));
    FILE *f = fopen(path, "r+b");
    const size_t n = fread(bytes, 1, sizeof bytes, f) - 4;
    size_t at = 0;
    while (at < n && memcmp(bytes + at, name, strlen(name)) != 0) at++;
    cr_assert(at < n && n < sizeof bytes, "%s", name);
    bytes[at] = '-';
    const uint32_t sum = (uint32_t)crc32(0, (unsigned char *)bytes, (uInt)n);
    for (int i = 0; i < 4; i++) bytes[n + (size_t)i] = (char)(sum >> 8 * i); /* the file ends with its checksum */
    rewind(f);
    fwrite(bytes, 1, n + 4, f);
    fclose(f);
}

/* A state of version 0.2.0 does not tell whether the evaluation was made, so a run makes the evaluation again: from a
 * state before the evaluation of epoch 2, and from a state with this evaluation as the best. */
Test(moments, a_state_of_version_0_2_0_is_evaluated_again) {
    static result want;
    const kind *k = &kinds[3];
    undisturbed(k, &want);
    for (int knows = 0; knows < 2; knows++) {
        begin();
        if (knows)
            run((app){0}, k, FR_TRAIN_AUTO, 3, 0, false);
        else
            run_to((app){.moment = IN_EPOCH, .at = 3}, k, false);
        hide_number("evaluated");
        hide_number("best_file");
        expect_same(k, &want, "old state", knows);
    }
}

/* Averages of another decay belong to neither training. */
Test(moments, other_averages_are_refused) {
    kind other = kinds[5];
    begin();
    run((app){0}, &kinds[5], FR_TRAIN_AUTO, 1, 0, false);
    for (int i = 0; i < 2; i++) {
        other.ema = 0.5 * i;
        cr_expect_eq(train(&(app){0}, &other, FR_TRAIN_AUTO, EPOCHS, 0, true), FR_EINVAL);
        cr_expect_not_null(strstr(fr_last_error(), i == 0 ? "another ema: 0.9, this run has 0" : "has 0.5"), "%s",
                           fr_last_error());
    }
}

/* The target of a training image is a number, of a test image NaN. */
static fr_status vector_image(void *ctx, int64_t index, void *pixels, void *target) {
    memset(pixels, (int)index, SIZE * SIZE * 3);
    *(float *)target = ctx != NULL ? NAN : (float)index / IMAGES;
    return FR_OK;
}

static fr_dataset *vectors(void *ctx) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = IMAGES,
                                                .classes = 1,
                                                .height = SIZE,
                                                .width = SIZE,
                                                .channels = 3,
                                                .read = vector_image,
                                                .target = FR_TARGET_VECTOR,
                                                .ctx = ctx},
                           &d));
    return d;
}

/* A test loss of NaN ends the run, and no weights are written as the best. */
Test(moments, a_test_loss_of_nan_writes_nothing) {
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *x = vectors(NULL), *y = vectors(&o);
    fr_session *s = NULL;
    char best[600];
    strcpy(best, files_path("best"));
    o.model = network, o.train.device = FR_CPU, o.train.data.workers = 0, o.train.optim.epochs = 1;
    o.train.optim.batch_size = BATCH, o.train.files.export_weights = best, o.train.files.keep_best = true;
    MUST(fr_session_create(&o, x, y, &s));
    cr_expect_eq(fr_session_run(s), FR_EINVAL);
    cr_expect_not_null(strstr(fr_last_error(), "the test loss is nan"), "%s", fr_last_error());
    cr_expect_neq(access(best, R_OK), 0);
    fr_session_release(&s);
    fr_dataset_release(&x);
    fr_dataset_release(&y);
}
