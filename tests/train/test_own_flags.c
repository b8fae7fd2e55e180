/* test_own_flags.c - flags added to the table by a program: read, explained, reported, saved and named on resume like
 * the library's. Impossible flags are refused before the run. Also a program's loss and metrics. */
#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double drop = 0;
static int64_t wide = 4;
static bool gentle = true;
static int mode = 1;
static const char *tag, *extra;
static struct {
    const char *const *name;
    int64_t n;
} parts;

static const fr_flag_choice modes[] = {{"slow", 1}, {"fast", 2}, {0}};
static const fr_flag flags[] = {
    {"drop", FR_FLAG_REAL, FR_GROUP_TRAINING, .value = "X", .help = "Share of features that are dropped.",
     .real_least = 0, .below = 1, .per_run = true, .brief = "Features that are dropped", .own = &drop},
    {"wide", FR_FLAG_INT, FR_GROUP_MODEL, .value = "N", .help = "Features there are.", .least = 1, .most = 64,
     .own = &wide},
    {"gentle", FR_FLAG_BOOL, FR_GROUP_MODEL, .help = "Without effect.", .own = &gentle},
    {"mode", FR_FLAG_CHOICE, FR_GROUP_OUTPUT, .value = "HOW", .help = "Without effect.", .choices = modes,
     .own = &mode},
    {"tag", FR_FLAG_TEXT, FR_GROUP_OUTPUT, .value = "WORD", .help = "Without effect.", .unset = "none", .own = &tag},
    {"parts", FR_FLAG_LIST, FR_GROUP_OUTPUT, .value = "PART...", .help = "No effect.", .unset = "none", .own = &parts},
    {"extra", FR_FLAG_TEXT, FR_GROUP_FILES, .value = "FILE", .help = "No effect.", .unset = "none",
     .file = FR_FILE_WRITTEN, .own = &extra},
    {0},
};

static fr_status network(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    snprintf(name, FR_TRAIN_NAME_BYTES, "own");
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->data.image_size, o->data.image_size, 3});
    x = fr_net_relu(n, "relu", fr_net_conv2d(n, "conv1", x, wide, 3, NULL, FR_BIAS));
    x = fr_net_dropout(n, "dropout", fr_net_flatten(n, "flatten", x, 1), drop);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status spread(void *ctx, fr_tensor *y, fr_tensor *targets, double *values) {
    const float *p = fr_tensor_data(y);
    (void)ctx, (void)targets;
    for (int64_t i = 0; i < fr_tensor_numel(y); i++) values[0] += fabs((double)p[i]);
    return FR_OK;
}

static fr_status half_loss(void *ctx, fr_tensor *y, fr_tensor *targets, fr_tensor **loss) {
    fr_status s = fr_cross_entropy(y, targets, NULL, loss);
    return s < 0 ? s : fr_scale(*loss, *(double *)ctx, loss);
}

static fr_train_program program(void) {
    fr_train_program p = {.name = "own",
                          .summary = "a program",
                          .description = "A program.",
                          .defaults = fr_train_opts_default(),
                          .sgd_lr = 0.1,
                          .model = network,
                          .flags = flags};
    p.defaults.data.dataset = FR_TRAIN_SYNTHETIC;
    p.defaults.data.image_size = 8;
    p.defaults.optim.batch_size = 4;
    p.defaults.device = FR_CPU;
    return p;
}

static char folder[] = "/tmp/frugal-flags-XXXXXX", said[1 << 16];

static void begin(void) {
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

static void end(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(own_flags, .init = begin, .fini = end, .timeout = 60);

static const char *read_all(const char *name) {
    FILE *f = fopen(name, "r");
    cr_assert_not_null(f, "%s", name);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    fclose(f);
    return said;
}

/* Runs the program; its output is in `said`. */
static int run(const fr_train_program *p, const char *words) {
    static char copy[512];
    char *argv[40] = {(char *)"own"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok(copy, " "); w != NULL; w = strtok(NULL, " ")) argv[argc++] = w;
    cr_assert(freopen("out", "w", stdout) != NULL && freopen("out", "a", stderr) != NULL);
    int status = fr_train_main(p, argc, argv);
    fflush(stdout), fflush(stderr);
    (void)read_all("out");
    return status;
}

#define SAYS(words) cr_expect_not_null(strstr(said, (words)), "no '%s' in: %s", (words), said)

Test(own_flags, are_read_explained_and_reported) {
    const fr_train_program p = program();
    cr_assert_eq(run(&p, "--help all"), 0);
    SAYS("--drop X");
    SAYS("--wide N\n              Features there are. Default: 4.");
    SAYS("Share of features that are dropped. Default: 0.");
    SAYS("--gentle, --no-gentle");
    SAYS("One of slow, fast. Default: slow.");
    cr_assert_eq(run(&p, "--help"), 0);
    SAYS("Features that are dropped (0)");
    cr_assert_eq(run(&p, "--steps 2 --drop 0.25 --wide=6 --no-gentle --mode fast --tag x --report r --parts a b"), 0,
                 "%s", said);
    cr_expect(drop == 0.25 && wide == 6 && !gentle && mode == 2 && strcmp(tag, "x") == 0 && parts.n == 2);
    (void)read_all("r");
    SAYS("\"drop\":\t0.25");
    SAYS("\"wide\":\t6");
    SAYS("\"gentle\":\tfalse");
    SAYS("\"mode\":\t\"fast\"");
    SAYS("\"tag\":\t\"x\"");
    SAYS("\"parts\":\t[\"a\", \"b\"]");
}

Test(own_flags, wrong_values_are_usage_errors_and_near_spellings_are_found) {
    const fr_train_program p = program();
    static const char *const cases[][2] = {{"--drop 1", "--drop 1: must be at least 0 and below 1"},
                                           {"--wide 65", "--wide 65: must lie in 1..64"},
                                           {"--mode other", "--mode other: must be one of slow, fast"},
                                           {"--tag", "--tag needs a value: --tag WORD"},
                                           {"--extra x --report x", "--report x and --extra x are one file"},
                                           {"--no-gentel", "did you mean '--no-gentle'?"},
                                           {"--dro 0.1", "did you mean '--drop'?"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(run(&p, cases[i][0]), 2, "%s", cases[i][0]);
        SAYS(cases[i][1]);
    }
}

Test(own_flags, a_change_on_resume_is_named) {
    const fr_train_program p = program();
    cr_assert_eq(run(&p, "--steps 3 --drop 0.5 --tag a --save s"), 0, "%s", said);
    drop = 0;
    cr_assert_eq(run(&p, "--steps 5 --drop 0.25 --tag b --save s --resume latest"), 0, "%s", said);
    SAYS("other settings than when it was saved");
    SAYS("drop 0.25 was 0.5");
    cr_expect_null(strstr(said, "tag b"), "another tag is the same training: %s", said);
}

Test(own_flags, what_cannot_be_a_flag_is_refused) {
    static const struct {
        fr_flag flag;
        const char *sentence;
    } cases[] = {{{"epochs", FR_FLAG_INT, .value = "N", .help = "x", .own = &wide}, "--epochs: the name is taken"},
                 {{"no-arena", FR_FLAG_SET, .help = "x", .own = &gentle}, "--no-arena: the name is taken"},
                 {{"mine", FR_FLAG_SET, .help = "x"}, "--mine has no variable"},
                 {{"mine", FR_FLAG_SET, .own = &gentle}, "--mine has no help"},
                 {{"mine", FR_FLAG_INT, .help = "x", .own = &wide}, "--mine has no word for its value"},
                 {{"mine", FR_FLAG_CHOICE, .value = "x", .help = "x", .own = &mode}, "--mine has no choices"},
                 {{"mine", FR_FLAG_ACT, .value = "x", .help = "x", .own = &mode}, "--mine is of kind ACT"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fr_flag list[] = {cases[i].flag, {0}};
        fr_train_program p = program();
        p.flags = list;
        cr_expect_eq(run(&p, "--steps 1"), 2);
        SAYS(cases[i].sentence);
    }
}

Test(own_flags, a_program_has_loss_and_metrics_too) {
    static const char *const names[] = {"spread"};
    double factor = 1;
    fr_train_program p = program();
    p.loss = half_loss, p.ctx = &factor;
    p.metrics = spread, p.metric_names = names, p.n_metrics = 1;
    cr_assert_eq(run(&p, "--steps 1 --log l"), 0, "%s", said);
    SAYS("  spread ");
    const double whole = atof(strstr(said, "loss ") + 5);
    factor = 0.5;
    cr_assert_eq(run(&p, "--steps 1"), 0, "%s", said);
    const double half = atof(strstr(said, "loss ") + 5);
    cr_expect(whole > 0 && fabs(half - whole / 2) < 1e-3, "%g and %g", whole, half);
    p.n_metrics = FR_METRICS_MAX + 1;
    cr_expect_eq(run(&p, "--steps 1"), 2);
    SAYS("own: its metrics need a function");
}
