/* fuzz_image.c - random bytes as a JPEG or PNG file, and as a mask: refused, or all pixels are present. */
#include "fuzz.h"

#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fr_image image = {0};
    unsigned sum = 0;
    fr_status s = fr_image_decode("fuzz", data, n, &image);
    if (s == FR_OK) {
        FUZZ_CHECK(image.channels == 3 && image.height >= 1 && image.width >= 1);
        FUZZ_CHECK(image.height <= FRI_IMAGE_SIDE_MAX && image.width <= FRI_IMAGE_SIDE_MAX);
        for (int64_t i = 0; i < image.height * image.width * 3; i++) sum += image.pixels[i];
    } else {
        FUZZ_CHECK(fr_last_error()[0] != '\0');
    }
    int64_t height = 0, width = 0;
    s = fri_png_decode_mask("fuzz", data, n, &image, &height, &width);
    if (s == FR_OK)
        FUZZ_CHECK(height >= 1 && width >= 1 && height <= FRI_IMAGE_SIDE_MAX && width <= FRI_IMAGE_SIDE_MAX);
    for (int64_t i = 0; s == FR_OK && i < height * width; i++) sum += ((const uint8_t *)image.target.data)[i];
    if (s < 0) FUZZ_CHECK(fr_last_error()[0] != '\0');
    fr_image_clear(&image);
    return sum == 1u << 31 ? -1 : 0;
}
