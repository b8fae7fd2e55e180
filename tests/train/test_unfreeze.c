/* test_unfreeze.c - --unfreeze: what begins to train in an epoch has no gradient, no state and other bits not before
 * it; planned as measured, resumed to the same bytes, and as one who freezes by hand would have trained. */
#include "data/files.h"
#include "io/safetensors.h"
#include "program.h"
#include "report.h"

#include <unistd.h>

TestSuite(unfreeze, .init = files_begin, .fini = files_end);

enum { PER_EPOCH = 3, STEPS = 3 * PER_EPOCH, IMAGES = 4 * PER_EPOCH };
#define FOUR_LAYERS "--train-only head --unfreeze 3:all 2:last=4 "

/* Flags of three epochs of three steps, on a folder of two classes. */
static const char *three_epochs(void) {
    static char flags[1024];
    uint8_t rgb[32 * 32 * 3], *bytes = NULL;
    static const char *const folders[] = {"set",         "set/train",  "set/test",  "set/train/a",
                                          "set/train/b", "set/test/a", "set/test/b"};
    for (int i = 0; i < 7; i++) files_make_folder(folders[i]);
    picture_fill(rgb, 32, 32);
    for (int i = 0; i < IMAGES + 6; i++) {
        char name[64];
        for (int k = 0; k < 3 * 32 * 32; k++) rgb[k] = (uint8_t)(rgb[k] * 7 + i + k % 5);
        const size_t n = png_bytes(PNG_KIND_RGB, rgb, 32, 32, &bytes);
        snprintf(name, sizeof name, "%s/%d.png", folders[(i < IMAGES ? 3 : 5) + i % 2], i);
        files_write(name, bytes, n);
        free(bytes);
    }
    snprintf(flags, sizeof flags, "--dataset folder --data %s --epochs 3 --batch-size 4 --lr 0.01", files_path("set"));
    return flags;
}

static bool has_arena(void) {
    return getenv("FRUGAL_NO_POOL") == NULL; /* a segment per allocation, so no arena */
}

static cJSON *reported(const char *program, const char *flags, const char *more) {
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "%s %s --quiet --report %s", flags, more, files_path("report.json"));
    outcome o = program_run(program, arguments);
    cr_assert_eq(o.status, 0, "%s %s: %s", program, arguments, o.err);
    return report_read(files_path("report.json"));
}

/* The plan's memory is the run's, each phase needs what only it needs, and the arena is never left. */
static void expect_planned(const char *program, const char *flags, int phases) {
    cJSON *plan = reported(program, flags, "--plan"), *run = reported(program, flags, "");
    cJSON *planned = report_at(plan, "memory", NULL), *measured = report_at(run, "memory", NULL);
    char *a = cJSON_Print(planned), *b = cJSON_Print(measured);
    cr_expect(cJSON_Compare(planned, measured, true), "%s %s: planned %s, run %s", program, flags, a, b);
    if (has_arena() && strstr(flags, "--no-arena") == NULL)
        cr_expect_eq(report_number(run, "arena", "departures"), 0, "%s", flags);
    const cJSON *each = report_at(run, "memory", "phases"), *one = NULL;
    cr_expect_eq(cJSON_GetArraySize(each), phases, "%s", flags);
    double last = 0, most = report_number(run, "memory", "peak_allocated");
    cJSON_ArrayForEach(one, each) {
        const double peak = cJSON_GetObjectItem(one, "peak_allocated")->valuedouble;
        cr_expect_gt(peak, last, "%s", flags);
        last = peak;
    }
    cr_expect_eq(last, most, "%s: the last phase has %.0f, the run %.0f", flags, last, most);
    cJSON_free(a);
    cJSON_free(b);
    cJSON_Delete(plan);
    cJSON_Delete(run);
}

Test(unfreeze, plans_are_the_runs) {
    static const struct {
        const char *program, *flags;
        int phases;
    } cases[] = {
        {"train_resnet", "--image-size 8 " FOUR_LAYERS "--optimizer adam", 3},
        {"train_resnet", "--image-size 8 --freeze layer1 --unfreeze 3:layer1 --keep-last --batch-size 5", 2},
        {"train_vgg", "--depth 11 --image-size 32 --train-only head --unfreeze 2:all --amp=bf16", 2},
        {"train_mobilenet", "--image-size 32 " FOUR_LAYERS "--no-arena --eval-every 0", 3},
        /* phases in which epochs are left out of the plan, which then are alike */
        {"train_densenet", "--depth 10 --growth 4 --image-size 8 --epochs 12 --train-only norm --unfreeze 6:head 9:all",
         3},
        {"train_mobilenet", "--image-size 32 --train-only norm --unfreeze 1:head 3:all --prefix-parts 2", 2},
    };
    const char *set = three_epochs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char flags[2048];
        snprintf(flags, sizeof flags, "%s %s", set, cases[i].flags);
        expect_planned(cases[i].program, flags, cases[i].phases);
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

#define TINY "--depth 10 --growth 4 --image-size 8 --schedule constant --eval-every 0 --seed 3 "

static void train(const char *flags) {
    outcome o = program_run("train_densenet", flags);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
}

/* A state after each step, in the folder `whole`. */
static const char *save_each(void) {
    static char flags[1200];
    char all[2048];
    snprintf(flags, sizeof flags, TINY "%s --optimizer adam ", three_epochs());
    snprintf(all, sizeof all, "%s" FOUR_LAYERS "--save %s --save-every 1 --keep 0", flags, files_path("whole"));
    train(all);
    return flags;
}

static const char *state_name(int serial, int step) {
    static char name[64];
    snprintf(name, sizeof name, "state-%08d-step-%d.safetensors", serial, step);
    return name;
}

static const char *state_in(const char *folder, int serial, int step) {
    char name[128];
    snprintf(name, sizeof name, "%s/%s", folder, state_name(serial, step));
    return files_path(name);
}

static fri_safetensors *state(const char *path) {
    fri_safetensors *f = NULL;
    cr_assert_eq(fri_safetensors_open(path, &f), FR_OK, "%s", fr_last_error());
    return f;
}

static bool equal(const fri_safetensors *a, const fri_safetensors *b, const char *name) {
    const fri_safetensors_entry *x = fri_safetensors_find(a, name), *y = fri_safetensors_find(b, name);
    return x != NULL && y != NULL && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
}

/* How many steps the parameter has made by the state; -1: it has no state there. */
static int steps_of(const fri_safetensors *f, const char *parameter, int all) {
    char name[512];
    float steps = (float)all;
    snprintf(name, sizeof name, "optimizer.%s.exp_avg", parameter);
    if (fri_safetensors_find(f, name) == NULL) return -1;
    snprintf(name, sizeof name, "optimizer.%s.step", parameter);
    const fri_safetensors_entry *e = fri_safetensors_find(f, name);
    if (e != NULL) memcpy(&steps, e->data, sizeof steps);
    return (int)steps;
}

/* Of the state after a step: tensors with optimizer state. Values, running values and counts say the same of each. */
static int count_trained(const fri_safetensors *before, const fri_safetensors *now, int step) {
    const int of_epoch[] = {step, step - PER_EPOCH, step - 2 * PER_EPOCH};
    int trained = 0;
    for (size_t i = 0; i < now->n_entries; i++) {
        const char *name = now->entries[i].name, *last = strrchr(name, '.');
        char sibling[256];
        if (strncmp(name, "model.", 6) != 0 || strcmp(last, ".num_batches_tracked") == 0) continue;
        const bool buffer = strncmp(last, ".running", 8) == 0;
        snprintf(sibling, sizeof sibling, "%.*s%s", (int)(last - name) - 6, name + 6, buffer ? ".weight" : last);
        const int steps = steps_of(now, sibling, step);
        cr_expect_eq(equal(before, now, name), steps < 0, "step %d: %s, %d steps", step, name, steps);
        cr_expect(steps == -1 || steps == of_epoch[0] || steps == of_epoch[1] || steps == of_epoch[2], "step %d: %s %d",
                  step, name, steps);
        trained += !buffer && steps >= 0;
    }
    return trained;
}

/* Of 29 tensors: those of the head, of the last four layers, all. */
Test(unfreeze, nothing_moves_or_is_kept_before_its_epoch) {
    static const int of_epoch[] = {2, 7, 29};
    (void)save_each();
    fri_safetensors *before = state(state_in("whole", 1, 1));
    for (int step = 2; step <= STEPS; step++) {
        fri_safetensors *now = state(state_in("whole", step, step));
        cr_expect_eq(count_trained(before, now, step), of_epoch[(step - 1) / PER_EPOCH], "step %d: %d", step,
                     count_trained(before, now, step));
        if (step == STEPS) cr_expect_eq(steps_of(now, "classifier.bias", step), STEPS);
        if (step == STEPS) cr_expect_eq(steps_of(now, "features.conv0.weight", step), PER_EPOCH);
        fri_safetensors_close(&before);
        before = now;
    }
    fri_safetensors_close(&before);
}

/* A folder of one state, of the whole run. */
static void take_state(const char *folder, int step) {
    files_make_folder(folder);
    cr_assert_eq(link(state_in("whole", step, step), state_in(folder, step, step)), 0);
}

/* In the middle of an epoch and between two; two steps follow in the phase, of which the second needs more. */
Test(unfreeze, resumes_to_the_same_bytes) {
    static const int stops[] = {1, PER_EPOCH, PER_EPOCH + 1, 2 * PER_EPOCH, STEPS - 2};
    const char *flags = save_each();
    fri_safetensors *whole = state(state_in("whole", STEPS, STEPS));
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        char folder[32], all[2048];
        snprintf(folder, sizeof folder, "from%d", stops[i]);
        take_state(folder, stops[i]);
        snprintf(all, sizeof all, "%s" FOUR_LAYERS "--save %s --resume latest", flags, files_path(folder));
        cJSON *plan = reported("train_densenet", all, "--plan"),
              *run = reported("train_densenet", all, "--save-every 9");
        cr_expect(cJSON_Compare(report_at(plan, "memory", NULL), report_at(run, "memory", NULL), true), "%s", folder);
        if (has_arena()) cr_expect_eq(report_number(run, "arena", "departures"), 0, "%s", folder);
        cJSON_Delete(plan);
        cJSON_Delete(run);
        fri_safetensors *end = state(state_in(folder, stops[i] + 1, STEPS));
        cr_assert_eq(end->n_entries, whole->n_entries, "%s", folder);
        for (size_t k = 0; k < end->n_entries; k++)
            cr_expect(equal(whole, end, end->entries[k].name), "%s: %s", folder, end->entries[k].name);
        cr_expect_str_eq(fri_safetensors_metadata(end, "frugal.state"),
                         fri_safetensors_metadata(whole, "frugal.state"));
        fri_safetensors_close(&end);
    }
    fri_safetensors_close(&whole);
}

/* Three runs, each resumed from the one before, that say with --train-only what trains now. */
Test(unfreeze, is_what_three_runs_by_hand_are) {
    static const char *const words[] = {"head", "last=4", "all"};
    const char *flags = save_each();
    for (int i = 0; i < 3; i++) {
        char all[2048];
        snprintf(all, sizeof all, "%s--train-only %s --steps %d --save %s --resume latest", flags, words[i],
                 (i + 1) * PER_EPOCH, files_path("hand"));
        train(all);
    }
    fri_safetensors *hand = state(state_in("hand", 3, STEPS)), *whole = state(state_in("whole", STEPS, STEPS));
    int tensors = 0;
    for (size_t k = 0; k < whole->n_entries; k++) {
        const char *name = whole->entries[k].name;
        if (strncmp(name, "model.", 6) != 0 && strncmp(name, "optimizer.", 10) != 0) continue;
        cr_expect(equal(whole, hand, name), "%s", name);
        tensors++;
    }
    cr_expect_gt(tensors, 29 * 3);
    fri_safetensors_close(&hand);
    fri_safetensors_close(&whole);
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

Test(unfreeze, each_phase_is_named) {
    char flags[2048];
    snprintf(flags, sizeof flags, TINY "%s " FOUR_LAYERS, three_epochs());
    outcome o = program_run("train_densenet", flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "parameters, 20 of them trained.*epoch  2/3  trains [0-9]+ of [0-9]+ parameters");
    EXPECT_MATCH(o.out, "epoch  3/3  trains ([0-9]+) of \\1 parameters");
    strcat(flags, "--plan");
    o = program_run("train_densenet", flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "epoch 2 on: first step .*epoch 3 on: unfreezing .*epoch 3 on: steady step ");
    EXPECT_MATCH(o.out, "epochs 1 to 1: peak .*epochs 2 to 2: peak .*epochs 3 to 3: peak [^(]*\\([0-9]+ bytes\\)");
}

Test(unfreeze, refusals_name_the_flag) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--unfreeze 2:all", "--unfreeze: nothing is frozen; --train-only or --freeze says what is"},
        {"--train-only head --unfreeze all", "--unfreeze all: is not of the form E:PREFIX, such as 3:last=4"},
        {"--train-only head --unfreeze 0:all", "--unfreeze 0:all: is not of the form"},
        {"--train-only head --unfreeze -1:all", "--unfreeze -1:all: is not of the form|unknown flag"},
        {"--train-only head --unfreeze 2:", "--unfreeze 2:: is not of the form"},
        {"--train-only head --unfreeze 2:auto", "--unfreeze 2:auto: is not of the form"},
        {"--train-only head --unfreeze 99999999999:all", "--unfreeze 99999999999:all: is not of the form"},
        {"--train-only head --unfreeze 2:all 4:norm", "--unfreeze: names epoch 4, the training has 3"},
        {"--train-only head --steps 100 --unfreeze 3:all", "--unfreeze: names epoch 3, the training has 1"},
        {"--train-only head --unfreeze 3:layer5", "--unfreeze 3:layer5: .*'layer5'; near it: layer"},
        {"--train-only head --unfreeze 3:last=x", "--unfreeze 3:last=x: 'x' is not a number of layers"},
        {"--train-only auto --memory-budget 1GiB --unfreeze 2:all", "--unfreeze with --train-only auto"},
        {"--train-only head --memory-budget 1GiB --unfreeze 2:all", "--unfreeze with --memory-budget"},
        {"--train-only head --no-augment --cache-features memory --unfreeze 2:all", "--unfreeze with --cache-features"},
        {"--train-only head --plan --all --unfreeze 2:all", "--unfreeze with --all"},
        {"--train-only head --freeze fc --unfreeze 2:all", "--freeze: nothing is left that trains"},
        {"--train-only head --epochs 18 --unfreeze 2:bn1 3:bn1 4:bn1 5:bn1 6:bn1 7:bn1 8:bn1 9:bn1 10:bn1 11:bn1 "
         "12:bn1 13:bn1 14:bn1 15:bn1 16:bn1 17:bn1 18:bn1",
         "--unfreeze: names 17 epochs behind the first, 15 at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "--dataset synthetic --image-size 8 --batch-size 4 --epochs 3 %s",
                 cases[i].flags);
        outcome o = program_run("train_resnet", arguments);
        cr_expect_eq(o.status, 2, "%s: status %d", cases[i].flags, o.status);
        EXPECT_MATCH(o.err, cases[i].sentence);
    }
}
