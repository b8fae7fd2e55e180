/* test_own_program.c - data of a user's own through the trainers: a folder of images and masks of any size, planned,
 * trained, resumed; and flags that a program adds to the table. */
#include "../data/files.h"
#include "program.h"
#include "report.h"

#include <stdio.h>

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
    EXPECT_MATCH(o.err, "--batch-size 2 --image-size 8: cross_entropy: ");
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
    EXPECT_MATCH(o.out, "epoch 10 of 10: loss 0\\.[0-9]+, test accuracy 100\\.0 %");
    EXPECT_MATCH(o.out, "net.safetensors written; peak memory [0-9]+ of 16777216 bytes");
    EXPECT_MATCH(o.out, "sea/1.jpg: sea \\([0-9.]+ %\\)");
    snprintf(arguments + n, sizeof arguments - (size_t)n, " 1000000");
    o = program_run("app_photos", arguments);
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "nothing fits; the smallest budget for batches of 16 is [0-9]+ bytes");
}
