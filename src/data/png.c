/* png.c - a PNG in memory to RGB, and a mask to a PNG file, by libpng.
 *
 * Palettes and gray are expanded, 16 bit is scaled to 8, alpha is dropped as PIL's convert("RGB") does. libpng reports
 * errors by a callback without return, so a longjmp leads back; libpng prints nothing. */
#include "data/dataset.h"

#include "base/status.h"

#include <frugal/files.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>

/* Text and profiles can be compressed too: limit of an inflated chunk. */
enum { CHUNK_BYTES_MAX = 8 << 20 };

typedef struct png_context {
    const char *name;
    const uint8_t *at;
    size_t left;
    png_structp png;
    png_infop info;
    int64_t *height, *width; /* of a mask; NULL: an image is wanted */
    jmp_buf back;
    char message[200];
} png_context;

static void on_png_error(png_structp png, png_const_charp message) {
    png_context *c = png_get_error_ptr(png);
    snprintf(c->message, sizeof c->message, "%s", message);
    longjmp(c->back, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep to, size_t n) {
    png_context *c = png_get_io_ptr(png);
    if (n > c->left) png_error(png, "it is truncated");
    memcpy(to, c->at, n);
    c->at += n;
    c->left -= n;
}

static fr_status read_png_header(png_context *c, size_t *height, size_t *width) {
    png_structp png = c->png;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff); /* sizes are checked below, with a sentence */
    png_set_chunk_malloc_max(png, CHUNK_BYTES_MAX);
    png_set_read_fn(png, c, on_read);
    png_read_info(png, c->info);
    *width = png_get_image_width(png, c->info);
    *height = png_get_image_height(png, c->info);
    return fri_image_check_size(c->name, (int64_t)*height, (int64_t)*width);
}

/* Rows of `bytes` each, after the requested conversions. */
static fr_status read_rows(png_context *c, size_t height, size_t bytes, fri_buffer *to) {
    png_structp png = c->png;
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, c->info);
    if (png_get_rowbytes(png, c->info) != bytes)
        return fr_fail(FR_EINTERNAL, "%s: libpng gives rows of %zu bytes, not %zu", c->name,
                       png_get_rowbytes(png, c->info), bytes);
    FRI_TRY(fri_buffer_reserve(to, height * bytes, c->name));
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < height; y++) png_read_row(png, (uint8_t *)to->data + y * bytes, NULL);
    png_read_end(png, NULL);
    return FR_OK;
}

static fr_status decode_mask(png_context *c, fr_image *image) {
    static const char *const names[] = {[PNG_COLOR_TYPE_GRAY_ALPHA] = "gray with alpha",
                                        [PNG_COLOR_TYPE_RGB] = "RGB",
                                        [PNG_COLOR_TYPE_RGB_ALPHA] = "RGB with alpha"};
    size_t width = 0, height = 0;
    FRI_TRY(read_png_header(c, &height, &width));
    const int type = png_get_color_type(c->png, c->info), bits = png_get_bit_depth(c->png, c->info);
    if ((type != PNG_COLOR_TYPE_GRAY && type != PNG_COLOR_TYPE_PALETTE) || bits > 8)
        return fr_fail(FR_EFORMAT, "%s: a mask is gray or a palette, of at most 8 bits; this is %s of %d bits", c->name,
                       type == PNG_COLOR_TYPE_GRAY ? "gray" : names[type], bits);
    png_set_packing(c->png);
    *c->height = (int64_t)height;
    *c->width = (int64_t)width;
    return read_rows(c, height, width, &image->target);
}

static fr_status decode_png(png_context *c, fr_image *image) {
    png_structp png = c->png;
    size_t width = 0, height = 0;
    FRI_TRY(read_png_header(c, &height, &width));
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, c->info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    FRI_TRY(read_rows(c, height, width * 3, &image->decoded));
    image->pixels = image->decoded.data;
    image->f32 = NULL;
    image->height = (int64_t)height;
    image->width = (int64_t)width;
    image->channels = 3;
    return FR_OK;
}

/* The state lives in the caller: setjmp leaves changed locals of the calling function undefined. */
static fr_status attempt_png(png_context *c, size_t n, fr_image *image) {
    if (setjmp(c->back) != 0) return fr_fail(FR_EFORMAT, "%s: broken PNG of %zu bytes: %s", c->name, n, c->message);
    c->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, c, on_png_error, on_warning);
    if (c->png != NULL) c->info = png_create_info_struct(c->png);
    if (c->info == NULL) return fr_fail(FR_ENOMEM, "%s: no memory to decode", c->name);
    return c->height != NULL ? decode_mask(c, image) : decode_png(c, image);
}

fr_status fri_png_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image) {
    return fri_png_decode_mask(name, bytes, n, image, NULL, NULL);
}

fr_status fri_png_decode_mask(const char *name, const uint8_t *bytes, size_t n, fr_image *image, int64_t *height,
                              int64_t *width) {
    png_context c;
    if (height != NULL && n > 1 && bytes[0] == 0xff && bytes[1] == 0xd8)
        return fr_fail(FR_EFORMAT, "%s: a mask is a PNG file; this is a JPEG, whose compression changes classes", name);
    memset(&c, 0, sizeof c);
    c.name = name;
    c.at = bytes;
    c.left = n;
    c.height = height;
    c.width = width;
    fr_status s = attempt_png(&c, n, image);
    png_destroy_read_struct(&c.png, &c.info, NULL);
    return s;
}

/* The palette of the PASCAL VOC masks: bits 0, 3, 6 of a class are red's highest, 1, 4, 7 green's, 2, 5 blue's. */
static void fill_palette(uint8_t palette[256][3]) {
    memset(palette, 0, 256 * 3);
    for (int class = 0; class < 256; class ++)
        for (int bit = 0; bit < 8; bit++) palette[class][bit % 3] |= (uint8_t)((class >> bit & 1) << (7 - bit / 3));
}

fr_status fri_png_write_mask(const char *path, const uint8_t *mask, int64_t height, int64_t width) {
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = PNG_FORMAT_RGB_COLORMAP,
                     .colormap_entries = 256};
    fr_atomic_file f = FR_ATOMIC_FILE_CLOSED;
    uint8_t palette[256][3];
    fill_palette(palette);
    fr_status s = fr_atomic_open(path, 0666, &f);
    if (s == FR_OK) s = fr_atomic_stream(&f);
    if (s == FR_OK && !png_image_write_to_stdio(&png, f.stream, 0, mask, 0, palette))
        s = fr_fail(FR_EIO, "cannot be written: %s", png.message);
    if (s == FR_OK) s = fr_atomic_commit(&f);
    fr_atomic_abandon(&f);
    return s < 0 ? fr_fail_prefix(s, "%s: ", path) : s;
}
