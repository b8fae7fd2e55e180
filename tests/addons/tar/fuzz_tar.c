/* fuzz_tar.c - opens random bytes as a tar shard and reads its images, and as an index file. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include "addons/tar/index.h"

#include <frugal/tar.h>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void as_index(const uint8_t *data, size_t n) {
    fri_tar_index x = {0};
    bool other = false;
    fr_status s = fri_tar_index_parse("fuzz", (const char *)data, n, &(fri_tar_stamp){10240, "1.5"}, &x, &other);
    if (s < 0) FUZZ_CHECK(fr_last_error()[0] != '\0' && x.count == 0);
    for (int64_t i = 0; i < x.count; i++)
        FUZZ_CHECK(x.image[i].offset >= 512 && x.image[i].bytes >= 0 && x.image[i].offset + x.image[i].bytes <= 10240 &&
                   x.image[i].name[0] != '\0');
    fri_tar_index_free(&x);
}

static void as_shard(const uint8_t *data, size_t n) {
    char path[64];
    fr_dataset *d = NULL;
    fr_dataset_info info = {0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fr_status s = fr_dataset_tar(path, &d);
    if (s < 0) FUZZ_CHECK(fr_last_error()[0] != '\0' && d == NULL);
    if (s == FR_OK) FUZZ_CHECK(fr_dataset_info_get(d, &info) == FR_OK && info.count > 0 && info.classes > 0);
    for (int64_t i = 0; i < info.count; i++) {
        int64_t label = -1;
        FUZZ_CHECK(fr_dataset_label(d, i, &label) == FR_OK && label >= 0 && label < info.classes);
        if (fr_dataset_read(d, i, NULL, 0, NULL, NULL, NULL) < 0) FUZZ_CHECK(fr_last_error()[0] != '\0');
    }
    fr_dataset_release(&d);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 0 && data[0] == '{')
        as_index(data, n);
    else
        as_shard(data, n);
    return 0;
}
