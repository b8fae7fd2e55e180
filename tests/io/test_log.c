/* test_log.c - every line of a log is whole, also after a kill, a resume and a full disk. */
#include "io/session_files.h"
#include "io/support.h"

#include <frugal/io.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(log, .init = make_folder, .fini = remove_folder);

static fr_log_step step(int64_t i) {
    return (fr_log_step){.step = i,
                         .epoch = i / 10,
                         .loss = 2.5 - 0.125 * (double)i,
                         .lr = 0.1,
                         .scale = 65536,
                         .skipped = i == 2,
                         .images_per_second = 1000.0 / 3,
                         .allocated = 1u << 20,
                         .peak = UINT64_C(5000000000)};
}

static void expect_file(const char *name, const char *want) {
    size_t n = 0;
    unsigned char *bytes = read_bytes(in_folder(name), &n);
    cr_expect_str_eq((char *)bytes, want);
    free(bytes);
}

#define JSON_1                                                                             \
    "{\"step\":1,\"epoch\":0,\"loss\":2.375,\"lr\":0.1,\"scale\":65536,\"skipped\":false," \
    "\"images_per_second\":333.33333333333331,\"allocated\":1048576,\"peak\":5000000000}\n"
#define JSON_2                                                                           \
    "{\"step\":2,\"epoch\":0,\"loss\":2.25,\"lr\":0.1,\"scale\":65536,\"skipped\":true," \
    "\"images_per_second\":333.33333333333331,\"allocated\":1048576,\"peak\":5000000000}\n"

static fri_log *open_log(int64_t resume) {
    fri_log *log = NULL;
    OK(fri_log_open(in_folder("log.jsonl"), resume, true, &log));
    return log;
}

static void write_steps(fri_log *log, int64_t from, int64_t to) {
    for (int64_t i = from; i <= to; i++) {
        fr_log_step p = step(i);
        OK(fri_log_write(log, &p));
    }
}

Test(log, lines_are_what_the_page_says) {
    fri_log *log = open_log(-1);
    write_steps(log, 1, 2);
    expect_file("log.jsonl", JSON_1 JSON_2); /* written before the close */
    OK(fri_log_scalar(log, "test/\"accuracy\"", 2, 0.5));
    fr_log_step p = step(3);
    p.loss = NAN;
    p.images_per_second = INFINITY;
    OK(fri_log_write(log, &p));
    fri_log_close(&log);
    expect_file("log.jsonl", JSON_1 JSON_2 "{\"step\":2,\"test/\\\"accuracy\\\"\":0.5}\n"
                                           "{\"step\":3,\"epoch\":0,\"loss\":null,\"lr\":0.1,\"scale\":65536,"
                                           "\"skipped\":false,\"images_per_second\":null,\"allocated\":1048576,"
                                           "\"peak\":5000000000}\n");
}

Test(log, a_resumed_run_cuts_off_what_came_after_its_state) {
    fri_log *log = open_log(-1);
    write_steps(log, 1, 9);
    fri_log_close(&log);
    log = open_log(1);
    expect_file("log.jsonl", JSON_1);
    write_steps(log, 2, 2);
    fri_log_close(&log);
    expect_file("log.jsonl", JSON_1 JSON_2);
    /* An incomplete line of a killed process, although its step is not too late. */
    write_bytes(in_folder("log.jsonl"), JSON_1 "{\"step\":2,\"ep", strlen(JSON_1) + 13);
    log = open_log(2);
    expect_file("log.jsonl", JSON_1);
    fri_log_close(&log);
    log = open_log(-1);
    expect_file("log.jsonl", "");
    fri_log_close(&log);
}

Test(log, a_full_disk_leaves_whole_lines_and_a_later_one_follows) {
    size_t n = 0;
    fri_log *log = NULL;
    OK(fri_log_open(in_folder("log.jsonl"), -1, false, &log));
    write_steps(log, 1, 1);
    fr_log_step p = step(2);
    limit_files(strlen(JSON_1) + 50);
    cr_expect_eq(fri_log_write(log, &p), FR_EIO);
    limit_files(RLIM_INFINITY);
    expect_file("log.jsonl", JSON_1);
    write_steps(log, 2, 2);
    fri_log_close(&log);
    expect_file("log.jsonl", JSON_1 JSON_2);
    unsigned char *bytes = read_bytes(in_folder("log.jsonl"), &n);
    cr_expect_eq(n, strlen(JSON_1 JSON_2));
    free(bytes);
}

Test(log, files_that_cannot_be_are_named) {
    fri_log *log = NULL;
    write_bytes(in_folder("file"), "x", 1);
    cr_expect_eq(fri_log_open(in_folder("file/log"), -1, false, &log), FR_EIO);
    EXPECT_SENTENCE("file/log' cannot be opened: Not a directory");
    cr_expect_eq(fri_log_open(folder, -1, false, &log), FR_EIO);
    cr_expect_eq(fri_log_open("/dev/full", -1, false, &log), FR_EIO);
    EXPECT_SENTENCE("is not a regular file");
    cr_expect_eq(fri_log_open(NULL, -1, false, NULL), FR_EINVAL);
    cr_expect(log == NULL);
    OK(fri_log_open(NULL, -1, false, &log));
    fr_log_step p = step(-1);
    cr_expect_eq(fri_log_write(log, &p), FR_EINVAL);
    cr_expect_eq(fri_log_scalar(log, "\xff", 1, 0), FR_EINVAL);
    cr_expect_eq(fri_log_scalar(log, NULL, 1, 0), FR_EINVAL);
    fri_log_close(&log);
    fri_log_close(&log);
}
