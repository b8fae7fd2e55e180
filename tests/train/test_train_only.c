/* test_train_only.c - --train-only with numbers of layers, and 'auto': as much as fits, and no more. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

TestSuite(train_only, .init = files_begin, .fini = files_end);

#define RESNET   "--dataset synthetic --image-size 8 --batch-size 4 --eval-every 0 "
#define DENSENET "--depth 16 --growth 8 --image-size 16 --batch-size 16 --eval-every 0 --optimizer adamw "

/* Elements that train under the flags. */
static double trained(const char *program, const char *base, const char *flags) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s --steps 3 --plan --report %s %s", base, files_path("r.json"), flags);
    outcome o = program_run(program, arguments);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    cJSON *r = report_read(files_path("r.json"));
    const double n = report_number(r, "trained_parameters", NULL);
    cJSON_Delete(r);
    return n;
}

/* resnet18_small ends with layer4.1.conv2 (2,359,296 weights), layer4.1.bn2 (512 and 512) and fc (5,120 and 10); it has
 * 41 layers with parameters. */
Test(train_only, words_count_from_the_end) {
    static const struct {
        const char *flags;
        double trained;
    } cases[] = {{"last=1", 5130},
                 {"last=2", 1024 + 5130},
                 {"last=3", 2359296 + 1024 + 5130},
                 {"norm=2", 1024},
                 {"norm=1 head", 5130},
                 {"bias=3", 512 + 10},
                 {"last=1 norm=2 bias=3", 1024 + 5130},
                 {"bias=41", 4800 + 10},
                 {"last=40", 11173962 - 1728},
                 {"last=41", 11173962},
                 {"last=1000", 11173962}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char flags[64];
        snprintf(flags, sizeof flags, "--train-only %s", cases[i].flags);
        cr_expect_eq(trained("train_resnet", RESNET, flags), cases[i].trained, "%s: %.0f", flags,
                     trained("train_resnet", RESNET, flags));
    }
}

Test(train_only, refusals_name_the_flag) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {{"last=0", "--train-only last=0: '0' must be a number of layers, at least 1"},
                 {"norm=2x", "--train-only norm=2x: '2x' must be a number of layers"},
                 {"bias=", "--train-only bias=: '' must be a number of layers"},
                 {"last", "--train-only last: the number of layers is missing, as in last=4; .* 'head'"},
                 {"auto", "--train-only auto needs a --memory-budget to fit into"},
                 {"auto head --memory-budget 64MiB", "--train-only auto chooses all"},
                 {"auto --batch-size fit --memory-budget 64MiB", "--train-only auto with --batch-size fit"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, RESNET "--steps 1 --train-only %s", cases[i].flags);
        outcome o = program_run("train_resnet", arguments);
        cr_expect_eq(o.status, 2, "%s: status %d", cases[i].flags, o.status);
        EXPECT_MATCH(o.err, cases[i].sentence);
        cr_expect_str_empty(o.out);
    }
    outcome o = program_run("train_resnet", RESNET "--train-only auto --memory-budget 1MiB");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--memory-budget 1.00 MiB: nothing fits; the smallest budget");
}

/* ---- auto ------------------------------------------------------------------------------------------------------ */

typedef struct choice {
    char words[96];
    int last, norm, bias, layers;
    double trained, budget;
} choice;

static int number_of(const char *words, const char *name, int otherwise) {
    const char *at = strstr(words, name);
    return at != NULL ? atoi(at + strlen(name)) : otherwise;
}

/* Choice of a program; the rows of its table add up to the parameters that train. */
static choice choose(const char *flags) {
    static const char said[] = "--train-only auto is --train-only ";
    char arguments[512];
    choice c = {0};
    double rows = 0;
    snprintf(arguments, sizeof arguments, DENSENET "--steps 3 --plan --report %s --train-only auto %s",
             files_path("c.json"), flags);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    const char *at = strstr(o.out, said);
    cr_assert_not_null(at, "%s", o.out);
    cr_assert_eq(sscanf(at + strlen(said), "%95[^,], of %d layers", c.words, &c.layers), 2);
    c.last = strcmp(c.words, "all") == 0 ? c.layers : number_of(c.words, "last=", 0);
    c.norm = number_of(c.words, "norm=", c.last);
    c.bias = number_of(c.words, "bias=", c.norm);
    for (const char *line = strstr(at, "bytes if kept"); line != NULL; line = strchr(line + 1, '\n')) {
        char layer[80], what[16];
        double parameters = 0;
        if (sscanf(line, "\n %79s %15s %lf", layer, what, &parameters) == 3 && line[1] == ' ' &&
            (strcmp(what, "all") == 0 || strcmp(what, "bias") == 0))
            rows += parameters;
    }
    cJSON *r = report_read(files_path("c.json"));
    c.trained = report_number(r, "trained_parameters", NULL);
    cJSON_Delete(r);
    cr_expect_eq(rows, c.trained, "%s: rows of %.0f, %.0f train\n%s", flags, rows, c.trained, o.out);
    return c;
}

static bool fits(const char *flags, const char *words) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, DENSENET "--steps 3 --plan %s --train-only %s", flags, words);
    return program_run("train_densenet", arguments).status == 0;
}

/* No further layer or image fits, and the choice equals its words. */
static void expect_most(const char *flags) {
    const choice c = choose(flags);
    char words[96], arguments[512];
    cr_expect(fits(flags, c.words), "%s", flags);
    snprintf(words, sizeof words, "last=%d", c.last + 1);
    cr_expect(c.last == c.layers || !fits(flags, words), "%s: %s fits too", flags, words);
    snprintf(words, sizeof words, "last=%d norm=%d", c.last, c.norm + 1);
    cr_expect(c.norm == c.layers || !fits(flags, words), "%s: %s fits too", flags, words);
    snprintf(words, sizeof words, "last=%d norm=%d bias=%d", c.last, c.norm, c.bias + 1);
    cr_expect(c.bias == c.layers || !fits(flags, words), "%s: %s fits too", flags, words);
    snprintf(arguments, sizeof arguments, "%s --train-only %s", flags, c.words);
    cr_expect_eq(trained("train_densenet", DENSENET, arguments), c.trained, "%s", c.words);
}

Test(train_only, auto_takes_the_most_that_fits) {
    static const char *const budgets[] = {"--memory-budget 1800KiB --all-off --inplace --encode --early-release",
                                          "--memory-budget 2000KiB --all-off --inplace --encode --early-release",
                                          "--memory-budget 1760KiB"};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) expect_most(budgets[i]);
    cr_expect_eq(strcmp(choose("--memory-budget 1GiB").words, "all"), 0);
}

static double loss_of(const char *flags) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, DENSENET "--schedule constant --report %s %s", files_path("l.json"), flags);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    cJSON *r = report_read(files_path("l.json"));
    const double last = report_number(r, "loss", "last");
    cJSON_Delete(r);
    return last;
}

/* A run within the budget; resumed under another budget, the run trains the same parameters. */
Test(train_only, auto_is_in_the_state) {
    char save[256], flags[512];
    snprintf(save, sizeof save, "--save %s", files_path("states"));
    const choice small = choose("--memory-budget 1800KiB --all-off --inplace --encode --early-release");
    snprintf(flags, sizeof flags, "--steps 6 --train-only %s", small.words);
    const double whole = loss_of(flags);
    snprintf(flags, sizeof flags,
             "--steps 3 --memory-budget 1800KiB --all-off --inplace --encode --early-release --train-only auto %s",
             save);
    (void)loss_of(flags);
    snprintf(flags, sizeof flags,
             "--steps 6 --memory-budget 1GiB --all-off --inplace --encode --early-release --train-only auto --resume "
             "latest %s",
             save);
    cr_expect_eq(loss_of(flags), whole);
}
