/* test_own_program.c - data of a user's own through the trainers: a folder of images and masks of any size, planned,
 * trained, resumed; and flags that a program adds to the table. */
#include "../data/files.h"
#include "program.h"
#include "report.h"

#include <png.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(own_program, .init = files_begin, .fini = files_end, .timeout = 120);

/* d/<split>/images/0.png .. with masks of classes 0, 1, 255; image i has 14 + 2 i by 20 - i pixels. */
static void write_masks(const char *split, int count) {
    char name[64];
    uint8_t rgb[3 * 40 * 40], mask[3 * 40 * 40], *bytes = NULL;
    files_make_folder(split);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "%s/%s", split, k == 0 ? "images" : "masks");
        files_make_folder(name);
    }
    for (int i = 0; i < count; i++) {
        const int h = 14 + 2 * i, w = 20 - i;
        picture_fill(rgb, h, w);
        for (int p = 0; p < h * w; p++) mask[3 * p] = p % 7 == 0 ? 255 : rgb[3 * p] > 127;
        for (int k = 0; k < 2; k++) {
            size_t n = png_bytes(k == 0 ? PNG_KIND_RGB : PNG_KIND_GRAY, k == 0 ? rgb : mask, h, w, &bytes);
            snprintf(name, sizeof name, "%s/%s/%d.png", split, k == 0 ? "images" : "masks", i);
            files_write(name, bytes, n);
            free(bytes);
        }
    }
}

static outcome unet(const char *flags) {
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "--depth 1 --dataset masks --image-size 16 --batch-size 2 %s", flags);
    return program_run("train_unet", arguments);
}

static outcome on_masks(const char *flags) {
    char all[1536];
    snprintf(all, sizeof all, "--data %s --classes 2 %s", files_path("d"), flags);
    return unet(all);
}

Test(own_program, a_folder_of_masks_is_planned_trained_and_resumed) {
    char flags[1024];
    files_make_folder("d");
    write_masks("d/train", 6);
    write_masks("d/test", 3);
    outcome o = on_masks("--quiet plan");
    cr_expect_eq(o.status, 2, "a command comes first");
    snprintf(flags, sizeof flags, "--momentum 0.8 --steps 4 --workers 2 --save %s --report %s", files_path("s"),
             files_path("r.json"));
    o = on_masks(flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "masks: 6 training and 3 test images, 2 classes, 16 px");
    cJSON *r = report_read(files_path("r.json"));
    if (cJSON_IsTrue(report_at(r, "arena", "used"))) { /* FRUGAL_NO_POOL has none */
        cr_expect_eq(report_number(r, "memory", "peak_reserved"), report_number(r, "arena", "reserved"), "as planned");
        cr_expect_eq(report_number(r, "arena", "departures"), 0);
    }
    cr_expect_gt(report_number(r, "accuracy", "test"), 0.3);
    cJSON_Delete(r);
    snprintf(flags, sizeof flags, "--steps 6 --save %s --resume latest", files_path("s"));
    o = on_masks(flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "momentum 0.9 was 0.8");
    o = unet("--classes 2 --device meta --steps 2");
    cr_expect_eq(o.status, 0, "%s", o.err);
}

/* ---- predicted masks --------------------------------------------------------------------------------------------- */

enum { SIDE = 16, SHOWN = 3 }; /* images of the network's size: a mask has the evaluation's pixels */

/* <split>/images/i.png and their classes: stripes, moved by i. */
static void write_square(const char *split, int i, uint8_t truth[SIDE * SIDE]) {
    char name[64];
    uint8_t rgb[3 * SIDE * SIDE], gray[3 * SIDE * SIDE], *bytes = NULL;
    picture_fill(rgb, SIDE, SIDE);
    for (int p = 0; p < SIDE * SIDE; p++) {
        truth[p] = p % 7 == 0 ? 255 : (p / SIDE + 3 * i) % SIDE > 6;
        gray[3 * p] = truth[p];
        if (truth[p] == 1) rgb[3 * p] = rgb[3 * p + 1] = 240;
    }
    for (int k = 0; k < 2; k++) {
        const size_t n = png_bytes(k == 0 ? PNG_KIND_RGB : PNG_KIND_GRAY, k == 0 ? rgb : gray, SIDE, SIDE, &bytes);
        snprintf(name, sizeof name, "%s/%s/%d.png", split, k == 0 ? "images" : "masks", i);
        files_write(name, bytes, n);
        free(bytes);
    }
}

/* The bytes of a palette PNG, read by libpng without this library. */
static void read_palette(const char *name, int height, int width, uint8_t *out) {
    FILE *f = fopen(files_path(name), "rb");
    cr_assert_not_null(f, "%s", name);
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, f);
    png_read_png(png, info, PNG_TRANSFORM_PACKING, NULL);
    cr_assert_eq(png_get_color_type(png, info), PNG_COLOR_TYPE_PALETTE, "%s", name);
    cr_assert_eq((int)png_get_image_height(png, info), height, "%s", name);
    cr_assert_eq((int)png_get_image_width(png, info), width, "%s", name);
    for (int y = 0; y < height; y++) memcpy(out + y * width, png_get_rows(png, info)[y], (size_t)width);
    png_colorp palette = NULL;
    int colors = 0;
    png_get_PLTE(png, info, &palette, &colors);
    cr_expect(colors > 1 && palette[1].red == 128 && palette[1].green == 0 && palette[1].blue == 0, "PASCAL VOC's");
    png_destroy_read_struct(&png, &info, NULL);
    fclose(f);
}

/* IoU from the masks in the files equals the training's. */
Test(own_program, a_network_of_pixels_ends_in_masks) {
    char flags[1500];
    uint8_t truth[SHOWN][SIDE * SIDE], mask[SIDE * SIDE];
    double both[2] = {0}, either[2] = {0}, share = 0;
    files_make_folder("d");
    write_masks("d/train", 6);
    write_masks("d/test", 0);
    for (int i = 0; i < SHOWN; i++) write_square("d/test", i, truth[i]);
    for (int i = 6; i < 14; i++) write_square("d/train", i, mask);
    snprintf(flags, sizeof flags, "--epochs 6 --lr 0.02 --export %s --report %s", files_path("w"),
             files_path("r.json"));
    outcome o = on_masks(flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "class +targets +accuracy +IoU\n0 .*\n1 .*\nmean IoU 0\\.");
    int n = snprintf(flags, sizeof flags, "--weights %s --predict", files_path("w"));
    for (int i = 0; i < SHOWN; i++)
        n += snprintf(flags + n, sizeof flags - (size_t)n, " %s/%d.png", files_path("d/test/images"), i);
    outcome shares = program_run("train_unet", flags);
    cr_assert_eq(shares.status, 0, "%s", shares.err);
    snprintf(flags + n, sizeof flags - (size_t)n, " --masks %s", files_path("m"));
    o = program_run("train_unet", flags);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cr_expect_str_eq(o.out, shares.out);
    for (int i = 0; i < SHOWN; i++) {
        char name[16];
        snprintf(name, sizeof name, "m/%d.png", i);
        read_palette(name, SIDE, SIDE, mask);
        for (int p = 0; p < SIDE * SIDE; p++) {
            share += i == 0 && mask[p] == 1 ? 100.0 / (SIDE * SIDE) : 0;
            for (int c = 0; c < 2 && truth[i][p] != 255; c++) {
                both[c] += mask[p] == c && truth[i][p] == c;
                either[c] += mask[p] == c || truth[i][p] == c;
            }
        }
    }
    snprintf(flags, sizeof flags, "/0.png: .*  1 %.2f %%", share);
    EXPECT_MATCH(o.out, flags);
    cr_assert(both[0] > 0 && both[1] > 0 && either[1] > both[1], "the masks hold right and wrong pixels of each class");
    cJSON *r = report_read(files_path("r.json"));
    for (int c = 0; c < 2; c++)
        cr_expect_float_eq(cJSON_GetArrayItem(report_at(r, "classes", "iou"), c)->valuedouble, both[c] / either[c],
                           1e-12, "class %d", c);
    cr_expect_float_eq(report_number(r, "classes", "mean_iou"), (both[0] / either[0] + both[1] / either[1]) / 2, 1e-12);
    cJSON_Delete(r);
    snprintf(flags, sizeof flags, "%s %s/0.png 1 %s", files_path("w"), files_path("d/test/images"),
             files_path("cut.ppm"));
    o = program_run("app_masks", flags);
    cr_expect_eq(o.status, 0, "%s", o.err);
    snprintf(flags, sizeof flags, "0.png: %.0f of 256 pixels are of class 1", share * SIDE * SIDE / 100);
    EXPECT_MATCH(o.out, flags);
}

/* An image of any size has a mask of its size; no input is replaced, and no mask is written twice. */
Test(own_program, masks_have_places_of_their_own) {
    char flags[1500];
    uint8_t mask[20 * 14];
    files_make_folder("d");
    write_masks("d/train", 2);
    snprintf(flags, sizeof flags, "--steps 1 --eval-every 0 --export %s", files_path("w"));
    write_masks("d/test", 1);
    cr_assert_eq(on_masks(flags).status, 0);
    files_make_folder("e");
    files_write("e/0.jpg", "", 0); /* is looked at second */
    const struct {
        const char *images, *masks, *err;
        int status;
    } cells[] = {
        {"d/test/images/0.png", "m", "", 0},
        {"d/test/images/0.png", "m", "", 0}, /* over the masks of the first run */
        {"d/test/images/0.png", "d/test/images", "0.png would be written over --predict .*0.png", 2},
        {"d/test/images/0.png d/train/images/0.png", "n", "images/0.png and .*images/0.png would both give n/0.png", 2},
        {"d/test/images/0.png e/0.jpg", "n", "would both give", 2},
        {"d/test/images/0.png", "e/0.jpg", "folder|cannot be", 1},
        {"d/test/images/0.png", "none/m", "--masks .*none/m: the folder cannot be made: No such file", 1},
    };
    cr_assert_eq(chdir(files_root), 0);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        snprintf(flags, sizeof flags, "--weights w --predict %s --masks %s", cells[i].images, cells[i].masks);
        outcome o = program_run("train_unet", flags);
        cr_expect_eq(o.status, cells[i].status, "%zu: %d %s", i, o.status, o.err);
        EXPECT_MATCH(o.err, cells[i].err);
    }
    cr_expect_neq(access("n", F_OK), 0, "refused before the first");
    read_palette("m/0.png", 14, 20, mask);
    cr_expect_eq(program_run("train_unet", "--masks m --steps 1").status, 2);
    cr_assert_eq(program_run("train_vgg", "--depth 11 --width 0.1 --steps 1 --image-size 32 --batch-size 2 --export v "
                                          "--eval-every 0")
                     .status,
                 0);
    outcome o = program_run("train_vgg", "--weights v --predict d/test/images/0.png --masks m");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "the network has 10 results in 2 dimensions, not 10 classes for each pixel");
}

Test(own_program, masks_need_classes_and_a_network_of_pixels) {
    files_make_folder("d");
    write_masks("d/train", 4);
    char flags[512];
    snprintf(flags, sizeof flags, "--data %s", files_path("d"));
    outcome o = unet(flags);
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "--dataset masks needs --classes N");
    o = on_masks("");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "d: holds no folder test or val");
    write_masks("d/val", 4);
    o = program_run("train_own", "--dataset masks --image-size 8 --batch-size 2 --device meta --classes 2");
    cr_expect_eq(o.status, 2);
    EXPECT_MATCH(o.err, "results are \\[2, 2\\], but the loss needs \\[2, 8, 8, 2\\], for 2 classes");
    files_make_folder("d/train/masks/x"); /* no image: passed over */
    cr_expect_eq(on_masks("--steps 1").status, 0);
}

/* photos/<split>/<class>/<i>.jpg, 80 x 60: fire is red, sea is blue. */
static void write_photos(const char *split, int count) {
    static const char *const classes[] = {"fire", "sea"};
    char name[64];
    uint8_t rgb[3 * 80 * 60], *bytes = NULL;
    files_make_folder(split);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "%s/%s", split, classes[k]);
        files_make_folder(name);
        for (int i = 0; i < count; i++) {
            picture_fill(rgb, 60, 80);
            for (int p = 0; p < 60 * 80; p++) {
                rgb[3 * p + (k == 0 ? 0 : 2)] = (uint8_t)(200 + i);
                rgb[3 * p + (k == 0 ? 2 : 0)] = 20;
            }
            size_t n = jpeg_bytes(JPEG_RGB, rgb, 60, 80, &bytes);
            snprintf(name, sizeof name, "%s/%s/%d.jpg", split, classes[k], i);
            files_write(name, bytes, n);
            free(bytes);
        }
    }
}

Test(own_program, photos_become_an_application) {
    char arguments[2048];
    if (strcmp(program_device(), "cpu") != 0) cr_skip("the program takes no --device");
    setenv("FRUGAL_NO_POOL", "0", 1); /* a budget needs the pool */
    files_make_folder("photos");
    write_photos("photos/train", 16);
    write_photos("photos/test", 4);
    int n = snprintf(arguments, sizeof arguments, "%s %s %s", files_path("photos"), files_path("net.safetensors"),
                     files_path("photos/test/sea/1.jpg"));
    outcome o = program_run("app_photos", arguments);
    cr_assert_eq(o.status, 0, "%s", o.err);
    EXPECT_MATCH(o.out, "epoch 30 of 30: loss 0\\.[0-9]+, test accuracy 100\\.0 %");
    EXPECT_MATCH(o.out, "net.safetensors written; peak memory [0-9]+ of 16777216 bytes");
    EXPECT_MATCH(o.out, "sea/1.jpg: sea \\([0-9.]+ %\\)");
    snprintf(arguments + n, sizeof arguments - (size_t)n, " 1000000");
    o = program_run("app_photos", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "nothing fits; the smallest budget for batches of 16 is [0-9]+ bytes");
}
