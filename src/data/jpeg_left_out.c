/* jpeg_left_out.c - replaces jpeg.c in a build without libjpeg. */
#include "data/dataset.h"

#include "base/status.h"

fr_status fri_jpeg_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image) {
    (void)bytes, (void)n, (void)image;
    return fr_fail(FR_EUNSUPPORTED, "%s: a JPEG file, and this build is without libjpeg (libjpeg-dev, -Djpeg=enabled)",
                   name);
}
