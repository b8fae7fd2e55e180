/* fuzz_idx.c - any bytes as a pair of IDX files, plain or gzip: the first two bytes say where the second one begins. */
#include "fuzz.h"

#include <frugal/data.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fr_dataset *d = NULL;
    if (n < 2) return -1;
    size_t images = ((size_t)data[0] << 8 | data[1]) % (n - 1);
    data += 2;
    n -= 2;
    if (images > n) images = n;
    fr_status s = fr_dataset_idx_memory("fuzz", data, images, data + images, n - images, 10, &d);
    FUZZ_CHECK((s == FR_OK) == (d != NULL));
    if (s == FR_OK) {
        fr_dataset_info info;
        int64_t label = -1, height = 0, width = 0, channels = 0;
        FUZZ_CHECK(fr_dataset_info_get(d, &info) == FR_OK && info.count > 0);
        for (int64_t i = 0; i < info.count; i++)
            FUZZ_CHECK(fr_dataset_label(d, i, &label) == FR_OK && label >= 0 && label < 10);
        FUZZ_CHECK(fr_dataset_read(d, info.count - 1, NULL, 0, &height, &width, &channels) == FR_OK);
        FUZZ_CHECK(height == info.height && width == info.width && channels == 1);
    }
    fr_dataset_release(&d);
    return 0;
}
