/* test_views.c - --summary and --memory-plot have the bytes of the plan and the report. */
#include "data/files.h"
#include "program.h"
#include "report.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(views, .init = files_begin, .fini = files_end);

static const struct {
    const char *program, *arguments;
} trainers[] = {{"train_vgg", "--depth 11 "},
                {"train_resnet", "--depth 18 "},
                {"train_densenet", "--depth 10 --growth 4 "},
                {"train_unet", "--depth 2 "},
                {"train_mobilenet", ""},
                {"train_own", ""}};
enum { TRAINERS = sizeof trainers / sizeof *trainers };

static double number_after(const char *text, const char *words) {
    const char *at = strstr(text, words);
    cr_assert_not_null(at, "no '%s' in %s", words, text);
    return strtod(at + strlen(words), NULL);
}

/* Every trainer prints a summary without training; its parameters are the plan's. */
Test(views, summary_has_the_plan_s_parameters) {
    for (int i = 0; i < TRAINERS; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "%s--image-size 32 --batch-size 4 --summary", trainers[i].arguments);
        outcome o = program_run(trainers[i].program, arguments);
        cr_assert_eq(o.status, 0, "%s: %s", trainers[i].program, o.err);
        cr_expect(strstr(o.out, "accuracy") == NULL, "it trained: %s", o.out);
        double requested = number_after(o.out, "each rounded up to 512: ");
        snprintf(arguments, sizeof arguments, "%s--image-size 32 --batch-size 4 --plan --report %s",
                 trainers[i].arguments, files_path("r.json"));
        outcome p = program_run(trainers[i].program, arguments);
        cr_assert_eq(p.status, 0, "%s: %s", trainers[i].program, p.err);
        cJSON *root = report_read(files_path("r.json"));
        cJSON *by = report_at(root, "memory", "at_peak_requested");
        cr_expect_eq(requested, report_number(by, "parameter", NULL), "%s: %.0f", trainers[i].program, requested);
        cr_expect_eq(number_after(o.out, "\nparameters: "), report_number(root, "parameters", NULL));
        cJSON_Delete(root);
    }
}

/* VGG-16, 64 images of 224 pixels: the bytes kept for backward, with PyTorch's rules and encoded (docs/memory.md). */
Test(views, summary_of_vgg16) {
    static const struct {
        const char *flags;
        double saved;
    } cells[] = {{"--all-off", 4686999040.0}, {"", 2431741440.0}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "--no-batch-norm --device meta --dataset synthetic --classes 1000 --image-size 224 --batch-size 64 "
                 "--steps 1 --eval-every 0 --summary %s",
                 cells[i].flags);
        outcome o = program_run("train_vgg", arguments);
        cr_assert_eq(o.status, 0, "%s", o.err);
        const char *kept = strstr(o.out, "kept when backward begins: ");
        cr_assert_not_null(kept);
        double saved = number_after(kept, "begins: ") + number_after(kept, "of the layers, and ");
        cr_expect_eq(saved, cells[i].saved, "%s: %.0f bytes", cells[i].flags, saved);
        cr_expect_eq(number_after(o.out, "\nparameters: "), 138357544);
    }
}

/* Flags that ask for a thing that a summary, or a plan, does not have. */
Test(views, nothing_runs_nothing_to_write) {
    static const struct {
        const char *arguments, *sentence;
    } cells[] = {{"--summary --report r.json", "--report r.json with --summary: no run .*; add --plan"},
                 {"--summary --memory-plot m.svg", "--memory-plot m.svg with --summary: no run .*; add --plan"},
                 {"--summary --plan --track t.txt", "--track t.txt with --summary: no run"},
                 {"--plan --trace t.json", "--trace t.json with --plan: no run"}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        if (program_lacks(cells[i].arguments)) continue;
        outcome o = program_run("train_vgg", cells[i].arguments);
        cr_expect_eq(o.status, 2, "%s", cells[i].arguments);
        EXPECT_MATCH(o.err, cells[i].sentence);
    }
    outcome o = program_run("train_vgg", "--depth 11 --batch-size 2 --summary --plan");
    cr_expect_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "kept when backward begins: .*planned in .* peak memory");
}

/* ---- the picture --------------------------------------------------------------------------------------------- */

/* Is it XML? Elements nest, attributes have quotes, text has no bare < & >. Returns the number of elements. */
static int expect_xml(const char *p) {
    enum { DEPTH = 16, NAME = 32 };
    char open[DEPTH][NAME];
    int depth = 0, elements = 0;
    while (*p != '\0') {
        if (*p == '&') {
            cr_assert(strncmp(p, "&amp;", 5) == 0 || strncmp(p, "&lt;", 4) == 0 || strncmp(p, "&gt;", 4) == 0);
            p++;
            continue;
        }
        cr_assert_neq(*p, '>', "a bare > at %.40s", p);
        if (*p != '<') {
            cr_assert(depth > 0 || isspace((unsigned char)*p), "text outside the root: %.40s", p);
            p++;
            continue;
        }
        bool end = p[1] == '/';
        char name[NAME] = "";
        p += end ? 2 : 1;
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz");
        cr_assert(n > 0 && n < NAME, "no name at %.40s", p);
        memcpy(name, p, n);
        p += n;
        if (end) {
            cr_assert(depth > 0 && *p == '>', "</%s", name);
            cr_assert_str_eq(open[--depth], name);
            p++;
            continue;
        }
        elements++;
        cr_assert(depth > 0 || elements == 1, "a second root: %s", name);
        while (*p == ' ') {
            p += 1 + strspn(p + 1, "abcdefghijklmnopqrstuvwxyz0123456789-");
            cr_assert(p[0] == '=' && p[1] == '"', "an attribute of %s: %.40s", name, p);
            size_t value = strcspn(p + 2, "\"<");
            cr_assert_eq(p[2 + value], '"', "a value in %s does not end", name);
            p += value + 3;
        }
        if (*p == '/') {
            p++;
        } else {
            cr_assert_lt(depth, (int)DEPTH);
            memcpy(open[depth++], name, NAME);
        }
        cr_assert_eq(*p, '>', "<%s does not end: %.40s", name, p);
        p++;
    }
    cr_assert_eq(depth, 0, "%s is not closed", open[0]);
    return elements;
}

static const char *picture(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s was not written", path);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Runs and plans, on every trainer: the peak in the picture is the report's. */
Test(views, memory_plot_shows_the_report_s_peak) {
    if (program_lacks("--memory-plot")) cr_skip("built without the add-on views");
    for (int i = 0; i < 2 * TRAINERS; i++) {
        char arguments[512], svg[256];
        snprintf(svg, sizeof svg, "%s", files_path("m.svg"));
        snprintf(arguments, sizeof arguments,
                 "%s--image-size 32 --batch-size 4 --steps 3 --eval-every 0 --quiet %s --memory-plot %s --report %s",
                 trainers[i / 2].arguments, i % 2 == 0 ? "--device meta --dataset synthetic" : "--plan", svg,
                 files_path("r.json"));
        outcome o = program_run(trainers[i / 2].program, arguments);
        cr_assert_eq(o.status, 0, "%s: %s", arguments, o.err);
        cJSON *root = report_read(files_path("r.json"));
        const char *text = picture(svg);
        int elements = expect_xml(text);
        cr_expect_gt(elements, 30, "%d elements", elements);
        const char *peak = strstr(text, ">peak ");
        cr_assert_not_null(peak);
        double bytes = number_after(peak, "(");
        cr_expect_eq(bytes, report_number(root, "memory", "peak_requested"), "%s: %.0f bytes", arguments, bytes);
        cr_expect(strstr(text, ">forward</text>") != NULL && strstr(text, ">backward</text>") != NULL);
        cr_expect(strstr(text, ">activation</text>") != NULL);
        cJSON_Delete(root);
    }
    outcome o =
        program_run("train_densenet", "--depth 10 --growth 4 --steps 1 --device meta --dataset synthetic --quiet "
                                      "--memory-plot none/none/m.svg");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--memory-plot none/none/m.svg: cannot be written");
}

/* The ticks at the left are multiples of 1, 2 or 5 times a power of ten, and the last is the first above `most`. */
static void expect_round_ticks(const char *text, double most, double height) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    static const char anchor[] = " text-anchor=\"end\">";
    double step = 0, last = 0, unit = 1, value, bottom = number_after(text, " y1=\""), top = 0;
    char name[8] = "";
    int n = 0;
    for (const char *t = text, *line = text; (t = strstr(t, anchor)) != NULL; n++, last = value) {
        t += strlen(anchor);
        if (sscanf(t, "%lf %7[A-Za-z]", &value, name) != 2) break; /* a phase's name */
        for (int u = 0; u < 4; u++)
            if (strcmp(units[u], name) == 0) unit = exp2(10 * u);
        if (n == 1) step = value;
        line = strstr(line, " stroke=\"#ddd\"");
        top = number_after(line - 28, "y2=\"");
        line++;
        cr_expect_float_eq(value, n * step, 1e-9 + 1e-5 * value, "tick %d is %g %s", n, value, name);
    }
    double digit = step / pow(10, floor(log10(step) + 1e-9));
    cr_expect(fabs(digit - 1) < 1e-6 || fabs(digit - 2) < 1e-6 || fabs(digit - 5) < 1e-6, "a tick of %g", step);
    cr_expect(n >= 4 && n <= 8, "%d ticks", n);
    cr_expect(last * unit >= most && (last - step) * unit < most, "ticks up to %g, a peak of %g", last * unit, most);
    cr_expect_float_eq(height, bottom - (bottom - top) * most / (last * unit), 0.1, "the peak is drawn at %g", height);
}

/* Axes have names; what is constant in a step lies at the bottom; the peak is a line, and is labelled. */
Test(views, memory_plot_is_read_without_help) {
    if (program_lacks("--memory-plot")) cr_skip("built without the add-on views");
    static const char *const colors[] = {"#4e79a7", "#59a14f", "#76b7b2", "#f28e2b", "#e15759"}; /* upwards */
    static const char *const batches[] = {"1", "8", "40", "200"};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "--depth 18 --image-size 32 --batch-size %s --plan --memory-plot %s",
                 batches[i], files_path("m.svg"));
        outcome o = program_run("train_resnet", arguments);
        cr_assert_eq(o.status, 0, "%s", o.err);
        const char *text = picture(files_path("m.svg")), *at = text;
        cr_expect_not_null(strstr(text, ">requested</text>"));
        cr_expect_not_null(strstr(text, ">allocations and releases of the step, in their order</text>"));
        for (size_t c = 0; c < sizeof colors / sizeof *colors; c++) {
            char path[64];
            snprintf(path, sizeof path, "<path fill=\"%s\"", colors[c]);
            const char *next = strstr(at, path);
            cr_expect(next != NULL, "%s does not lie above what is before it", colors[c]);
            at = next != NULL ? next : at;
        }
        double cx = number_after(strstr(text, "<circle"), "cx=\""), cy = number_after(strstr(text, "<circle"), "cy=\"");
        expect_round_ticks(text, number_after(strstr(strstr(text, "bold"), ">peak "), "("), cy);
        char line[64];
        snprintf(line, sizeof line, "<line x1=\"%.1f\" y1=\"%.1f\"", cx, cy);
        cr_expect_not_null(strstr(text, line), "no line up to the peak at %g, %g", cx, cy);
        snprintf(line, sizeof line, "[ M]%.1f,%.1f ", cx, cy);
        cr_expect(matches(text, line), "no outline goes through %g, %g", cx, cy);
        cr_expect_not_null(strstr(strstr(text, "<circle"), ">peak "), "the peak has no label");
    }
}

/* A real run on the CPU, with its library scratch. */
Test(views, memory_plot_of_a_run) {
    if (program_lacks("--memory-plot")) cr_skip("built without the add-on views");
    char arguments[512], svg[256];
    snprintf(svg, sizeof svg, "%s", files_path("m.svg"));
    snprintf(arguments, sizeof arguments,
             "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 3 --eval-every 0 --quiet --memory-plot %s "
             "--report %s",
             svg, files_path("r.json"));
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *root = report_read(files_path("r.json"));
    const char *text = picture(svg);
    expect_xml(text);
    double bytes = number_after(strstr(text, ">peak "), "(");
    cr_expect_eq(bytes, report_number(root, "memory", "peak_requested"), "%.0f bytes", bytes);
    cJSON_Delete(root);
}
