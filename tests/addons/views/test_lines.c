/* test_lines.c - allocations by source line: an unchanged tutorial, and a program of ten files.
 *
 * Compiled with debug information, whatever the library is compiled with. Columns add up to the allocator's numbers, 0
 * bytes off, also where no line is known. */
#define main tutorial
int tutorial(void);
#include "../../examples/03_train_loop.c"
#undef main

#include <criterion/criterion.h>
#include <frugal/views.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 10, ROWS = 256 };

typedef struct row {
    size_t live, at_peak, allocated, freed;
    ptrdiff_t change;
    char text[200];
    bool library;
} row;

static struct listing {
    row row[ROWS];
    int n;
    size_t peak;
} got;

static char *text;
static size_t text_bytes;
static FILE *stream;

static void need_debug_information(void) {
#ifndef FRI_LIBDW
    cr_skip("built without libdw");
#endif
}

static void begin(void) {
    need_debug_information();
    stream = open_memstream(&text, &text_bytes);
    cr_assert_eq(fr_track_lines_begin(stream), FR_OK, "%s", fr_last_error());
}

/* Listing of a device; each column of both lists adds up to the line "all". */
static void end(const char *device) {
    row sum[2] = {{0}};
    bool library = false, there = false;
    got.n = 0;
    cr_assert_eq(fr_track_lines_end(), FR_OK, "%s", fr_last_error());
    fclose(stream);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        row r = {0};
        char name[16];
        size_t peak = 0;
        if (sscanf(line, "memory on %15s by line, bytes allocated: peak %zu", name, &peak) == 2) {
            there = strcmp(name, device) == 0;
            if (there) got.peak = peak;
        }
        if (strstr(line, "line of the") != NULL) library = strstr(line, "line of the library") != NULL;
        if (!there || sscanf(line, "%zu %zu %zu %zu %td %199[^\n]", &r.live, &r.at_peak, &r.allocated, &r.freed,
                             &r.change, r.text) != 6)
            continue;
        r.library = library;
        row *s = &sum[library];
        if (strcmp(r.text, "all") == 0) {
            cr_expect(s->live == r.live && s->at_peak == r.at_peak && s->allocated == r.allocated &&
                          s->freed == r.freed && s->change == r.change,
                      "the columns do not add up to: %s", line);
            cr_expect_eq(r.at_peak, got.peak, "%zu at the peak of %zu", r.at_peak, got.peak);
            cr_expect_eq(r.change, (ptrdiff_t)r.live);
        }
        s->live += r.live;
        s->at_peak += r.at_peak;
        s->allocated += r.allocated;
        s->freed += r.freed;
        s->change += r.change;
        cr_expect(!library || strstr(r.text, "storage.c:") == NULL, "every allocation passes through %s", r.text);
        cr_assert_lt(got.n, ROWS);
        got.row[got.n++] = r;
    }
    free(text);
}

static const row *find(const char *what) {
    static const row none = {0};
    for (int i = 0; i < got.n; i++)
        if (!got.row[i].library && strncmp(got.row[i].text, what, strlen(what)) == 0) return &got.row[i];
    cr_expect(false, "no line '%s'", what);
    return &none;
}

/* "03_train_loop.c:36 train_step: FR_TRY(s, fr_module_forward(m, images, &y));" */
static const row *tutorial_line(const char *code) {
    char path[512], line[200], want[300];
    snprintf(path, sizeof path, "%s/examples/03_train_loop.c", getenv("FRUGAL_SOURCE_ROOT"));
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    int n = 1;
    while (fgets(line, sizeof line, f) != NULL && strstr(line, code) == NULL) n++;
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    snprintf(want, sizeof want, "03_train_loop.c:%d ", n);
    const row *r = find(want);
    const char *source = strstr(r->text, ": ");
    cr_expect(source != NULL && strcmp(source + 2, line + strspn(line, " ")) == 0, "'%s' is not '%s'", r->text, line);
    return r;
}

Test(lines, of_the_training_loop, .timeout = 120) {
    fr_memory_stats t;
    begin();
    cr_assert_eq(tutorial(), 0);
    end("cpu");
    cr_assert_eq(fr_memory_stats_get(FR_CPU, &t), FR_OK);
    cr_expect_eq(got.peak, t.peak_allocated, "peak %zu, the report's %zu", got.peak, t.peak_allocated);
    cr_expect_eq(t.allocated, 0u);
    const row *backward = tutorial_line("fr_backward(loss"), *step = tutorial_line("fr_optimizer_step(o)");
    cr_expect_gt(tutorial_line("fr_module_forward(m")->allocated, 0u);
    cr_expect_gt(backward->freed, backward->allocated, "backward frees what forward saved");
    cr_expect_gt(tutorial_line("fr_optimizer_zero_grad(o)")->freed, 0u, "gradients die here");
    size_t parameters = tutorial_line("x = fr_net_conv2d(n")->at_peak + tutorial_line("x = fr_net_linear(n")->at_peak;
    cr_expect_eq(step->at_peak, parameters, "a momentum for each parameter: %zu bytes of %zu", step->at_peak,
                 parameters);
}

#define PART(i) fr_status lines_part_##i(fr_tensor **kept);
PART(0)
PART(1)
PART(2)
PART(3)
PART(4)
PART(5)
PART(6)
PART(7)
PART(8)
PART(9)
#undef PART
#define PART(i) lines_part_##i
static fr_status (*const parts[PARTS])(fr_tensor **) = {PART(0), PART(1), PART(2), PART(3), PART(4),
                                                        PART(5), PART(6), PART(7), PART(8), PART(9)};

Test(lines, of_ten_files) {
    fr_tensor *kept[PARTS] = {NULL}, *before = NULL;
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){256}, FR_F32, FR_META, &before), FR_OK);
    begin();
    cr_expect_eq(fr_track_lines_begin(stderr), FR_EUSAGE, "two at once");
    for (int i = 0; i < PARTS; i++) cr_assert_eq(parts[i](&kept[i]), FR_OK);
    end("meta");
    cr_expect_eq(fr_track_lines_end(), FR_EUSAGE, "end without begin");
    cr_expect_eq(got.peak, 1024u + 4096 * 55 + 8192 * 10, "peak %zu", got.peak);
    cr_expect_eq(find("(before)")->live, 1024u);
    for (size_t i = 0; i < PARTS; i++) {
        char at[64];
        snprintf(at, sizeof at, "lines_part_%zu.c:7 lines_part_%zu", i, i);
        const row *r = find(at);
        cr_expect(r->live == 4096 * (i + 1) && r->at_peak == r->live && r->allocated == r->live && r->freed == 0,
                  "%s: live %zu, at peak %zu, allocated %zu, freed %zu", at, r->live, r->at_peak, r->allocated,
                  r->freed);
        snprintf(at, sizeof at, "lines_part_%zu.c:8 ", i);
        r = find(at);
        cr_expect(r->live == 0 && r->at_peak == (i == 9 ? 81920u : 0) && r->allocated == 8192 * (i + 1),
                  "%s: live %zu, at peak %zu, allocated %zu", at, r->live, r->at_peak, r->allocated);
        snprintf(at, sizeof at, "lines_part_%zu.c:9 ", i);
        r = find(at);
        cr_expect(r->freed == 8192 * (i + 1) && r->change == -(ptrdiff_t)r->freed, "%s: freed %zu", at, r->freed);
    }
    for (int i = 0; i < PARTS; i++) fr_tensor_release(&kept[i]);
    fr_tensor_release(&before);
}

/* A block outside of the thread's pool changes nothing; earlier blocks are freed from their own lines. */
Test(lines, of_a_pool) {
    fr_pool *pool = NULL;
    fr_pool_state was;
    fr_tensor *outside = NULL, *before = NULL;
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){4096}, FR_F32, FR_META, &outside), FR_OK);
    cr_assert_eq(fr_pool_create(FR_META, &pool), FR_OK);
    cr_assert_eq(fr_pool_begin(pool, &was), FR_OK);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){512}, FR_F32, FR_META, &before), FR_OK);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){512}, FR_F32, FR_META, &before), FR_OK);
    begin();
    fr_tensor_release(&outside);
    fr_tensor_release(&before);
    cr_assert_eq(fr_tensor_empty(1, (int64_t[]){512}, FR_F32, FR_META, &before), FR_OK);
    end("meta");
    cr_expect_eq(got.peak, 2048u, "peak %zu", got.peak);
    cr_expect(find("(before)")->live == 0 && find("(before)")->at_peak == 2048, "the first instant of the peak");
    fr_tensor_release(&before);
    fr_pool_end(was);
    fr_pool_release(&pool);
}
