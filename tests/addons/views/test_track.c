/* test_track.c - the tracker's published lines, and the trace's form. */
#include "data/files.h"
#include "train/program.h"
#include "train/report.h"

#include <dirent.h>
#include <frugal/base.h>
#include <math.h>
#include <unistd.h>

TestSuite(track, .init = files_begin, .fini = files_end);

static const char *file_text(const char *name) {
    static char text[1 << 20];
    FILE *f = fopen(files_path(name), "r");
    cr_assert_not_null(f, "%s was not written", name);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Lines printed for VGG-19 in guides to PyTorch's memory: count, shape, and truncated decimal megabytes. */
Test(track, lines_of_vgg19) {
    static const char *const lines[] =
        {"7 * Size:(512, 512, 3, 3)     | Memory: 66.060 M", "1 * Size:(512, 256, 3, 3)     | Memory: 4.7185 M",
         "1 * Size:(64, 64, 3, 3)       | Memory: 0.1474 M", "1 * Size:(128, 64, 3, 3)      | Memory: 0.2949 M",
         "1 * Size:(128, 128, 3, 3)     | Memory: 0.5898 M", "8 * Size:(512,)               | Memory: 0.0163 M",
         "3 * Size:(256, 256, 3, 3)     | Memory: 7.0778 M", "1 * Size:(256, 128, 3, 3)     | Memory: 1.1796 M",
         "2 * Size:(64,)                | Memory: 0.0005 M", "4 * Size:(256,)               | Memory: 0.0040 M",
         "2 * Size:(128,)               | Memory: 0.0010 M", "1 * Size:(64, 3, 3, 3)        | Memory: 0.0069 M",
         "1 * Size:(4096, 25088)        | Memory: 411.04 M", "1 * Size:(4096, 4096)         | Memory: 67.108 M",
         "1 * Size:(1000, 4096)         | Memory: 16.384 M", "2 * Size:(4096,)              | Memory: 0.0327 M",
         "1 * Size:(1000,)              | Memory: 0.004 M"};
    char arguments[1024];
    snprintf(arguments, sizeof arguments,
             "--depth 19 --no-batch-norm --image-size 224 --device meta --dataset synthetic "
             "--classes 1000 --steps 1 --batch-size 2 --eval-every 0 --quiet --track %s",
             files_path("t.txt"));
    outcome o = program_run("train_vgg", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    const char *text = file_text("t.txt"), *step = strstr(text, "At the end of forward");
    cr_assert_not_null(step);
    size_t sum = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *at = strstr(text, lines[i]);
        size_t bytes = 0;
        cr_assert(at != NULL && at < step, "no line '%s' in %s", lines[i], text);
        cr_expect_eq(sscanf(at + strlen(lines[i]), " | parameter f32, %zu bytes", &bytes), 1);
        sum += bytes;
    }
    cr_expect_eq(sum, 143667240u * 4, "the parameters of VGG-19: %zu bytes", sum);
    cr_expect(strstr(text, "At the end of backward") != NULL && strstr(text, "At the first step's end") != NULL);
}

/* Bytes that were added and not freed are left: each point's total is the sum of the lines so far. */
Test(track, points_add_up) {
    char arguments[1024];
    snprintf(arguments, sizeof arguments,
             "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 1 --eval-every 0 --quiet --track %s",
             files_path("t.txt"));
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    char *line = strtok((char *)file_text("t.txt"), "\n");
    long long sum = 0, total = -1;
    int points = 0;
    for (; line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "At ", 3) == 0) {
            cr_expect(total < 0 || sum == total, "the lines add up to %lld, the total is %lld", sum, total);
            cr_assert_eq(sscanf(strrchr(line, '('), "(%lld bytes)", &total), 1);
            points++;
        } else {
            long long bytes = 0;
            cr_assert_eq(sscanf(strrchr(line, ','), ", %lld bytes", &bytes), 1, "%s", line);
            sum += line[0] == '+' ? bytes : -bytes;
        }
    }
    cr_expect_eq(sum, total);
    cr_expect_eq(points, 4, "begin, forward, backward, end: %d points", points);
}

/* Sum of all categories in one counter, or -1 and a failure. */
static double counter_sum(cJSON *e) {
    cJSON *value = NULL;
    double sum = 0;
    int categories = 0;
    cr_expect_str_eq(report_at(e, "name", NULL)->valuestring, "memory");
    cJSON_ArrayForEach(value, report_at(e, "args", NULL)) {
        cr_assert(cJSON_IsNumber(value) && value->valuedouble >= 0, "%s is no size", value->string);
        sum += value->valuedouble;
        categories++;
    }
    cr_expect_eq(categories, FR_CATEGORY_COUNT);
    return sum;
}

/* Chrome's trace event format: an object with traceEvents; B and E nest, times ascend, counters are numbers. The
 * highest sum of a counter is the peak of the report. */
/* Bytes of all lines at the peak are the report's peak, and bytes alive at the last step are the report's, too. */
Test(track, lines_add_up_to_the_report) {
    char arguments[1024], lines[256];
    snprintf(lines, sizeof lines, "%s", files_path("l.txt"));
    snprintf(arguments, sizeof arguments,
             "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 2 --eval-every 0 --quiet --track-lines %s "
             "--report %s",
             lines, files_path("r.json"));
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *r = report_read(files_path("r.json"));
    size_t peak = (size_t)report_number(r, "memory", "peak_allocated"), live = 0, at_peak = 0, sum[2] = {0};
    int lists = 0;
    char *text = (char *)file_text("l.txt");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (sscanf(line, "%zu %zu", &live, &at_peak) != 2) continue;
        bool all = strstr(line, "  all") != NULL;
        if (all) cr_expect(at_peak == peak && sum[1] == peak, "%zu at the peak, the report's %zu", sum[1], peak);
        if (all) cr_expect_eq(live, sum[0]);
        sum[0] = all ? 0 : sum[0] + live;
        sum[1] = all ? 0 : sum[1] + at_peak;
        lists += all;
    }
    cr_expect_eq(lists, 2);
    cJSON_Delete(r);
}

Test(track, the_trace_is_chrome_s_format) {
    char arguments[1024], report[512];
    snprintf(report, sizeof report, "%s", files_path("r.json"));
    snprintf(arguments, sizeof arguments,
             "--depth 10 --growth 4 --image-size 8 --batch-size 8 --steps 3 --eval-every 0 --quiet --trace %s "
             "--report %s",
             files_path("t.json"), report);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *root = report_read(files_path("t.json")), *e = NULL;
    double last = 0, most = 0, sum = 0;
    int depth = 0, steps = 0, ops = 0, counters = 0;
    cJSON_ArrayForEach(e, report_at(root, "traceEvents", NULL)) {
        const char *kind = cJSON_GetObjectItem(e, "ph")->valuestring;
        double now = report_number(e, "ts", NULL);
        cr_assert(now >= last, "time goes back from %g to %g", last, now);
        last = now;
        if (strcmp(kind, "B") == 0) {
            const char *name = report_at(e, "name", NULL)->valuestring;
            depth++;
            if (strcmp(name, "step") == 0) {
                cr_expect_eq(depth, 1);
                steps++;
            } else {
                cr_expect(cJSON_IsString(report_at(e, "args", "module")));
                ops++;
            }
        } else if (strcmp(kind, "E") == 0) {
            cr_assert_geq(--depth, 0);
        } else {
            cr_assert_str_eq(kind, "C");
            sum = counter_sum(e);
            if (sum > most) most = sum;
            counters++;
        }
    }
    cr_expect_eq(depth, 0);
    cr_expect_eq(steps, 3);
    cr_expect(ops > 60 && counters > 100, "%d ops, %d counters", ops, counters);
    cJSON_Delete(root);
    root = report_read(report);
    cr_expect_eq(most, report_number(root, "memory", "peak_requested"), "counters reach %.0f bytes", most);
    cr_expect_lt(sum, most, "a step ends below its peak");
    cJSON_Delete(root);
    snprintf(arguments, sizeof arguments, "--steps 1 --trace %s/none/t.json", files_root);
    o = program_run("train_densenet", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--trace .*none/t.json: cannot be written");
}

/* A failed run keeps its observations and its trace as complete JSON, but writes no report. A run refused before the
 * first step leaves no file. */
Test(track, a_run_that_failed_leaves_what_was_seen) {
    static const struct {
        const char *flags, *sentence;
        bool ran;
    } cells[] = {{"--epochs 3 --lr 900000 --warmup 0 --schedule constant", "the loss is", true},
                 {"--steps 1 --save /dev/null/s", "--save", false}};
    static const char *const files[] = {"t.json", "k.txt", "r.json"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char arguments[1024];
        cr_assert_eq(chdir(files_root), 0);
        snprintf(arguments, sizeof arguments,
                 "--depth 10 --growth 4 --image-size 8 --batch-size 8 --trace t.json --track k.txt --report r.json %s",
                 cells[i].flags);
        outcome o = program_run("train_densenet", arguments);
        cr_expect_eq(o.status, 1, "%s: %d", cells[i].flags, o.status);
        EXPECT_MATCH(o.err, cells[i].sentence);
        for (int k = 0; k < 3; k++)
            cr_expect_eq(access(files[k], F_OK) == 0, cells[i].ran && k < 2, "%s: %s", cells[i].flags, files[k]);
        if (cells[i].ran) {
            cJSON *root = report_read("t.json");
            cr_expect_gt(cJSON_GetArraySize(report_at(root, "traceEvents", NULL)), 100);
            cJSON_Delete(root);
        }
        remove("t.json");
        remove("k.txt");
    }
}
