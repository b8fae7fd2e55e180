/* app_masks.c - classifies the pixels of an image with a trained network, and cuts a class out of the image.
 *
 *     app_masks WEIGHTS IMAGE CLASS OUTPUT     OUTPUT: a PPM file to write, with the pixels of the class on black
 *
 * docs/masks.md tells how to train the network. */
#include <frugal/frugal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the pixels of the class; returns their number. */
static int64_t cut_out(const fr_image *image, const uint8_t *mask, int class, uint8_t *rgb) {
    int64_t kept = 0;
    for (int64_t i = 0; i < image->height * image->width; i++) {
        if (mask[i] != class) continue;
        memcpy(rgb + 3 * i, image->pixels + 3 * i, 3);
        kept++;
    }
    return kept;
}

static fr_status write_image(const char *path, const uint8_t *rgb, int64_t height, int64_t width) {
    FILE *f = fopen(path, "wb");
    if (f == NULL) return fr_fail(FR_EIO, "%s cannot be written", path);
    fprintf(f, "P6\n%d %d\n255\n", (int)width, (int)height);
    fwrite(rgb, 3, (size_t)(height * width), f);
    return fclose(f) == 0 ? FR_OK : fr_fail(FR_EIO, "%s cannot be written", path);
}

static fr_status run(const char *weights, const char *path, int class, const char *output) {
    fr_classifier c = {0};
    fr_image image = {0};
    uint8_t *mask = NULL, *rgb = NULL;
    fr_status s = FR_OK;

    FR_TRY(s, fr_classifier_load(weights, FR_CPU, &c));
    FR_TRY(s, fr_image_read(path, &image));
    const int64_t pixels = image.height * image.width;
    mask = malloc((size_t)pixels);
    rgb = calloc((size_t)pixels, 3);
    if (mask == NULL || rgb == NULL) FR_TRY(s, fr_fail(FR_ENOMEM, "no memory for %s", path));
    FR_TRY(s, fr_predict_mask(c.model, &image, &c.input, c.info.classes, mask));
    const int64_t kept = cut_out(&image, mask, class, rgb);
    FR_TRY(s, write_image(output, rgb, image.height, image.width));
    printf("%s: %d of %d pixels are of class %d\n", path, (int)kept, (int)pixels, class);
done:
    free(rgb);
    free(mask);
    fr_image_clear(&image);
    fr_classifier_clear(&c);
    return s;
}

int main(int argc, char **argv) {
    char *end = NULL;
    const long class = argc == 5 ? strtol(argv[3], &end, 10) : 0;
    if (end == NULL || *argv[3] == '\0' || *end != '\0' || class < 0 || class > UINT8_MAX) {
        fprintf(stderr, "usage: app_masks WEIGHTS IMAGE CLASS OUTPUT\n");
        return 2;
    }
    fr_status s = run(argv[1], argv[2], (int)class, argv[4]);
    if (s != FR_OK) fprintf(stderr, "app_masks: %s\n", fr_last_error());
    return s == FR_OK ? 0 : 1;
}
