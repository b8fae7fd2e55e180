/* test_files.c - states, weights, predictions and logs of the trainers. Killing is tests/io/kill_resume.sh. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <frugal/models.h>
#include <frugal/addon.h>
#include <math.h>
#include <unistd.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 --quiet "

TestSuite(files, .init = files_begin, .fini = files_end);

/* Runs train_densenet on the test's folder, written %s in the flags (up to three times). */
static outcome run(const char *flags) {
    char arguments[2048], format[1024];
    snprintf(format, sizeof format, TINY "%s", flags);
    snprintf(arguments, sizeof arguments, format, files_root, files_root, files_root);
    return program_run("train_densenet", arguments);
}

static void good(const char *flags) {
    outcome o = run(flags);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
}

static bool same_file(const char *a, const char *b) {
    char command[2048];
    snprintf(command, sizeof command, "cmp -s %s/%s %s/%s", files_root, a, files_root, b);
    return system(command) == 0;
}

static int lines(const char *name) {
    FILE *f = fopen(files_path(name), "r");
    int n = 0;
    cr_assert_not_null(f, "%s is not there", name);
    for (int c; (c = getc(f)) != EOF;) n += c == '\n';
    fclose(f);
    return n;
}

/* Allocations of the run had the places of its dry run, the loaded state included. */
static void expect_in_arena(const char *flags) {
    if (getenv("FRUGAL_NO_POOL") != NULL) return; /* a segment per allocation, so no arena */
    cJSON *report = report_read(files_path("r.json"));
    cr_expect(cJSON_IsTrue(report_at(report, "arena", "used")), "%s", flags);
    cr_expect_eq(report_number(report, "arena", "departures"), 0, "%s", flags);
    cJSON_Delete(report);
}

Test(files, a_resumed_run_ends_where_the_whole_run_does) {
    static const char *const flags[] = {"", "--optimizer adam --amp", "--accumulate 2 --workers 0"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char text[256];
        snprintf(text, sizeof text, "--epochs 1 --steps 20 --eval-every 0 --export %%s/whole.st %s", flags[i]);
        good(text);
        /* The first part is the same command, cut off: the schedule counts the whole training. Its step keeps all
         * gradients, as 0.2.0 did. */
        snprintf(text, sizeof text,
                 "--epochs 1 --steps 20 --eval-every 0 --save %%s/s --save-every 9 --keep 0 --no-fused-step %s",
                 flags[i]);
        good(text);
        cr_assert_eq(unlink(files_path("s/state-00000003-step-20.safetensors")), 0);
        cr_assert_eq(unlink(files_path("s/state-00000002-step-18.safetensors")), 0);
        snprintf(text, sizeof text,
                 "--epochs 1 --steps 20 --eval-every 0 --save %%s/s --resume latest --rebuild --checkpoint-segments 2 "
                 "--export %%s/resumed.st --report %%s/r.json %s",
                 flags[i]);
        if (strstr(flags[i], "--amp") == NULL) {
            good(text);
            expect_in_arena(flags[i]);
        }
        snprintf(text, sizeof text,
                 "--epochs 1 --steps 20 --eval-every 0 --resume %%s/s --export %%s/resumed.st --report %%s/r.json %s",
                 flags[i]);
        good(text);
        expect_in_arena(flags[i]);
        cr_expect(same_file("whole.st", "resumed.st"), "'%s': other parameters after resuming", flags[i]);
        char command[1100];
        snprintf(command, sizeof command, "rm -r %s/s", files_root);
        cr_assert_eq(system(command), 0);
    }
}

Test(files, latest_begins_anew_where_nothing_was_saved) {
    good("--steps 3 --eval-every 0 --save %s/s --resume latest --keep 1");
    good("--steps 3 --eval-every 0 --save %s/s --resume latest"); /* at its end: only evaluates */
}

Test(files, a_damaged_state_is_named_and_passed_over) {
    good("--steps 4 --eval-every 0 --save %s/s --save-every 2 --keep 0 --export %s/whole.st");
    FILE *f = fopen(files_path("s/state-00000002-step-4.safetensors"), "r+b");
    cr_assert_not_null(f);
    fseek(f, -100, SEEK_END);
    fputc(0x5a, f);
    fclose(f);
    outcome o = run("--steps 4 --eval-every 0 --resume %s/s --export %s/resumed.st");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.err, "state-00000002-step-4.safetensors is passed over: .*checksum");
    cr_expect(same_file("whole.st", "resumed.st"));
}

Test(files, usage_and_another_training_are_refused) {
    static const struct {
        int status;
        const char *flags, *sentence;
    } cases[] = {
        {2, "--resume latest", "--resume latest needs --save DIR"},
        {2, "--save-every 3", "--save-every 3 needs --save DIR"},
        {2, "--predict a.png", "--predict needs trained weights"},
        {2, "--predict", "--predict needs a value"},
        {2, "--predict=a.png", "--predict: write its values"},
        {2, "--device meta --save x", "--save x with --device meta"},
        {1, "--batch-size 4 --resume %s/s", "batch-size: 8, this run has 4"},
        {1, "--growth 8 --resume %s/s", "densenet_bc10_k4.*densenet_bc10_k8"},
        {1, "--width 2 --resume %s/s", "densenet_bc10_k4.*densenet_bc10_k4_w2"},
        {1, "--amp --resume %s/s", "amp: 0, this run has 1"},
        {1, "--dataset synthetic --resume %s/s", "data"},
        {1, "--resume %s/nothing", "nothing"},
        {1, "--weights %s/nothing.safetensors", "nothing.safetensors"},
        {1, "--steps 2 --save %s/s/state-00000001-step-3.safetensors", "state-00000001-step-3.safetensors"},
        {1, "--steps 2 --resume %s/s", "is at step 3, the flags end at 2"},
    };
    good("--steps 3 --eval-every 0 --save %s/s");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome o = run(cases[i].flags);
        cr_expect_eq(o.status, cases[i].status, "%s: exit status %d: %s", cases[i].flags, o.status, o.err);
        EXPECT_MATCH(o.err, cases[i].sentence);
    }
}

Test(files, weights_and_predictions) {
    uint8_t rgb[3 * 16 * 16], *bytes;
    picture_fill(rgb, 16, 16);
    size_t n = jpeg_bytes(JPEG_RGB, rgb, 16, 16, &bytes);
    files_write("a.jpg", bytes, n);
    free(bytes);
    good("--steps 3 --eval-every 0 --export %s/a.st");
    good("--steps 1 --eval-every 0 --lr 0 --momentum 0 --weight-decay 0 --weights %s/a.st");
    outcome o = run("--weights %s/a.st --predict %s/a.jpg %s/a.jpg");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "a\\.jpg\n +[0-9.]+ %  [0-9]\n");
    int rows = 0;
    for (const char *p = o.out; (p = strstr(p, " %  ")) != NULL; p++) rows++;
    cr_expect_eq(rows, 10, "five classes of two images: %s", o.out);
    o = run("--weights %s/a.st --predict %s/absent.jpg");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "absent.jpg");
    o = run("--growth 8 --weights %s/a.st");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "a.st");
}

/* A file of weights and a state have a width; the file says which. */
Test(files, a_width_goes_with_weights_and_state) {
    uint8_t rgb[3 * 16 * 16], *bytes;
    picture_fill(rgb, 16, 16);
    size_t n = jpeg_bytes(JPEG_RGB, rgb, 16, 16, &bytes);
    files_write("a.jpg", bytes, n);
    free(bytes);
    good("--width 2 --steps 3 --eval-every 0 --save %s/s --export %s/a.st");
    good("--width 2 --steps 4 --eval-every 0 --resume %s/s");
    good("--width 2 --steps 1 --eval-every 0 --weights %s/a.st");
    outcome o = run("--weights %s/a.st --predict %s/a.jpg");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "a\\.jpg\n +[0-9.]+ %  [0-9]\n");
    o = run("--width 3 --steps 1 --weights %s/a.st");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "a.st");
}

Test(files, an_ending_of_pytorchs_files_is_refused_before_the_training) {
    static const char *const endings[] = {"pth", "pt", "bin"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char flags[100];
        snprintf(flags, sizeof flags, "--steps 2 --export %%s/w.%s", endings[i]);
        outcome o = run(flags);
        cr_expect_eq(o.status, 2);
        EXPECT_MATCH(o.err, "--export .*: '.*' *.*is the ending of torch.save's files.*name it \\.safetensors");
        cr_expect_null(strstr(o.out, "step"), "said after the training: %s", o.out);
    }
}

Test(files, a_format_of_an_add_on_that_is_not_there_is_named_before_the_training) {
    if (fr_addon_find("onnx") != NULL) cr_skip("the add-on onnx is there");
    outcome o = run("--steps 2 --export %s/w.onnx");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--export .*: a file .onnx needs the add-on onnx: build with -Donnx=enabled");
    cr_expect_null(strstr(o.out, "step"), "said after the training: %s", o.out);
}

Test(files, logs_have_a_line_per_step_also_after_resuming) {
    good("--steps 7 --eval-every 0 --log %s/l.jsonl");
    cr_expect_eq(lines("l.jsonl"), 9, "7 steps and two numbers of the evaluation");
    good("--steps 6 --eval-every 0 --save %s/s --save-every 4 --log %s/m.jsonl");
    char command[1200]; /* the newest state is gone: steps 5 and 6 run again, and their lines are not there twice */
    snprintf(command, sizeof command, "cd %s/s && rm \"$(ls | tail -n 1)\"", files_root);
    cr_assert_eq(system(command), 0);
    good("--steps 6 --eval-every 0 --resume %s/s --log %s/m.jsonl");
    cr_expect_eq(lines("m.jsonl"), 8, "%d lines", lines("m.jsonl"));
    outcome o = run("--steps 4 --eval-every 0 --log %s/none/l.jsonl");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "none/l.jsonl");
}
