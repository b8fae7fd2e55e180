/* jpeg.c - one JPEG in memory to RGB, by libjpeg-turbo.
 *
 * libjpeg reports errors by a callback that must not return, so a longjmp leads back here; libjpeg prints
 * nothing. Damage that loses picture data is an error, as libjpeg's warnings for it would hide a broken file behind
 * gray pixels; other warnings (stray bytes between segments) are common in the wild and are let pass. */
#include "data/dataset.h"

#include "base/status.h"

#include <stdio.h> /* jpeglib.h needs stdio.h before */
#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>
#include <string.h>

/* A progressive file may ask for any number of passes over the picture; encoders use some ten. */
enum { SCANS_MAX = 500 };

typedef struct jpeg_context {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    bool no_memory;
    char message[JMSG_LENGTH_MAX];
} jpeg_context;

static void on_jpeg_error(j_common_ptr cinfo) {
    jpeg_context *c = cinfo->client_data;
    cinfo->err->format_message(cinfo, c->message);
    c->no_memory = cinfo->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(c->back, 1);
}

static void on_message(j_common_ptr cinfo, int level) {
    if (level >= 0) return;
    switch (cinfo->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: on_jpeg_error(cinfo); break;
    default: break;
    }
}

static void no_output(j_common_ptr cinfo) {
    (void)cinfo;
}

static void on_progress(j_common_ptr cinfo) {
    jpeg_context *c = cinfo->client_data;
    if (c->cinfo.input_scan_number <= SCANS_MAX) return;
    snprintf(c->message, sizeof c->message, "more than %d scans", SCANS_MAX);
    longjmp(c->back, 1);
}

/* CMYK counts as inverted, as Adobe stores it; so it does for Pillow, with and without Adobe's marker. */
static void row_from_cmyk(const uint8_t *from, int64_t width, uint8_t *to) {
    for (int64_t x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) to[3 * x + c] = (uint8_t)((from[4 * x + c] * from[4 * x + 3] + 127) / 255);
}

static unsigned read_number(const uint8_t *at, int bytes, bool big_endian) {
    unsigned v = 0;
    for (int i = 0; i < bytes; i++) v = v << 8 | at[big_endian ? i : bytes - 1 - i];
    return v;
}

/* The orientation in an EXIF segment (CIPA DC-008, 4.6.4: a TIFF file whose first directory has 0x0112, a short, or a
 * long as TIFF 6.0 lets readers take), 1 to 8; 1 if the segment says nothing or is damaged, 0: not EXIF. */
static int exif_orientation(const uint8_t *data, size_t n) {
    enum { HEAD = 6, ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };
    if (n < HEAD || memcmp(data, "Exif\0", HEAD) != 0) return 0;
    const uint8_t *tiff = data + HEAD;
    const size_t size = n - HEAD;
    const bool big = size > 0 && tiff[0] == 'M';
    if (size < 8 || memcmp(tiff, big ? "MM\0*" : "II*\0", 4) != 0) return 1;
    const size_t at = read_number(tiff + 4, 4, big);
    if (at > size - 2) return 1;
    const size_t entries = read_number(tiff + at, 2, big), room = (size - at - 2) / ENTRY;
    unsigned v = 1;
    for (size_t i = 0; i < entries && i < room; i++) {
        const uint8_t *e = tiff + at + 2 + i * ENTRY;
        const unsigned type = read_number(e + 2, 2, big), count = read_number(e + 4, 4, big);
        if (read_number(e, 2, big) == ORIENTATION && (type == SHORT || type == LONG) && count > 0)
            v = read_number(e + 8, type == SHORT ? 2 : 4, big);
    }
    return v >= 1 && v <= 8 ? (int)v : 1;
}

/* The first EXIF segment decides. */
static int orientation_of(const struct jpeg_decompress_struct *j) {
    int orientation = 0;
    for (jpeg_saved_marker_ptr m = j->marker_list; m != NULL && orientation == 0; m = m->next)
        orientation = exif_orientation(m->data, m->data_length);
    return orientation > 0 ? orientation : 1;
}

/* All code with a possible longjmp. */
static fr_status decode_jpeg(jpeg_context *c, const char *name, fr_image *image) {
    struct jpeg_decompress_struct *j = &c->cinfo;
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(j, TRUE);
    FRI_TRY(fri_image_check_size(name, j->image_height, j->image_width));
    bool cmyk = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    j->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    size_t width = j->image_width, height = j->image_height, pixels = width * height;
    image->orientation = image->as_stored && !image->header_only ? 1 : orientation_of(j);
    image->height = (int64_t)height;
    image->width = (int64_t)width;
    if (image->header_only) return FR_OK;
    const bool turns = image->orientation > 1;
    /* Rows are read behind the place of the turned image. One more row takes CMYK rows before they are converted. */
    FRI_TRY(fri_buffer_reserve(&image->decoded, pixels * 3 * (turns ? 2 : 1) + width * 4, name));
    uint8_t *const first = image->decoded.data, *to = first + (turns ? pixels * 3 : 0), *cmyk_row = to + pixels * 3;
    jpeg_start_decompress(j);
    for (size_t y = 0; y < height; y++) {
        JSAMPROW row = cmyk ? cmyk_row : to + y * width * 3;
        jpeg_read_scanlines(j, &row, 1);
        if (cmyk) row_from_cmyk(cmyk_row, (int64_t)width, to + y * width * 3);
    }
    jpeg_finish_decompress(j);
    image->pixels = first;
    image->f32 = NULL;
    if (turns) fri_image_turn(image->orientation, &image->height, &image->width, 3, to, first);
    image->channels = 3;
    return FR_OK;
}

/* The state lives in the caller: setjmp leaves changed locals of the calling function undefined. */
static fr_status attempt_jpeg(jpeg_context *c, const char *name, const uint8_t *bytes, size_t n, fr_image *image) {
    if (setjmp(c->back) != 0) {
        if (c->no_memory) return fr_fail(FR_ENOMEM, "%s: no memory to decode", name);
        return fr_fail(FR_EFORMAT, "%s: broken JPEG of %zu bytes: %s", name, n, c->message);
    }
    jpeg_create_decompress(&c->cinfo); /* keeps err and client_data */
    c->cinfo.progress = &c->progress;
    jpeg_mem_src(&c->cinfo, bytes, n);
    return decode_jpeg(c, name, image);
}

fr_status fri_jpeg_decode(const char *name, const uint8_t *bytes, size_t n, fr_image *image) {
    jpeg_context c;
    memset(&c, 0, sizeof c);
    c.cinfo.err = jpeg_std_error(&c.error);
    c.error.error_exit = on_jpeg_error;
    c.error.emit_message = on_message;
    c.error.output_message = no_output;
    c.progress.progress_monitor = on_progress;
    c.cinfo.client_data = &c;
    fr_status s = attempt_jpeg(&c, name, bytes, n, image);
    jpeg_destroy_decompress(&c.cinfo);
    return s;
}
