/* test_freeze_flags.c - --freeze, --train-only, and weights with a different head: parameters that train, values that
 * stay, and the printed lines. */
#include "data/files.h"
#include "io/safetensors.h"
#include "program.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

TestSuite(freeze_flags, .init = files_begin, .fini = files_end);

#define RESNET "--dataset synthetic --image-size 8 --batch-size 4 "

static void run(char out[1 << 16], const char *arguments) {
    outcome o = program_run("train_resnet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
    memcpy(out, o.out, sizeof o.out);
}

/* Parameters of resnet18_small, 10 classes: 11,173,962; its norms 9,600 and its fc 5,130. */
Test(freeze_flags, words_and_prefixes_choose_what_trains) {
    static const struct {
        const char *flags;
        double trained;
    } cases[] = {{"", 11173962},
                 {"--train-only head", 5130},
                 {"--train-only norm", 9600},
                 {"--train-only bias", 4800 + 10},
                 {"--train-only bias head", 4800 + 5130},
                 {"--train-only layer4.1.conv2 fc.bias", 2359296 + 10},
                 {"--freeze fc layer4", 11173962 - 5130 - 8393728},
                 {"--train-only head bias --freeze bn1 fc.weight", 4800 - 64 + 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static char out[1 << 16];
        char arguments[512], line[64];
        snprintf(arguments, sizeof arguments, RESNET "--steps 3 --eval-every 0 --plan --report %s %s",
                 files_path("r.json"), cases[i].flags);
        run(out, arguments);
        cJSON *r = report_read(files_path("r.json"));
        cr_expect_eq(report_number(r, "parameters", NULL), 11173962);
        cr_expect_eq(report_number(r, "trained_parameters", NULL), cases[i].trained, "%s: %.0f", cases[i].flags,
                     report_number(r, "trained_parameters", NULL));
        cJSON_Delete(r);
        snprintf(arguments, sizeof arguments, RESNET "--summary %s", cases[i].flags);
        run(out, arguments);
        snprintf(line, sizeof line, "\ntrained: %.0f parameters; frozen: %.0f\n", cases[i].trained,
                 11173962 - cases[i].trained);
        cr_expect_eq(strstr(out, line) != NULL, i > 0, "%s: %s", cases[i].flags, out);
    }
}

Test(freeze_flags, refusals_name_the_flag) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {{"--freeze layer5", "--freeze layer5: .*'layer5'; near it: layer1, layer2, layer3"},
                 {"--train-only fcc", "--train-only fcc: .*'fcc'; near it: fc"},
                 {"--train-only head --freeze fc", "--freeze: no parameter is left to train"},
                 {"--freeze", "--freeze needs a value: --freeze PREFIX"},
                 {"--train-only=fc", "--train-only: write its values"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, RESNET "--steps 1 %s", cases[i].flags);
        outcome o = program_run("train_resnet", arguments);
        cr_expect_eq(o.status, 2, "%s: status %d", cases[i].flags, o.status);
        EXPECT_MATCH(o.err, cases[i].sentence);
        cr_expect_str_empty(o.out);
    }
}

static fri_safetensors *weights(const char *name) {
    fri_safetensors *f = NULL;
    cr_assert_eq(fri_safetensors_open(files_path(name), &f), FR_OK, "%s", fr_last_error());
    return f;
}

/* Expects equal tensors in the two files: 1 only below `prefix`, 0 only outside `prefix`. */
static void expect_equal_but(const char *a, const char *b, const char *prefix) {
    fri_safetensors *x = weights(a), *y = weights(b);
    cr_assert_eq(x->n_entries, y->n_entries);
    for (size_t i = 0; i < x->n_entries; i++) {
        const fri_safetensors_entry *e = &x->entries[i], *f = fri_safetensors_find(y, e->name);
        cr_assert_not_null(f, "%s is missing", e->name);
        const bool equal = e->bytes == f->bytes && memcmp(e->data, f->data, e->bytes) == 0;
        cr_expect_eq(equal, strncmp(e->name, prefix, strlen(prefix)) != 0, "%s: %s", e->name,
                     equal ? "equal" : "not equal");
    }
    fri_safetensors_close(&x);
    fri_safetensors_close(&y);
}

/* Statistics and all else but the head stay: through evaluations, half precision, and a resumed run. The resumed run
 * ends as the uninterrupted run; a plan has its bytes. */
Test(freeze_flags, all_but_the_head_stays_through_save_and_resume) {
    static char out[1 << 16];
    char arguments[1024];
    const char *common = RESNET "--half=bf16 --train-only head --lr 0.1 --seed 3";
    snprintf(arguments, sizeof arguments, "%s --steps 4 --eval-every 1 --lr 0 --weight-decay 0 --export %s", common,
             files_path("start"));
    run(out, arguments);
    snprintf(arguments, sizeof arguments, "%s --steps 12 --schedule constant --report %s --export %s", common,
             files_path("r.json"), files_path("whole"));
    run(out, arguments);
    cr_expect_not_null(strstr(out, ", 5130 of them trained, "), "%s", out);
    snprintf(arguments, sizeof arguments, "%s --steps 5 --schedule constant --save %s", common, files_path("states"));
    run(out, arguments);
    snprintf(arguments, sizeof arguments, "%s --steps 12 --schedule constant --save %s --resume latest --export %s",
             common, files_path("states"), files_path("resumed"));
    run(out, arguments);
    cr_expect_null(strstr(out, "other settings than when it was saved: freeze"), "%s", out);
    expect_equal_but("start", "whole", "fc.");
    expect_equal_but("whole", "resumed", "nothing");
    cJSON *r = report_read(files_path("r.json"));
    const double run_peak = report_number(r, "memory", "peak_requested"), floor = report_number(r, "memory", "floor");
    cJSON_Delete(r);
    snprintf(arguments, sizeof arguments, "%s --steps 12 --schedule constant --plan --report %s", common,
             files_path("r.json"));
    run(out, arguments);
    r = report_read(files_path("r.json"));
    cr_expect_eq(report_number(r, "memory", "peak_requested"), run_peak, "run %.0f", run_peak);
    cr_expect_eq(report_number(r, "memory", "floor"), floor, "the peak is before the optimizer's state");
    cJSON *memory = report_at(r, "memory", NULL), *evaluation = report_at(memory, "evaluation", "at_peak");
    const double lasting = report_number(evaluation, "parameter", NULL) + report_number(evaluation, "optimizer", NULL);
    cr_expect_eq(report_number(evaluation, "optimizer", NULL), 10240 + 512, "momentum of fc in bf16");
    cr_expect_eq(floor, lasting + report_number(memory, "largest_op", NULL));
    cJSON_Delete(r);
    snprintf(arguments, sizeof arguments,
             RESNET "--half=bf16 --train-only bias head --seed 3 --steps 14 --save %s --resume latest",
             files_path("states"));
    run(out, arguments);
    cr_expect_not_null(strstr(out, "train-only bias head was head"), "%s", out);
}

/* The file with other names in place of fc.weight and fc.bias. */
static void write_with_another_head(const char *from, const char *to, const char *weight, const char *bias) {
    fri_safetensors *x = weights(from);
    fri_safetensors_entry *e = calloc(x->n_entries, sizeof *e);
    for (size_t i = 0; i < x->n_entries; i++) {
        e[i] = x->entries[i];
        if (strcmp(e[i].name, "fc.weight") == 0) e[i].name = weight;
        if (strcmp(e[i].name, "fc.bias") == 0) e[i].name = bias;
    }
    MUST(fri_safetensors_write(files_path(to), e, x->n_entries, NULL, 0, NULL, NULL));
    free(e);
    fri_safetensors_close(&x);
}

Test(freeze_flags, weights_with_another_head_keep_it_fresh) {
    static char out[1 << 16];
    char arguments[1024];
    snprintf(arguments, sizeof arguments, RESNET "--steps 2 --export %s", files_path("ten"));
    run(out, arguments);
    snprintf(arguments, sizeof arguments,
             RESNET "--classes 5 --steps 1 --lr 0 --weight-decay 0 --train-only head --weights %s --export %s",
             files_path("ten"), files_path("five"));
    run(out, arguments);
    EXPECT_MATCH(out, "--weights: fc has another size there and starts fresh; everything else is the file's");
    expect_equal_but("ten", "five", "fc.");
    snprintf(arguments, sizeof arguments, RESNET "--steps 1 --weights %s", files_path("ten"));
    run(out, arguments);
    cr_expect_null(strstr(out, "fresh"), "%s", out);
    static const struct {
        const char *weight, *bias, *refused;         /* refused: expected of the sentence, or NULL */
    } heads[] = {{"fc.1.weight", "fc.1.bias", NULL}, /* of a Sequential of a dropout and a linear layer */
                 {"head.weight", "head.bias", NULL},
                 {"head.weight", "tail.bias", "unexpected head.weight, tail.bias"},
                 {"layer1.weight", "layer1.bias", "unexpected layer1.weight, layer1.bias"},
                 {"head.weight", "head.scale", "unexpected head.weight, head.scale"}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        write_with_another_head("ten", "moved", heads[i].weight, heads[i].bias);
        snprintf(arguments, sizeof arguments, RESNET "--steps 1 --weights %s", files_path("moved"));
        if (heads[i].refused == NULL) {
            run(out, arguments);
            EXPECT_MATCH(out, "--weights: fc is missing or has other layers or another name there and starts fresh");
        } else {
            outcome o = program_run("train_resnet", arguments);
            cr_expect_eq(o.status, 1, "%s", heads[i].weight);
            EXPECT_MATCH(o.err, heads[i].refused);
        }
    }
    snprintf(arguments, sizeof arguments, RESNET "--depth 34 --classes 5 --steps 1 --weights %s", files_path("ten"));
    outcome o = program_run("train_resnet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "missing layer1.2.conv1.weight.*fc.weight is \\[10, 512\\] in the file but \\[5, 512\\]");
    snprintf(arguments, sizeof arguments, RESNET "--classes 5 --weights %s --predict x.png", files_path("ten"));
    o = program_run("train_resnet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "x.png: cannot be opened"); /* the file says how many classes there are */
}

/* Prefix in parts: equal weights in less memory, and the run takes the planned bytes. */
Test(freeze_flags, a_prefix_in_parts_trains_the_same_weights) {
    static const char *const flags[] = {"", "--prefix-parts 3", "--prefix-parts auto"};
    double peak[3];
    for (int i = 0; i < 3; i++) {
        static char out[1 << 16];
        char arguments[512];
        for (int plan = 1; plan >= 0; plan--) {
            snprintf(arguments, sizeof arguments,
                     RESNET
                     "--width 0.25 --image-size 16 --batch-size 16 --steps 2 --train-only head %s --report %s %s %s",
                     flags[i], files_path("r.json"), plan ? "--plan" : "--export",
                     plan ? "" : files_path((const char *[]){"whole", "three", "auto"}[i]));
            run(out, arguments);
            cJSON *r = report_read(files_path("r.json"));
            const double now = report_number(r, "memory", "peak_allocated");
            if (!plan) cr_expect_eq(now, peak[i], "%s: %.0f bytes, planned %.0f", flags[i], now, peak[i]);
            peak[i] = now;
            cJSON_Delete(r);
        }
    }
    expect_equal_but("whole", "three", "none");
    expect_equal_but("whole", "auto", "none");
    cr_expect_lt(peak[1], peak[0]);
    cr_expect_lt(peak[2], peak[0]);
}

typedef struct numbers {
    double training, evaluation, loss, accuracy;
} numbers;

static numbers evaluated(const char *flags) {
    static char out[1 << 16];
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             RESNET "--width 0.5 --image-size 16 --batch-size 48 --steps 2 --lr 0 --weight-decay 0 --report %s %s",
             files_path("r.json"), flags);
    run(out, arguments);
    cJSON *r = report_read(files_path("r.json")), *memory = report_at(r, "memory", NULL);
    const bool plan = strstr(flags, "--plan") != NULL;
    const numbers n = {.training = report_number(memory, "peak_allocated", NULL),
                       .evaluation = report_number(memory, "evaluation", "peak_allocated"),
                       .loss = plan ? 0 : report_number(r, "loss", "test"),
                       .accuracy = plan ? 0 : report_number(r, "accuracy", "test")};
    cJSON_Delete(r);
    return n;
}

/* Training a head in parts needs less than the test loader's whole batch, so batches of 48 images, and the last of 16,
 * are evaluated in parts. Training conv1 needs more than an evaluation. All weights stay. */
Test(freeze_flags, an_evaluation_needs_no_more_than_training) {
    const numbers parts = evaluated("--train-only head --prefix-parts 1"), whole = evaluated("--train-only conv1");
    const numbers plan = evaluated("--train-only head --prefix-parts 1 --plan");
    cr_expect_leq(parts.evaluation, parts.training, "%.0f bytes, training %.0f", parts.evaluation, parts.training);
    cr_expect_gt(whole.evaluation, parts.evaluation);
    cr_expect_eq(parts.loss, whole.loss, "%.17g, as a whole %.17g", parts.loss, whole.loss);
    cr_expect_eq(parts.accuracy, whole.accuracy);
    cr_expect_eq(plan.evaluation, parts.evaluation, "planned %.0f bytes, %.0f allocated", plan.evaluation,
                 parts.evaluation);
    cr_expect_eq(plan.training, parts.training);
}
