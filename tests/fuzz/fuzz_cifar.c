/* fuzz_cifar.c - random bytes as a CIFAR file; the first byte selects the format. The reader takes folders, so the
 * bytes go through a file in a folder under $TMPDIR. */
#include "fuzz.h"

#include <frugal/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[256], path[2][300];

static void remove_files(void) {
    unlink(path[0]);
    unlink(path[1]);
    rmdir(folder);
}

static void prepare(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/frugal-fuzz-XXXXXX", base != NULL ? base : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    snprintf(path[0], sizeof path[0], "%s/test_batch.bin", folder);
    snprintf(path[1], sizeof path[1], "%s/test.bin", folder);
    atexit(remove_files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fr_dataset *d = NULL;
    if (n < 1) return -1;
    if (folder[0] == '\0') prepare();
    int hundred = data[0] & 1;
    FILE *file = fopen(path[hundred], "wb");
    FUZZ_CHECK(file != NULL && fwrite(data + 1, 1, n - 1, file) == n - 1 && fclose(file) == 0);
    fr_status s =
        hundred ? fr_dataset_cifar100(folder, FR_SPLIT_TEST, &d) : fr_dataset_cifar10(folder, FR_SPLIT_TEST, &d);
    FUZZ_CHECK((s == FR_OK) == (d != NULL));
    if (s == FR_OK) {
        fr_dataset_info info;
        int64_t label = -1;
        FUZZ_CHECK(fr_dataset_info_get(d, &info) == FR_OK &&
                   info.count == (int64_t)((n - 1) / (hundred ? 3074 : 3073)));
        for (int64_t i = 0; i < info.count; i++)
            FUZZ_CHECK(fr_dataset_label(d, i, &label) == FR_OK && label >= 0 && label < info.classes);
    }
    fr_dataset_release(&d);
    return 0;
}
