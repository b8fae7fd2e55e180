/* test_targets.c - images of any element type and number of channels, masks, vectors, rings: a batch holds the given
 * data for any reader; a mask follows its image; transforms agree with torchvision. */
#include "files.h"
#include "support/golden.h"

#include "data/dataset.h"
#include "data/transform.h"

#include <math.h>

TestSuite(targets, .init = files_begin, .fini = files_end, .timeout = 120);

enum { COUNT = 11, H = 14, W = 17, CLASSES = 5, LENGTH = 4 };

/* ---- images and masks that show the origin of a pixel -------------------------------------------------------- */

/* Class (y + 2 x + i) % 6, 5 being "ignored"; the image's color is 40 * class + 20. */
static uint8_t class_of(int64_t i, int64_t y, int64_t x) {
    const uint8_t c = (uint8_t)((y + 2 * x + i) % 6);
    return c == 5 ? FR_MASK_IGNORED : c;
}

static uint8_t color_of(uint8_t class) {
    return class == FR_MASK_IGNORED ? 220 : (uint8_t)(40 * class + 20);
}

/* <split>/images/NN.png and masks/NN.png; sizes differ by `step` from image to image. */
static void write_folder(const char *split, int count, int step) {
    char name[64];
    files_make_folder(split);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "%s/%s", split, k == 0 ? "images" : "masks");
        files_make_folder(name);
    }
    for (int i = 0; i < count; i++) {
        const int h = H + step * i, w = W + step * (count - i);
        uint8_t *rgb = malloc((size_t)(3 * h * w)), *mask = malloc((size_t)(3 * h * w)), *bytes = NULL;
        for (int p = 0; p < h * w; p++) {
            mask[3 * p] = class_of(i, p / w, p % w);
            memset(rgb + 3 * p, color_of(mask[3 * p]), 3);
        }
        size_t n = png_bytes(PNG_KIND_RGB, rgb, h, w, &bytes);
        snprintf(name, sizeof name, "%s/images/%02d.png", split, i);
        files_write(name, bytes, n);
        free(bytes);
        n = png_bytes(PNG_KIND_GRAY, mask, h, w, &bytes);
        snprintf(name, sizeof name, "%s/masks/%02d.png", split, i);
        files_write(name, bytes, n);
        free(bytes), free(rgb), free(mask);
    }
}

static fr_dataset *mask_folder(int count, int step) {
    fr_dataset *d = NULL;
    write_folder("train", count, step);
    MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, CLASSES, &d));
    return d;
}

/* All bytes of two epochs of a loader: images, then targets, batch by batch. */
typedef struct epochs {
    uint8_t *bytes;
    size_t n;
} epochs;

static void add(epochs *e, fr_tensor *t) {
    e->bytes = realloc(e->bytes, e->n + fr_tensor_nbytes(t));
    memcpy(e->bytes + e->n, fr_tensor_data(t), fr_tensor_nbytes(t));
    e->n += fr_tensor_nbytes(t);
}

/* Batches from `from` of epoch 0 on; `skipped` bytes are left out at the front. */
static epochs run(fr_dataset *d, const fr_loader_opts *opts, int64_t from) {
    epochs e = {0};
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    MUST(fr_loader_create(d, opts, &l));
    MUST(fr_loader_position_set(l, 0, from));
    for (int ends = 0; ends < 2;) {
        fr_status s = fr_loader_next(l, &x, &t);
        ends += s == FR_END;
        cr_assert_geq(s, 0, "%s", fr_last_error());
        if (s != FR_OK) continue;
        add(&e, x);
        add(&e, t);
    }
    fr_tensor_release(&x), fr_tensor_release(&t), fr_loader_release(&l);
    return e;
}

static void expect_same(const epochs *all, epochs part, const char *what) {
    cr_assert_leq(part.n, all->n, "%s", what);
    cr_assert_gt(part.n, 0);
    cr_expect(memcmp(all->bytes + (all->n - part.n), part.bytes, part.n) == 0, "%s: other batches", what);
    free(part.bytes);
}

static const fr_loader_opts *varied(int workers) {
    static fr_loader_opts o;
    o = *FR_LOADER_OPTS(.batch_size = 3, .drop_last = false, .height = 12, .width = 13, .resize_height = 16,
                        .resize_width = 18, .padding = 2, .random_crop = true, .flip = true, .degrees = 20, .zoom = 0.2,
                        .shear = 5, .seed = 9, .workers = workers);
    return &o;
}

/* ---- data read by the program -------------------------------------------------------------------------------- */

static fr_status hand_on(void *ctx, int64_t index, void *pixels, void *target) {
    fr_dataset *of = ctx;
    fr_dataset_info info;
    fr_status s = FR_OK;
    FR_TRY(s, fr_dataset_info_get(of, &info));
    FR_TRY(s, fr_dataset_read(of, index, pixels, (size_t)(H * W * info.channels) * 4, NULL, NULL, NULL));
    s = fri_dataset_target(of, index, target, H * W * 4, NULL);
done:
    return s;
}

static fr_dataset *own_of(fr_dataset *of) {
    fr_dataset_info i;
    fr_dataset *d = NULL;
    MUST(fr_dataset_info_get(of, &i));
    MUST(fr_dataset_create(&(fr_dataset_source){.name = "own",
                                                .count = i.count,
                                                .classes = i.classes,
                                                .height = H,
                                                .width = W,
                                                .channels = i.channels,
                                                .read = hand_on,
                                                .ctx = of,
                                                .f32 = i.f32,
                                                .target = i.target},
                           &d));
    return d;
}

/* Noise of 5 channels in f32, and a vector. */
static fr_status noise(void *ctx, int64_t index, void *pixels, void *target) {
    (void)ctx;
    for (int p = 0; p < H * W * 5; p++) ((float *)pixels)[p] = (float)sin(0.1 * (double)(index * 1000 + p));
    for (int k = 0; k < LENGTH; k++) ((float *)target)[k] = (float)(index * 10 + k) + 0.5F;
    return FR_OK;
}

static fr_dataset *noise_dataset(void) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = COUNT,
                                                .classes = LENGTH,
                                                .height = H,
                                                .width = W,
                                                .channels = 5,
                                                .read = noise,
                                                .f32 = true,
                                                .target = FR_TARGET_VECTOR},
                           &d));
    return d;
}

/* A folder of masks and a callback dataset, at any number of workers, and from the middle on. */
static void expect_batches_of(fr_dataset *given) {
    fr_dataset *own = own_of(given);
    epochs all = run(given, varied(0), 0);
    for (int workers = 0; workers <= 4; workers += workers == 0 ? 1 : 3) {
        expect_same(&all, run(given, varied(workers), 0), "given");
        expect_same(&all, run(own, varied(workers), 0), "own");
        expect_same(&all, run(own, varied(workers), 2), "own, resumed");
    }
    free(all.bytes);
    fr_dataset_release(&own);
    fr_dataset_release(&given);
}

Test(targets, the_programs_own_masks_give_the_batches_of_the_folder) {
    expect_batches_of(mask_folder(COUNT, 0));
}

Test(targets, f32_images_and_vectors_give_the_same_batches_at_any_number_of_workers) {
    expect_batches_of(noise_dataset());
}

Test(targets, shapes_and_types_follow_the_dataset) {
    fr_dataset *datasets[] = {mask_folder(COUNT, 0), noise_dataset()};
    for (int i = 0; i < 2; i++)
        for (int meta = 0; meta < 2; meta++) {
            fr_loader *l = NULL;
            fr_tensor *x = NULL, *t = NULL;
            MUST(fr_loader_create(datasets[i],
                                  FR_LOADER_OPTS(.batch_size = 4, .shuffle = false, .device = meta ? FR_META : FR_CPU,
                                                 .workers = 0),
                                  &l));
            MUST(fr_loader_next(l, &x, &t));
            cr_expect_eq(fr_tensor_dim(x, 3), i == 0 ? 3 : 5);
            cr_expect_eq(fr_tensor_dtype(t), i == 0 ? FR_I64 : FR_F32);
            cr_expect_eq(fr_tensor_rank(t), i == 0 ? 3 : 2);
            cr_expect_eq(fr_tensor_dim(t, 1), i == 0 ? H : LENGTH);
            for (int k = 0; i == 1 && !meta && k < 4 * LENGTH; k++)
                cr_expect_eq(((float *)fr_tensor_data(t))[k], (float)(k / LENGTH * 10 + k % LENGTH) + 0.5F);
            fr_tensor_release(&x), fr_tensor_release(&t), fr_loader_release(&l);
        }
    for (int i = 0; i < 2; i++) fr_dataset_release(&datasets[i]);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

static fr_image in_f32(const uint8_t *pixels, float *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = pixels[i];
    return (fr_image){.f32 = to};
}

/* f32 pixels 0..255, normalized by 255 times mean and deviation, equal 8-bit pixels up to the 8-bit rounding in
 * resize, rotation (with weights of 1/256) and conversion to gray. */
Test(targets, f32_pixels_go_the_way_of_8_bits) {
    static const int channels[][2] = {{3, 3}, {1, 3}, {3, 1}, {1, 1}};
    uint8_t pixels[20 * 24 * 3];
    float reals[20 * 24 * 3], a[12 * 12 * 3], b[12 * 12 * 3];
    picture_fill(pixels, 20, 24);
    for (int i = 0; i < 4; i++)
        for (int resized = 0; resized < 3; resized++) { /* 2: and turned */
            const int in = channels[i][0], out = channels[i][1];
            fr_loader_opts o = *FR_LOADER_OPTS(.height = 12, .width = 12, .resize_height = resized ? 15 : 20,
                                               .resize_width = resized ? 17 : 24, .channels = out, .padding = 2,
                                               .random_crop = true, .flip = true, .degrees = resized == 2 ? 15 : 0);
            fri_transform t, t32;
            fri_transform_scratch scratch = {0};
            fr_image image = {.pixels = pixels, .height = 20, .width = 24, .channels = in},
                     image32 = in_f32(pixels, reals, 20 * 24 * in);
            image32.height = 20, image32.width = 24, image32.channels = in;
            for (int c = 0; c < 3; c++) o.mean[c] = 0.2 + 0.1 * c, o.std[c] = 0.5 + 0.1 * c;
            MUST(fri_transform_init(&t, &o, 20, 24, in));
            for (int c = 0; c < 3; c++) o.mean[c] *= 255, o.std[c] *= 255;
            MUST(fri_transform_init(&t32, &o, 20, 24, in));
            const double levels = (resized > 0 ? 0.51 : 0) + (resized == 2 ? 1.5 : 0) + (in > out ? 0.51 : 1e-4);
            const double bound = levels / 255 / 0.5;
            for (int64_t index = 0; index < 20; index++) {
                MUST(fri_transform_apply(&t, &image, 0, index, &scratch, a, NULL));
                MUST(fri_transform_apply(&t32, &image32, 0, index, &scratch, b, NULL));
                for (int k = 0; k < 12 * 12 * out; k++)
                    cr_assert(fabs((double)a[k] - b[k]) <= bound, "%d to %d, resized %d, image %d, %d: %g, not %g", in,
                              out, resized, (int)index, k, b[k], a[k]);
            }
            fri_transform_scratch_free(&scratch);
        }
}

static fr_status two_levels(void *ctx, int64_t index, void *pixels, void *target) {
    const double *at = ctx;
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < 2; c++) ((float *)pixels)[2 * p + c] = (float)(at[c] + (p % 2 == 0 ? 3 : -3));
    *(int64_t *)target = index % 2;
    return FR_OK;
}

Test(targets, mean_and_deviation_of_f32_are_in_its_own_units) {
    double at[2] = {1e7, -2.5}, mean[2], std[2];
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){"ct", 3000, 2, 2, 2, 2, two_levels, .ctx = at, .f32 = true}, &d));
    MUST(fr_dataset_mean_std(d, 3000, mean, std));
    cr_expect(mean[0] == 1e7 && mean[1] == -2.5 && std[0] == 3 && std[1] == 3, "%g %g %g %g", mean[0], mean[1], std[0],
              std[1]);
    at[1] = NAN;
    EXPECT_FAIL(fr_dataset_mean_std(d, 3, mean, std), FR_EINVAL, "ct", "channel 1", "NaN");
    fr_dataset_release(&d);
}

Test(targets, a_preprocessed_image_may_have_16_channels) {
    float pixels[4 * 16];
    fr_loader_opts o = fr_loader_opts_default();
    fr_tensor *x = NULL;
    for (int i = 0; i < 64; i++) pixels[i] = (float)i;
    for (int c = 0; c < 16; c++) o.mean[c] = c, o.std[c] = 2;
    MUST(fr_image_preprocess(&(fr_image){.f32 = pixels, .height = 2, .width = 2, .channels = 16}, &o, FR_CPU, &x));
    for (int i = 0; i < 64; i++) cr_expect_eq(((float *)fr_tensor_data(x))[i], (float)(i / 16 * 16) / 2);
    fr_tensor_release(&x);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* Image and mask equal torchvision's v2 transforms with the loader's random numbers, to the bit; the bilinear filter,
 * whose 8-bit sums torchvision keeps in fixed point, to one level. */
Test(targets, images_and_masks_are_torchvisions) {
    golden g = golden_open("transforms");
    int cases = 0;
    while (golden_next(&g)) {
        const fri_safetensors_entry *x = golden_field(&g, "x"), *y = golden_field(&g, "y");
        const uint8_t *want = y->data, *want_mask = golden_field(&g, "y_mask")->data;
        const int64_t h = golden_int(&g, "size", 0), w = golden_int(&g, "size", 1);
        const bool resized = golden_int(&g, "resize", 0) > 0 && golden_int(&g, "resize", 0) != x->shape.dim[0];
        fr_image image = {.pixels = x->data, .height = x->shape.dim[0], .width = x->shape.dim[1], .channels = 3};
        fri_transform t;
        fri_transform_scratch scratch = {0};
        float got[20 * 20 * 3];
        int64_t classes[20 * 20];
        image.target.data = (void *)golden_field(&g, "mask")->data;
        MUST(fri_transform_init(&t,
                                FR_LOADER_OPTS(.height = h, .width = w, .resize_height = golden_int(&g, "resize", 0),
                                               .resize_width = golden_int(&g, "resize", 1),
                                               .padding = golden_int(&g, "padding", 0), .random_crop = true,
                                               .flip = true, .seed = (uint64_t)golden_int(&g, "seed", 0)),
                                image.height, image.width, 3));
        MUST(fri_transform_apply(&t, &image, golden_int(&g, "epoch", 0), golden_int(&g, "index", 0), &scratch, got,
                                 classes));
        for (int64_t i = 0; i < h * w * 3; i++)
            cr_assert_leq(fabs(got[i] * 255.0 - want[i]), resized ? 1 + 1e-4 : 1e-4, "%s, pixel %d: %g, not %d", g.name,
                          (int)i, got[i] * 255.0, want[i]);
        for (int64_t i = 0; i < h * w; i++)
            cr_assert_eq(classes[i], want_mask[i] == 255 ? -100 : want_mask[i], "%s, class %d: %d, not %d", g.name,
                         (int)i, (int)classes[i], want_mask[i]);
        fri_transform_scratch_free(&scratch);
        cases++;
    }
    cr_expect_eq(cases, 24);
}

/* Rotation and zoom of large areas of a class each: a pixel of a pure color must have the color's class. */
Test(targets, a_mask_turns_with_its_image) {
    enum { SIDE = 40 };
    uint8_t pixels[SIDE * SIDE], mask[SIDE * SIDE];
    float got[SIDE * SIDE];
    int64_t classes[SIDE * SIDE], same = 0, other = 0;
    fri_transform t;
    fri_transform_scratch scratch = {0};
    for (int p = 0; p < SIDE * SIDE; p++) {
        mask[p] = (uint8_t)(p / SIDE / 14 + 3 * (p % SIDE / 11));
        pixels[p] = (uint8_t)(20 * mask[p] + 10);
    }
    fr_image image = {.pixels = pixels, .height = SIDE, .width = SIDE, .channels = 1};
    image.target.data = mask;
    MUST(fri_transform_init(&t, FR_LOADER_OPTS(.degrees = 90, .zoom = 0.5, .shear = 20, .flip = true), SIDE, SIDE, 1));
    for (int64_t index = 0; index < 30; index++) {
        MUST(fri_transform_apply(&t, &image, 0, index, &scratch, got, classes));
        for (int p = 0; p < SIDE * SIDE; p++) {
            const int level = (int)lrint(got[p] * 255.0);
            if (level == 0) cr_assert_eq(classes[p], -100, "black is outside");
            if (level % 20 != 10 || classes[p] < 0) continue;
            *(classes[p] == (level - 10) / 20 ? &same : &other) += 1; /* at borders a mixture may look like a third */
        }
    }
    cr_expect(same > 30 * SIDE * SIDE / 2 && other < same / 200, "%d and %d", (int)same, (int)other);
    fri_transform_scratch_free(&scratch);
}

/* Images of any size without resize: each window comes from its image, equal for any number of workers. */
Test(targets, native_crops_are_windows_of_images_of_any_size) {
    enum { SIDE = 12 };
    fr_dataset *d = mask_folder(COUNT, 3);
    fr_loader_opts o = *FR_LOADER_OPTS(.batch_size = 1, .height = SIDE, .width = SIDE, .shuffle = false, .channels = 1,
                                       .resize_height = FR_LOADER_NATIVE, .resize_width = FR_LOADER_NATIVE,
                                       .random_crop = true, .workers = 0);
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    int places[6] = {0};
    MUST(fr_loader_create(d, &o, &l));
    for (int i = 0; i < 40 * COUNT; i++) {
        fr_status s;
        while ((s = fr_loader_next(l, &x, &t)) == FR_END) continue;
        MUST(s);
        const float *got = fr_tensor_data(x);
        const int64_t *class = fr_tensor_data(t);
        const int64_t first = class[0] < 0 ? 5 : class[0]; /* (top + 2 left + i) % 6 */
        places[(first + 6 * COUNT - i % COUNT) % 6]++;
        for (int64_t p = 0; p < SIDE * SIDE; p++) {
            const int64_t want = (first + p / SIDE + 2 * (p % SIDE)) % 6;
            cr_assert_eq(class[p], want == 5 ? -100 : want);
            cr_assert_eq(got[p], (float)((want == 5 ? 220 : 40 * want + 20) / 255.0));
        }
    }
    for (int k = 0; k < 6; k++) cr_expect_gt(places[k], 20, "place %d: %d of 440", k, places[k]);
    fr_tensor_release(&x), fr_tensor_release(&t), fr_loader_release(&l);
    o.batch_size = 3, o.drop_last = false, o.degrees = 10;
    epochs all = run(d, &o, 0);
    for (o.workers = 1; o.workers <= 4; o.workers += 3) expect_same(&all, run(d, &o, 0), "workers");
    free(all.bytes);
    o.resize_width = FR_LOADER_AUTO;
    EXPECT_FAIL(fr_loader_create(d, &o, &l), FR_EINVAL, "resize_height is -2");
    fr_dataset_release(&d);
}

Test(targets, masks_are_palettes_or_gray) {
    static const enum png_kind kinds[] = {PNG_KIND_GRAY_1, PNG_KIND_PALETTE}, refused[] = {PNG_KIND_RGB, PNG_KIND_RGBA};
    uint8_t rgb[3 * H * W], mask[H * W], *bytes = NULL;
    fr_dataset *d = NULL;
    size_t n, size = 0;
    memset(rgb, 1, sizeof rgb);
    write_folder("train", 2, 0);
    for (int i = 0; i < 2; i++) {
        n = png_bytes(kinds[i], rgb, H, W, &bytes);
        files_write("train/masks/01.png", bytes, n);
        free(bytes);
        MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, CLASSES, &d));
        MUST(fri_dataset_target(d, 1, mask, sizeof mask, &size));
        cr_expect_eq(size, H * W);
        for (int p = 0; p < H * W; p++) cr_assert_eq(mask[p], (p / W + p % W) % 2, "kind %d, pixel %d", i, p);
        n = png_bytes(refused[i], rgb, H, W, &bytes);
        files_write("train/masks/01.png", bytes, n);
        free(bytes);
        EXPECT_FAIL(fri_dataset_target(d, 1, mask, sizeof mask, NULL), FR_EFORMAT, "masks/01.png", "RGB", "8 bits");
        EXPECT_FAIL(fri_dataset_target(d, 0, mask, 3, NULL), FR_EINVAL, "238 bytes", "holds 3");
        fr_dataset_release(&d);
    }
}

Test(targets, two_classes_written_as_0_and_255_are_refused) {
    uint8_t rgb[3 * H * W], *bytes = NULL;
    fr_dataset *d = NULL;
    write_folder("train", 2, 0);
    for (int second = 255; second >= 1; second -= 254) {
        for (int i = 0; i < 3 * H * W; i++) rgb[i] = i < H * W ? 0 : i < 2 * H * W ? 255 : (uint8_t)second;
        const size_t n = png_bytes(PNG_KIND_GRAY, rgb, H, W, &bytes);
        files_write("train/masks/00.png", bytes, n);
        files_write("train/masks/01.png", bytes, n);
        free(bytes);
        if (second == 255)
            EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 2, &d), FR_EFORMAT, "only 0 and 255",
                        "second class as 1");
        else
            MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 2, &d));
    }
    fr_dataset_release(&d);
}

Test(targets, what_is_wrong_in_a_folder_of_masks_is_named) {
    uint8_t rgb[3 * (H + 1) * W], *bytes = NULL, mask[(H + 1) * W];
    fr_dataset *d = mask_folder(3, 0), *none = NULL;
    int64_t label;
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &none), FR_EUSAGE, "fr_dataset_mask_folder");
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TEST, CLASSES, &none), FR_EIO, "test or val");
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 256, &none), FR_EINVAL, "256 classes", "1..255");
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, 4, &none), FR_EFORMAT, "00.png", "class 4",
                "outside 0..3");
    EXPECT_FAIL(fr_dataset_label(d, 0, &label), FR_EUSAGE, "no label");
    memset(rgb, 0, sizeof rgb);
    size_t n = png_bytes(PNG_KIND_GRAY, rgb, H + 1, W, &bytes);
    files_write("train/masks/01.png", bytes, n);
    EXPECT_FAIL(fri_dataset_target(d, 1, mask, sizeof mask, NULL), FR_EFORMAT, "masks/01.png", "17 x 15", "17 x 14");
    files_write("train/images/02.jpg", bytes, n);
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, CLASSES, &none), FR_EFORMAT, "02.png",
                "no file of the same name");
    remove(files_path("train/images/02.jpg"));
    files_write("train/masks/01.b.png", bytes, n);
    EXPECT_FAIL(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, CLASSES, &none), FR_EFORMAT, "01.b.png",
                "no file of the same name in", "images");
    files_write("train/images/01.b.jpg", bytes, n); /* "01" comes before "01.b" in both lists */
    MUST(fr_dataset_mask_folder(files_root, FR_SPLIT_TRAIN, CLASSES, &none));
    free(bytes);
    fr_dataset_release(&d);
    fr_dataset_release(&none);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

Test(targets, a_ring_holds_the_newest_images) {
    fr_dataset *d = NULL, *plain = NULL;
    uint8_t pixel;
    int64_t label, wrong = 7;
    MUST(fr_dataset_create(&(fr_dataset_source){"camera", 3, 7, 1, 1, 1}, &d));
    EXPECT_FAIL(fr_dataset_read(d, 0, &pixel, 1, NULL, NULL, NULL), FR_EUSAGE, "camera", "the ring is empty");
    for (int64_t pushed = 1; pushed <= 7; pushed++) {
        pixel = (uint8_t)(10 * pushed), label = pushed - 1;
        MUST(fr_dataset_push(d, &pixel, &label));
        EXPECT_FAIL(fr_dataset_push(d, &pixel, &wrong), FR_EINVAL, "label 7", "0..6");
        for (int64_t i = 0; i < 3; i++) {
            int64_t want = pushed < 3 ? i % pushed : i; /* afterwards the newest of i, i + 3, ... */
            while (want + 3 < pushed) want += 3;
            MUST(fr_dataset_read(d, i, &pixel, 1, NULL, NULL, NULL));
            MUST(fr_dataset_label(d, i, &label));
            cr_expect(pixel == 10 * (want + 1) && label == want, "%d pushed, image %d is %d, not %d", (int)pushed,
                      (int)i, (int)label, (int)want);
        }
    }
    MUST(fr_dataset_synthetic(3, 2, 1, 1, 1, 1, &plain));
    EXPECT_FAIL(fr_dataset_push(plain, &pixel, &label), FR_EUSAGE, "not a ring");
    fr_dataset_release(&plain);
    plain = own_of(d);
    EXPECT_FAIL(fr_dataset_push(plain, &pixel, &label), FR_EUSAGE, "not a ring");
    fr_dataset_release(&plain);
    fr_dataset_release(&d);
}

Test(targets, sources_are_checked) {
    const fr_dataset_source good = {"own", 2, 3, 4, 4, 16, noise, .f32 = true, .target = FR_TARGET_PIXELS};
    fr_dataset_source bad[] = {good, good, good, good};
    fr_dataset *d = NULL;
    bad[0].channels = 17, bad[1].classes = 256, bad[2].target = 3, bad[3].count = 0;
    MUST(fr_dataset_create(&good, &d));
    for (int i = 0; i < 4; i++) cr_expect_eq(fr_dataset_create(&bad[i], &d), FR_EINVAL, "case %d", i);
    fr_dataset_release(&d);
}
