/* test_fit_flags.c - budgets, batches, advice: promises of the trainers before a run hold in the run. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 2 --eval-every 0 "

#define SMALL "--depth 16 --growth 8 --image-size 16 --steps 2 --eval-every 0 "

TestSuite(fit_flags, .init = files_begin, .fini = files_end);

static int roll(uint64_t *state, int n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

typedef struct command {
    const char *name;
    char arguments[512];
} command;

/* A small network of a random family, with random switches. */
static command random_command(uint64_t *rng) {
    static const char *const switches[] = {"", "--all-off", "--no-encode", "--rebuild", "--all-off --rebuild"};
    command c = {0};
    const char *s = switches[roll(rng, 5)];
    int family = roll(rng, 10); /* the small ones more often: their runs take a moment */
    if (family < 5) {
        c.name = "train_densenet";
        snprintf(c.arguments, sizeof c.arguments, "--depth %d --growth %d --image-size %d --batch-size %d %s",
                 10 + 6 * roll(rng, 3), 4 + 4 * roll(rng, 3), 8 + 4 * roll(rng, 3), 32 + 8 * roll(rng, 9), s);
    } else if (family < 8) {
        c.name = "train_unet";
        snprintf(c.arguments, sizeof c.arguments, "--depth %d --image-size 16 --batch-size %d %s", 1 + roll(rng, 2),
                 8 + 4 * roll(rng, 4), s);
    } else if (family < 9) {
        c.name = "train_resnet";
        snprintf(c.arguments, sizeof c.arguments, "--depth 18 --image-size 16 --batch-size %d %s",
                 24 + 8 * roll(rng, 3), s);
    } else {
        c.name = "train_vgg";
        snprintf(c.arguments, sizeof c.arguments, "--depth 11 %s --image-size 32 --batch-size %d %s",
                 roll(rng, 2) ? "--no-batch-norm" : "", 24 + 8 * roll(rng, 3), s);
    }
    strcat(c.arguments, " --steps 2 --eval-every 0");
    return c;
}

/* A number of the report's "memory": the larger of training's and evaluation's. */
static double memory_of(cJSON *root, const char *key) {
    cJSON *memory = cJSON_GetObjectItem(root, "memory");
    cJSON *evaluation = cJSON_GetObjectItem(memory, "evaluation");
    cJSON *number = cJSON_GetObjectItem(memory, key), *other = cJSON_GetObjectItem(evaluation, key);
    cr_assert(cJSON_IsNumber(number), "no memory.%s", key);
    return other != NULL && other->valuedouble > number->valuedouble ? other->valuedouble : number->valuedouble;
}

static double planned_reserved(const command *c) {
    char arguments[1024];
    const char *report = files_path("plan.json");
    snprintf(arguments, sizeof arguments, "%s --plan --quiet --report %s", c->arguments, report);
    outcome o = program_run(c->name, arguments);
    cr_assert_eq(o.status, 0, "%s %s: %s", c->name, arguments, o.err);
    cJSON *root = report_read(report);
    double reserved = memory_of(root, "peak_reserved");
    cJSON_Delete(root);
    return reserved;
}

/* Runs the command with each line's flags added; returns how many lines said that they fit. */
static int follow(const command *c, size_t limit, const char *advice) {
    int lines = 0;
    for (const char *at = advice; (at = strstr(at, "  fits:")) != NULL; at++) {
        char flags[128], arguments[1024];
        const char *begin = strstr(at, "--"), *end = begin != NULL ? strstr(begin, " peak ") : NULL;
        cr_assert(begin != NULL && end != NULL && end - begin < (ptrdiff_t)sizeof flags, "no flags in: %s", at);
        snprintf(flags, sizeof flags, "%.*s", (int)(end - begin), begin);
        snprintf(arguments, sizeof arguments, "%s --memory-limit %zu --quiet %s", c->arguments, limit, flags);
        outcome o = program_run(c->name, arguments);
        cr_expect_eq(o.status, 0, "%s %s: the advice was that it fits: %s", c->name, arguments, o.err);
        lines++;
    }
    return lines;
}

/* 20 random models and limits; a limit too small for a single image per step is no case. */
Test(fit_flags, advice_followed_verbatim_fits) {
    enum { CASES = 20 };
    uint64_t rng = 20;
    int cases = 0, lines = 0;
    for (int trial = 0; cases < CASES && trial < 3 * CASES; trial++) {
        command c = random_command(&rng);
        char arguments[1024];
        size_t limit = (size_t)(planned_reserved(&c) * (0.6 + 0.01 * roll(&rng, 38)));
        snprintf(arguments, sizeof arguments, "%s --memory-limit %zu", c.arguments, limit);
        outcome o = program_run(c.name, arguments);
        if (o.status == 0) continue; /* the allocator gave cached segments back and got along */
        cr_assert_eq(o.status, 1, "%s %s: %s", c.name, arguments, o.err);
        EXPECT_MATCH(o.err, "out of memory on cpu.*what would fit into");
        int fitting = follow(&c, limit, o.err);
        if (fitting == 0) {
            EXPECT_MATCH(o.err, "nothing tried fits");
            continue;
        }
        cases++;
        lines += fitting;
    }
    cr_log_info("%d random models and limits, %d lines of advice that fit\n", cases, lines);
    cr_expect_eq(cases, CASES, "%d cases", cases);
}

static size_t number_after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    cr_assert_not_null(at, "no '%s' in: %s", what, text);
    return (size_t)strtoull(at + strlen(what), NULL, 10);
}

/* The smallest budget that a refusal names fits; a run keeps to its budget and reserves the planned bytes. */
Test(fit_flags, budgets_hold) {
    static const command commands[] =
        {{"train_densenet", "--depth 16 --growth 8 --image-size 16 --batch-size 32 --steps 3 --eval-every 0"},
         {"train_resnet", "--depth 18 --image-size 16 --batch-size 32 --steps 3 --eval-every 0"},
         {"train_unet", "--depth 2 --image-size 16 --batch-size 16 --steps 3 --eval-every 0 --offload"}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const command *c = &commands[i];
        char arguments[1024];
        snprintf(arguments, sizeof arguments, "%s --memory-budget 1MiB", c->arguments);
        outcome o = program_run(c->name, arguments);
        cr_assert_eq(o.status, 1, "%s", o.out);
        EXPECT_MATCH(o.err,
                     "nothing fits; the smallest budget for batches of [0-9]+ is [0-9]+ bytes .*: op [a-z0-9_]+ of "
                     ".* sets it, with [0-9]+ bytes alive \\(parameter [0-9]+");
        cr_expect_null(strstr(o.err, "--checkpoint-segments"), "the search has tried them: %s", o.err);
        size_t least = number_after(strstr(o.err, "the smallest budget"), " is ");
        for (int k = 0; k < 3; k++) {
            size_t budget = least + least / 8 * (size_t)k;
            const char *report = files_path("run.json");
            snprintf(arguments, sizeof arguments, "%s --memory-budget %zu --report %s", c->arguments, budget, report);
            o = program_run(c->name, arguments);
            cr_assert_eq(o.status, 0, "%s %s: %s", c->name, arguments, o.err);
            const char *planned = strstr(o.out, "planned peak");
            cr_assert_not_null(planned, "%s", o.out);
            size_t reserved = number_after(planned, "(");
            cJSON *root = report_read(report);
            double run = memory_of(root, "peak_reserved"), allocated = memory_of(root, "peak_allocated");
            cr_expect(run <= (double)budget && reserved <= budget);
            cr_expect_eq(run, (double)reserved, "%s: planned %zu, reserved %.0f", arguments, reserved, run);
            cr_expect_eq(allocated, (double)number_after(planned, "reserved, "));
            cr_expect_eq(report_number(root, "fit", "planned_reserved"), run);
            cr_expect_eq(report_number(root, "fit", "planned_allocated"), allocated);
            cr_expect_leq(report_number(root, "fit", "planned_reserved"), report_number(root, "fit", "budget"));
            cr_expect_not_null(strstr(o.out, report_at(root, "fit", "units")->valuestring));
            cJSON_Delete(root);
        }
    }
}

/* A budget decides per unit which maps are encoded. Switches that cost no time are on everywhere, whatever the
 * command says. */
Test(fit_flags, a_budget_sets_the_free_switches) {
    static const struct {
        const char *flag;
        bool value;
    } cells[] = {{"inplace", true},
                 {"encode", true},
                 {"early-release", true},
                 {"cache-casts", false},
                 {"half-gradients", true}};
    outcome o = program_run("train_densenet", SMALL "--plan --quiet --all-off --memory-budget 1GiB "
                                                    "--report /dev/stdout");
    cr_assert_eq(o.status, 0, "%s", o.err);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char key[64];
        snprintf(key, sizeof key, "\"%s\":[[:space:]]*%s", cells[i].flag, cells[i].value ? "true" : "false");
        EXPECT_MATCH(o.out, key);
    }
}

/* A small budget runs the frozen prefix in parts; a larger budget leaves the prefix alone. */
Test(fit_flags, a_budget_tries_parts_of_the_frozen_prefix) {
    static const char *const head = "--image-size 32 --batch-size 16 --train-only head --dataset synthetic --plan";
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s --memory-budget 1MiB", head);
    outcome o = program_run("train_mobilenet", arguments);
    cr_assert_eq(o.status, 1, "%s", o.out);
    const size_t least = number_after(strstr(o.err, "the smallest budget"), " is ");
    snprintf(arguments, sizeof arguments, "%s --memory-budget %zu", head, least);
    o = program_run("train_mobilenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    const char *parts = strstr(o.out, "--prefix-parts auto: ");
    cr_assert_not_null(parts, "%s", o.out);
    const size_t whole = number_after(parts, " bytes; ");
    cr_expect_lt(least, whole - whole / 8, "%zu bytes, %zu with all at once", least, whole);
    snprintf(arguments, sizeof arguments, "%s --memory-budget %zu", head, whole);
    o = program_run("train_mobilenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cr_expect_null(strstr(o.out, "--prefix-parts"), "%s", o.out);
}

/* The flags that a budget replaces are named, and no others. */
Test(fit_flags, a_budget_names_the_flags_that_it_replaces) {
    static const struct {
        const char *flags, *replaced; /* NULL: none */
    } cases[] = {
        {"--memory-budget 1GiB --checkpoint-segments 4", "--checkpoint-segments 4"},
        {"--checkpoint-segments sqrt --no-encode --memory-budget 1GiB", "--no-encode, --checkpoint-segments sqrt"},
        {"--all-off --memory-budget 1GiB", "--all-off"},
        {"--no-inplace --no-rebuild --fused-step=off --memory-budget 1GiB",
         "--no-inplace, --no-rebuild, --fused-step=off"},
        {"--memory-budget 1GiB --all-off --no-encode --checkpoint-segments 4", NULL},
        {"--memory-budget 1GiB --encode --rebuild --offload --no-arena --memory-limit 2GiB", NULL},
        {"--memory-budget 1GiB", NULL},
        {"--no-encode", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512], expression[512];
        snprintf(arguments, sizeof arguments, SMALL "--plan %s", cases[i].flags);
        outcome o = program_run("train_densenet", arguments);
        cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
        snprintf(
            expression, sizeof expression,
            "note: --memory-budget chooses by itself and replaces %s; to keep them, write --all-off and these flags "
            "after --memory-budget\n",
            cases[i].replaced);
        if (cases[i].replaced != NULL)
            EXPECT_MATCH(o.out, expression);
        else
            cr_expect_null(strstr(o.out, "replaces"), "%s: %s", cases[i].flags, o.out);
    }
}

Test(fit_flags, the_largest_batch_fits_and_one_more_does_not) {
    static const char *const switches[] = {"--all-off", "--all-off --inplace --encode --early-release --rebuild", ""};
    int64_t batch[3];
    for (int i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, SMALL "--memory-budget 32MiB --batch-size fit %s", switches[i]);
        outcome o = program_run("train_densenet", arguments);
        cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
        batch[i] = (int64_t)number_after(o.out, "largest batch for 32.00 MiB: ");
        snprintf(arguments, sizeof arguments, SMALL "--plan --quiet --memory-budget 32MiB --batch-size %" PRId64 " %s",
                 batch[i] + 1, switches[i]);
        o = program_run("train_densenet", arguments);
        cr_expect_eq(o.status, 1, "%s: one image more fits too: %s", arguments, o.out);
    }
    cr_expect(batch[0] > 8 && batch[0] < batch[1] && batch[1] < batch[2],
              "all off %" PRId64 ", rebuild %" PRId64 ", chosen %" PRId64, batch[0], batch[1], batch[2]);
}

/* No line may beat a starred line in both numbers, and a line in the table without a star must be beaten by a
 * line. */
Test(fit_flags, plan_all_marks_the_front) {
    outcome o = program_run("train_resnet", "--depth 18 --image-size 32 --batch-size 16 --plan=every");
    cr_assert_eq(o.status, 0, "%s", o.err);
    double bytes[256], time[256];
    bool star[256];
    int n = 0;
    for (const char *l = strchr(o.out, '\n'); l != NULL && n < 256; l = strchr(l + 1, '\n')) {
        double allocated;
        if (l[1] != '*' && l[1] != ' ') continue;
        if (sscanf(l + 2, "%lf %lf %lf", &bytes[n], &allocated, &time[n]) == 3) star[n++] = l[1] == '*';
    }
    cr_expect(n > 80, "%d lines: %s", n, o.out);
    int stars = 0;
    for (int i = 0; i < n; i++) {
        bool beaten = false;
        for (int k = 0; k < n; k++)
            beaten |= bytes[k] <= bytes[i] && time[k] <= time[i] && (bytes[k] < bytes[i] || time[k] < time[i]);
        /* Times are printed with three digits, so a line may look beaten by a hair. */
        if (star[i])
            for (int k = 0; k < n; k++) cr_expect(bytes[k] >= bytes[i] || time[k] >= time[i], "line %d", i);
        else
            cr_expect(beaten || stars > 0, "line %d is beaten by none", i);
        stars += star[i];
    }
    cr_expect(stars > 2, "%d stars", stars);
}

/* The short table has the starred lines of the long table, and the run with all switches off. */
Test(fit_flags, plan_all_prints_the_front) {
    static const char flags[] = "--depth 18 --image-size 32 --batch-size 16 --plan=";
    char every[128], front[128], expected[8192] = "";
    snprintf(every, sizeof every, "%severy", flags);
    snprintf(front, sizeof front, "%sall", flags);
    outcome all = program_run("train_resnet", every), o = program_run("train_resnet", front);
    cr_assert_eq(o.status, 0, "%s", o.err);
    int lines = 0, printed = 0;
    for (char *l = strtok(all.out, "\n"); l != NULL; l = strtok(NULL, "\n")) {
        if (l[0] != '*' && l[0] != ' ') break;
        if (l[0] == ' ' && strstr(l, "(") == NULL) continue;
        strcat(strcat(expected, l), "\n");
        lines++;
    }
    for (const char *l = o.out; *l == '*' || *l == ' '; l = strchr(l, '\n') + 1) printed++;
    cr_expect(strncmp(o.out, expected, strlen(expected)) == 0, "%s, not %s", o.out, expected);
    cr_expect_eq(printed, lines);
    cr_expect(lines > 4 && lines < 24, "%d lines", lines);
    EXPECT_MATCH(o.out, "[0-9]+ of them need more memory and time than a line above; --plan=every prints them");
}

Test(fit_flags, calibration_is_kept_and_used) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", files_path("cache"));
    setenv("XDG_CACHE_HOME", folder, 1);
    outcome o = program_run("train_densenet", TINY "--memory-budget 1GiB --plan");
    EXPECT_MATCH(o.out, "; 0 % of the kernel times measured");
    o = program_run("train_densenet", TINY "--fused-step --no-rebuild --calibrate"); /* as the plan's units */
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "measured [0-9]+ kernels; [0-9]+ times in .*/cache/frugal/times-[0-9a-f]+.txt");
    o = program_run("train_densenet", TINY "--memory-budget 1GiB --plan");
    cr_assert_eq(o.status, 0, "%s", o.err);
    /* Fills, copies and the first step's kernels stay estimated. */
    EXPECT_MATCH(o.out, "(4[0-9]|[5-9][0-9]|100) % of the kernel times measured");
    o = program_run("train_densenet", TINY "--steps 1 --calibrate");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "fewer than 2 steps");
    unsetenv("XDG_CACHE_HOME");
}

/* 1,500 images and 3 batches a step: the largest batch is 500, so that an epoch has a step. */
Test(fit_flags, the_largest_batch_leaves_an_epoch_a_step) {
    outcome o =
        program_run("train_densenet", TINY "--plan --memory-budget 100GiB --batch-size fit --all-off --accumulate 3");
    cr_expect_eq(o.status, 0, "exit status %d: %s", o.status, o.err);
    EXPECT_MATCH(o.out, "largest batch for 100.00 GiB: 500 ");
    EXPECT_MATCH(o.out, "batches of 500, 2 steps");
}

Test(fit_flags, refuses_what_does_not_go_together) {
    static const struct {
        const char *flags, *says;
    } bad[] = {{"--batch-size fit", "--batch-size fit needs a --memory-budget"},
               {"--calibrate --plan", "--calibrate measures a run"},
               {"--calibrate --device meta", "--calibrate measures a run"},
               {"--memory-budget 12Mebi", "not a size"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, TINY "%s", bad[i].flags);
        outcome o = program_run("train_densenet", arguments);
        cr_expect_eq(o.status, 2, "%s: %d", arguments, o.status);
        EXPECT_MATCH(o.err, bad[i].says);
    }
}

/* MobileNetV2 has 73 units; every pair of units is a problem of its own. */
Test(fit_flags, a_search_takes_little_memory) {
    if (getenv("FRUGAL_NO_POOL") != NULL) cr_skip("a sanitizer holds memory of its own");
    outcome plain = program_run("train_mobilenet", "--plan --image-size 32 --batch-size 2");
    outcome o = program_run("train_mobilenet", "--plan --image-size 32 --batch-size 2 --memory-budget 32MiB");
    cr_assert_eq(plain.status, 0, "%s", plain.err);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cr_expect_leq(o.resident, plain.resident + 10000, "%ld KiB, %ld KiB without a budget", o.resident, plain.resident);
}
