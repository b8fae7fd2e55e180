/* bare.c - a library without libjpeg and libpng names the missing library when asked for its functions, and otherwise
 * works. */
#include <frugal/frugal.h>
#include <stdio.h>
#include <string.h>

static int refuses(fr_status s, const char *package) {
    if (s == FR_EUNSUPPORTED && strstr(fr_last_error(), package) != NULL) return 0;
    fprintf(stderr, "bare: status %d does not name %s: %s\n", (int)s, package, fr_last_error());
    return 1;
}

static int image(const char *path, const void *bytes, size_t n, const char *package) {
    fr_image decoded = {0};
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) return 1;
    int wrong = refuses(fr_image_read(path, &decoded), package);
    fr_image_clear(&decoded);
    return wrong + (remove(path) != 0);
}

int main(void) {
    fr_tensor *x = NULL, *w = NULL, *y = NULL;
    double sum = 0;
    fr_status s = fr_tensor_full(4, (int64_t[]){1, 4, 4, 2}, -1, FR_F32, FR_CPU, &x);
    if (s == FR_OK) s = fr_tensor_full(4, (int64_t[]){3, 1, 1, 2}, 1, FR_F32, FR_CPU, &w);
    if (s == FR_OK) s = fr_conv2d(x, w, NULL, NULL, &y);
    if (s == FR_OK) s = fr_sum(y, &y);
    if (s == FR_OK) s = fr_tensor_item(y, &sum);
    int wrong = s != FR_OK || sum != -96; /* 16 pixels, 3 filters, 2 channels */
    fr_tensor_release(&x);
    fr_tensor_release(&w);
    fr_tensor_release(&y);
    wrong += image("bare.jpg", "\xff\xd8\xff\xe0", 4, "-Djpeg=enabled");
    wrong += image("bare.png", "\x89PNG\r\n\x1a\n", 8, "-Dpng=enabled");
    printf("bare: %s\n", wrong == 0 ? "what is missing is named" : "failed");
    return wrong;
}
