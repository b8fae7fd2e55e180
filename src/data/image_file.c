/* image_file.c - JPEG or PNG, by the first bytes. */
#include "data/dataset.h"

#include "base/status.h"

#include <string.h>

static const uint8_t jpeg_first[3] = {0xff, 0xd8, 0xff}, png_first[4] = {0x89, 'P', 'N', 'G'};

static bool begins_with(const void *bytes, size_t n, const uint8_t *first, size_t k) {
    return n >= k && memcmp(bytes, first, k) == 0;
}

fr_status fr_image_check_signature(const void *bytes, size_t n) {
    FRI_NOT_NULL(bytes);
    uint8_t b[FRI_IMAGE_SIGNATURE] = {0};
    if (begins_with(bytes, n, jpeg_first, sizeof jpeg_first) || begins_with(bytes, n, png_first, sizeof png_first))
        return FR_OK;
    memcpy(b, bytes, n < sizeof b ? n : sizeof b);
    return fr_fail(FR_EFORMAT, "starts with %02x %02x %02x %02x, neither JPEG (ff d8 ff) nor PNG (89 50 4e 47)", b[0],
                   b[1], b[2], b[3]);
}

fr_status fr_image_decode(const char *name, const void *bytes, size_t n, fr_image *image) {
    FRI_NOT_NULL(name, bytes, image);
    image->orientation = 1;
    fr_status s = fr_image_check_signature(bytes, n);
    if (s < 0) return fr_fail_prefix(s, "%s: ", name);
    if (begins_with(bytes, n, jpeg_first, sizeof jpeg_first)) return fri_jpeg_decode(name, bytes, n, image);
    return image->header_only ? FR_OK : fri_png_decode(name, bytes, n, image);
}

void fri_image_turn(int orientation, int64_t *height, int64_t *width, int64_t channels, const uint8_t *from,
                    uint8_t *to) {
    static const bool from_below[9] = {[3] = true, [4] = true, [6] = true, [7] = true};
    static const bool from_right[9] = {[2] = true, [3] = true, [7] = true, [8] = true};
    const bool lies = orientation >= 5, up = from_below[orientation], left = from_right[orientation];
    const int64_t h = *height, w = *width, rows = lies ? w : h, columns = lies ? h : w;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++) {
            const int64_t row = lies ? x : y, column = lies ? y : x;
            const int64_t at = (up ? h - 1 - row : row) * w + (left ? w - 1 - column : column);
            for (int64_t c = 0; c < channels; c++) *to++ = from[at * channels + c];
        }
    *height = rows;
    *width = columns;
}

fr_status fr_image_room(fr_image *image, size_t bytes, void **out) {
    FRI_NOT_NULL(image, out);
    FRI_TRY(fri_buffer_reserve(&image->file, bytes, "its bytes"));
    *out = image->file.data;
    return FR_OK;
}
