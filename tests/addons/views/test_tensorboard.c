/* test_tensorboard.c - event files have correct frames and checksums and are complete. test_tensorboard.py reads them
 * with TensorBoard. */
#define _GNU_SOURCE /* memmem */
#include "io/support.h"

#include <frugal/views.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(tensorboard, .init = make_folder, .fini = remove_folder);

/* CRC-32C by RFC 3720, B.4. */
static uint32_t crc32c(const void *data, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const unsigned char *)data)[i];
        for (int k = 0; k < 8; k++) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

Test(tensorboard, crc32c_is_castagnolis) {
    unsigned char zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    cr_expect_eq(crc32c("123456789", 9), 0xe3069283u);
    cr_expect_eq(crc32c(zeros, 32), 0x8a9136aau); /* RFC 3720, B.4 */
    cr_expect_eq(crc32c(ones, 32), 0x62a8ab43u);
    cr_expect_eq(crc32c("", 0), 0);
}

static uint64_t little(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static uint32_t unmasked(uint64_t stored) {
    uint32_t rotated = (uint32_t)stored - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

Test(tensorboard, event_records_are_framed_and_summed) {
    fr_tensorboard log = {.fd = -1};
    OK(fr_tensorboard_open(in_folder("board"), 4, &log));
    for (int64_t i = 5; i <= 7; i++) OK(fr_tensorboard_step(&log, &(fr_log_step){.step = i, .loss = 0.5, .lr = 0.1}));
    OK(fr_tensorboard_scalar(&log, "test/accuracy", 7, 0.75));
    char tag[600];
    memset(tag, 'x', sizeof tag);
    tag[599] = '\0';
    cr_expect_eq(fr_tensorboard_scalar(&log, tag, 7, 0.75), FR_EINVAL);
    fr_tensorboard_close(&log);
    char path[1200];
    DIR *d = opendir(in_folder("board"));
    struct dirent *e = readdir(d);
    while (e->d_name[0] == '.') e = readdir(d);
    cr_expect(strncmp(e->d_name, "events.out.tfevents.", 20) == 0, "%s", e->d_name);
    snprintf(path, sizeof path, "%s/%s", in_folder("board"), e->d_name);
    closedir(d);
    size_t n = 0, at = 0;
    int records = 0;
    unsigned char *bytes = read_bytes(path, &n);
    while (at < n) {
        cr_assert_leq(at + 12, n);
        uint64_t length = little(bytes + at, 8);
        cr_assert_eq(unmasked(little(bytes + at + 8, 4)), crc32c(bytes + at, 8));
        cr_assert_leq(length, n - at - 16);
        cr_assert_eq(unmasked(little(bytes + at + 12 + length, 4)), crc32c(bytes + at + 12, length));
        if (records == 0) cr_expect(memmem(bytes + at, length + 12, "brain.Event:2", 13) != NULL);
        if (records == 5) cr_expect(memmem(bytes + at, length + 12, "test/accuracy", 13) != NULL);
        at += length + 16;
        records++;
    }
    cr_expect_eq(records, 1 + 1 + 3 + 1);
    free(bytes);
}

Test(tensorboard, files_that_cannot_be_are_named) {
    fr_tensorboard log = {.fd = -1};
    write_bytes(in_folder("file"), "x", 1);
    cr_expect_eq(fr_tensorboard_open(in_folder("file"), -1, &log), FR_EIO);
    EXPECT_SENTENCE("Not a directory");
    OK(fr_tensorboard_open(in_folder("board"), -1, &log));
    cr_expect_eq(fr_tensorboard_scalar(&log, "loss", -1, 0), FR_EINVAL);
    limit_files((rlim_t)log.bytes + 10);
    cr_expect_eq(fr_tensorboard_scalar(&log, "loss", 1, 0), FR_EIO);
    limit_files(RLIM_INFINITY);
    OK(fr_tensorboard_scalar(&log, "loss", 1, 0));
    fr_tensorboard_close(&log);
    fr_tensorboard_close(&log);
}
