/* test_old_files.c - what the program of an older commit wrote is loaded and gone on from: tests/io/old/README.md. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <math.h>

TestSuite(old_files, .init = files_begin, .fini = files_end);

static const struct {
    const char *file, *flags;
    double loss[3]; /* of steps 4 to 6, as the older program computed them from the same file */
} states[] = {
    {"sgd", "", {2.247628927230835, 2.4352047443389893, 2.584284543991089}},
    {"adam", "--optimizer adam", {2.2467904090881348, 2.433605194091797, 2.582793712615967}},
    {"adamw", "--optimizer adamw", {2.2467901706695557, 2.433605909347534, 2.5827932357788086}},
    {"adam8", "--optimizer adam8", {2.2467901706695557, 2.433605909347534, 2.5827932357788086}},
    {"amp", "--amp", {2.247758626937866, 2.435349464416504, 2.58433723449707}},
    {"half", "--half=bf16", {2.2468016147613525, 2.434843063354492, 2.583367347717285}},
};

/* Where there is no AVX-512 they are told, too, that linear layers are computed otherwise (test_hosts.c). */
#define AND_LINEAR "(, computed-by [^\n]* was unset)?\n"

/* Folders of tests/io/old, and what a state of theirs is told to have had otherwise. */
static const struct {
    const char *folder, *note;
} programs[] = {{"", "\nnote: other settings than when it was saved: exact-convolutions off was on, running-values in "
                     "f32 was in f64, batch-norm-statistics in one pass was in two" AND_LINEAR},
                {"0.1.0/",
                 "\nnote: other settings than when it was saved: steps 6 was 3, running-values in f32 was in f64, "
                 "batch-norm-statistics in one pass was in two" AND_LINEAR}};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static outcome run(const char *folder, const char *file, const char *flags) {
    char arguments[4096];
    snprintf(arguments, sizeof arguments,
             "--depth 10 --growth 2 --image-size 8 --batch-size 2 --threads 1 --device cpu --eval-every 0 "
             "--report %s/r.json %s %s/tests/io/old/%s%s.safetensors",
             files_root, flags, getenv("FRUGAL_SOURCE_ROOT"), folder, file);
    return program_run("train_densenet", arguments);
}

static bool by_winograd(const cJSON *report) {
    return strstr(cJSON_GetObjectItem(report, "environment")->valuestring, ", Winograd convolutions") != NULL;
}

static cJSON *losses(cJSON *report) {
    return cJSON_GetObjectItem(cJSON_GetObjectItem(report, "loss"), "steps");
}

/* Kernels of another processor round otherwise. */
static bool near(double a, double b, bool half) {
    return fabs(a - b) < (half ? 5e-3 : 2e-4);
}

static void go_on_from(int program, size_t i) {
    char flags[128];
    snprintf(flags, sizeof flags, "--steps 6 %s --resume", states[i].flags);
    outcome o = run(programs[program].folder, states[i].file, flags);
    cr_assert_eq(o.status, 0, "%s%s: %d: %s", programs[program].folder, states[i].file, o.status, o.err);
    EXPECT_MATCH(o.out, programs[program].note);
    cJSON *report = report_read(files_path("r.json")), *list = losses(report);
    cr_assert_eq(cJSON_GetArraySize(list), 3, "%s", states[i].file);
    cr_expect(by_winograd(report));
    for (int k = 0; k < 3; k++) {
        double loss = cJSON_GetArrayItem(list, k)->valuedouble;
        bool half = strstr(states[i].flags, "--amp") != NULL || strstr(states[i].flags, "--half") != NULL;
        cr_expect(near(loss, states[i].loss[k], half), "%s%s, step %d: loss %.9g, was %.9g", programs[program].folder,
                  states[i].file, k + 4, loss, states[i].loss[k]);
    }
    cJSON_Delete(report);
}

Test(old_files, every_old_state_is_gone_on_from) {
    for (int p = 0; p < PROGRAMS; p++)
        for (size_t i = 0; i < sizeof states / sizeof *states; i++) go_on_from(p, i);
}

Test(old_files, an_old_state_had_exact_convolutions) {
    outcome o = run("", "sgd", "--steps 4 --exact-convolutions --resume");
    cr_assert_eq(o.status, 0, "%d: %s", o.status, o.err);
    cr_expect_null(strstr(o.out, "convolutions"), "%s", o.out);
    cJSON *report = report_read(files_path("r.json"));
    cr_expect_not(by_winograd(report));
    cJSON_Delete(report);
}

Test(old_files, old_weights_are_loaded) {
    for (int p = 0; p < PROGRAMS; p++) {
        outcome o = run(programs[p].folder, "weights", "--steps 2 --lr 0 --weights");
        cr_assert_eq(o.status, 0, "%d: %s", o.status, o.err);
        cJSON *report = report_read(files_path("r.json"));
        double loss = cJSON_GetArrayItem(losses(report), 0)->valuedouble;
        cr_expect(near(loss, 2.2028231620788574, false), "%s: loss %.9g", programs[p].folder, loss);
        cJSON_Delete(report);
    }
}
