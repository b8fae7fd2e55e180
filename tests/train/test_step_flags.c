/* test_step_flags.c - the flags of a training step: flags that change no result, flags planned to the byte, refused
 * flags. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 "

TestSuite(step_flags, .init = files_begin, .fini = files_end);

static cJSON *run(const char *flags) {
    char arguments[1024];
    const char *report = files_path("r.json");
    snprintf(arguments, sizeof arguments, TINY "--steps 6 --eval-every 0 --quiet --report %s %s", report, flags);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
    return report_read(report);
}

/* The losses of all steps and of the test images, each with all its digits. */
static char *losses(const char *flags) {
    cJSON *r = run(flags);
    char *text = cJSON_Print(report_at(r, "loss", NULL));
    cJSON_Delete(r);
    return text;
}

static void expect_same(const char *flags, const char *than) {
    char *a = losses(than), *b = losses(flags);
    cr_expect_str_eq(a, b, "'%s' differs from '%s': %s against %s", flags, than, b, a);
    cJSON_free(a);
    cJSON_free(b);
}

Test(step_flags, what_only_moves_bytes_changes_no_loss) {
    static const char *const same[] = {"--checkpoint-segments sqrt",
                                       "--checkpoint-segments log",
                                       "--checkpoint-segments each",
                                       "--checkpoint-segments 3",
                                       "--offload",
                                       "--grad-zero",
                                       "--no-fused-step",
                                       "--accumulate 1 --split-batch 1",
                                       "--no-deterministic --cudnn-benchmark",
                                       "--clip 1e20"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) expect_same(same[i], "");
    expect_same("--amp=bf16 --checkpoint-segments each", "--amp=bf16");
    expect_same("--amp=bf16 --no-fused-step", "--amp=bf16");
    expect_same("--amp --fused-step=two-pass", "--amp");
    expect_same("--amp --fused-step=two-pass --optimizer adam --checkpoint-segments 2", "--amp --optimizer adam");
    expect_same("--amp --loss-scale 65536", "--amp --loss-scale dynamic");
    expect_same("--half --master-weights --loss-scale 65536", "--half --master-weights");
    expect_same("--half --master-weights --fused-step=two-pass", "--half --master-weights");
    static const char *const optimizers[] = {"--optimizer adam",
                                             "--optimizer adamw",
                                             "--optimizer adam8",
                                             "--optimizer rmsprop",
                                             "--half=bf16 --master-weights",
                                             "--inplace-abn",
                                             "--train-only norm head"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        char flags[128];
        snprintf(flags, sizeof flags, "--no-fused-step %s", optimizers[i]);
        expect_same(flags, optimizers[i]);
    }
}

Test(step_flags, masters_are_optimizer_state) {
    for (int with = 0; with < 2; with++) {
        cJSON *r = run(with ? "--half --momentum 0 --master-weights" : "--half --momentum 0");
        double bytes = cJSON_GetObjectItem(report_at(r, "memory", "at_peak"), "optimizer")->valuedouble;
        cr_expect_eq(bytes > 0, with, "%s: %.0f bytes", with ? "with" : "without", bytes);
        cJSON_Delete(r);
    }
}

/* A loss scale that is a power of two changes no bit of bf16, but the 1e-6 that clipping adds to the norm. */
Test(step_flags, clipping_knows_the_loss_scale_of_half_gradients) {
    double last[2];
    for (int i = 0; i < 2; i++) {
        cJSON *r = run(i == 0 ? "--half=bf16 --master-weights --lr 0.5 --warmup 0 --clip 1"
                              : "--half=bf16 --master-weights --lr 0.5 --warmup 0 --clip 1 --loss-scale 1024");
        last[i] = report_number(r, "loss", "last");
        cJSON_Delete(r);
    }
    cr_expect(fabs(last[1] - last[0]) < 1e-3 * last[0], "scaled %.9g, not %.9g", last[1], last[0]);
}

/* Rounding differs, the mean does not: without batch norm, parts and accumulation give the large batch's loss. */
Test(step_flags, parts_and_accumulation_average) {
    static const char *const flags[] = {"--batch-size 8", "--batch-size 8 --split-batch 4",
                                        "--batch-size 4 --accumulate 2"};
    double last[3];
    for (int i = 0; i < 3; i++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments,
                 "--depth 11 --no-batch-norm --lr 0.1 --warmup 0 --steps 3 --eval-every 0 --augment none --quiet "
                 "--report %s %s",
                 files_path("r.json"), flags[i]);
        outcome o = program_run("train_vgg", arguments);
        cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
        cJSON *r = report_read(files_path("r.json"));
        last[i] = report_number(r, "loss", "last");
        cJSON_Delete(r);
    }
    cr_expect(fabs(last[1] - last[0]) < 1e-5, "in parts %.9g, at once %.9g", last[1], last[0]);
    cr_expect(fabs(last[2] - last[0]) < 1e-5, "accumulated %.9g, at once %.9g", last[2], last[0]);
}

Test(step_flags, planned_is_measured) {
    static const char *const flags[] = {"--amp",
                                        "--amp=bf16 --checkpoint-segments sqrt",
                                        "--half",
                                        "--half --master-weights --optimizer adam8 --clip 1",
                                        "--half=bf16 --master-weights --fused-step",
                                        "--fused-step --optimizer adam8",
                                        "--half --master-weights --optimizer rmsprop",
                                        "--accumulate 3",
                                        "--split-batch 3",
                                        "--split-batch 4 --rebuild --amp",
                                        "--split-batch 2 --accumulate 2 --half --master-weights",
                                        "--split-batch 2 --accumulate 2 --clip 1 --amp",
                                        "--no-fused-step --optimizer adam",
                                        "--fused-step=two-pass --amp",
                                        "--grad-zero --checkpoint-segments log",
                                        "--offload",
                                        "--no-arena --checkpoint-segments each"};
    static const char *const keys[] = {"peak_requested", "peak_allocated", "peak_reserved"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char plan[256];
        snprintf(plan, sizeof plan, "--plan %s", flags[i]);
        cJSON *planned = run(plan), *measured = run(flags[i]);
        for (int k = 0; k < 3; k++)
            cr_expect_eq(report_number(planned, "memory", keys[k]), report_number(measured, "memory", keys[k]),
                         "%s, %s: planned %.0f, measured %.0f", flags[i], keys[k],
                         report_number(planned, "memory", keys[k]), report_number(measured, "memory", keys[k]));
        cr_expect(cJSON_Compare(report_at(planned, "memory", "at_peak"), report_at(measured, "memory", "at_peak"),
                                true),
                  "%s: other categories at the peak", flags[i]);
        cJSON_Delete(planned);
        cJSON_Delete(measured);
    }
}

/* A scale that overflows f16 from the start: steps are skipped, the scale halves, the run recovers. */
Test(step_flags, overflow_skips_halves_and_recovers) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "--depth 11 --batch-size 4 --steps 4 --eval-every 0 --amp --report %s",
             files_path("r.json"));
    outcome o = program_run("train_vgg", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "loss scale [0-9.e+]+, [0-4] of 4 steps skipped for inf or NaN in the gradients");
    cJSON *r = report_read(files_path("r.json"));
    cr_expect_eq(report_number(r, "loss_scale", "last"), 65536 / exp2(report_number(r, "loss_scale", "skipped")));
    cr_expect_str_eq(report_at(r, "dtype", NULL)->valuestring, "f16");
    cJSON_Delete(r);
    snprintf(arguments, sizeof arguments,
             TINY "--steps 3 --eval-every 0 --amp --loss-scale 1237940039285380274899124224 "
                  "--report %s",
             files_path("r.json"));
    o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    r = report_read(files_path("r.json"));
    cr_expect_eq(report_number(r, "loss_scale", "skipped"), 3);
    EXPECT_MATCH(o.out, "step 1 is skipped: inf or NaN first in the gradient of [a-z0-9.]+, made by op [a-z0-9_]+");
    const cJSON *overflow = report_at(r, "loss_scale", "overflow");
    cr_expect_eq(cJSON_GetObjectItem(overflow, "step")->valueint, 3);
    cr_expect_str_eq(cJSON_GetObjectItem(overflow, "parameter")->valuestring, "classifier.bias");
    cr_expect_null(cJSON_GetObjectItem(overflow, "first"), "nobody looked");
    EXPECT_MATCH(o.out, "scale [0-9.e+]+, 3 skipped");
    cr_expect(fabs(report_number(r, "loss_scale", "last") / exp2(90) - 1) < 1e-12, "a fixed scale stays");
    cr_expect(isfinite(report_number(r, "loss", "last")));
    cJSON_Delete(r);
}

Test(step_flags, evaluation_and_what_is_outside) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments, TINY "--steps 2 --report %s", files_path("r.json"));
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out,
                 "evaluation's peak, without a graph: [0-9.]+ [KMi]*B, [0-9.]+ [KMi]*B (less|more) than training's");
    EXPECT_MATCH(o.out, "outside the engine: [0-9.]+ [KMG]iB .resident set [0-9.]+ [KMG]iB minus reserved");
    cJSON *r = report_read(files_path("r.json"));
    cr_expect_gt(report_number(r, "process", "outside_the_engine"), 1e6);
    cJSON_Delete(r);
}

/* An evaluation may need more than the steps of a head, and one image has no parts: the last line says so, with
 * --plan's numbers. */
Test(step_flags, the_last_line_covers_evaluations) {
    const char *flags = "--dataset digits --model mobilenet_v2_w0.35 --image-size 32 --batch-size 1 --steps 2 "
                        "--train-only head";
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s --plan", flags);
    outcome plan = program_run("finetune", arguments), run = program_run("finetune", flags);
    cr_assert_eq(run.status, 0, "%s", run.err);
    const char *planned = strstr(plan.out, "peak memory "), *last = strstr(run.out, "peak memory ");
    cr_assert(planned != NULL && last != NULL, "%s%s", plan.out, run.out);
    EXPECT_MATCH(last, "^peak memory [0-9.]+ .iB \\(evaluation [0-9.]+ .iB\\)\n$");
    cr_expect_eq(strncmp(planned, last, strlen(last) - 1), 0, "%s%s", planned, last);
}

Test(step_flags, a_choice_that_saves_nothing_says_so) {
    /* The peak is in the forward pass of the frozen layers, whatever workspaces the processor's kernels need. */
    outcome o = program_run("train_densenet", TINY "--plan --train-only head --fused-step");
    EXPECT_MATCH(o.out, "note: --fused-step saves nothing here: the peak of [0-9]+ bytes is the same without");
    o = program_run("train_densenet", TINY "--plan --checkpoint-segments 1 --fused-step --rebuild");
    EXPECT_MATCH(o.out, "note: --checkpoint-segments 1 saves nothing here");
    cr_expect_null(strstr(o.out, "note: --rebuild"), "rebuilding saves something: %s", o.out);
    /* Recomputing each unit of a VGG keeps every unit's input, not kept before. */
    o = program_run("train_vgg", "--depth 11 --no-batch-norm --device meta --steps 1 --checkpoint-segments each");
    EXPECT_MATCH(o.out, "note: --checkpoint-segments each raises the peak, from [0-9]+ to [0-9]+ bytes: what one");
    o = program_run("train_vgg", "--amp --no-half-gradients --plan");
    EXPECT_MATCH(o.out, "note: --amp raises the peak, .* bytes: the loss scale .*, and --half-gradients halves them");
    o = program_run("train_densenet", TINY "--plan");
    cr_expect_null(strstr(o.out, "note: "), "defaults are not talked about: %s", o.out);
    o = program_run("train_densenet", TINY "--plan --quiet --checkpoint-segments 1");
    cr_expect_null(strstr(o.out, "note: "), "quiet: %s", o.out);
    /* The CPU computes half data in f32, in small pieces: a head's step gains something. */
    o = program_run("finetune", "--dataset synthetic --image-size 64 --plan --amp");
    cr_expect_null(strstr(o.out, "note: --amp"), "%s", o.out);
    o = program_run("finetune", "--dataset synthetic --image-size 64 --plan --amp=bf16");
    cr_expect_null(strstr(o.out, "note: --amp"), "%s", o.out);
}

Test(step_flags, refused) {
    static const struct {
        const char *flags, *sentence;
    } cases[] = {
        {"--amp=fp8", "--amp fp8: must be one of fp16, bf16, off"},
        {"--loss-scale 8", "--loss-scale 8 needs --amp, or --half with --master-weights"},
        {"--amp --loss-scale fast", "--loss-scale fast: neither a number nor one of dynamic"},
        {"--amp --loss-scale 0", "--loss-scale 0: must be at least 1e-30"},
        {"--half --amp", "--half with --amp"},
        {"--master-weights", "f32 copies of half parameters; add --half"},
        {"--half --loss-scale 8", "--loss-scale 8 needs --amp"},
        {"--accumulate 0", "--accumulate 0: must lie in 1"},
        {"--accumulate 1000", "--accumulate 1000: an epoch has only 187 batches of 8"},
        {"--split-batch 9", "--split-batch 9: at most 8, the images of a batch"},
        {"--fused-step --accumulate 2", "--fused-step with --accumulate"},
        {"--fused-step --split-batch 2", "--fused-step with --split-batch"},
        {"--fused-step --clip 1", "--fused-step with --clip"},
        {"--fused-step --amp", "--fused-step with a loss scale"},
        {"--fused-step --grad-zero", "--fused-step with --grad-zero"},
        {"--fused-step=two-pass", "--fused-step=two-pass: looks for inf and NaN under a loss scale"},
        {"--fused-step=two-pass --amp --clip 1", "--fused-step with --clip"},
        {"--fused-step=three", "--fused-step three: must be one of auto, on, two-pass, off"},
        {"--checkpoint-segments 0", "--checkpoint-segments 0: must lie in 1"},
        {"--checkpoint-segments 99", "--checkpoint-segments 99: .* so at most"},
        {"--checkpoint-segments root", "--checkpoint-segments root: neither a whole number nor one of sqrt, log, each"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, TINY "%s", cases[i].flags);
        outcome o = program_run("train_densenet", arguments);
        cr_expect_eq(o.status, 2, "%s: exit status %d: %s", cases[i].flags, o.status, o.err);
        EXPECT_MATCH(o.err, cases[i].sentence);
    }
}

/* A learning rate that spoils the network: the step is named, and with --detect-anomaly the op. */
Test(step_flags, a_loss_that_is_no_number_is_traced_to_its_op) {
    static const char *const flags = TINY "--steps 30 --eval-every 0 --lr 1e5 --momentum 0.99 --weight-decay 0.99 ";
    char arguments[512];
    outcome o = program_run("train_densenet", flags);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "the loss is (nan|-?inf) after step [0-9]+: --lr 100000 .*; --detect-anomaly names the op");
    snprintf(arguments, sizeof arguments, "%s --detect-anomaly", flags);
    o = program_run("train_densenet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "inf or NaN first in (a gradient|the result) of op [a-z0-9_]+ in module [a-z0-9.]+");
}

static fr_status densenet(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    return fr_model("densenet_bc10_k4", FR_MODEL_OPTS(.classes = classes, .image_size = 8, .device = device), out);
}

static void take_note(void *ctx, const char *text) {
    char *notes = ctx;
    snprintf(notes + strlen(notes), 4096 - strlen(notes), "%s\n", text);
}

/* Loss scaling skips an overflowed step. The next step is traced unasked, at no byte of memory. An evaluation would end
 * the run, so there are no test images. */
Test(step_flags, an_overflow_of_the_forward_pass_is_traced_to_its_op) {
    double peak[2];
    for (int looked = 0; looked < 2; looked++) {
        char notes[4096] = "";
        fr_session_opts o = fr_session_opts_default();
        fr_dataset *d = NULL;
        fr_session *session = NULL;
        o.model = densenet;
        o.ctx = notes;
        o.on_note = take_note;
        o.train.quiet = false;
        o.train.optim.batch_size = 8;
        o.train.optim.steps = 8;
        o.train.optim.lr = 1e5;
        o.train.optim.momentum = o.train.optim.weight_decay = 0.99;
        o.train.precision.amp = FR_TRAIN_AMP_FP16;
        o.train.precision.detect_anomaly = looked == 1;
        o.train.files.report = files_path("r.json");
        MUST(fr_dataset_synthetic(64, 10, 8, 8, 3, 0, &d));
        MUST(fr_session_create(&o, d, NULL, &session));
        MUST(fr_session_run(session));
        fr_session_release(&session);
        fr_dataset_release(&d);
        EXPECT_MATCH(notes,
                     "the forward pass overflowed, its loss is (nan|-?inf); inf or NaN first in the result of op "
                     "[a-z0-9_]+ in module [a-z0-9.]+; ");
        cJSON *r = report_read(files_path("r.json"));
        const cJSON *first = cJSON_GetObjectItem(report_at(r, "loss_scale", "overflow"), "first");
        cr_assert_not_null(first);
        cr_expect(cJSON_IsFalse(cJSON_GetObjectItem(first, "backward")));
        cr_expect_str_neq(cJSON_GetObjectItem(first, "op")->valuestring, "");
        peak[looked] = report_number(r, "memory", "peak_requested");
        cJSON_Delete(r);
    }
    cr_expect_eq(peak[0], peak[1], "looking costs %.0f bytes", peak[1] - peak[0]);
}

/* Every precision with the instructions of AVX2: the run says so, and the loss is that of the whole processor, or near
 * for bf16. An unknown level is said in the first line. */
Test(step_flags, every_precision_without_avx512, .timeout = 300) {
    static const char *const flags[] = {"", "--amp=fp16", "--amp=bf16", "--half=bf16", "--amp=fp16 --all-off"};
    char arguments[1024];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const bool bf16 = strstr(flags[i], "bf16") != NULL;
        double last[2];
        for (int narrow = 0; narrow < 2; narrow++) {
            cr_assert_eq(narrow ? setenv("FRUGAL_ISA", "avx2", 1) : unsetenv("FRUGAL_ISA"), 0);
            snprintf(arguments, sizeof arguments, TINY "--steps 10 --eval-every 0 --report %s %s", files_path("r.json"),
                     flags[i]);
            outcome o = program_run("train_densenet", arguments);
            cr_assert_eq(o.status, 0, "%s: %s", flags[i], o.err);
            cJSON *r = report_read(files_path("r.json"));
            const char *level = report_at(r, "environment", NULL)->valuestring;
            cr_expect(!narrow || strstr(level, "avx512") == NULL, "%s with AVX2: %s", flags[i], level);
            last[narrow] = report_number(r, "loss", "last");
            cJSON_Delete(r);
        }
        const double bound = bf16 ? 0.02 * last[0] : 0; /* AMX and AVX512_BF16 add in other orders */
        cr_expect_leq(fabs(last[0] - last[1]), bound, "%s: loss %.9g, with AVX2 %.9g", flags[i], last[0], last[1]);
    }
    cr_assert_eq(setenv("FRUGAL_ISA", "sse9", 1), 0);
    outcome o = program_run("train_densenet", TINY "--steps 1 --eval-every 0");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "^[^\n]*; FRUGAL_ISA=sse9 is none of [a-z0-9_, ]+\\)");
    cr_assert_eq(unsetenv("FRUGAL_ISA"), 0);
}
