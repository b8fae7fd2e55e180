/* test_cached_features.c - --cache-features: the same bits as without, planned to the byte, from memory and a file that
 * another run reads; what is refused. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(cached_features, .init = files_begin, .fini = files_end);

#define DENSENET                                                                                                     \
    "--depth 16 --dataset digits --image-size 8 --batch-size 64 --no-augment --train-only head --seed 3 --schedule " \
    "constant "                                                                                                      \
    "--threads 2 "

static void run(const char *arguments) {
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
}

static void expect_refused(const char *arguments, int status, const char *sentence) {
    outcome o = program_run("train_densenet", arguments);
    cr_expect_eq(o.status, status, "%s: status %d", arguments, o.status);
    EXPECT_MATCH(o.err, sentence);
}

static void expect_same_files(const char *a, const char *b, const char *flags) {
    static char command[2048];
    snprintf(command, sizeof command, "cmp -s %s/%s %s/%s", files_root, a, files_root, b);
    cr_expect_eq(system(command), 0, "%s: %s and %s differ", flags, a, b);
}

/* Weights, saved states and losses; what the plan says is what the run takes. */
Test(cached_features, trains_and_evaluates_with_the_bits_of_all_layers) {
    static const char *const flags[] =
        {"", "--keep-last --balanced-sampling", "--half=fp16 --accumulate 2",
         "--train-only features.denseblock3 features.norm5 head --checkpoint-segments 2 --workers 0",
         "--split-batch 3 --prefix-parts 9"};
    static const char *const cache[] = {"", "--cache-features memory", "--cache-features %s", "--cache-features %s"};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
        char first[512] = "", last[512] = "";
        for (int k = 0; k < 4; k++) {
            char where[600], arguments[2048], line[512];
            snprintf(where, sizeof where, cache[k], files_path("features"));
            if (k == 2) (void)unlink(files_path("features"));
            double peak = 0;
            for (int plan = 1; plan >= 0; plan--) {
                snprintf(arguments, sizeof arguments, DENSENET "--epochs 2 %s %s --report %s %s%s", flags[f], where,
                         files_path("r.json"), plan ? "--plan" : "--export ", plan ? "" : files_path(k ? "b" : "a"));
                if (!plan) {
                    char more[4096];
                    snprintf(more, sizeof more, "%s --keep 1 --save %s", arguments,
                             files_path(k ? "states_b" : "states_a"));
                    run(more);
                } else {
                    run(arguments);
                }
                cJSON *r = report_read(files_path("r.json"));
                const double now = report_number(r, "memory", "peak_allocated");
                if (!plan) cr_expect_eq(now, peak, "%s: %.0f bytes, planned %.0f", arguments, now, peak);
                peak = now;
                if (!plan && getenv("FRUGAL_NO_POOL") == NULL) /* without the allocator there is no arena */
                    cr_expect_eq(report_number(r, "arena", "departures"), 0, "%s", arguments);
                if (k > 0) cr_expect_gt(report_number(r, "features", "bytes"), 0);
                if (!plan) {
                    snprintf(line, sizeof line, "%.17g %.17g %.17g", report_number(r, "loss", "last"),
                             report_number(r, "loss", "test"), report_number(r, "accuracy", "test"));
                    strcpy(k == 0 ? first : last, line);
                }
                cJSON_Delete(r);
            }
            if (k == 0) continue;
            cr_expect_str_eq(last, first, "%s %s", flags[f], where);
            expect_same_files("a", "b", arguments);
            char command[2048];
            snprintf(command, sizeof command,
                     "cmp -s %s/states_a/*.safetensors %s/states_b/*.safetensors && rm -r %s/states_b", files_root,
                     files_root, files_root);
            cr_expect_eq(system(command), 0, "%s: other states", arguments);
        }
        char command[2048];
        snprintf(command, sizeof command, "rm -r %s/states_a", files_root);
        cr_assert_eq(system(command), 0);
    }
}

Test(cached_features, takes_the_bytes_that_it_says) {
    static const char *const cache[] = {"", "--cache-features memory", "--cache-features "};
    double lasting[3], bytes[3] = {0};
    for (int k = 0; k < 3; k++) {
        char arguments[2048];
        snprintf(arguments, sizeof arguments, DENSENET "--epochs 1 --plan --report %s %s%s", files_path("r.json"),
                 cache[k], k == 2 ? files_path("features") : "");
        run(arguments);
        cJSON *r = report_read(files_path("r.json")), *memory = report_at(r, "memory", NULL);
        lasting[k] = report_number(report_at(memory, "evaluation", "at_peak"), "input", NULL);
        if (k > 0) bytes[k] = report_number(r, "features", "bytes");
        cJSON_Delete(r);
    }
    cr_expect_eq(bytes[1], 1797 * (48 * 4 + 8));
    cr_expect_eq(bytes[2], bytes[1]);
    cr_expect_eq(lasting[1] - lasting[2], bytes[1] + 512 - 1797 * 200 % 512, "%.0f in memory", lasting[1] - lasting[2]);
}

/* A run that goes on makes them from the weights of the state. */
Test(cached_features, a_resumed_run_ends_as_one_that_went_on) {
    char arguments[2048];
    for (int k = 0; k < 2; k++) {
        const char *cache = k == 0 ? "" : "--cache-features memory";
        snprintf(arguments, sizeof arguments, DENSENET "--steps 30 --weight-decay 0.1 --export %s",
                 files_path("whole"));
        if (k == 0) run(arguments);
        snprintf(arguments, sizeof arguments, DENSENET "--steps 11 --weight-decay 0.1 %s --save %s", cache,
                 files_path(k == 0 ? "s0" : "s1"));
        run(arguments);
        snprintf(arguments, sizeof arguments,
                 DENSENET "--steps 30 --weight-decay 0.1 --cache-features memory --resume %s --seed 3 --export %s",
                 files_path(k == 0 ? "s0" : "s1"), files_path("resumed"));
        run(arguments);
        expect_same_files("whole", "resumed", cache);
    }
}

Test(cached_features, refusals_are_sentences) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--dataset digits --no-augment", "nothing is frozen"},
        {"--dataset digits --train-only head", "images are varied.*--no-augment leaves"},
        {"--dataset digits --no-augment --train-only head --native-crops", "native-crops"},
        {"--dataset digits --no-augment --train-only head --mixup 0.2", "mixed"},
        {"--dataset digits --no-augment --train-only head --cutmix 1", "mixed"},
        {"--dataset digits --no-augment --train-only head --random-erasing 0.1", "varied"},
        {"--dataset digits --no-augment --train-only head --hue 0.1", "varied"},
        {"--dataset digits --no-augment --train-only head --rand-augment", "varied"},
        {"--rand-augment=2", "--rand-augment 2: is not N,M"},
        {"--rand-augment=0,9", "--rand-augment 0,9: is not N,M"},
        {"--rand-augment=17,9", "--rand-augment 17,9: is not N,M"},
        {"--rand-augment=2,31", "--rand-augment 2,31: is not N,M"},
        {"--rand-augment=2,9,1", "--rand-augment 2,9,1: is not N,M"},
        {"--dataset digits --no-augment --train-only auto --memory-budget 1GiB", "train-only auto"},
        {"--dataset digits --no-augment --train-only head --memory-budget 1GiB", "--no-fit-switches"},
        {"--dataset digits --no-augment --train-only head --plan --all", "--all"},
        {"--dataset digits --no-augment --freeze classifier", "no place behind frozen layers"},
        {"--dataset digits --no-augment --train-only head --weights x --predict x.png", "--predict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "--image-size 8 --steps 1 --cache-features memory %s", cases[i].flags);
        expect_refused(arguments, 2, cases[i].sentence);
    }
    char arguments[2048];
    snprintf(arguments, sizeof arguments,
             "--dataset digits --no-augment --train-only head --ranks 2 --plan --cache-features %s", files_path("f"));
    expect_refused(arguments, 2, "several ranks");
    outcome o = program_run("train_unet", "--dataset digits --no-augment --freeze enc1 --cache-features memory");
    cr_expect_eq(o.status, 2, "%d", o.status);
    EXPECT_MATCH(o.err, "targets are pixels|near it");
}

/* Whatever their bits depend on. */
Test(cached_features, a_file_of_another_run_is_refused) {
    static const char *const others[] = {"--seed 4", "--image-size 12",
                                         "--train-only features.denseblock3.denselayer2 head", "--depth 28",
                                         "--inplace-abn"};
    char arguments[2048];
    snprintf(arguments, sizeof arguments, DENSENET "--steps 1 --cache-features %s", files_path("features"));
    run(arguments);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(arguments, sizeof arguments, DENSENET "--steps 1 --cache-features %s %s", files_path("features"),
                 others[i]);
        expect_refused(arguments, 1, "--cache-features .*/features: holds 1797 records.* another network");
    }
    snprintf(arguments, sizeof arguments, DENSENET "--steps 1 --epochs 9 --lr 3 --cache-features %s",
             files_path("features"));
    run(arguments);
    files_write("features", "nothing", 7);
    expect_refused(arguments, 1, "/features: is no file of records: it has 7 bytes");
}

Test(cached_features, an_interrupted_run_leaves_no_file) {
    char arguments[2048];
    snprintf(arguments, sizeof arguments, DENSENET "--image-size 32 --steps 1 --cache-features %s",
             files_path("features"));
    outcome o = program_run_as((how){.signal_after = "--cache-features: what"}, "train_densenet", arguments);
    cr_expect_eq(o.status, 130, "%d: %s", o.status, o.err);
    cr_expect_eq(access(files_path("features"), F_OK), -1);
    snprintf(arguments, sizeof arguments, "test -z \"$(ls %s)\"", files_root);
    cr_expect_eq(system(arguments), 0, "a temporary file is left");
}
