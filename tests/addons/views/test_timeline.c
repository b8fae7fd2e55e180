/* test_timeline.c - a picture of a step: its text is XML, and the peak is named. */
#include <criterion/criterion.h>
#include <frugal/memory.h>
#include <frugal/views.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(timeline, text_in_a_picture_is_xml) {
    char path[] = "/tmp/frugal-timeline-XXXXXX", text[1 << 14] = "";
    int fd = mkstemp(path);
    fr_timeline_point points[] = {{.bytes = {[FR_MEM_PARAMETER] = 512}}, {.bytes = {[FR_MEM_PARAMETER] = 1024}}};
    const fr_timeline t = {.points = points,
                           .count = 2,
                           .peak = 1024,
                           .peak_at = 1,
                           .at_peak = {.op = "relu", .module = "a&b"}};
    cr_assert(fd >= 0);
    cr_assert_eq(fr_timeline_draw(path, "a<b> & \xc3\xa9\x1b\xff", &(fr_timeline_panel){&t, "<"}, 1), FR_OK, "%s",
                 fr_last_error());
    close(fd);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    cr_assert_lt(fread(text, 1, sizeof text - 1, f), sizeof text - 1);
    fclose(f);
    unlink(path);
    cr_expect_not_null(strstr(text, ">a&lt;b&gt; &amp; \xc3\xa9\\x1b\\xff</text>"), "%s", text);
    cr_expect_not_null(strstr(text, "&lt;peak 1.00 KiB (1024 bytes)"), "%s", text);
    cr_expect_not_null(strstr(text, ", relu of a&amp;b</text>"), "%s", text);
}
