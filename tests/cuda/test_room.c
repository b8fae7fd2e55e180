/* test_room.c - the free memory of a GPU decides what a run keeps for backward: the choice for several amounts, equal
 * bits under each, and two sessions in one process. On the fake runtime. */
#include <criterion/criterion.h>
#include <frugal/addon.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/context.h"
#include "cuda/cublaslt.h"
#include "cuda/cudnn.h"
#include "cuda/fake.h"
#include "cuda/fake_cublaslt.h"
#include "cuda/fake_cudnn.h"
#include "cuda/memory.h"
#include "cuda/small.h"
#include "plan/section.h"
#include "support/golden.h"

TestSuite(room, .init = fake_begin, .fini = small_end);

static const size_t mib = 1 << 20, libraries = 256 << 20;
static size_t kept; /* bytes reserved by a run without rebuild */

/* Returns the reserved bytes. */
static size_t train(size_t room, const char *more, const char *name) {
    char flags[512], text[64];
    snprintf(flags, sizeof flags, "--dataset synthetic --classes 10 --schedule constant %s", more);
    fake.memory = libraries + room;
    small_train("cuda", flags, name);
    cr_expect_eq(fake.segments, 0, "%s left memory", name);
    small_report(name, "\"peak_reserved\":", text);
    return strtoull(text, NULL, 10);
}

static void set_up(void) {
    small_begin();
    fake_kernels();
    kept = train(1 << 30, "--steps 9 --no-rebuild", "kept");
    cr_assert_gt(kept, 100000);
}

static void expect_report(const char *name, const char *key, const char *value) {
    char text[64];
    small_report(name, key, text);
    cr_expect_not_null(strstr(text, value), "%s: %s is %s, expected %s", name, key, text, value);
}

/* Little rooms fit nothing; the run then tries. */
static const struct {
    const char *name, *choice, *rebuild;
    int less; /* bytes below the needs of keeping */
    size_t room;
} rooms[] = {{"much", "\"kept\"", "false", 0, 0},
             {"enough", "\"fitted\"", "true", 512, 0},
             {"nothing", "\"rebuilt\"", "true", 0, 1000}};
enum { ROOMS = sizeof rooms / sizeof *rooms };

static size_t room_of(int i) {
    return rooms[i].room > 0 ? rooms[i].room : kept - (size_t)rooms[i].less;
}

Test(room, the_free_memory_decides_and_changes_no_bit) {
    char bytes[64];
    set_up();
    small_train("cpu", "--dataset synthetic --classes 10 --schedule constant --steps 9", "cpu");
    for (int i = 0; i < ROOMS; i++) {
        train(room_of(i), "--steps 9", rooms[i].name);
        expect_report(rooms[i].name, "\"choice\":", rooms[i].choice);
        expect_report(rooms[i].name, "\"rebuild\":", rooms[i].rebuild);
        snprintf(bytes, sizeof bytes, "%zu", room_of(i));
        expect_report(rooms[i].name, "\"room\":\t{\n\t\t\"bytes\":", bytes);
        expect_report(rooms[i].name, "\"used\":", i < 2 ? "true" : "false");
        small_expect_same("cpu", rooms[i].name, rooms[i].name);
    }
}

Test(room, a_state_continues_under_another_choice_to_equal_bytes) {
    char folder[] = "/tmp/frugal-room-XXXXXX", flags[128];
    set_up();
    for (int i = 0; i < ROOMS; i++) {
        const int then = (i + 1) % ROOMS;
        strcpy(strrchr(folder, '-'), "-XXXXXX");
        cr_assert_not_null(mkdtemp(folder));
        snprintf(flags, sizeof flags, "--steps 4 --save %s", folder);
        train(room_of(i), flags, "begun");
        expect_report("begun", "\"choice\":", rooms[i].choice);
        snprintf(flags, sizeof flags, "--steps 9 --resume %s", folder);
        train(room_of(then), flags, "ended");
        expect_report("ended", "\"choice\":", rooms[then].choice);
        cr_expect(small_same("kept", "ended"), "%s, then %s: other weights", rooms[i].name, rooms[then].name);
        snprintf(flags, sizeof flags, "rm -r %s", folder);
        cr_expect_eq(system(flags), 0);
    }
}

/* Casts of weights are kept, too, unless keeping all else alone fits; either way the bits are those of single casts. */
Test(room, casts_of_weights_are_kept_where_there_is_room) {
    set_up();
    const size_t needs = train(1 << 30, "--amp --steps 9 --no-rebuild", "single");
    train(1 << 30, "--amp --steps 9", "much");
    train(needs, "--amp --steps 9", "tight");
    expect_report("single", "\"cache-casts\":", "false");
    expect_report("much", "\"cache-casts\":", "true");
    expect_report("tight", "\"cache-casts\":", "false");
    expect_report("tight", "\"choice\":", "\"kept\"");
    small_expect_same("single", "much", "kept casts");
    small_expect_same("single", "tight", "a tight room");
}

/* Memory flags are orders; rebuild alone is chosen, unless given. */
Test(room, given_flags_stay) {
    static const struct {
        const char *flags, *key, *value, *much, *enough;
    } runs[] = {{"--checkpoint-segments 2", "\"checkpoint-segments\":", "2", "kept", "rebuilt"},
                {"--no-encode", "\"encode\":", "false", "kept", "rebuilt"},
                {"--fused-step=off", "\"fused-step\":", "off", "kept", "rebuilt"},
                {"--rebuild", "\"rebuild\":", "true", NULL, NULL},
                {"--no-rebuild", "\"rebuild\":", "false", NULL, NULL},
                {"--all-off", "\"encode\":", "false", NULL, NULL},
                {"--no-arena", "\"arena\":", "false", "kept", "rebuilt"}, /* segments of 2 MiB */
                {"--memory-budget 1GiB", "\"memory-budget\":", "1073741824", NULL, NULL}};
    char flags[128];
    set_up();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(flags, sizeof flags, "--no-rebuild --steps 4 %s", runs[i].flags);
        const size_t needs = train(100 * mib, flags, "needs");
        for (int less = 0; less < 2; less++) {
            const char *choice = less ? runs[i].enough : runs[i].much;
            snprintf(flags, sizeof flags, "--steps 4 %s", runs[i].flags);
            train(less ? needs - 512 : needs, flags, "run");
            expect_report("run", runs[i].key, runs[i].value);
            if (choice != NULL) expect_report("run", "\"choice\":", choice);
            cr_expect_eq(small_says("run", "\"room\":"), choice != NULL, "%s", runs[i].flags);
        }
    }
}

Test(room, a_limit_is_the_room_where_less_than_what_is_free) {
    char flags[64], bytes[64];
    set_up();
    snprintf(flags, sizeof flags, "--steps 9 --memory-limit %zu", kept - 1);
    train(1 << 30, flags, "limited");
    snprintf(bytes, sizeof bytes, "%zu", kept - 1);
    expect_report("limited", "\"room\":\t{\n\t\t\"bytes\":", bytes);
    expect_report("limited", "\"choice\":", "\"fitted\"");
    small_expect_same("kept", "limited", "limited");
}

/* The plan fits the room, then further programs take memory, and a second plan fits the rest. */
Test(room, memory_that_others_took_meanwhile_is_planned_without) {
    set_up();
    fake.others = 1024;
    train(kept, "--steps 9", "taken");
    expect_report("taken", "\"choice\":", "\"fitted\"");
    expect_report("taken", "\"used\":", "true");
    expect_report("taken", "\"departures\":", "0");
    small_expect_same("kept", "taken", "taken");
}

/* Mixed targets are of training alone, in the plan as in the run. */
Test(room, a_run_that_mixes_images_has_a_plan) {
    if (fr_addon_find("augment") == NULL) cr_skip("built without the add-on augment");
    set_up();
    train(1 << 30, "--steps 2 --augment strong", "mixed");
    expect_report("mixed", "\"choice\":", "\"kept\"");
    expect_report("mixed", "\"used\":", "true");
    expect_report("mixed", "\"departures\":", "0");
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 16, 16, 3});
    for (int i = 0; i < 3; i++) {
        x = fr_net_conv2d(n, NULL, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_NO_BIAS);
        x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    }
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1);
    x = fr_net_linear(n, "fc", x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status take_weights(void *to, const char *path, fr_tensor *t, bool is_parameter) {
    (void)is_parameter;
    return strcmp(path, "fc.weight") == 0 ? fr_tensor_to_host(t, to) : FR_OK;
}

/* Runs a session with `room` bytes; returns the planned bytes, and the session's text. */
static size_t session(size_t room, char **text, float weights[16 * 10]) {
    size_t bytes = 0;
    fr_dataset *images = NULL;
    fr_session *s = NULL;
    fr_session_info info;
    fr_session_opts o = fr_session_opts_default();
    o.model = network;
    o.train.device = FR_CUDA;
    o.train.optim.epochs = 2;
    o.train.optim.batch_size = 8;
    o.train.data.workers = 0;
    o.out = open_memstream(text, &bytes);
    fake.memory = libraries + room;
    must(fr_dataset_synthetic(32, 10, 16, 16, 3, 1, &images));
    must(fr_session_create(&o, images, NULL, &s));
    must(fr_session_run(s));
    must(fr_session_info_get(s, &info));
    must(fr_module_each_tensor(fr_session_module(s), take_weights, weights));
    fr_session_release(&s);
    fr_dataset_release(&images);
    cr_expect_eq(fclose(o.out), 0);
    cr_expect_eq(fake.memory, libraries + room, "a session left memory");
    return info.planned;
}

/* A choice ends with the session. */
Test(room, sessions_one_after_the_other_choose_anew) {
    static float first[160], second[160], third[160];
    char *text[3];
    fake_kernels();
    const size_t all = session(100 * mib, &text[0], first);
    const size_t fitted = session(all - 512, &text[1], second);
    cr_expect_eq(session(100 * mib, &text[2], third), all);
    cr_expect_lt(fitted, all);
    cr_expect_not_null(strstr(text[0], "nothing is rebuilt in backward"), "%s", text[0]);
    cr_expect_not_null(strstr(text[1], "the room is the budget"), "%s", text[1]);
    cr_expect_str_eq(text[0], text[2]);
    cr_expect_neq(first[0], 0);
    cr_expect_eq(memcmp(first, second, sizeof first), 0, "other weights");
    cr_expect_eq(memcmp(first, third, sizeof first), 0, "other weights in the third session");
    for (int i = 0; i < 3; i++) free(text[i]);
}

/* ---- the room ---------------------------------------------------------------------------------------------------- */

static char description[] = "/tmp/frugal-device-XXXXXX";

/* The environment is read once. */
static void described_begin(void) {
    const int file = mkstemp(description);
    if (file < 0) cr_assert_fail("no file");
    close(file);
    setenv("FRUGAL_CUDA_DEVICE", description, 1);
    fake_begin();
}

static void described_end(void) {
    unlink(description);
    small_end();
}

TestSuite(room_described, .init = described_begin, .fini = described_end);

/* FRUGAL_CUDA_DEVICE is a wish to run as on the described device, whatever the present one has. */
Test(room_described, a_run_takes_the_described_room) {
    char bytes[64];
    set_up();
    for (size_t less = 0; less < 1024; less += 512) {
        FILE *f = fopen(description, "w");
        cr_assert_not_null(f);
        fprintf(f, "{\"totalGlobalMem\":%zu}", 700 * mib + libraries + kept - less);
        fclose(f);
        train(1 << 30, "--steps 9", "described");
        expect_report("described", "\"choice\":", less > 0 ? "\"fitted\"" : "\"kept\"");
        snprintf(bytes, sizeof bytes, "%zu", kept - less);
        expect_report("described", "\"room\":\t{\n\t\t\"bytes\":", bytes);
        small_expect_same("kept", "described", "described");
    }
}

static void *(*symbols[2])(const char *name);

static void *symbol_of_both(const char *name) {
    return symbols[strncmp(name, "cublas", 6) == 0](name);
}

/* Context and handles take memory, so the room is asked after them. */
Test(room, a_present_device_is_asked_once_context_and_handles_exist) {
    size_t bytes = 0;
    fake_cudnn_begin();
    symbols[0] = fake.symbol;
    fake_cublaslt_begin();
    symbols[1] = fake.symbol;
    fake.symbol = symbol_of_both;
    fake.handle = 10 * mib;
    must(fri_plan_room(FR_CUDA, &bytes));
    cr_expect_eq(bytes, 1024 * mib - 2 * fake.handle - libraries, "%zu", bytes);
    cr_expect_eq(fake.streams, 1, "no context");
    fake.memory = libraries;
    must(fri_plan_room(FR_CUDA, &bytes));
    cr_expect_eq(bytes, 0);
}
