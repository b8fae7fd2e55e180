/* test_flags.c - numbers as people write them, and the command line by the table. */
#include "cli/shell.h"
#include "cli/size.h"
#include "session/flags.h"
#include "trainer/command.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(size, units_and_fractions) {
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"512B", 512},
        {"512MiB", (size_t)512 << 20},
        {"2GiB", (size_t)2 << 30},
        {"1.5KiB", 1536},
        {"1.5 GiB", 1610612736},
        {"2kB", 2000},
        {"3MB", 3000000},
        {"0.5KiB", 512},
        {"0.3KiB", 307}, /* 307.2 */
        {"0.2GiB", 214748364},
        {"1.00000001GiB", 1073741834},
        {"1.999999999999999999999999kB", 1999},
        {"1TiB", (size_t)1 << 40},
        {"18446744073709551615", SIZE_MAX},
        {"007", 7},
    };
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "x",
                                      "1x",
                                      "1.",
                                      ".5",
                                      "1.5",
                                      "1.5B",
                                      "1.KiB",
                                      "1 2",
                                      "0x10",
                                      "1e3",
                                      "1kib",
                                      "nanGiB",
                                      " 1",
                                      "1GiB ",
                                      "18446744073709551616",
                                      "16777216TiB",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t bytes = 77;
        cr_expect(fri_parse_size(good[i].text, &bytes), "'%s' was refused", good[i].text);
        cr_expect_eq(bytes, good[i].bytes, "'%s' gave %zu, not %zu", good[i].text, bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t bytes = 77;
        cr_expect(!fri_parse_size(bad[i], &bytes), "'%s' was taken for %zu", bad[i], bytes);
    }
}

Test(size, whole_numbers_and_reals) {
    int64_t n = 0;
    double x = 0;
    cr_expect(fri_parse_int("-12", &n) && n == -12);
    cr_expect(fri_parse_int("9223372036854775807", &n) && n == INT64_MAX);
    static const char *const no_int[] = {"", "1.0", "0x1", "9223372036854775808", "1 ", " 1", "-", "1-", "ten"};
    for (size_t i = 0; i < sizeof no_int / sizeof *no_int; i++)
        cr_expect(!fri_parse_int(no_int[i], &n), "'%s' was taken for a whole number", no_int[i]);
    cr_expect(fri_parse_real("1e-3", &x) && x == 1e-3);
    cr_expect(fri_parse_real(".5", &x) && x == 0.5);
    static const char *const no_real[] = {"", "nan", "inf", "1e999", "0x1p3", "1,5", "1.5.", "e"};
    for (size_t i = 0; i < sizeof no_real / sizeof *no_real; i++)
        cr_expect(!fri_parse_real(no_real[i], &x), "'%s' was taken for a number", no_real[i]);
}

static fr_train_program program(void) {
    fr_train_program p = {.name = "train_test", .summary = "s", .description = "d", .depths = "1 and 2"};
    p.defaults = fr_train_opts_default();
    p.sgd_lr = 0.25;
    return p;
}

/* Parses words separated by blanks. */
static fr_status parse(const char *words, fr_train_opts *o) {
    static char copy[1024]; /* text flags point into it */
    char *argv[32] = {(char *)"train_test"};
    int argc = 1;
    fr_train_program p = program();
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok(copy, " "); w != NULL; w = strtok(NULL, " ")) argv[argc++] = w;
    *o = p.defaults;
    return fri_flags_parse(&p, argc, argv, o, stderr);
}

Test(flags, both_spellings_of_a_value) {
    fr_train_opts o;
    cr_assert_eq(parse("--epochs 3 --lr=0.125 --report r.json --memory-limit=2GiB --dataset cifar100", &o), FR_OK, "%s",
                 fr_last_error());
    cr_expect_eq(o.optim.epochs, 3);
    cr_expect_eq(o.optim.lr, 0.125);
    cr_expect_str_eq(o.files.report, "r.json");
    cr_expect_eq(o.memory.limit, (size_t)2 << 30);
    cr_expect_eq(o.data.dataset, FR_TRAIN_CIFAR100);
}

Test(flags, the_later_one_wins) {
    fr_train_opts o;
    cr_assert_eq(parse("--no-batch-norm --batch-norm --encode --all-off --inplace --checkpoint-segments 4", &o), FR_OK);
    cr_expect(o.model.batch_norm && o.memory.switches.inplace && !o.memory.switches.encode &&
              !o.memory.switches.early_release);
    cr_expect_eq(o.memory.checkpoint_segments, 4);
    cr_assert_eq(parse("--checkpoint-segments 4 --rebuild --all-off", &o), FR_OK);
    cr_expect(!o.memory.switches.rebuild && o.memory.checkpoint_segments == FR_TRAIN_AUTO);
}

/* The bound below which a number lies is not a valid value, and 0 bytes are no limit. */
Test(flags, bounds_of_numbers_and_sizes) {
    static const char *const good[] = {"--momentum 0", "--momentum 0.999", "--memory-limit 1"};
    static const char *const bad[] = {"--momentum 1", "--momentum -0.1", "--memory-limit 0"};
    fr_train_opts o;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_eq(parse(good[i], &o), FR_OK, "%s: %s", good[i], fr_last_error());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect_eq(parse(bad[i], &o), FR_EINVAL, "%s", bad[i]);
}

Test(flags, steps_alone_lift_the_limit_of_epochs) {
    fr_train_opts o;
    cr_assert_eq(parse("--steps 1000", &o), FR_OK);
    cr_expect_eq(o.optim.epochs, FR_TRAIN_AUTO);
    cr_assert_eq(parse("--epochs 2 --steps 1000", &o), FR_OK);
    cr_expect_eq(o.optim.epochs, 2);
}

Test(flags, every_flag_has_a_name_a_help_and_a_default_in_range) {
    fr_train_program p = program();
    int flags = 0;
    for (const fr_flag *f = fr_flag_next(NULL, NULL); f != NULL; f = fr_flag_next(NULL, f)) {
        char text[FR_FLAG_TEXT_BYTES];
        fr_flag_text(f, &p.defaults, text);
        if (f->help == NULL) continue;
        flags++;
        cr_expect(strlen(f->help) > 10, "--%s has no help", f->name);
        cr_expect(f->group < FR_GROUP_COUNT);
        for (const fr_flag *g = fr_flag_next(NULL, f); g != NULL; g = fr_flag_next(NULL, g))
            cr_expect_str_neq(f->name, g->name);
        if (f->kind == FR_FLAG_ACT) continue;
        bool own_default = strcmp(f->name, "depth") == 0 || strcmp(f->name, "lr") == 0; /* of the program */
        cr_expect(text[0] != '\0' || f->unset != NULL || own_default, "--%s has no default", f->name);
        if (text[0] == '\0' || f->kind == FR_FLAG_BOOL || f->kind == FR_FLAG_SET) continue;
        char words[160];
        fr_train_opts o;
        snprintf(words, sizeof words, "--%s=%s", f->name, text);
        cr_expect_eq(parse(words, &o), FR_OK, "the default of --%s is refused: %s", f->name, fr_last_error());
    }
    cr_expect_leq(flags, 77, "%d flags: a further one takes the place of another", flags);
}

Test(flags, times_for_people) {
    static const struct {
        double seconds;
        const char *text;
    } cells[] = {{0, "0.0 s"},          {1.25, "1.2 s"},     {9.4, "9.4 s"},        {42.3, "42 s"},
                 {59.6, "1 min 0 s"},   {133, "2 min 13 s"}, {3599, "59 min 59 s"}, {3900, "1 h 5 min"},
                 {90000, "25 h 0 min"}, {NAN, "0.0 s"}};
    char text[FRI_DURATION_TEXT];
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        cr_expect_str_eq(fri_duration_text(cells[i].seconds, text), cells[i].text);
}

Test(flags, nearest_spelling) {
    char near[FR_FLAG_TEXT_BYTES];
    cr_expect_str_eq(fri_flag_nearest(NULL, "--epohcs", near), "--epochs");
    cr_expect_str_eq(fri_flag_nearest(NULL, "--no-batchnorm", near), "--no-batch-norm");
    cr_expect_str_eq(fri_flag_nearest(NULL, "--hlep", near), "--help");
    cr_expect_str_eq(fri_flag_nearest(NULL, "--leanring-rate", near), "--lr");
    cr_expect_str_eq(fri_flag_nearest(NULL, "--gpu", near), "--device");
    cr_expect_null(fri_flag_nearest(NULL, "--quantum-foam", near));
    cr_expect_null(fri_flag_nearest(NULL, "--a-word-that-is-longer-than-any-flag-of-any-trainer-here", near));
}

/* The library's switches as words of a command, each opposite to --all-off. */
static void add_switches(char line[512]) {
    fr_switches off = fr_switches_all_off();
    const fri_switch *w = NULL;
    for (int i = 0; (w = fri_switch_at(i)) != NULL; i++)
        if (fri_flag_find(w->name)->kind == FR_FLAG_BOOL && fri_flag_find(w->name)->help != NULL)
            snprintf(line + strlen(line), 512 - strlen(line), " --%s%s", *fri_switch_field(w, &off) ? "no-" : "",
                     w->name);
}

/* Every memory switch, set opposite to --all-off, is taken back by --all-off. Flags for the place of memory or the
 * planning of a run are not switches. A new flag of the group must be put on a list. */
Test(flags, all_off_takes_every_memory_switch_back) {
    char set[512] = "--split-batch 3 --grad-zero --fused-step --offload=x --pool-index u8 "
                    "--workspace-limit 1MiB --checkpoint-segments 3 --prefix-parts 2 --inplace-abn";
    static const char *const others[] = {"memory-limit", "all-off", "arena", "memory-budget", "calibrate", "plan"};
    fr_train_opts before, off, both;
    char line[600];
    add_switches(set);
    cr_assert_eq(parse("--all-off", &off), FR_OK);
    cr_assert_eq(parse(set, &before), FR_OK);
    snprintf(line, sizeof line, "%s --all-off", set);
    cr_assert_eq(parse(line, &both), FR_OK);
    for (const fr_flag *f = fri_flags; f < fri_flags + fri_flags_count; f++) {
        char a[FR_FLAG_TEXT_BYTES], b[FR_FLAG_TEXT_BYTES], c[FR_FLAG_TEXT_BYTES], name[64];
        bool other = f->group != FR_GROUP_MEMORY;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) other = other || strcmp(others[i], f->name) == 0;
        if (other || f->help == NULL) continue;
        snprintf(name, sizeof name, "--%s", f->name);
        snprintf(line, sizeof line, "--no-%s", f->name);
        cr_expect(strstr(set, name) != NULL || strstr(set, line) != NULL, "--%s is on neither list", f->name);
        cr_expect_str_eq(fr_flag_text(f, &both, a), fr_flag_text(f, &off, b), "--%s outlives --all-off", f->name);
        cr_expect_str_neq(fr_flag_text(f, &before, c), b, "--%s is not set to anything else", f->name);
    }
}

Test(flags, a_flag_of_an_add_on_that_was_not_built_names_its_option) {
    static const struct {
        const char *flag, *arguments, *sentence;
    } rows[] = {{"trace", "--trace t", "--trace needs the add-on views: build with -Dviews=enabled"}};
    int lacking = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_train_opts o;
        if (fri_flag_find(rows[i].flag) != NULL) {
            cr_expect_eq(fri_flag_missing(rows[i].flag, strlen(rows[i].flag)), FR_OK);
            continue;
        }
        lacking++;
        cr_expect_eq(parse(rows[i].arguments, &o), FR_EUNSUPPORTED);
        cr_expect_str_eq(fr_last_error(), rows[i].sentence);
    }
    if (lacking == 0) cr_skip("the add-ons are there");
}

/* A program that offers the library's switches by their list offers all but cache_casts, a field for programs. */
Test(flags, every_switch_of_the_library_is_a_row) {
    const fri_switch *w = NULL;
    for (int i = 0; (w = fri_switch_at(i)) != NULL; i++) {
        const fr_flag *f = fri_flag_find(w->name);
        cr_assert_not_null(f, "no row %s", w->name);
        bool by_file = f->kind == FR_FLAG_TEXT; /* --offload[=FILE] */
        cr_expect(by_file ||
                      (f->kind == FR_FLAG_BOOL && f->offset == offsetof(fr_train_opts, memory.switches) + w->offset),
                  "--%s is of another field", w->name);
        cr_expect_eq(f->group, FR_GROUP_MEMORY);
    }
}

/* The pages explain flags by example; --help, made of the table, is the reference. */
Test(flags, the_pages_name_no_flag_that_is_not_there) {
    static const char *const pages[] = {"README.md", "docs/README.md", "docs/train.md"};
    int named = 0;
    static char text[1 << 17];
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char path[1024], name[FR_FLAG_TEXT_BYTES];
        snprintf(path, sizeof path, "%s/%s", getenv("FRUGAL_SOURCE_ROOT"), pages[i]);
        FILE *f = fopen(path, "r");
        cr_assert_not_null(f, "%s", path);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        for (const char *p = text; (p = strstr(p, "`--")) != NULL; named++) {
            p += 3;
            int n = (int)strspn(p, "abcdefghijklmnopqrstuvwxyz-");
            snprintf(name, sizeof name, "%.*s", n, p);
            bool no = false, there = fr_flag_named(NULL, name, strlen(name), &no) != NULL ||
                                     strcmp(name, "help") == 0 ||
                                     fri_flag_missing(name, strlen(name)) == FR_EUNSUPPORTED;
            cr_expect(there, "%s names --%s", pages[i], name);
        }
    }
    cr_expect_gt(named, 40, "%d flags are named", named);
}

Test(program, run_without_program_shell_or_words_is_a_usage_error) {
    const fr_train_program program = {.name = "none"};
    const fr_train_shell shell = {.out = stdout, .err = stderr};
    const struct {
        const fr_train_program *program;
        int argc;
        const fr_train_shell *shell;
        const char *said;
    } cells[] = {
        {NULL, 0, &shell, "fr_train_run: program is NULL"},
        {&program, 0, NULL, "fr_train_run: shell is NULL"},
        {&program, 1, &shell, "fr_train_run: argv is NULL"},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cr_expect_eq(fr_train_run(cells[i].program, cells[i].argc, NULL, cells[i].shell), 2);
        cr_expect_str_eq(fr_last_error(), cells[i].said);
    }
}
