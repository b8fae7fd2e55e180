/* test_planned.c - the run measures the numbers of --plan, and the arena keeps its promises.
 *
 * The first test draws commands at random and runs each twice, once with --plan: the two reports must agree in every
 * number about memory. FRUGAL_PLAN_CELLS=500 sets how many; the default fits into half a minute. */
#include "backend/description.h"
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <stdarg.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 "

enum { CELLS = 100, SEED = 20261121 };

TestSuite(planned, .init = files_begin, .fini = files_end, .timeout = 7200);

static cJSON *at(const cJSON *root, const char *key) {
    cJSON *i = cJSON_GetObjectItemCaseSensitive(root, key);
    cr_assert_not_null(i, "the report has no %s", key);
    return i;
}

static double number(const cJSON *root, const char *key) {
    cr_assert(cJSON_IsNumber(at(root, key)), "%s is no number", key);
    return at(root, key)->valuedouble;
}

/* The report of a good run. */
static cJSON *report_of(const char *name, const char *flags) {
    char arguments[1024];
    const char *path = files_path("report.json");
    snprintf(arguments, sizeof arguments, "%s --quiet --report %s", flags, path);
    outcome o = program_run(name, arguments);
    cr_assert_eq(o.status, 0, "%s %s: %s", name, arguments, o.err);
    return report_read(path);
}

/* ---- planned == measured ----------------------------------------------------------------------------------- */

static uint64_t state = SEED;

static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

typedef struct command {
    const char *program;
    char flags[768];
} command;

__attribute__((format(printf, 2, 3))) static void add(command *c, const char *format, ...) {
    va_list args;
    size_t n = strlen(c->flags);
    va_start(args, format);
    vsnprintf(c->flags + n, sizeof c->flags - n, format, args);
    va_end(args);
}

static void draw_model(command *c, bool whole_epochs) {
    int kind = whole_epochs ? 0 : draw(20);
    if (draw(4) == 0) add(c, " --width 0.5");
    if (kind < 10) {
        static const int depths[] = {10, 16, 22};
        c->program = "train_densenet";
        add(c, " --depth %d --growth %d --image-size %d", depths[draw(whole_epochs ? 1 : 3)], 4 + draw(8),
            whole_epochs || draw(3) > 0 ? 8 : 16);
    } else if (kind < 17) {
        int depth = 1 + draw(3);
        c->program = "train_unet";
        add(c, " --depth %d --image-size %d", depth, draw(2) == 0 ? 8 : 16);
    } else if (kind < 19) {
        c->program = "train_resnet";
        add(c, " --depth %d --image-size 8", draw(4) == 0 ? 34 : 18);
    } else {
        c->program = "train_vgg";
        add(c, " --depth 11%s --image-size 32", draw(2) == 0 ? " --no-batch-norm" : "");
    }
}

static void draw_switches(command *c) {
    static const char *const names[] = {"inplace", "encode", "rebuild", "early-release"};
    static const char *const types[] = {"u8", "i32", "i64"};
    static const char *const cuts[] = {"sqrt", "log", "each"};
    static const char *const limits[] = {"4KiB", "64KiB", "1MiB", "16MiB"};
    if (draw(4) == 0) add(c, " --all-off");
    for (int i = 0; i < 4; i++)
        if (draw(2) == 0) add(c, " --%s%s", draw(2) == 0 ? "no-" : "", names[i]);
    if (draw(3) == 0) add(c, " --pool-index %s", types[draw(3)]);
    if (draw(3) == 0) add(c, " --workspace-limit %s", limits[draw(4)]);
    if (draw(3) == 0)
        add(c, " --checkpoint-segments %d", strcmp(c->program, "train_unet") == 0 ? 1 : 1 + draw(4));
    else if (draw(4) == 0)
        add(c, " --checkpoint-segments %s", cuts[draw(3)]);
    if (draw(5) == 0 && strstr(c->flags, "--no-batch-norm") == NULL) add(c, " --inplace-abn");
    if (draw(8) == 0) add(c, " --offload");
    if (draw(2) == 0) add(c, " --no-arena");
}

/* Draws the flags of a step; only permitted combinations. */
static void draw_step(command *c, bool whole_epochs) {
    static const char *const types[] = {"fp16", "bf16"};
    int precision = draw(8), type = draw(2);
    const bool masters = precision == 2 && draw(2) == 0, scaled = (precision < 2 || masters) && type == 0;
    if (precision < 2) add(c, " --amp=%s", types[type]);
    if (precision == 2) add(c, " --half=%s%s", types[type], masters ? " --master-weights" : "");
    if (scaled && draw(3) == 0) add(c, " --loss-scale 1024");
    if (draw(4) == 0) {
        add(c, scaled ? " --fused-step=two-pass" : " --fused-step");
        return;
    }
    if (!whole_epochs && draw(5) == 0) add(c, " --accumulate %d", 2 + draw(2));
    if (draw(6) == 0) add(c, " --split-batch 2");
    if (draw(6) == 0) add(c, " --clip 1");
    if (draw(6) == 0) add(c, " --grad-zero");
}

static void draw_training(command *c, bool whole_epochs) {
    static const char *const parts[] = {"head", "bias", "bias head", "norm head"};
    static const char *const optimizers[] = {"sgd", "adam", "adamw", "adam8", "rmsprop"}, *const losses[] = {"bce",
                                                                                                             "focal",
                                                                                                             "dice"};
    if (whole_epochs)
        add(c, " --batch-size %d --epochs %d --eval-every %d", 200 + draw(1300), 1 + draw(4), draw(3));
    else
        add(c, " --batch-size %d --steps %d", 4 + draw(6), 1 + draw(5));
    const int optimizer = draw(5);
    add(c, " --lr 1e-5 --optimizer %s", optimizers[optimizer]);
    if (draw(3) == 0 && optimizer != 3) add(c, " --momentum 0");
    add(c, " --workers %d --threads %d", draw(3), 1 + draw(2));
    if (!whole_epochs && draw(3) == 0) add(c, " --dataset synthetic --classes %d", 2 + draw(30));
    const int loss = draw(4);
    if (loss == 1) add(c, " --loss %s", losses[draw(strstr(c->flags, "--split-batch") == NULL ? 3 : 2)]);
    if (draw(3) == 0) add(c, " --train-only %s", parts[draw(4)]);
}

static command draw_command(void) {
    command c = {0};
    bool whole_epochs = draw(5) == 0;
    draw_model(&c, whole_epochs);
    draw_switches(&c);
    draw_step(&c, whole_epochs);
    draw_training(&c, whole_epochs);
    return c;
}

/* The sum of the absolute differences of all numbers; a differing key or text counts as 1. */
static double difference(const cJSON *a, const cJSON *b) {
    if (a == NULL || b == NULL || (a->type & 0xff) != (b->type & 0xff)) return 1;
    if (cJSON_IsNumber(a))
        return a->valuedouble > b->valuedouble ? a->valuedouble - b->valuedouble : b->valuedouble - a->valuedouble;
    if (!cJSON_IsObject(a)) return cJSON_Compare(a, b, true) ? 0 : 1;
    double sum = cJSON_GetArraySize(a) == cJSON_GetArraySize(b) ? 0 : 1;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, a) sum += difference(item, cJSON_GetObjectItemCaseSensitive(b, item->string));
    return sum;
}

/* Two epochs without an evaluation leave a larger cache than the evaluation finds. */
static const command late_evaluation = {.program = "train_densenet",
                                        .flags = TINY "--batch-size 1499 --epochs 3 --eval-every 0 --no-arena"};

Test(planned, equals_the_run_to_the_byte) {
    const char *asked = getenv("FRUGAL_PLAN_CELLS");
    int cells = asked != NULL ? atoi(asked) : CELLS, arenas = 0;
    double bytes = 0;
    for (int i = 0; i < cells; i++) {
        command c = i == 0 ? late_evaluation : draw_command();
        char with_plan[1024];
        snprintf(with_plan, sizeof with_plan, "%s --plan", c.flags);
        cJSON *plan = report_of(c.program, with_plan), *run = report_of(c.program, c.flags);
        double off = difference(at(plan, "memory"), at(run, "memory"));
        char *a = cJSON_PrintUnformatted(at(plan, "memory")), *b = cJSON_PrintUnformatted(at(run, "memory"));
        cr_expect_eq(off, 0, "cell %d: %s%s\n planned %s\n run     %s", i, c.program, c.flags, a, b);
        cr_expect(cJSON_Compare(at(plan, "environment"), at(run, "environment"), true));
        cr_expect(cJSON_IsTrue(at(plan, "planned")) && cJSON_IsFalse(at(run, "planned")));
        cr_expect_eq(number(plan, "steps"), number(run, "steps"), "cell %d: %s%s", i, c.program, c.flags);
        bool arena = cJSON_IsTrue(at(at(run, "arena"), "used"));
        if (arena) cr_expect_eq(number(at(run, "arena"), "departures"), 0, "cell %d: %s%s", i, c.program, c.flags);
        arenas += arena;
        bytes += off;
        cJSON_free(a);
        cJSON_free(b);
        cJSON_Delete(plan);
        cJSON_Delete(run);
    }
    printf("planned against measured: %d cells (%d in an arena), %.0f bytes of difference\n", cells, arenas, bytes);
}

/* ---- the arena --------------------------------------------------------------------------------------------- */

Test(planned, the_arena_reserves_the_peak_and_changes_no_bit) {
    static const struct {
        const char *name, *flags;
    } runs[] = {
        {"train_densenet", TINY "--steps 6"},
        {"train_densenet", TINY "--steps 6 --rebuild --checkpoint-segments 3"},
        {"train_densenet", "--depth 10 --growth 4 --image-size 8 --batch-size 400 --epochs 3"},
        {"train_unet", "--depth 2 --image-size 16 --batch-size 5 --steps 6 --all-off"},
        {"train_resnet", "--image-size 8 --batch-size 4 --steps 4 --optimizer adam"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char without[512];
        snprintf(without, sizeof without, "%s --no-arena", runs[i].flags);
        cJSON *on = report_of(runs[i].name, runs[i].flags), *off = report_of(runs[i].name, without);
        cr_expect(cJSON_Compare(at(on, "loss"), at(off, "loss"), true), "%s %s", runs[i].name, runs[i].flags);
        cr_expect(cJSON_Compare(at(on, "accuracy"), at(off, "accuracy"), true));
        cr_expect(cJSON_IsFalse(at(at(off, "arena"), "used")));
        cJSON *arena = at(on, "arena");
        if (cJSON_IsTrue(at(arena, "used"))) {
            double reserved = number(arena, "reserved"), least = number(arena, "largest_live_set");
            cr_expect(least <= reserved && reserved <= 1.01 * least, "%.0f reserved, %.0f live", reserved, least);
            cr_expect_eq(number(at(on, "memory"), "peak_reserved"), reserved);
            cr_expect_eq(number(arena, "device_calls_from_second_step"), 0);
            cr_expect_eq(number(arena, "departures"), 0);
        }
        cJSON_Delete(on);
        cJSON_Delete(off);
    }
}

/* ---- output and refusals of --plan --------------------------------------------------------------------------- */

Test(planned, prints_what_the_run_needs) {
    outcome o = program_run("train_vgg", "--plan --depth 11 --batch-size 8");
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "plan for cpu, [0-9]+ threads, ");
    EXPECT_MATCH(o.out, "first step +[0-9]+ +[0-9]+ +[0-9]+");
    EXPECT_MATCH(o.out, "steady step +[0-9]+");
    EXPECT_MATCH(o.out, "evaluation, short batch +[0-9]+");
    EXPECT_MATCH(o.out, "peak: [0-9.]+ .iB \\([0-9]+ bytes allocated\\) in .* phase [a-z]+, op [a-z0-9]+, module");
    EXPECT_MATCH(o.out, "alive at the peak, largest first");
    EXPECT_MATCH(o.out, "step memory .* [0-9]+ bytes");
    EXPECT_MATCH(o.out, "floor .* largest op: [a-z0-9]+ in [a-z0-9.]+, [0-9]+ bytes");
    EXPECT_MATCH(o.out, "planned in 0\\.[0-9]+ s: peak memory .* workspaces included");
}

/* No files are needed, and no device. */
Test(planned, needs_neither_data_nor_device) {
    outcome o = program_run("train_resnet", "--plan --dataset folder --batch-size 16 --quiet");
    cr_expect_eq(o.status, 0, "%s", o.err);
    o = program_run("train_resnet", "--plan --device cuda --dataset cifar100 --batch-size 16");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "without workspaces|workspaces included");
}

/* Builds with and without CUDA choose alike where there is no GPU: by the memory of a description, the stored H200's or
 * a file's. */
Test(planned, for_a_gpu_takes_the_described_room) {
    static const struct {
        const char *total, *choice;
        double room; /* less 700 MiB of the context and 256 MiB of libraries */
    } cards[] = {{"150120000000", "kept", 149117561344}, {"3221225472", "fitted", 2218786816}};
    if (fr_device_available(FR_CUDA)) cr_skip_test("the GPU's own memory decides");
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        char *text = NULL, *total;
        size_t length;
        cr_assert_eq(fri_description_read(&text, &length), FR_OK, "%s", fr_last_error());
        cr_assert_not_null(total = strstr(text, cards[0].total));
        FILE *f = fopen(files_path("card.json"), "w");
        cr_assert_not_null(f);
        fprintf(f, "%.*s%s%s", (int)(total - text), text, cards[i].total, total + strlen(cards[0].total));
        fclose(f);
        free(text);
        setenv("FRUGAL_CUDA_DEVICE", i == 0 ? "" : files_path("card.json"), 1);
        cJSON *r =
            report_of("train_resnet", "--plan --device cuda --dataset synthetic --image-size 224 --depth 50 --amp");
        cr_expect_str_eq(at(at(r, "room"), "choice")->valuestring, cards[i].choice);
        cr_expect_eq(number(at(r, "room"), "bytes"), cards[i].room);
        cJSON_Delete(r);
    }
}

/* Reserved bytes of a dry run for a GPU; false where the GPU's libraries cannot be asked. */
static bool on_gpu(const char *flags, double *peak) {
    char all[256];
    snprintf(all, sizeof all, "--plan --device cuda --dataset synthetic --image-size 224 --depth 50 %s", flags);
    outcome o = program_run("train_resnet", all);
    if (strstr(o.out, "workspaces included") == NULL) return false;
    cJSON *r = report_of("train_resnet", all);
    *peak = number(at(r, "memory"), "peak_reserved");
    cJSON_Delete(r);
    return true;
}

/* An unset --workspace-limit leaves the peak unchanged; a single limit for all calls would raise the peak. */
Test(planned, scratch_of_a_gpu_does_not_raise_the_peak) {
    static const struct {
        const char *flags;
        bool raises; /* 4 GiB for all calls */
    } runs[] = {{"--amp", false}, {"--exact-convolutions --checkpoint-segments sqrt --rebuild", true}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char flags[128];
        double peak, plain, most;
        if (!on_gpu(runs[i].flags, &peak)) cr_skip_test("this build cannot ask cuDNN for workspaces");
        snprintf(flags, sizeof flags, "%s --workspace-limit 64MiB", runs[i].flags);
        (void)on_gpu(flags, &plain);
        cr_expect_eq(peak, plain, "%s: %.0f, with 64 MiB %.0f", runs[i].flags, peak, plain);
        snprintf(flags, sizeof flags, "%s --workspace-limit 4GiB", runs[i].flags);
        (void)on_gpu(flags, &most);
        cr_expect_eq(most > peak, runs[i].raises, "%s: %.0f, with 4 GiB %.0f", runs[i].flags, peak, most);
    }
}

Test(planned, floor_is_the_same_with_every_switch) {
    static const char *const switches[] = {"", "--all-off", "--rebuild", "--checkpoint-segments 3",
                                           "--rebuild --checkpoint-segments 2"};
    double first = 0;
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        char flags[256];
        snprintf(flags, sizeof flags, "--plan --depth 18 --image-size 32 --batch-size 16 %s", switches[i]);
        cJSON *r = report_of("train_resnet", flags);
        double floor = number(at(r, "memory"), "floor");
        if (i == 0) first = floor;
        cr_expect_eq(floor, first, "'%s': floor %.0f, without switches %.0f", switches[i], floor, first);
        cr_expect(floor < number(at(r, "memory"), "peak_allocated"));
        cJSON_Delete(r);
    }
}

Test(planned, a_limit_that_is_too_small_is_named) {
    cJSON *r = report_of("train_densenet", TINY "--plan --steps 2");
    size_t reserved = (size_t)number(at(r, "memory"), "peak_reserved");
    char flags[256], fits[256];
    cJSON_Delete(r);
    snprintf(fits, sizeof fits, TINY "--plan --steps 2 --memory-limit %zu", reserved);
    outcome o = program_run("train_densenet", fits);
    cr_expect_eq(o.status, 0, "%s", o.err);
    snprintf(flags, sizeof flags, TINY "--plan --steps 2 --memory-limit %zu", reserved / 2);
    o = program_run("train_densenet", flags);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--memory-limit .*: this run reserves [0-9]+ bytes");
}
