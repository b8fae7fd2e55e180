/* files.h - shared by the data tests: a temporary folder, and good and bad files in the folder. */
#ifndef TESTS_DATA_FILES_H
#define TESTS_DATA_FILES_H

#include <criterion/criterion.h>
#include <frugal/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A fresh folder per test process, removed by files_end. */
extern char files_root[512];
void files_begin(void);
void files_end(void);

/* files_root/<name> in a rotating set of static buffers. */
const char *files_path(const char *name);
void files_write(const char *name, const void *bytes, size_t n);
void files_write_gzip(const char *name, const void *bytes, size_t n);
void files_make_folder(const char *name);

/* An IDX file's bytes: header words, then a body; returns the size. */
size_t idx_bytes(uint8_t *to, uint32_t magic, int words, const uint32_t *word, const uint8_t *body, size_t body_bytes);

/* A picture of slowly changing colors, so that JPEG changes each pixel by a few levels only. */
void picture_fill(uint8_t *rgb, int height, int width);

enum jpeg_kind { JPEG_RGB, JPEG_GRAY, JPEG_CMYK, JPEG_PROGRESSIVE };
/* *out: malloced bytes; returns their number. */
size_t jpeg_bytes(enum jpeg_kind kind, const uint8_t *rgb, int height, int width, uint8_t **out);

/* An EXIF segment with another entry before the orientation; returns the size. */
enum { EXIF_BYTES_MAX = 64 };
size_t exif_bytes(bool big, int orientation, uint8_t to[EXIF_BYTES_MAX]);
/* A JPEG file of picture_fill with the segment behind its first two bytes; the caller frees it. */
uint8_t *jpeg_with_segment(const uint8_t *segment, size_t n, int height, int width, size_t *bytes);

enum png_kind {
    PNG_KIND_RGB,
    PNG_KIND_GRAY,
    PNG_KIND_GRAY_1,
    PNG_KIND_PALETTE,
    PNG_KIND_RGB_16,
    PNG_KIND_RGBA,
    PNG_KIND_INTERLACED
};
size_t png_bytes(enum png_kind kind, const uint8_t *rgb, int height, int width, uint8_t **out);

/* Expects the status and a sentence with all the words (NULL ends the list). */
#define EXPECT_FAIL(expression, status, ...)                                                                         \
    do {                                                                                                             \
        fr_status got_ = (expression);                                                                               \
        const char *words_[] = {__VA_ARGS__, NULL};                                                                  \
        cr_expect_eq(got_, status, "%s: %s: %s", #expression, fr_status_name(got_), fr_last_error());                \
        for (int i_ = 0; words_[i_] != NULL; i_++)                                                                   \
            cr_expect_not_null(strstr(fr_last_error(), words_[i_]), "no '%s' in '%s'", words_[i_], fr_last_error()); \
    } while (0)

#define MUST(expression)                                                                             \
    do {                                                                                             \
        fr_status got_ = (expression);                                                               \
        cr_assert_eq(got_, FR_OK, "%s: %s: %s", #expression, fr_status_name(got_), fr_last_error()); \
    } while (0)

#endif
