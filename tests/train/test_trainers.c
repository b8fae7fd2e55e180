/* test_trainers.c - the trainers as programs: printed lines, written files, exit statuses, and refusals. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <math.h>
#include <unistd.h>

/* A network so small that a run takes a moment: three dense blocks of one layer on 8 pixels. */
#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 "

/* No file but those named in `keep` lies in the test's folder. */
static void expect_only(const char *keep) {
    char command[1200];
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = \"%s\"", files_root, keep);
    cr_expect_eq(system(command), 0, "other files than '%s' lie in %s", keep, files_root);
}

TestSuite(trainers, .init = files_begin, .fini = files_end);

/* ---- good runs --------------------------------------------------------------------------------------------- */

Test(trainers, each_trains_two_steps_and_its_report_adds_up) {
    static const struct {
        const char *name, *flags, *model;
        double parameters;
    } runs[] = {
        {"train_vgg", "--depth 11", "vgg11_bn", 9231114},
        {"train_vgg", "--depth 11 --no-batch-norm --image-size 64", "vgg11", 128807306},
        {"train_resnet", "", "resnet18_small", 11173962},
        {"train_densenet", "--depth 22", "densenet_bc22_k12", 0},
        {"train_unet", "--depth 2 --image-size 16", "unet2", 0},
        {"train_mobilenet", "", "mobilenet_v2_small", 2236682},
        {"train_own", "", "own1", 78042},
        {"finetune", "--dataset digits --model resnet18 --image-size 32 --train-only all", "resnet18", 11181642},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char arguments[1024];
        const char *report = files_path("r.json");
        snprintf(arguments, sizeof arguments, "%s --steps 2 --batch-size 2 --eval-every 0 --report %s", runs[i].flags,
                 report);
        outcome o = program_run(runs[i].name, arguments);
        cr_assert_eq(o.status, 0, "%s %s: %s", runs[i].name, arguments, o.err);
        cr_expect_str_empty(o.err);
        EXPECT_MATCH(o.out, "test accuracy [0-9.]+ % \\([0-9]+ of [0-9]+\\), [0-9. a-z]+, peak memory [0-9.]+ .iB\n$");
        EXPECT_MATCH(o.out, "\n2 steps; at the peak, in op ");
        EXPECT_MATCH(o.out, "parameter +[0-9.]+ [KM]iB");
        cJSON *r = report_read(report);
        cr_expect_str_eq(report_at(r, "model", NULL)->valuestring, runs[i].model);
        cr_expect_str_eq(report_at(r, "device", NULL)->valuestring, program_device());
        cr_expect_str_eq(report_at(r, "dtype", NULL)->valuestring, "f32");
        cr_expect_eq(report_number(r, "steps", NULL), 2);
        cr_expect_eq(report_number(r, "batch_size", NULL), 2);
        if (runs[i].parameters > 0) cr_expect_eq(report_number(r, "parameters", NULL), runs[i].parameters);
        double sum = 0, peak = report_number(r, "memory", "peak_allocated");
        cJSON *part = NULL, *memory = report_at(r, "memory", NULL), *parts = report_at(memory, "at_peak", NULL);
        cJSON_ArrayForEach(part, parts) sum += part->valuedouble;
        cr_expect_eq(sum, peak, "categories %.0f, peak %.0f", sum, peak);
        cr_expect_eq(report_number(memory, "step_memory", NULL),
                     peak - report_number(parts, "parameter", NULL) - report_number(parts, "optimizer", NULL));
        cr_expect(report_number(memory, "peak_requested", NULL) <= peak &&
                  peak <= report_number(memory, "peak_reserved", NULL));
        cr_expect(report_number(memory, "floor", NULL) > 0 && report_number(memory, "floor", NULL) <= peak);
        cr_expect(report_number(r, "time", "step_ms_median") > 0 && report_number(r, "time", "images_per_second") > 0);
        cr_expect(isfinite(report_number(r, "loss", "first")) && isfinite(report_number(r, "loss", "last")));
        cr_expect(report_number(r, "accuracy", "test") >= 0 && report_number(r, "accuracy", "test") <= 1);
        cr_expect_eq(report_number(r, "flags", "batch-size"), 2);
        cJSON_Delete(r);
    }
    expect_only("r.json");
}

/* Each trainer builds its network at a width and puts the width into the name, which weights and states record. */
Test(trainers, a_width_is_in_the_name_of_a_network) {
    static const struct {
        const char *name, *flags, *says;
    } rows[] = {
        {"train_mobilenet", "--width 0.5", "^mobilenet_v2_small_w0\\.5;.*parameters: 700490 "},
        {"train_vgg", "--depth 11 --width 0.125", "^vgg11_bn_w0\\.125;.*parameters: 145898 "},
        {"train_resnet", "--width 0.25 --inplace-abn", "^resnet18_small_abn_w0\\.25;.*parameters: 701466 "},
        {"train_densenet", "--depth 22 --width 0.333333333", "^densenet_bc22_k12_w0\\.333333;.*parameters: 32606 "},
        {"train_unet", "--depth 2 --image-size 16 --width 1.50", "^unet2_w1\\.5;.*parameters: 1061291 "},
        {"finetune", "--dataset digits --model mobilenet_v2 --image-size 32 --width 0.75", "^mobilenet_v2_w0\\.75;"},
        {"finetune", "--dataset digits --model resnet18_w0.25 --image-size 32", "^resnet18_w0\\.25;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "summary %s --batch-size 2", rows[i].flags);
        outcome o = program_run(rows[i].name, arguments);
        cr_expect_eq(o.status, 0, "%s", o.err);
        EXPECT_MATCH(o.out, rows[i].says);
    }
}

/* Two steps of train_own have equal losses with and without the flags. */
static void expect_same_losses(const char *flags) {
    char arguments[1024], *steps[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments, "--steps 2 --eval-every 0 --report %s %s", files_path("own.json"),
                 i == 0 ? "" : flags);
        outcome o = program_run("train_own", arguments);
        cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
        cJSON *r = report_read(files_path("own.json"));
        steps[i] = cJSON_Print(report_at(r, "loss", "steps"));
        cJSON_Delete(r);
    }
    cr_expect_str_eq(steps[0], steps[1], "%s", flags);
    for (int i = 0; i < 2; i++) cJSON_free(steps[i]);
}

/* A network defined by a program is planned, fitted, cut and listed as the library's are: train_own has no line for
 * any of these. */
Test(trainers, a_network_of_one_s_own_is_planned_fitted_and_cut) {
    setenv("OMP_NUM_THREADS", "2", 1); /* workspace grows with them, and these budgets are near the least */
    outcome o = program_run("train_own", "plan --memory-budget 1300KiB");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "budget 1\\.27 MiB \\(1331200 bytes\\), batches of 16: planned peak 1\\.[0-9]+ MiB ");
    EXPECT_MATCH(o.out, "\n  units [a-zA-Z]*\\[");
    EXPECT_MATCH(o.out, "planned peak 1\\.[0-9]+ MiB .*peak: .*module layer[1-3]\\.0\\.");
    o = program_run("train_own", "plan --memory-budget 500KiB");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "nothing fits; the smallest budget .* of layer[1-3]\\.0\\.(conv|bn|downsample)");
    o = program_run("train_own", "summary");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "conv1 .*layer2\\.0\\.downsample\\.0 .*layer3\\.0\\.bn2 .*fc .*parameters: 78042");
    expect_same_losses("--checkpoint-segments 3");
    expect_same_losses("--memory-budget 1300KiB");
    o = program_run("train_own", "--checkpoint-segments 99");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--checkpoint-segments 99: own1 .* [0-9]+ units");
    o = program_run("finetune", "--model resnet18_small --inplace-abn --device meta --steps 1 --classes 3");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--inplace-abn: name the network with it, --model NAME_abn");
    o = program_run("train_vgg", "--no-batch-norm --inplace-abn");
    EXPECT_MATCH(o.err, "--inplace-abn works on batch norms, which --no-batch-norm removes");
    o = program_run("train_own", "--inplace-abn");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--inplace-abn: this network has batch norm and relu only");
    o = program_run("train_own", "--width 0.5");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--width 0\\.5 --image-size [0-9]+: the networks of train_own have only width 1");
    o = program_run("train_resnet", "--width 0");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--width 0: must be at least 0\\.01 and below 16");
}

/* The losses of a run, each with all its digits. */
static void losses(const char *flags, char *text, size_t bytes) {
    char arguments[1024];
    const char *report = files_path("losses.json");
    snprintf(arguments, sizeof arguments, TINY "--steps 6 --eval-every 0 --report %s %s", report, flags);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
    cJSON *r = report_read(report);
    char *printed = cJSON_Print(report_at(r, "loss", "steps"));
    snprintf(text, bytes, "%s", printed);
    cJSON_free(printed);
    cJSON_Delete(r);
}

/* The epoch's loss is the mean over its images of the steps' losses. */
Test(trainers, epoch_line_has_the_mean_of_the_steps) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, TINY "--steps 3 --eval-every 0 --report %s", files_path("mean.json"));
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *r = report_read(files_path("mean.json"));
    const cJSON *steps = report_at(r, "loss", "steps");
    double sum = 0, printed = NAN;
    for (int i = 0; i < 3; i++) sum += cJSON_GetArrayItem(steps, i)->valuedouble;
    const char *at = strstr(o.out, "step    3/3  loss ");
    cr_assert_not_null(at, "%s", o.out);
    cr_expect(sscanf(at, "step %*s loss %lf", &printed) == 1 && fabs(printed - sum / 3) < 6e-5,
              "%g printed, the mean is %g", printed, sum / 3);
    cJSON_Delete(r);
}

Test(trainers, same_seed_same_run) {
    char one[1024], other[1024];
    static const char *const same[] = {"",
                                       "--workers 0",
                                       "--workers 3",
                                       "--all-off",
                                       "--no-rebuild",
                                       "--checkpoint-segments 2",
                                       "--no-inplace --no-early-release"};
    losses("--seed 7", one, sizeof one);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char flags[128];
        snprintf(flags, sizeof flags, "--seed 7 %s", same[i]);
        losses(flags, other, sizeof other);
        cr_expect_str_eq(one, other, "'%s' changes the run: %s against %s", same[i], one, other);
    }
    losses("--seed 8", other, sizeof other);
    cr_expect_str_neq(one, other, "seeds 7 and 8 give the same run");
}

Test(trainers, learns_the_digits) {
    outcome o = program_run("train_densenet", "--depth 10 --growth 8 --image-size 8 --augment none --epochs 6 --quiet");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "^test accuracy (9[0-9]|100)\\.[0-9]+ % ");
}

Test(trainers, meta_has_sizes_and_no_numbers) {
    const char *report = files_path("meta.json");
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "--device meta --steps 2 --report %s", report);
    outcome o = program_run("train_vgg", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "loss -  accuracy -  - images/s");
    EXPECT_MATCH(o.out, "\n2 steps; .*\ntest accuracy not evaluated, [0-9. a-z]+, peak memory [^\n]*\n$");
    cJSON *r = report_read(report);
    cr_expect(cJSON_IsNull(report_at(r, "loss", "first")) && cJSON_IsNull(report_at(r, "loss", "last")));
    cr_expect(cJSON_IsNull(report_at(r, "accuracy", "test")));
    cr_expect(report_number(r, "memory", "peak_allocated") > 0);
    cJSON_Delete(r);
    /* A dataset's sizes are known without its files. */
    o = program_run("train_resnet", "--device meta --dataset cifar100 --steps 1");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "cifar100: 50000 training and 10000 test images, 100 classes");
}

Test(trainers, eight_bit_moments) {
    outcome o = program_run("train_vgg", "--device meta --dataset synthetic --steps 1 --optimizer adam8");
    cr_expect_eq(o.status, 0, "%s", o.err);
}

/* Loss of the last of three steps; *test: the test loss afterwards, or NULL. */
static double last_loss(const char *flags, double *test) {
    char command[1024];
    snprintf(command, sizeof command, TINY "--steps 3 --eval-every 0 --report %s/r.json %s", files_root, flags);
    outcome o = program_run("train_densenet", command);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *report = report_read(files_path("r.json"));
    const double loss = report_number(report, "loss", "last");
    if (test != NULL) *test = report_number(report, "loss", "test");
    cJSON_Delete(report);
    return loss;
}

Test(trainers, what_rmsprop_is_told_changes_its_steps) {
    static const char *const flags[] = {"", "--momentum 0", "--weight-decay 0.5"};
    enum { N = sizeof flags / sizeof *flags };
    double loss[N];
    for (int i = 0; i < N; i++) {
        char all[100];
        snprintf(all, sizeof all, "--optimizer rmsprop --lr 1e-3 %s", flags[i]);
        loss[i] = last_loss(all, NULL);
        for (int k = 0; k < i; k++) cr_expect_neq(loss[i], loss[k], "'%s' and '%s'", flags[i], flags[k]);
    }
}

/* Nothing moves, so evaluations are alike: test images are not varied. */
Test(trainers, augmentation_is_of_training_images) {
    static const char *const ways[] = {"light", "none", "strong"};
    double loss[3], test[3];
    if (program_lacks("--augment strong")) cr_skip("built without the add-on augment");
    for (int i = 0; i < 3; i++) {
        char all[128];
        snprintf(all, sizeof all, "--dataset digits --train-only head --lr 0 --augment %s", ways[i]);
        loss[i] = last_loss(all, &test[i]);
        cr_expect_eq(test[i], test[0], "%s: test loss %.9g, not %.9g", ways[i], test[i], test[0]);
        for (int k = 0; k < i; k++) cr_expect_neq(loss[i], loss[k], "%s and %s", ways[i], ways[k]);
    }
}

/* ---- output ------------------------------------------------------------------------------------------------ */

Test(trainers, plain_lines_in_a_pipe_a_live_line_on_a_terminal) {
    outcome o = program_run("train_densenet", TINY "--epochs 1");
    cr_assert_eq(o.status, 0, "%s", o.err);
    cr_expect_null(strchr(o.out, '\r'));
    cr_expect_null(strchr(o.out, '\033'));
    EXPECT_MATCH(o.out, "epoch +1/1 +step +187/187 +loss [0-9.]+ +accuracy +[0-9.]+ % .*test [0-9.]+ %");
    o = program_run_as((how){.on_terminal = true}, "train_densenet", TINY "--epochs 1");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "\rETA [0-9:]+  loss [0-9.]+  [0-9.]+ %  epoch 1/1  step [0-9]+/187  peak [^\r]*\033\\[K");
    EXPECT_MATCH(o.out,
                 "\repoch  1/1  loss [0-9.]+  accuracy [0-9.]+ %  test [0-9.]+ %  [0-9:]+  [0-9.]+ images/s\033");
    for (const char *p = o.out; (p = strchr(p, '\r')) != NULL; p++) /* of 80 columns, and no line is cut */
        cr_expect_leq(strcspn(p + 1, "\033\n"), 79, "%.100s", p + 1);
}

/* Epoch lines with a loss scale are longer than a terminal: the end is left out. */
Test(trainers, an_epoch_fits_a_terminal) {
    outcome o = program_run_as((how){.on_terminal = true}, "train_densenet", TINY "--epochs 1 --amp");
    cr_assert_eq(o.status, 0, "%s", o.err);
    const char *line = strstr(o.out, "\repoch ");
    cr_assert_not_null(line, "%s", o.out);
    cr_expect_leq(strcspn(line + 1, "\033\n"), 79, "%.120s", line);
    cr_expect_gt(strcspn(line + 1, "\033\n"), 55, "%.120s", line);
}

Test(trainers, quiet_prints_one_line) {
    outcome o = program_run("train_densenet", TINY "--steps 3 --quiet");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "^test accuracy [^\n]*\n$");
}

Test(trainers, help_lists_every_flag_of_the_interface) {
    static const char *const names[] = {"depth",
                                        "batch-norm, --no-batch-norm",
                                        "device",
                                        "dataset",
                                        "data",
                                        "image-size",
                                        "epochs",
                                        "steps",
                                        "batch-size",
                                        "lr",
                                        "momentum",
                                        "weight-decay",
                                        "optimizer",
                                        "schedule",
                                        "warmup",
                                        "seed",
                                        "workers",
                                        "eval-every",
                                        "quiet",
                                        "report",
                                        "threads",
                                        "deterministic, --no-deterministic",
                                        "cudnn-benchmark, --no-cudnn-benchmark",
                                        "memory-limit",
                                        "inplace, --no-inplace",
                                        "encode, --no-encode",
                                        "rebuild, --no-rebuild",
                                        "early-release, --no-early-release",
                                        "all-off",
                                        "pool-index",
                                        "workspace-limit",
                                        "checkpoint-segments"};
    static const char *const sections[] = {"\nNAME\n",    "\nSYNOPSIS\n", "\nDESCRIPTION\n",
                                           "\nOPTIONS\n", "\nEXAMPLES\n", "\nEXIT STATUS\n"};
    static const char *const programs[] = {"train_vgg",  "train_resnet",    "train_densenet",
                                           "train_unet", "train_mobilenet", "finetune"};
    for (int p = 0; p < 6; p++) {
        outcome o = program_run(programs[p], "--epochs 3 --help all");
        cr_expect_eq(o.status, 0);
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
            cr_expect_not_null(strstr(o.out, sections[i]), "%s --help has no section%s", programs[p], sections[i]);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (strcmp(names[i], "depth") == 0 && strcmp(programs[p], "finetune") == 0) continue; /* has --model */
            char line[128];
            snprintf(line, sizeof line, "\n       --%s[ \n]", names[i]);
            cr_expect(matches(o.out, line), "%s --help has no --%s", programs[p], names[i]);
        }
        for (const char *l = o.out; l != NULL && *l; l = strchr(l, '\n') != NULL ? strchr(l, '\n') + 1 : NULL)
            cr_expect(strcspn(l, "\n") <= 80, "a line of %zu columns: %.40s", strcspn(l, "\n"), l);
    }
}

/* The flags needed first, on one screen; the last word leads to all flags. */
Test(trainers, short_help_fits_a_screen) {
    static const char *const programs[] = {"train_vgg",       "train_resnet", "train_densenet", "train_unet",
                                           "train_mobilenet", "train_own",    "finetune"};
    static const char *const lines[] = {"\n  plan   +[A-Z]",
                                        "\n  predict IMAGE\\.\\.\\. +[A-Z]",
                                        "\nTraining\n",
                                        "\n  --epochs N +.* \\([0-9]+\\)\n",
                                        "\n  --batch-size N +.* \\([0-9]+\\)\n",
                                        "\n  --memory-budget BYTES +",
                                        "\n  --no-inplace +[A-Z]",
                                        "\n  --plan\\[=LINES\\] +[A-Z]",
                                        "\n  --accumulate K +[A-Z]",
                                        "\n  --checkpoint-segments N +[A-Z]",
                                        "\n  --amp\\[=TYPE\\] +.*bf16\n",
                                        "--help all' has every flag"};
    for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
        outcome o = program_run(programs[p], "--help");
        int n = 0;
        cr_expect_eq(o.status, 0);
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            cr_expect(matches(o.out, lines[i]), "%s --help lacks %s:\n%s", programs[p], lines[i], o.out);
        for (const char *l = o.out; l != NULL && *l; l = strchr(l, '\n') != NULL ? strchr(l, '\n') + 1 : NULL, n++)
            cr_expect(strcspn(l, "\n") <= 80, "a line of %zu columns: %.40s", strcspn(l, "\n"), l);
        cr_expect(n > 25 && n <= 45, "%s --help has %d lines", programs[p], n);
        cr_expect(!matches(o.out, "pool-index"), "%s --help names every flag", programs[p]);
    }
    EXPECT_MATCH(program_run("train_vgg", "--help").out, "\n  --depth N +One of 11, 13, 16 and 19 \\(16\\)\n");
}

/* ---- commands ---------------------------------------------------------------------------------------------- */

/* Times ("in 0.009 s", "(3 of 7), 1.2 s") are cut out: two runs never agree in them. */
static const char *without_times(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        *to++ = *from++;
        if (to - text >= 3 && (memcmp(to - 3, "in ", 3) == 0 || memcmp(to - 3, "), ", 3) == 0))
            from += strspn(from, "0123456789.:");
    }
    *to = '\0';
    return text;
}

/* A command and its flag have the same output and exit status, also where the flag is refused. */
Test(trainers, a_command_is_its_flag) {
    static const struct {
        const char *command, *flag;
        int status;
    } cells[] = {{"train --quiet", "--quiet", 0},
                 {"export w.st --quiet", "--export w.st --quiet", 0},
                 {"plan", "--plan", 0},
                 {"summary", "--summary", 0},
                 {"summary --plan", "--summary --plan", 0},
                 {"predict a.jpg a.jpg --weights w.st", "--predict a.jpg a.jpg --weights w.st", 0},
                 {"predict a.jpg", "--predict a.jpg", 2},
                 {"plan --calibrate", "--plan --calibrate", 2},
                 {"export", "--export", 2},
                 {"plan plan", "--plan plan", 2}};
    uint8_t pixels[16 * 16 * 3], *image = NULL;
    picture_fill(pixels, 16, 16);
    size_t n = jpeg_bytes(JPEG_RGB, pixels, 16, 16, &image);
    files_write("a.jpg", image, n);
    free(image);
    cr_assert_eq(chdir(files_root), 0);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char arguments[2][256];
        static outcome o[2];
        for (int k = 0; k < 2; k++) {
            snprintf(arguments[k], sizeof arguments[k], "%s " TINY "--steps 2 --eval-every 0",
                     k == 0 ? cells[i].command : cells[i].flag);
            o[k] = program_run("train_densenet", arguments[k]);
            cr_expect_eq(o[k].status, cells[i].status, "%s: %d: %s", arguments[k], o[k].status, o[k].err);
        }
        cr_expect_str_eq(without_times(o[0].out), without_times(o[1].out));
        cr_expect_str_eq(o[0].err, o[1].err);
        cr_expect(cells[i].status == 2 || o[0].out[0] != '\0', "%s says nothing", arguments[0]);
    }
}

Test(trainers, a_command_comes_first) {
    outcome o = program_run("train_densenet", "--quiet plan");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "unexpected argument 'plan': a command .*comes first");
    o = program_run("train_densenet", "--help all");
    EXPECT_MATCH(o.out, "\nCOMMANDS\n.*\n       plan\n.*\n       predict IMAGE...\n.*\nOPTIONS\n");
}

Test(trainers, interrupt_ends_after_the_step_with_a_report) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments, TINY "--epochs 100000 --report %s", files_path("i.json"));
    outcome o = program_run_as((how){.signal_after = "epoch  1/"}, "train_densenet", arguments);
    cr_assert_eq(o.status, 130, "%d: %s", o.status, o.err);
    EXPECT_MATCH(o.out, "ended by signal 2 \\(.*\\) after step [0-9]+ of [0-9]+");
    cJSON *r = report_read(files_path("i.json"));
    cr_expect(cJSON_IsTrue(report_at(r, "interrupted", NULL)));
    cr_expect(report_number(r, "steps", NULL) >= 1); /* how many depends on the machine */
    cJSON_Delete(r);
    expect_only("i.json");
}

/* ---- bad input --------------------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name, *arguments;
    int status;
    const char *sentence;
} refusal;

static void expect_refused(const refusal *c) {
    outcome o = program_run(c->name, c->arguments);
    cr_expect_eq(o.status, c->status, "%s %s: exit status %d, not %d: %s", c->name, c->arguments, o.status, c->status,
                 o.err);
    cr_expect(matches(o.err, c->sentence), "%s %s: no /%s/ in: %s", c->name, c->arguments, c->sentence, o.err);
    cr_expect(strncmp(o.err, c->name, strlen(c->name)) == 0, "the sentence does not name the program: %s", o.err);
    const char *end = strchr(o.err, '\n');
    cr_expect(end != NULL && end[1] == '\0', "not one line: %s", o.err);
}

Test(trainers, usage_errors_have_status_2_and_name_flag_and_values) {
    static const refusal cases[] = {
        {"train_vgg", "--epohcs 3", 2, "'--epohcs'.*'--epochs'"},
        {"train_vgg", "--epohcs=3", 2, "'--epohcs'.*'--epochs'"},
        {"train_vgg", "-x", 2, "unknown flag '-x'"},
        {"train_vgg", "twelve", 2, "unexpected argument 'twelve'"},
        {"train_vgg", "--epochs", 2, "--epochs needs a value"},
        {"train_vgg", "--epochs --quiet", 2, "--epochs needs a value, but '--quiet'"},
        {"train_vgg", "--quiet=yes", 2, "--quiet takes no value, but 'yes'"},
        {"train_vgg", "--no-batch-norm=1", 2, "--no-batch-norm takes no value, but '1'"},
        {"train_vgg", "--no-quiet", 2, "unknown flag '--no-quiet'"},
        {"train_mobilenet", "--depth 3 --image-size 32", 2, "--depth 3"},
        {"train_vgg", "--batch-size 0", 2, "--batch-size 0: must lie in 1\\.\\.1048576"},
        {"train_vgg", "--batch-size 1e3", 2, "--batch-size 1e3: neither a whole number nor one of fit"},
        {"train_vgg", "--steps 99999999999999999999", 2, "--steps 99999999999999999999: not a whole number"},
        {"train_vgg", "--lr nan", 2, "--lr nan: not a number"},
        {"train_vgg", "--lr -0.1", 2, "--lr -0.1: must be at least 0"},
        {"train_vgg", "--momentum 1", 2, "--momentum 1: must be at least 0 and below 1"},
        {"train_vgg", "--seed -1", 2, "--seed -1: must lie in 0"},
        {"train_vgg", "--memory-limit 5x", 2, "--memory-limit 5x: not a size"},
        {"train_vgg", "--memory-limit 0", 2, "--memory-limit 0: must be at least 1 byte"},
        {"train_vgg", "--device tpu", 2, "--device tpu: must be one of auto, cpu, cuda, meta"},
        {"train_vgg", "--dataset imagenet", 2, "--dataset imagenet: must be one of digits, .*folder"},
        {"train_vgg", "--pool-index f32", 2, "--pool-index f32: must be one of i64, i32, u8"},
        {"train_vgg", "--depth 12", 2, "--depth 12: .*11, 13, 16 and 19"},
        {"train_vgg", "--image-size 16", 2, "--image-size 16: .*16 pixels.* stride of 32"},
        {"train_resnet", "--depth 20", 2, "--depth 20: .*18, 34, 50, 101 and 152"},
        {"train_resnet", "--image-size 4", 2, "--image-size 4: .*4 pixels.* stride of 8"},
        {"train_resnet", "--no-batch-norm", 2, "--no-batch-norm: .*train_resnet"},
        {"train_densenet", "--depth 41", 2, "--depth 41: .*DenseNet: depth is 41"},
        {"train_unet", "--depth 9", 2, "--depth 9: .*1\\.\\.5"},
        {"train_unet", "--image-size 30", 2, "--image-size 30: .*multiples of 8"},
        {"train_unet", "--checkpoint-segments 99", 2, "--checkpoint-segments 99: .*[0-9]+ units"},
        {"train_vgg", "--checkpoint-segments 0", 2, "--checkpoint-segments 0: must lie in 1"},
        {"train_vgg", "--checkpoint-segments 500", 2, "--checkpoint-segments 500: vgg16_bn .* [0-9]+ units"},
        {"train_vgg", "--batch-size 1501", 2, "--batch-size 1501: digits train has 1500 .*; lower it\n$"},
        {"train_unet", "--depth 4 --image-size 16 --batch-size 1", 2,
         "--batch-size 1 --image-size 16: .*more than 1 value"},
        {"train_vgg", "--classes 7", 2, "--classes 7: dataset digits has 10"},
        {"train_vgg", "--dataset cifar10", 2, "--dataset cifar10 needs --data"},
        {"train_vgg", "--data /tmp", 2, "--data /tmp: --dataset digits reads no files"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(&cases[i]);
}

Test(trainers, files_that_are_missing_or_broken_have_status_1) {
    char arguments[8][1024], broken[512];
    static const uint8_t junk[64] = {1, 2, 3};
    uint8_t idx[4096], body[20 * 64] = {0}, *jpeg = NULL, rgb[16 * 16 * 3];
    /* A folder of images whose second picture is cut off. */
    files_make_folder("cut");
    static const char *const folders[] = {"cut/train",   "cut/test",   "cut/train/a",
                                          "cut/train/b", "cut/test/a", "cut/test/b"};
    for (int i = 0; i < 6; i++) files_make_folder(folders[i]);
    picture_fill(rgb, 16, 16);
    size_t n = jpeg_bytes(JPEG_RGB, rgb, 16, 16, &jpeg);
    files_write("cut/train/a/0.jpg", jpeg, n);
    files_write("cut/train/a/1.jpg", jpeg, n / 2);
    files_write("cut/train/b/0.jpg", jpeg, n);
    files_write("cut/test/a/0.jpg", jpeg, n);
    files_write("cut/test/b/0.jpg", jpeg, n);
    free(jpeg);
    /* IDX files: wrong magic; 20 images but 19 labels in range. */
    files_make_folder("magic");
    files_write("magic/train-images-idx3-ubyte", junk, sizeof junk);
    files_write("magic/train-labels-idx1-ubyte", junk, sizeof junk);
    files_make_folder("label");
    n = idx_bytes(idx, 2051, 3, (uint32_t[]){20, 8, 8}, body, sizeof body);
    files_write("label/train-images-idx3-ubyte", idx, n);
    body[19] = 10;
    n = idx_bytes(idx, 2049, 1, (uint32_t[]){20}, body, 20);
    files_write("label/train-labels-idx1-ubyte", idx, n);
    files_make_folder("huge");
    n = idx_bytes(idx, 2051, 3, (uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff}, body, 16);
    files_write("huge/train-images-idx3-ubyte", idx, n);
    files_write("huge/train-labels-idx1-ubyte", idx, n);
    snprintf(broken, sizeof broken, "%s.*1\\.jpg", "cut/train/a");
    snprintf(arguments[0], sizeof arguments[0], TINY "--dataset folder --data %s --batch-size 2 --epochs 9",
             files_path("cut"));
    snprintf(arguments[1], sizeof arguments[1], TINY "--dataset mnist --data %s", files_path("magic"));
    snprintf(arguments[2], sizeof arguments[2], TINY "--dataset mnist --data %s", files_path("label"));
    snprintf(arguments[3], sizeof arguments[3], TINY "--dataset mnist --data %s", files_path("huge"));
    snprintf(arguments[4], sizeof arguments[4], TINY "--dataset cifar10 --data %s", files_path("nowhere"));
    snprintf(arguments[5], sizeof arguments[5], TINY "--report %s/no/r.json", files_root);
    snprintf(arguments[6], sizeof arguments[6], TINY "--report %s", files_root);
    const refusal cases[] = {
        {"train_densenet", arguments[0], 1, broken},
        {"train_densenet", arguments[1], 1, "magic/train-(images|labels)-idx"},
        {"train_densenet", arguments[2], 1, "label/train-labels-idx1-ubyte.*10"},
        {"train_densenet", arguments[3], 1, "huge/train-(images|labels)-idx"},
        {"train_densenet", arguments[4], 1, "nowhere"},
        {"train_densenet", arguments[5], 1, "--report .*/no/r\\.json: cannot be written"},
        {"train_densenet", arguments[6], 1, "--report .*: is a folder"},
        {"finetune", "--weights /nowhere.safetensors --predict a.jpg", 1, "/nowhere.safetensors.: cannot be opened"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refused(&cases[i]);
    if (!fr_device_available(FR_CUDA))
        expect_refused(&(refusal){"train_vgg", "--device cuda --steps 1", 1, "--device cuda: ."});
}

/* Each line stands in docs/memory.md, of the list of tensors the first two. */
static void expect_quoted(char *text) {
    static char page[1 << 17];
    char path[1024];
    const char *root = getenv("FRUGAL_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/docs/memory.md", root != NULL ? root : ".");
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    int tensors = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        tensors += strncmp(line, "    ", 4) == 0 && strstr(line, " x ") != NULL;
        if (tensors <= 2 || strncmp(line, "    ", 4) != 0)
            cr_expect_not_null(strstr(page, line), "not in docs/memory.md: %s", line);
    }
    cr_expect_gt(tensors, 2);
}

Test(trainers, out_of_memory_is_a_report_and_status_1) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "--steps 1 --batch-size 64 --memory-limit 150MiB --report %s",
             files_path("oom.json"));
    outcome o = program_run("train_vgg", arguments);
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.out);
    EXPECT_MATCH(o.err, "out of memory on cpu: op [a-z0-9]+ in module [a-z0-9.]+ .*the limit is 150\\.00 MiB");
    EXPECT_MATCH(o.err, "by category: parameter");
    EXPECT_MATCH(o.err, "this command needs [0-9.]+ MiB; its floor .* is [0-9.]+ MiB");
    /* Meta, too: the dry runs of the advice live beside the failed run. */
    o = program_run("train_vgg", "--device meta --dataset synthetic --steps 1 --batch-size 128 --memory-limit 224MiB");
    cr_expect_eq(o.status, 1, "%d: %s", o.status, o.out);
    EXPECT_MATCH(o.err, "out of memory on meta: op [a-z0-9]+ in module [a-z0-9.]+ .*the limit is 224\\.00 MiB");
    if (getenv("FRUGAL_NO_POOL") == NULL) expect_quoted(o.err); /* without the pool, different blocks are free */
    expect_only("");                                            /* neither a report nor its temporary */
}

Test(trainers, a_loss_that_is_no_number_ends_the_run) {
    outcome o = program_run("train_densenet", TINY "--epochs 3 --lr 900000 --warmup 0 --schedule constant");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "the loss is -?(nan|inf) after step [0-9]+: --lr 900000 may be too high");
}
