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
    outcome o = on_masks("--keep-last plan");
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
    EXPECT_MATCH(o.err, "--dataset masks: --classes N says how many");
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
