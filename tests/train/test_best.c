/* test_best.c - the weights of the best evaluation stay. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(best, .init = files_begin, .fini = files_end);

/* Running values move, and the evaluated network with them. */
#define DRIFTING "--lr 0 --batch-size 32 --momentum 0 --epochs "

static char *content(const char *name, size_t *n) {
    FILE *f = fopen(files_path(name), "rb");
    cr_assert_not_null(f, "%s", name);
    static char bytes[2][1 << 20];
    static int turn;
    char *out = bytes[turn++ % 2];
    *n = fread(out, 1, sizeof bytes[0], f);
    cr_assert(*n > 0 && *n < sizeof bytes[0]);
    fclose(f);
    return out;
}

static outcome run(const char *flags, const char *file) {
    char arguments[4096];
    snprintf(arguments, sizeof arguments, "%s --export %s --report %s", flags, files_path(file), files_path("r.json"));
    return program_run("train_own", arguments);
}

/* The epoch, from 1, whose evaluation is the first of the best, read from a run's lines. */
static int best_epoch(const char *out) {
    double best = -1;
    int epoch = 0, at = 0;
    for (const char *l = strstr(out, "  test "); l != NULL; l = strstr(l + 1, "  test ")) {
        const double now = strtod(l + 7, NULL);
        epoch++;
        if (now <= best) continue;
        best = now;
        at = epoch;
    }
    cr_assert(epoch == 5 && at > 0, "%s", out);
    return at;
}

Test(best, weights_of_the_best_stay) {
    size_t n = 0, m = 0;
    char flags[128];
    outcome o = run(DRIFTING "5 --keep-best", "best");
    cr_assert_eq(o.status, 0, "%s", o.err);
    const int at = best_epoch(o.out);
    snprintf(flags, sizeof flags, DRIFTING "%d", at);
    cr_assert_eq(run(flags, "until").status, 0);
    const char *best = content("best", &n), *until = content("until", &m);
    cr_expect(n == m && memcmp(best, until, n) == 0, "the weights are not those of epoch %d", at);
    snprintf(flags, sizeof flags, DRIFTING "%d", at + 1);
    cr_assert_eq(run(flags, "until").status, 0);
    until = content("until", &m);
    cr_expect(n != m || memcmp(content("best", &n), until, n) != 0, "epochs change nothing");
}

Test(best, wants_a_file) {
    outcome o = program_run("train_own", "--keep-best --steps 1");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--keep-best needs --export FILE");
}

/* A resumed run without a better evaluation leaves the file of the best weights, and overwrites any other file. */
Test(best, a_file_without_the_best_gets_the_last) {
    static const struct {
        const char *file, *before, *said;
    } cases[] = {{"first", "", "first has the best weights already"},
                 {"second", "", "second gets the weights of the last step"},
                 {"first", "rm", "first gets the weights of the last step"},
                 {"first", "echo other >", "first gets the weights of the last step"}};
    size_t n = 0, m = 0;
    char flags[800], command[700], folder[600];
    strcpy(folder, files_path("states"));
    const char *always = "--batch-size 32 --schedule constant --keep-best --save %s --epochs %d --lr %s %s";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command, "rm -rf %s", folder);
        cr_assert_eq(system(command), 0);
        snprintf(flags, sizeof flags, always, folder, 2, "0.1", "");
        outcome o = run(flags, "first");
        cr_assert_eq(o.status, 0, "%s", o.err);
        EXPECT_MATCH(o.out, "weights written to");
        const char *best = content("first", &n);
        snprintf(command, sizeof command, "%s %s", cases[i].before, files_path("first"));
        if (cases[i].before[0] != '\0') cr_assert_eq(system(command), 0);
        snprintf(flags, sizeof flags, always, folder, 3, "50", "--resume latest");
        o = run(flags, cases[i].file);
        cr_assert_eq(o.status, 0, "%s", o.err);
        EXPECT_MATCH(o.out, cases[i].said);
        cr_expect_eq(strstr(o.out, "weights written to") != NULL, i > 0, "%s", o.out);
        const char *now = content(cases[i].file, &m);
        cr_expect_eq(n == m && memcmp(best, now, n) == 0, i == 0, "case %d", (int)i);
    }
}
