/* zip_sums.h - right checksums for a changed zip archive, for readers of the changed bytes. */
#ifndef TESTS_FUZZ_ZIP_SUMS_H
#define TESTS_FUZZ_ZIP_SUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

static inline size_t zip_number(const uint8_t *at, int bytes) {
    size_t v = 0;
    while (bytes-- > 0) v = v << 8 | at[bytes];
    return v;
}

/* Each entry of the directory inside the archive gets the checksum of a record inside the archive. */
static inline void zip_sums(uint8_t *zip, size_t n) {
    size_t end = n;
    while (end >= 22 && memcmp(zip + end - 22, "PK\5\6", 4) != 0) end--;
    if (end < 22) return;
    for (size_t at = zip_number(zip + end - 6, 4); at < n && n - at > 46 && memcmp(zip + at, "PK\1\2", 4) == 0;) {
        uint8_t *e = zip + at;
        const size_t from = zip_number(e + 42, 4), size = zip_number(e + 20, 4);
        if (from < n && n - from > 30) {
            const size_t data = from + 30 + zip_number(zip + from + 26, 2) + zip_number(zip + from + 28, 2);
            if (data <= n && size <= n - data) {
                const uint32_t crc = (uint32_t)crc32(0, zip + data, (uInt)size);
                for (int i = 0; i < 4; i++) e[16 + i] = (uint8_t)(crc >> 8 * i);
            }
        }
        at += 46 + zip_number(e + 28, 2) + zip_number(e + 30, 2) + zip_number(e + 32, 2);
    }
}

#endif
