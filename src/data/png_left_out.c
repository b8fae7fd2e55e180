/* png_left_out.c - replaces png.c in a build without libpng. */
#include "data/dataset.h"

#include "base/status.h"

static fr_status refuse(const char *name) {
    return fr_fail(FR_EUNSUPPORTED, "%s: a PNG file, and this build is without libpng (libpng-dev, -Dpng=enabled)",
                   name);
}

fr_status fri_png_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image) {
    (void)bytes, (void)n, (void)image;
    return refuse(name);
}

fr_status fri_png_decode_mask(const char *name, const uint8_t *bytes, size_t n, fr_image *image, int64_t *height,
                              int64_t *width) {
    (void)bytes, (void)n, (void)image, (void)height, (void)width;
    return refuse(name);
}

fr_status fri_png_write_mask(const char *path, const uint8_t *mask, int64_t height, int64_t width) {
    (void)mask, (void)height, (void)width;
    return refuse(path);
}
