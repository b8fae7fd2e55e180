/* make_photos.c - makes a folder of generated photos for app_photos: four kinds of shapes, in 300 JPEG files.
 *
 *     make_photos FOLDER [SEED]          FOLDER must not exist
 *
 * FOLDER/train and FOLDER/test have a folder for each kind. Size, place, colors and the picture's shape are random
 * numbers of the seed, so every run makes the same photos. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h> /* jpeglib.h needs stdio.h before */
#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TRAIN = 60, TEST = 15, KINDS = 4, SIDE_LEAST = 72, SIDE_RANGE = 88 };

static const char *const kinds[KINDS] = {"cross", "ring", "square", "triangle"};

static uint64_t state = 20261128;

/* splitmix64 (Steele et al., 2014), 0 <= result < 1. */
static double draw(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Is the point, in units of the shape's half size, inside the shape? */
static int inside(int kind, double x, double y) {
    const double r = hypot(x, y), a = fabs(x), b = fabs(y);
    switch (kind) {
    case 0: return (a < 0.3 && b < 1) || (b < 0.3 && a < 1);
    case 1: return r < 1 && r > 0.6;
    case 2: return a < 0.8 && b < 0.8;
    default: return y < 0.8 && y > 2 * a - 1;
    }
}

static void paint(int kind, int width, int height, uint8_t *rgb) {
    double color[2][3];
    const double least = width < height ? width : height, half = least * (0.3 + 0.15 * draw());
    const double cx = half + draw() * (width - 2 * half), cy = half + draw() * (height - 2 * half);
    const double turn = (draw() - 0.5) * 0.7, c = cos(turn), s = sin(turn);
    for (int i = 0; i < 3; i++) {
        color[0][i] = 150 + 90 * draw();
        color[1][i] = 100 * draw();
    }
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const double u = (x - cx) / half, v = (y - cy) / half, shade = 30.0 * x / width - 15;
            const double *of = color[inside(kind, c * u + s * v, c * v - s * u)];
            for (int i = 0; i < 3; i++) {
                const double value = of[i] + shade + 30 * (draw() - 0.5);
                *rgb++ = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
            }
        }
}

static int write_jpeg(const char *path, int width, int height, uint8_t *rgb) {
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr error;
    FILE *file = fopen(path, "wb");
    if (file == NULL) return -1;
    j.err = jpeg_std_error(&error); /* ends the program with a sentence, as after a full disk */
    jpeg_create_compress(&j);
    jpeg_stdio_dest(&j, file);
    j.image_width = (JDIMENSION)width;
    j.image_height = (JDIMENSION)height;
    j.input_components = 3;
    j.in_color_space = JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 90, TRUE);
    jpeg_start_compress(&j, TRUE);
    while (j.next_scanline < j.image_height) {
        JSAMPROW row = rgb + 3 * (size_t)width * j.next_scanline;
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    return fclose(file);
}

int main(int argc, char **argv) {
    static uint8_t rgb[3 * (SIDE_LEAST + SIDE_RANGE) * (SIDE_LEAST + SIDE_RANGE)];
    char path[4096];
    if (argc < 2 || argc > 3 || strlen(argv[1]) > sizeof path - 64) {
        fprintf(stderr, "usage: make_photos FOLDER [SEED]\n");
        return 2;
    }
    if (argc == 3) state += strtoull(argv[2], NULL, 10);
    if (mkdir(argv[1], 0777) != 0) goto fail;
    for (int split = 0; split < 2; split++) {
        const char *name = split == 0 ? "train" : "test";
        snprintf(path, sizeof path, "%s/%s", argv[1], name);
        if (mkdir(path, 0777) != 0) goto fail;
        for (int kind = 0; kind < KINDS; kind++) {
            snprintf(path, sizeof path, "%s/%s/%s", argv[1], name, kinds[kind]);
            if (mkdir(path, 0777) != 0) goto fail;
            for (int i = 0; i < (split == 0 ? TRAIN : TEST); i++) {
                const int width = SIDE_LEAST + (int)(SIDE_RANGE * draw()),
                          height = SIDE_LEAST + (int)(SIDE_RANGE * draw());
                paint(kind, width, height, rgb);
                snprintf(path, sizeof path, "%s/%s/%s/%d.jpg", argv[1], name, kinds[kind], i + 1);
                if (write_jpeg(path, width, height, rgb) != 0) goto fail;
            }
        }
    }
    printf("%s: %d training and %d test photos of %d kinds\n", argv[1], KINDS * TRAIN, KINDS * TEST, KINDS);
    return 0;
fail:
    fprintf(stderr, "make_photos: %s: %s\n", argv[1], strerror(errno));
    return 1;
}
