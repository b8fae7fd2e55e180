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
    } wrong[] = {{4, 'e'},   {10, 'X'}, {12, 43}, {14, 0xff}, {17, 0xff}, {18, 0},
                 {32, 0x13}, {34, 5},   {36, 0},  {40, 9},    {41, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t bad[EXIF_BYTES_MAX];
        memcpy(bad, whole, n);
        bad[wrong[i].at] = wrong[i].value;
        expect_turned(1, bad, n, "damaged");
    }
}

/* A long stands for a short (TIFF 6.0), and the first EXIF segment decides, behind other segments, as in Pillow. */
Test(exif, longs_and_several_segments) {
    uint8_t one[EXIF_BYTES_MAX], both[3 * EXIF_BYTES_MAX];
    static const uint8_t xmp[] = {0xff, 0xe1, 0, 8, 'h', 't', 't', 'p', ':', 0};
    static const int first[] = {1, 6, 3}, second[] = {6, 1, 8};
    for (int big = 0; big < 2; big++) {
        const size_t n = exif_bytes(big, 6, one);
        one[34 + big] = 4; /* the type */
        if (big) memcpy(one + 40, (uint8_t[]){0, 0, 0, 6}, 4);
        expect_turned(6, one, n, "a long");
        one[big ? 41 : 42] = 1;
        expect_turned(1, one, n, "a long above 8");
        for (int k = 0; k < 3; k++) {
            memcpy(both, xmp, sizeof xmp);
            const size_t a = sizeof xmp + exif_bytes(big, first[k], both + sizeof xmp);
            expect_turned(first[k], both, a + exif_bytes(!big, second[k], both + a), "two segments");
        }
    }
}

/* Writes pair `name`: a JPEG of h x w, and a mask with a class per stored pixel, drawn on the file or upright. */
static void write_pair(const char *split, const char *name, int orientation, int h, int w, bool upright) {
    uint8_t segment[EXIF_BYTES_MAX], rgb[3 * H * W], *png = NULL;
    char path[64];
    size_t bytes = 0;
    const bool swaps = upright && orientation >= 5;
    const int height = swaps ? w : h, width = swaps ? h : w;
    uint8_t *file = jpeg_with_segment(segment, exif_bytes(true, orientation, segment), h, w, &bytes);
    snprintf(path, sizeof path, "%s/images/%s.jpg", split, name);
    files_write(path, file, bytes);
    free(file);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            const int64_t at =
                upright ? place_of(orientation, y, x, orientation >= 5 ? w : h, orientation >= 5 ? h : w) : y * w + x;
            memset(rgb + 3 * at, (y * w + x) % 7, 3);
        }
    bytes = png_bytes(PNG_KIND_GRAY, rgb, height, width, &png);
    snprintf(path, sizeof path, "%s/masks/%s.png", split, name);
    files_write(path, png, bytes);
    free(png);
}

static void make_mask_folders(void) {
    static const char *const names[] = {"train", "train/images", "train/masks", "test", "test/images", "test/masks"};
    for (int i = 0; i < 6; i++) files_make_folder(names[i]);
}

/* The class of each stored pixel lies where the image's pixel lies. */
static void expect_mask(const fr_dataset *d, int64_t index, int orientation, int h, int w, const char *what) {
    fr_image image = {0};
    MUST(fri_dataset_read(d, index, &image));
    cr_assert_eq(image.height, orientation >= 5 ? w : h, "%s, pair %d", what, (int)index);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            const int64_t at = place_of(orientation, y, x, image.height, image.width);
            cr_expect_eq(((uint8_t *)image.target.data)[at], (y * w + x) % 7, "%s, pair %d, orientation %d, row %d, %d",
                         what, (int)index, orientation, y, x);
        }
    fr_image_clear(&image);
}

/* One telling pair decides for all pairs, before and after, in both splits; squares and half turns tell nothing. */
Test(exif, masks_of_a_folder_lie_one_way) {
    enum { PAIRS = 5 };
    static const int orientation[PAIRS] = {3, 6, 1, 8, 2}, width[PAIRS] = {W, H, W, W, W};
    static const char *const names[PAIRS] = {"a", "b", "c", "d", "e"};
    for (int upright = 0; upright < 2; upright++) {
        fr_dataset *d = NULL;
        files_end();
        files_begin();
        make_mask_folders();
        for (int i = 0; i < PAIRS; i++) write_pair("train", names[i], orientation[i], H, width[i], upright);
        write_pair("test", "a", 4, H, W, upright);
        MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d));
        for (int i = 0; i < PAIRS; i++)
            expect_mask(d, i, orientation[i], H, width[i], upright ? "upright" : "as stored");
        cr_expect_not(fri_dataset_masks_untold(d));
        MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TEST, 7, &d));
        expect_mask(d, 0, 4, H, W, upright ? "upright, test" : "as stored, test");
        cr_expect_not(fri_dataset_masks_untold(d));
        fr_dataset_release(&d);
    }
}

/* Masks without a telling pair count as upright; as_stored turns neither images nor masks. */
Test(exif, masks_that_nothing_tells_of) {
    fr_dataset *d = NULL, *photos = NULL;
    make_mask_folders();
    write_pair("train", "a", 3, H, W, true);
    write_pair("train", "b", 6, H, H, true);
    write_pair("train", "c", 1, H, W, true);
    MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d));
    for (int i = 0; i < 2; i++) expect_mask(d, i, i == 0 ? 3 : 6, H, i == 0 ? W : H, "untold");
    cr_expect(fri_dataset_masks_untold(d));
    write_pair("train", "a", 3, H, W, false);
    write_pair("train", "b", 6, H, H, false);
    MUST(fr_dataset_as_stored(d));
    for (int i = 0; i < 2; i++) expect_mask(d, i, 1, H, i == 0 ? W : H, "no exif");
    MUST(fr_dataset_synthetic(3, 2, 8, 8, 1, 0, &photos));
    cr_expect_not(fri_dataset_masks_untold(photos));
    fr_dataset_release(&photos);
    fr_dataset_release(&d);
}

/* A pair against the first telling pair is refused with both sizes. */
Test(exif, masks_that_contradict_are_refused) {
    for (int upright = 0; upright < 2; upright++) {
        fr_dataset *d = NULL;
        fr_image image = {0};
        files_end();
        files_begin();
        make_mask_folders();
        write_pair("train", "a", 6, H, W, upright);
        write_pair("train", "b", 6, H, W, !upright);
        MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d));
        expect_mask(d, 0, 6, H, W, "first");
        EXPECT_FAIL(fri_dataset_read(d, 1, &image), FR_EFORMAT, upright ? "b.png: 9 x 6 pixels" : "b.png: 6 x 9 pixels",
                    upright ? "its image has 6 x 9 upright, as the folder's masks lie"
                            : "its image has 9 x 6 as stored, as the folder's masks lie");
        fr_image_clear(&image);
        fr_dataset_release(&d);
    }
}

Test(exif, a_mask_is_no_jpeg) {
    fr_dataset *d = NULL;
    uint8_t rgb[3 * H * W] = {0}, *bytes = NULL;
    const size_t n = jpeg_bytes(JPEG_GRAY, rgb, H, W, &bytes);
    make_mask_folders();
    write_pair("train", "a", 1, H, W, true);
    remove(files_path("train/masks/a.png"));
    files_write("train/masks/a.jpg", bytes, n);
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d), FR_EFORMAT,
                "masks/a.jpg: a mask is a PNG file; this is a JPEG");
    free(bytes);
}

Test(exif, turned_images_are_counted) {
    int64_t seen = 0, turned = 0;
    fr_dataset *d = NULL;
    make_mask_folders();
    write_pair("train", "a", 6, H, W, true);
    MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 7, &d));
    MUST(fri_dataset_count_turned(d, 1, &seen, &turned));
    cr_expect(seen == 1 && turned == 1);
    fr_dataset_release(&d);
    MUST(fr_dataset_synthetic(3, 2, 8, 8, 1, 0, &d));
    MUST(fri_dataset_count_turned(d, 3, &seen, &turned));
    cr_expect(seen == 0 && turned == 0);
    fr_dataset_release(&d);
}
