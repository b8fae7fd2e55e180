/* files.c - see files.h. */
#define _GNU_SOURCE /* nftw */
#include "files.h"

#include <ftw.h>
#include <unistd.h>
#include <zlib.h>
#include <png.h>
#include <jpeglib.h>

char files_root[512];

void files_begin(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(files_root, sizeof files_root, "%s/frugal-data-XXXXXX", tmp != NULL ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(files_root));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void files_end(void) {
    nftw(files_root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *files_path(const char *name) {
    static char paths[8][1024];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", files_root, name);
    return p;
}

void files_write(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(files_path(name), "wb");
    cr_assert_not_null(f, "%s", files_path(name));
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
}

void files_write_gzip(const char *name, const void *bytes, size_t n) {
    gzFile f = gzopen(files_path(name), "wb9");
    cr_assert_not_null(f);
    for (size_t at = 0; at < n;) {
        size_t k = n - at < (1u << 20) ? n - at : 1u << 20;
        cr_assert_eq(gzwrite(f, (const char *)bytes + at, (unsigned)k), (int)k);
        at += k;
    }
    cr_assert_eq(gzclose(f), Z_OK);
}

void files_make_folder(const char *name) {
    cr_assert_eq(mkdir(files_path(name), 0777), 0, "%s", files_path(name));
}

size_t idx_bytes(uint8_t *to, uint32_t magic, int words, const uint32_t *word, const uint8_t *body, size_t body_bytes) {
    size_t at = 0;
    for (int i = -1; i < words; i++) {
        uint32_t w = i < 0 ? magic : word[i];
        for (int shift = 24; shift >= 0; shift -= 8) to[at++] = (uint8_t)(w >> shift);
    }
    if (body_bytes > 0) memcpy(to + at, body, body_bytes);
    return at + body_bytes;
}

void picture_fill(uint8_t *rgb, int height, int width) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            uint8_t *p = rgb + 3 * (y * width + x);
            p[0] = (uint8_t)(40 + 150 * x / width);
            p[1] = (uint8_t)(60 + 120 * y / height);
            p[2] = (uint8_t)(200 - 90 * x / width);
        }
}

size_t jpeg_bytes(enum jpeg_kind kind, const uint8_t *rgb, int height, int width, uint8_t **out) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    unsigned long size = 0;
    int channels = kind == JPEG_GRAY ? 1 : kind == JPEG_CMYK ? 4 : 3;
    uint8_t *row = malloc((size_t)width * 4);
    *out = NULL;
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, out, &size);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = channels;
    c.in_color_space = kind == JPEG_GRAY ? JCS_GRAYSCALE : kind == JPEG_CMYK ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (kind == JPEG_PROGRESSIVE) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const uint8_t *p = rgb + 3 * (y * width + x);
            for (int k = 0; k < channels;
                 k++) /* libjpeg writes CMYK with Adobe's marker, so inverted: K = 255 is none */
                row[x * channels + k] = k == 3 ? 255 : p[k];
        }
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    return size;
}

struct sink {
    uint8_t *bytes;
    size_t n;
};

static void sink_write(png_structp png, png_bytep from, size_t n) {
    struct sink *s = png_get_io_ptr(png);
    s->bytes = realloc(s->bytes, s->n + n);
    memcpy(s->bytes + s->n, from, n);
    s->n += n;
}

static void sink_flush(png_structp png) {
    (void)png;
}

/* A row in the layout of the kind; palette and 1 bit use the parity of the pixel. */
static void png_row(enum png_kind kind, const uint8_t *rgb, int y, int width, uint8_t *row) {
    memset(row, 0, (size_t)width * 8);
    for (int x = 0; x < width; x++) {
        const uint8_t *p = rgb + 3 * (y * width + x);
        int odd = (x + y) % 2;
        switch (kind) {
        case PNG_KIND_GRAY: row[x] = p[0]; break;
        case PNG_KIND_GRAY_1: row[x / 8] |= (uint8_t)(odd << (7 - x % 8)); break;
        case PNG_KIND_PALETTE: row[x] = (uint8_t)odd; break;
        case PNG_KIND_RGB_16:
            for (int k = 0; k < 3; k++) row[6 * x + 2 * k] = row[6 * x + 2 * k + 1] = p[k];
            break;
        case PNG_KIND_RGBA:
            memcpy(row + 4 * x, p, 3);
            row[4 * x + 3] = (uint8_t)(17 * x);
            break;
        case PNG_KIND_RGB:
        case PNG_KIND_INTERLACED: memcpy(row + 3 * x, p, 3); break;
        }
    }
}

size_t exif_bytes(bool big, int orientation, uint8_t to[EXIF_BYTES_MAX]) {
    static const uint8_t little_tiff[] = {'I', 'I', 42, 0,    8,    0, 0, 0, 2, 0, 0x0f, 0x01, 2, 0, 4, 0, 0, 0, 'f',
                                          'r', 'u', 0,  0x12, 0x01, 3, 0, 1, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0};
    static const uint8_t big_tiff[] = {'M', 'M', 0, 42,   0,    0, 0, 8, 0, 2, 0x01, 0x0f, 0, 2, 0, 0, 0, 4, 'f',
                                       'r', 'u', 0, 0x01, 0x12, 0, 3, 0, 0, 0, 1,    0,    0, 0, 0, 0, 0, 0, 0};
    enum { TIFF = sizeof little_tiff, VALUE = 10 + 12 + 8 };
    const size_t length = 2 + 6 + TIFF;
    memcpy(to, (uint8_t[]){0xff, 0xe1, 0, (uint8_t)length, 'E', 'x', 'i', 'f', 0, 0}, 10);
    memcpy(to + 10, big ? big_tiff : little_tiff, TIFF);
    to[10 + VALUE + big] = (uint8_t)orientation;
    return 2 + length;
}

uint8_t *jpeg_with_segment(const uint8_t *segment, size_t n, int height, int width, size_t *bytes) {
    uint8_t *rgb = malloc(3 * (size_t)height * (size_t)width), *plain = NULL;
    picture_fill(rgb, height, width);
    const size_t size = jpeg_bytes(JPEG_RGB, rgb, height, width, &plain);
    free(rgb);
    uint8_t *file = malloc(size + n);
    memcpy(file, plain, 2);
    memcpy(file + 2, segment, n);
    memcpy(file + 2 + n, plain + 2, size - 2);
    free(plain);
    *bytes = size + n;
    return file;
}

size_t png_bytes(enum png_kind kind, const uint8_t *rgb, int height, int width, uint8_t **out) {
    static const int types[] = {[PNG_KIND_RGB] = PNG_COLOR_TYPE_RGB,       [PNG_KIND_GRAY] = PNG_COLOR_TYPE_GRAY,
                                [PNG_KIND_GRAY_1] = PNG_COLOR_TYPE_GRAY,   [PNG_KIND_PALETTE] = PNG_COLOR_TYPE_PALETTE,
                                [PNG_KIND_RGB_16] = PNG_COLOR_TYPE_RGB,    [PNG_KIND_RGBA] = PNG_COLOR_TYPE_RGBA,
                                [PNG_KIND_INTERLACED] = PNG_COLOR_TYPE_RGB};
    struct sink s = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t *row = malloc((size_t)width * 8);
    png_color palette[2] = {{10, 20, 30}, {200, 150, 100}};
    int depth = kind == PNG_KIND_GRAY_1 ? 1 : kind == PNG_KIND_RGB_16 ? 16 : 8;
    png_set_write_fn(png, &s, sink_write, sink_flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, depth, types[kind],
                 kind == PNG_KIND_INTERLACED ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    if (kind == PNG_KIND_PALETTE) {
        uint8_t alpha[1] = {0};
        png_set_PLTE(png, info, palette, 2);
        png_set_tRNS(png, info, alpha, 1, NULL);
    }
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < height; y++) {
            png_row(kind, rgb, y, width, row);
            png_write_row(png, row);
        }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(row);
    *out = s.bytes;
    return s.n;
}
