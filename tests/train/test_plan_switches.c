/* test_plan_switches.c - --plan=switches and fr_plan_switches: rows equal the plans and runs of the rows' flags, and
 * impossible rows have a reason. */
#include "data/files.h"
#include "program.h"
#include "report.h"
#include "support/golden.h"

#include <frugal/addon.h>
#include <frugal/frugal.h>
#include <frugal/session.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(plan_switches, .init = files_begin, .fini = files_end);

typedef struct line {
    char name[31];
    size_t planned, step_memory;
    double ratio;
    char flags[96];
} line;

static size_t number_of(const char *text, int width) {
    size_t n = 0;
    for (int i = 0; i < width; i++)
        if (text[i] >= '0' && text[i] <= '9') n = 10 * n + (size_t)(text[i] - '0');
    return n;
}

/* Rows of a table; planned 0: the row cannot be, and `flags` has the beginning of the reason. */
static int rows_of(const char *program, const char *command, line *rows, int room) {
    char arguments[1024], *rest = NULL;
    int n = 0;
    snprintf(arguments, sizeof arguments, "%s --plan=switches", command);
    outcome o = program_run(program, arguments);
    cr_assert_eq(o.status, 0, "%s %s: %s", program, arguments, o.err);
    (void)strtok_r(o.out, "\n", &rest);
    for (char *t = strtok_r(NULL, "\n", &rest); t != NULL && n < room; t = strtok_r(NULL, "\n", &rest)) {
        line *l = &rows[n++];
        if (strncmp(t, "Requested bytes", 15) == 0) return n - 1;
        *l = (line){0};
        snprintf(l->name, sizeof l->name, "%.30s", t);
        for (size_t end = strlen(l->name); end > 0 && l->name[end - 1] == ' ';) l->name[--end] = '\0';
        const bool possible = strncmp(t + 31, "cannot be: ", 11) != 0;
        if (possible) {
            l->planned = number_of(t + 31, 15);
            l->step_memory = number_of(t + 47, 15);
            l->ratio = atof(t + 63);
        }
        snprintf(l->flags, sizeof l->flags, "%s", possible ? t + 71 : t + 42);
        if (strcmp(l->flags, "(none)") == 0) l->flags[0] = '\0';
    }
    return n;
}

/* Requested bytes at the peak; *step: without parameters and optimizer state. */
static double peak_of(const char *program, const char *command, const char *flags, const char *more, double *step) {
    char arguments[1536];
    snprintf(arguments, sizeof arguments, "%s %s %s --report %s", command, flags, more, files_path("r.json"));
    const outcome o = program_run(program, arguments);
    cr_assert_eq(o.status, 0, "%s %s: %s", program, arguments, o.err);
    cJSON *r = report_read(files_path("r.json")), *parts = report_at(r, "memory", "at_peak_requested");
    const double peak = report_number(r, "memory", "peak_requested");
    *step = peak - report_number(parts, "parameter", NULL) - report_number(parts, "optimizer", NULL);
    cJSON_Delete(r);
    return peak;
}

/* Each possible row against `--plan FLAGS` and against a run. Returns the number of rows that cannot be. */
static int expect_plans(const char *program, const char *command, bool run) {
    static line rows[FR_PLAN_SWITCH_ROWS];
    const int n = rows_of(program, command, rows, FR_PLAN_SWITCH_ROWS);
    int impossible = 0;
    cr_expect_eq(n, FR_PLAN_SWITCH_ROWS, "%s: %d rows", program, n);
    for (int i = 0; i < n; i++) {
        const line *l = &rows[i];
        impossible += l->planned == 0;
        if (l->planned == 0) continue;
        double step = 0;
        const double plan = peak_of(program, command, l->flags, "--plan", &step);
        cr_expect_eq(step, (double)l->step_memory, "%s, %s: step memory %.0f", program, l->name, step);
        cr_expect_eq(plan, (double)l->planned, "%s, %s: %.0f, the row has %zu", program, l->name, plan, l->planned);
        if (run) {
            const double peak = peak_of(program, command, l->flags, "", &step);
            cr_expect_eq(peak, plan, "%s, %s: measured %.0f, planned %.0f", program, l->name, peak, plan);
        }
        cr_expect_float_eq(l->ratio, (double)l->step_memory / (double)rows[0].step_memory, 6e-4, "%s", l->name);
        cr_expect(l->step_memory < l->planned && l->planned <= 2 * rows[0].planned, "%s", l->name);
    }
    return impossible;
}

#define OWN "--batch-size 8 --steps 2 --eval-every 0"

Test(plan_switches, rows_are_the_plans_of_their_flags_and_what_runs_take) {
    cr_expect_eq(expect_plans("train_own", OWN, true), 1, "in-place ABN alone is not for this network");
    cr_expect_eq(expect_plans("train_vgg", "--depth 11 --dataset synthetic --device meta " OWN, false), 0);
    cr_expect_eq(expect_plans("train_densenet", "--depth 10 --growth 4 --image-size 8 --half=bf16 " OWN, true), 4);
    cr_expect_eq(expect_plans("train_unet", "--depth 2 --image-size 32 --optimizer adam --device meta " OWN, false), 0);
}

/* The line without flags is --all-off, which keeps gradients. */
Test(plan_switches, the_bare_line_of_plan_all_is_all_off) {
    outcome o = program_run("train_own", OWN " --plan=every --report /dev/null");
    char *end = strstr(o.out, "  (none)"), *begin = end;
    cr_assert(o.status == 0 && end != NULL, "%s%s", o.out, o.err);
    while (begin > o.out && begin[-1] != '\n') begin--;
    const double allocated = (double)number_of(begin + 18, 15);
    o = program_run("train_own", "--all-off " OWN " --plan");
    const char *peak = strstr(o.out, " bytes allocated) in ");
    cr_assert_not_null(peak, "%s", o.out);
    while (peak[-1] != '(') peak--;
    cr_expect_eq(allocated, atof(peak), "%.0f, all off %.0f", allocated, atof(peak));
}

/* A quarter of the batch is a quarter, and nothing fits below the smallest budget. */
Test(plan_switches, the_flags_are_what_the_names_say) {
    static line rows[FR_PLAN_SWITCH_ROWS];
    char command[256];
    const int n = rows_of("train_own", OWN, rows, FR_PLAN_SWITCH_ROWS);
    cr_assert_eq(n, FR_PLAN_SWITCH_ROWS);
    cr_expect_str_eq(rows[14].flags, "--all-off --accumulate 4 --batch-size 2");
    cr_expect_str_eq(rows[11].flags, "--all-off --checkpoint-segments log");
    cr_expect_str_eq(rows[21].flags, "--checkpoint-segments log");
    cr_expect_str_eq(rows[20].flags, "--checkpoint-segments 4 --amp");
    cr_expect_str_empty(rows[17].flags);
    snprintf(command, sizeof command, OWN " --plan --memory-budget %d", atoi(rows[22].flags + 16) - 1);
    const outcome o = program_run("train_own", command);
    cr_expect_eq(o.status, 1, "%s fits: %s", command, o.out);
}

Test(plan_switches, a_network_from_an_onnx_file_has_the_table) {
    char command[512];
    if (fr_addon_find("onnx") == NULL) cr_skip("the add-on onnx is not built");
    snprintf(command, sizeof command, OWN " --export %s", files_path("net.onnx"));
    outcome o = program_run("train_own", command);
    cr_assert_eq(o.status, 0, "%s", o.err);
    snprintf(command, sizeof command, "--weights %s --dataset digits " OWN, files_path("net.onnx"));
    cr_expect_eq(expect_plans("finetune", command, true), 1, "in-place ABN alone");
}

/* The table replaces memory flags of the command and keeps the optimizer. */
Test(plan_switches, memory_flags_of_the_command_are_replaced) {
    static line plain[FR_PLAN_SWITCH_ROWS], other[FR_PLAN_SWITCH_ROWS], adam[FR_PLAN_SWITCH_ROWS];
    const int n = rows_of("train_own", OWN, plain, FR_PLAN_SWITCH_ROWS);
    cr_expect_eq(rows_of("train_own", OWN " --no-encode --checkpoint-segments 3 --offload --memory-budget 2GiB", other,
                         FR_PLAN_SWITCH_ROWS),
                 n);
    cr_expect_eq(rows_of("train_own", OWN " --optimizer adam", adam, FR_PLAN_SWITCH_ROWS), n);
    for (int i = 0; i < n; i++) {
        cr_expect_eq(other[i].planned, plain[i].planned, "%s", plain[i].name);
        cr_expect(plain[i].planned == 0 || adam[i].planned > plain[i].planned, "%s", plain[i].name);
    }
}

Test(plan_switches, rows_that_cannot_be_say_why) {
    static line rows[FR_PLAN_SWITCH_ROWS];
    int said = 0;
    const int n = rows_of("train_own", "--batch-size 3 --steps 2 --amp=bf16", rows, FR_PLAN_SWITCH_ROWS);
    for (int i = 0; i < n; i++) {
        const char *why = strcmp(rows[i].name, "accumulation, 4 x 1/4 batch") == 0 ? "a batch of 3 has no 4 parts of"
                          : strcmp(rows[i].name, "one batch in 4 parts") == 0      ? "--split-batch 4: at most 3"
                          : strcmp(rows[i].name, "mixed precision, loss scaling") == 0 ? "the training computes in half"
                                                                                       : NULL;
        if (why == NULL) continue;
        said++;
        cr_expect(rows[i].planned == 0 && strstr(rows[i].flags, why) == rows[i].flags, "%s: %s", rows[i].name,
                  rows[i].flags);
    }
    cr_expect_eq(said, 3);
    const outcome o = program_run("train_own", "--batch-size 0 --plan=switches");
    cr_expect_eq(o.status, 2, "a wrong command is no table: %s", o.out);
}

Test(plan_switches, the_picture_has_a_bar_for_each_row) {
    static line rows[FR_PLAN_SWITCH_ROWS];
    static char svg[1 << 16];
    char command[640], text[128];
    if (fr_addon_find("views") == NULL) cr_skip("the add-on views is not built");
    snprintf(command, sizeof command, OWN " --memory-plot %s", files_path("bars.svg"));
    const int n = rows_of("train_own", command, rows, FR_PLAN_SWITCH_ROWS);
    FILE *f = fopen(files_path("bars.svg"), "r");
    cr_assert_not_null(f);
    svg[fread(svg, 1, sizeof svg - 1, f)] = '\0';
    fclose(f);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, ">%.30s<", rows[i].name);
        cr_expect_eq(strstr(svg, text) != NULL, rows[i].planned > 0, "%s", rows[i].name);
    }
    cr_expect_not_null(strstr(svg, "</svg>"));
    snprintf(command, sizeof command, OWN " --plan=switches --memory-plot %s/no/bars.svg", files_root);
    const outcome o = program_run("train_own", command);
    cr_expect_eq(o.status, 1, "%s", o.out);
    EXPECT_MATCH(o.err, "--memory-plot .*/no/bars.svg: ");
}

/* ---- in a program ------------------------------------------------------------------------------------------------ */

enum { SIZE = 8 };

static fr_status frame(void *ctx, int64_t index, void *to, void *target) {
    (void)ctx;
    memset(to, (int)(index % 200), SIZE * SIZE);
    *(int64_t *)target = index % 3;
    return FR_OK;
}

static fr_status network(void *ctx, fr_device device, int64_t classes, fr_module **out) {
    (void)ctx;
    fr_net *n = fr_net_begin(device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, SIZE, SIZE, 1});
    for (int i = 0; i < 4; i++)
        x = fr_net_relu(n, NULL, fr_net_conv2d(n, NULL, x, 8, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS));
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1);
    x = fr_net_linear(n, NULL, x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

Test(plan_switches, programs_get_rows_and_times) {
    fr_plan_switch_row rows[FR_PLAN_SWITCH_ROWS], timed[FR_PLAN_SWITCH_ROWS];
    fr_session_opts o = fr_session_opts_default();
    fr_dataset *d = NULL;
    int64_t n = 0, k = 0;
    const fr_switches before = fr_switches_get();
    const fr_rng rng = fr_rng_get();
    o.model = network;
    o.train.device = FR_CPU;
    o.train.optim.batch_size = 8;
    const fr_dataset_source of =
        {.count = 64, .classes = 3, .height = SIZE, .width = SIZE, .channels = 1, .read = frame};
    MUST(fr_dataset_create(&of, &d));
    MUST(fr_plan_switches(&o, d, NULL, rows, FR_PLAN_SWITCH_ROWS, &n));
    cr_expect_eq(n, FR_PLAN_SWITCH_ROWS);
    MUST(fr_plan_switches(&o, d, FR_PLAN_SWITCHES_OPTS(.rounds = 3), timed, FR_PLAN_SWITCH_ROWS, &k));
    for (int64_t i = 0; i < n; i++) {
        const fr_plan_switch_row *r = &rows[i];
        size_t sum = 0;
        for (int c = 0; c < FR_CATEGORY_COUNT; c++) sum += r->at_peak[c];
        cr_expect(sum == r->planned && isnan(r->seconds), "%s", r->name);
        cr_expect_eq(r->planned == 0, r->reason[0] != '\0', "%s: %s", r->name, r->reason);
        cr_expect(timed[i].planned == r->planned && (r->planned == 0 || timed[i].seconds > 0), "%s", r->name);
    }
    cr_expect(timed[0].seconds < 60 && rows[0].ratio == 1);
    cr_expect_str_eq(rows[2].field, "memory.switches.encode");
    cr_expect_not_null(strstr(rows[5].reason, "fr_net_inplace_abn"), "%s", rows[5].reason);
    MUST(fr_plan_switches(&o, d, FR_PLAN_SWITCHES_OPTS(.only = "early release"), timed, 2, &k));
    cr_expect(k == 2 && strcmp(timed[1].name, "early release") == 0 && timed[1].planned == rows[4].planned);
    expect_refused(fr_plan_switches(&o, d, FR_PLAN_SWITCHES_OPTS(.only = "late"), rows, n, &k), FR_EINVAL, "'late'",
                   "'early release'", NULL);
    expect_refused(fr_plan_switches(&o, d, NULL, rows, 3, &k), FR_EUSAGE, "room for 3", "more", NULL);
    expect_refused(fr_plan_switches(&o, d, FR_PLAN_SWITCHES_OPTS(.rounds = -1), rows, n, &k), FR_EINVAL, "-1 rounds",
                   "0", NULL);
    expect_refused(fr_plan_switches(NULL, d, NULL, rows, n, &k), FR_EINVAL, "plan_switches", "NULL", NULL);
    const fr_switches after = fr_switches_get();
    cr_expect_eq(after.encode, before.encode);
    cr_expect_eq(after.inplace, before.inplace);
    cr_expect_eq(after.workspace_limit, before.workspace_limit);
    cr_expect_eq(fr_rng_get().next_stream, rng.next_stream);
    fr_dataset_release(&d);
}
