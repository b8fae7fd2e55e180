/* test_exif.c - JPEG files lie as cameras wrote them; the EXIF orientation names the sides of the picture on which row
 * 0 and column 0 lie. */
#include "files.h"

#include "data/dataset.h"

enum { H = 6, W = 9 };

TestSuite(exif, .init = files_begin, .fini = files_end);

/* CIPA DC-008-2019, table of 4.6.4: the sides of row 0 and column 0. */
enum side { TOP, BOTTOM, LEFT, RIGHT };
static const enum side sides[9][2] = {{TOP, LEFT}, {TOP, LEFT},  {TOP, RIGHT},    {BOTTOM, RIGHT}, {BOTTOM, LEFT},
                                      {LEFT, TOP}, {RIGHT, TOP}, {RIGHT, BOTTOM}, {LEFT, BOTTOM}};

/* Place of a stored pixel in the upright picture of height x width. */
static int64_t place_of(int orientation, int64_t row, int64_t column, int64_t height, int64_t width) {
    const int64_t at[2] = {row, column};
    int64_t y = 0, x = 0;
    for (int i = 0; i < 2; i++) switch (sides[orientation][i]) {
        case TOP: y = at[i]; break;
        case BOTTOM: y = height - 1 - at[i]; break;
        case LEFT: x = at[i]; break;
        case RIGHT: x = width - 1 - at[i]; break;
        }
    return y * width + x;
}

static void expect_turned(int orientation, const uint8_t *segment, size_t n, const char *what) {
    fr_image stored = {.as_stored = true}, image = {0};
    size_t bytes = 0;
    uint8_t *file = jpeg_with_segment(segment, n, H, W, &bytes);
    MUST(fr_image_decode("stored.jpg", file, bytes, &stored));
    MUST(fr_image_decode("turned.jpg", file, bytes, &image));
    cr_expect_eq(stored.height, H);
    cr_expect_eq(image.height, orientation >= 5 ? W : H, "%s", what);
    cr_expect_eq(image.width, orientation >= 5 ? H : W, "%s", what);
    for (int64_t y = 0; y < H; y++)
        for (int64_t x = 0; x < W; x++)
            cr_expect_arr_eq(stored.pixels + 3 * (y * W + x),
                             image.pixels + 3 * place_of(orientation, y, x, image.height, image.width), 3,
                             "%s, orientation %d, row %d, column %d", what, orientation, (int)y, (int)x);
    fr_image_clear(&stored);
    fr_image_clear(&image);
    free(file);
}

Test(exif, all_orientations_become_upright) {
    uint8_t segment[EXIF_BYTES_MAX];
    for (int orientation = 0; orientation <= 8; orientation++)
        for (int big = 0; big < 2; big++) {
            const size_t n = exif_bytes(big, orientation, segment);
            expect_turned(orientation, segment, n, big ? "big-endian" : "little-endian");
        }
}

/* Damage turns nothing and is no error: the picture is whole. The buffer ends with the segment, for sanitizers. */
Test(exif, damaged_segments_turn_nothing) {
    uint8_t whole[EXIF_BYTES_MAX];
    const size_t n = exif_bytes(false, 6, whole);
    for (size_t length = 4; length < n - 8; length++) {
        uint8_t cut[EXIF_BYTES_MAX];
        memcpy(cut, whole, n);
        cut[3] = (uint8_t)(length - 2);
        const bool still_there = length >= n - 4; /* the entry ends four bytes before the end */
        expect_turned(still_there ? 6 : 1, cut, length, "cut");
    }
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{4, 'e'}, {10, 'X'}, {12, 43}, {14, 0xff}, {17, 0xff}, {18, 0}, {32, 0x13}, {34, 4}, {40, 9}, {41, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t bad[EXIF_BYTES_MAX];
        memcpy(bad, whole, n);
        bad[wrong[i].at] = wrong[i].value;
        expect_turned(1, bad, n, "damaged");
    }
}

/* A mask in the orientation of the file is turned with the image; an upright mask stays. */
Test(exif, masks_follow) {
    uint8_t segment[EXIF_BYTES_MAX], lying[H * W], upright[H * W], rgb[3 * H * W], *png = NULL;
    fr_dataset *d = NULL;
    fr_image image = {0};
    files_make_folder("train");
    files_make_folder("train/images");
    files_make_folder("train/masks");
    for (int i = 0; i < H * W; i++) lying[i] = (uint8_t)(i % 7);
    for (int64_t y = 0; y < H; y++)
        for (int64_t x = 0; x < W; x++) upright[place_of(6, y, x, W, H)] = lying[y * W + x];
    for (int k = 0; k < 2; k++) {
        size_t bytes = 0;
        const uint8_t *mask = k == 0 ? lying : upright;
        uint8_t *file = jpeg_with_segment(segment, exif_bytes(true, 6, segment), H, W, &bytes);
        files_write(k == 0 ? "train/images/a.jpg" : "train/images/b.jpg", file, bytes);
        for (int i = 0; i < 3 * H * W; i++) rgb[i] = mask[i / 3];
        bytes = png_bytes(PNG_KIND_GRAY, rgb, k == 0 ? H : W, k == 0 ? W : H, &png);
        files_write(k == 0 ? "train/masks/a.png" : "train/masks/b.png", png, bytes);
        free(png);
        free(file);
    }
    MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d));
    for (int k = 0; k < 2; k++) {
        MUST(fri_dataset_read(d, k, &image));
        cr_expect_eq(image.height, W);
        cr_expect_arr_eq(image.target.data, upright, sizeof upright, "mask %d", k);
    }
    int64_t seen = 0, turned = 0;
    MUST(fri_dataset_count_turned(d, 1, &seen, &turned));
    cr_expect(seen == 1 && turned == 1);
    fr_dataset *no_files = NULL;
    MUST(fr_dataset_synthetic(3, 2, 8, 8, 1, 0, &no_files));
    MUST(fri_dataset_count_turned(no_files, 3, &seen, &turned));
    cr_expect(seen == 0 && turned == 0);
    fr_dataset_release(&no_files);
    MUST(fr_dataset_as_stored(d));
    MUST(fri_dataset_read(d, 0, &image));
    cr_expect_eq(image.height, H);
    cr_expect_arr_eq(image.target.data, lying, sizeof lying);
    EXPECT_FAIL(fri_dataset_read(d, 1, &image), FR_EFORMAT, "b.png", "6 x 9 pixels", "9 x 6");
    fr_image_clear(&image);
    fr_dataset_release(&d);
}
