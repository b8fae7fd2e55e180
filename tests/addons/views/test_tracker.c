/* test_tracker.c - FR_TRACK: the published lines; each call prints only differences to the previous call. */
#include "addons/views/tracker.h"

#include <criterion/criterion.h>
#include <frugal/frugal.h>
#include <frugal/views.h>
#include <stdlib.h>
#include <string.h>

static void must(fr_status s) {
    cr_assert_eq(s, FR_OK, "%s: %s", fr_status_name(s), fr_last_error());
}

/* Shapes in PyTorch's order and megabytes printed by PyTorch's memory trackers, f32. */
static const struct {
    int64_t count;
    int rank;
    int64_t dim[4];
    const char *megabytes;
} published[] = {
    {7, 4, {512, 512, 3, 3}, "66.060"},
    {1, 4, {512, 256, 3, 3}, "4.7185"},
    {1, 4, {64, 64, 3, 3}, "0.1474"},
    {1, 4, {128, 64, 3, 3}, "0.2949"},
    {1, 4, {128, 128, 3, 3}, "0.5898"},
    {8, 1, {512}, "0.0163"},
    {3, 4, {256, 256, 3, 3}, "7.0778"},
    {1, 4, {256, 128, 3, 3}, "1.1796"},
    {2, 1, {64}, "0.0005"},
    {4, 1, {256}, "0.0040"},
    {2, 1, {128}, "0.0010"},
    {1, 4, {64, 3, 3, 3}, "0.0069"},
    {1, 2, {4096, 25088}, "411.04"},
    {1, 2, {4096, 4096}, "67.108"},
    {1, 2, {1000, 4096}, "16.384"},
    {2, 1, {4096}, "0.0327"},
    {1, 1, {1000}, "0.004"},
    {5, 4, {512, 512, 3, 3}, "47.185"},
    {1, 4, {30, 3, 512, 512}, "94.371"},
    {1, 4, {40, 3, 512, 512}, "125.82"},
    {1, 4, {60, 3, 512, 512}, "188.74"},
    {1, 4, {80, 3, 512, 512}, "251.65"},
    {1, 4, {120, 3, 512, 512}, "377.48"},
    {2, 4, {1, 3, 500, 500}, "6.0"},
    {2, 4, {1, 64, 500, 500}, "128.0"},
    {2, 4, {1, 128, 250, 250}, "64.0"},
    {2, 4, {1, 256, 125, 125}, "32.0"},
    {2, 4, {1, 512, 62, 62}, "15.745"},
};

/* Text written by the call; the caller frees the text. */
static char *tracked(void) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    cr_assert_not_null(f);
    must(FR_TRACK(FR_META, f));
    fclose(f);
    return text;
}

static bool has_line(const char *text, char sign, int64_t count, int rank, const int64_t *dim, const char *megabytes) {
    char shape[64] = "(", line[128];
    for (int i = 0; i < rank; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    strcat(shape, rank == 1 ? ",)" : ")");
    snprintf(line, sizeof line, "%c | %lld * Size:%-20s | Memory: %s M | ", sign, (long long)count, shape, megabytes);
    return strstr(text, line) != NULL;
}

Test(tracker, published_lines) {
    enum { MOST = 8 };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const int64_t *d = published[i].dim, in_memory[4] = {d[0], d[2], d[3], d[1]};
        fr_tensor *t[MOST] = {0};
        for (int64_t k = 0; k < published[i].count; k++)
            must(fr_tensor_empty(published[i].rank, published[i].rank == 4 ? in_memory : d, FR_F32, FR_META, &t[k]));
        char *text = tracked();
        cr_expect(has_line(text, '+', published[i].count, published[i].rank, d, published[i].megabytes),
                  "line %zu, %s M: not in %s", i, published[i].megabytes, text);
        free(text);
        for (int k = 0; k < MOST; k++) fr_tensor_release(&t[k]);
        text = tracked();
        cr_expect(has_line(text, '-', published[i].count, published[i].rank, d, published[i].megabytes),
                  "line %zu, %s M, freed: not in %s", i, published[i].megabytes, text);
        free(text);
    }
}

/* File, function and line; the difference only, largest first; and the bytes of all tensors. */
Test(tracker, prints_what_changed_since_the_last_call) {
    fr_tensor *a = NULL, *b = NULL, *c = NULL;
    free(tracked());
    must(fr_tensor_empty(1, (int64_t[]){100}, FR_F32, FR_META, &a));
    must(fr_tensor_empty(1, (int64_t[]){100}, FR_F32, FR_META, &b));
    must(fr_tensor_empty(2, (int64_t[]){30, 50}, FR_F16, FR_META, &c));
    char *text = tracked();
    cr_expect_eq(strncmp(text, "At test_tracker.c tracked: line ", 32), 0, "%s", text);
    const char *large = strstr(text, "+ | 1 * Size:(30, 50)"), *small = strstr(text, "+ | 2 * Size:(100,)");
    cr_expect(large != NULL && small != NULL && large < small, "%s", text);
    cr_expect(strstr(text, "(3800 bytes)") != NULL, "3,000 + 2 * 400: %s", text);
    cr_expect(strstr(text, "f16, 3000 bytes") != NULL && strstr(text, "f32, 800 bytes") != NULL, "%s", text);
    free(text);
    fr_tensor_release(&b);
    text = tracked();
    cr_expect(strstr(text, "- | 1 * Size:(100,)") != NULL && strstr(text, "+ |") == NULL, "%s", text);
    free(text);
    text = tracked();
    cr_expect(strchr(text, '\n') != NULL && strchr(text, '\n')[1] == '\0', "nothing changed: %s", text);
    free(text);
    fr_tensor_release(&a);
    fr_tensor_release(&c);
}

/* The oldest tracker wrote 12 bytes as "1.14 M": 1.1444e-05, cut off. */
Test(tracker, small_sizes_have_no_exponent) {
    char text[FRI_MEGABYTES_TEXT];
    cr_expect_str_eq(fri_tracker_megabytes(12, text), "0.0000");
    cr_expect_str_eq(fri_tracker_megabytes(0, text), "0.0");
    cr_expect_str_eq(fri_tracker_megabytes((size_t)1500 * 1000 * 1000 * 1000, text), "150000");
    cr_expect_str_eq(fri_tracker_megabytes(1234567, text), "1.2345", "cut off, not rounded");
}
