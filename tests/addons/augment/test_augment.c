/* test_augment.c - torchvision's random changes of images and batches: golden numbers, definitions and distributions,
 * independent of workers. */
#include "data/frames.h"
#include "support/golden.h"

#include "data/transform.h"

#include <frugal/augment.h>
#include <math.h>

/* Options of a loader with the augmentation. */
static fr_loader_opts with(const fr_loader_opts *loader, const fr_augment_opts *augment) {
    fr_loader_opts l = *loader;
    MUST(fr_augment(augment, &l));
    return l;
}

/* torchvision's ColorJitter of floats: f32 rounds some ten times a step; hue divides by a difference of colors, 1 / 255
 * at least. */
Test(augment, colors_are_torchvisions) {
    golden g = golden_open("colors");
    int cases = 0;
    while (golden_next(&g)) {
        const fri_safetensors_entry *x = golden_field(&g, "x"), *y = golden_field(&g, "y");
        const double *amount = golden_field(&g, "amount")->data, bound = amount[3] > 0 ? 5e-5 : 2e-6;
        const float *want = y->data;
        fr_image image = {.pixels = x->data,
                          .height = x->shape.dim[0],
                          .width = x->shape.dim[1],
                          .channels = x->shape.dim[2]};
        const int64_t n = image.height * image.width * image.channels;
        fri_transform t;
        fri_transform_scratch scratch = {0};
        float got[16 * 16 * 3];
        const fr_loader_opts o = with(FR_LOADER_OPTS(.mean = {0.25, 0.5, 0.5}, .std = {0.5, 0.25, 0.25},
                                                     .seed = (uint64_t)golden_int(&g, "seed", 0)),
                                      FR_AUGMENT_OPTS(.brightness = amount[0], .contrast = amount[1],
                                                      .saturation = amount[2], .hue = amount[3]));
        MUST(fri_transform_init(&t, &o, image.height, image.width, image.channels));
        MUST(fri_transform_apply(&t, &image, golden_int(&g, "epoch", 0), golden_int(&g, "index", 0), &scratch, got,
                                 NULL));
        for (int64_t i = 0; i < n; i++) {
            const bool first = i % image.channels == 0;
            const double v = got[i] * (first ? 0.5 : 0.25) + (first ? 0.25 : 0.5);
            cr_assert_leq(fabs(v - (double)want[i]), bound, "%s, number %d: %.9g, not %.9g", g.name, (int)i, v,
                          (double)want[i]);
        }
        fri_transform_scratch_free(&scratch);
        cases++;
    }
    cr_expect_eq(cases, 18);
}

/* torchvision's RandAugment of bytes, to the bit: alone, with each sign, and several. */
Test(augment, augmentations_are_torchvisions) {
    golden g = golden_open("rand_augment");
    int cases = 0;
    while (golden_next(&g)) {
        const fri_safetensors_entry *x = golden_field(&g, "x"), *y = golden_field(&g, "y");
        const uint8_t *want = y->data;
        const int64_t channels = x->shape.dim[2], n = x->shape.dim[0] * x->shape.dim[1] * channels;
        const fr_image image = {x->data, x->shape.dim[0], x->shape.dim[1], channels};
        fri_transform t;
        fri_transform_scratch scratch = {0};
        static uint8_t bytes[8192];
        static float got[8192];
        for (int real = 0; real < 2; real++) {
            const fr_loader_opts o =
                with(FR_LOADER_OPTS(.mean = {0.25, 0.5, 0.5}, .std = {0.5, 0.25, 0.25},
                                    .seed = (uint64_t)golden_int(&g, "seed", 0), .dtype = real ? FR_F32 : FR_U8),
                     FR_AUGMENT_OPTS(.rand_ops = (int)golden_int(&g, "ops", 0),
                                     .rand_magnitude = (int)golden_int(&g, "magnitude", 0)));
            MUST(fri_transform_init(&t, &o, image.height, image.width, channels));
            MUST(fri_transform_apply(&t, &image, golden_int(&g, "epoch", 0), golden_int(&g, "index", 0), &scratch,
                                     real ? (void *)got : bytes, NULL));
        }
        int differ = 0;
        for (int64_t i = 0; i < n; i++) {
            differ += bytes[i] != want[i];
            cr_assert_eq(got[i], t.value[i % channels][bytes[i]], "%s, number %d", g.name, (int)i);
        }
        cr_expect_eq(differ, 0, "%s: %d of %d bytes differ", g.name, differ, (int)n);
        fri_transform_scratch_free(&scratch);
        cases++;
    }
    cr_expect_eq(cases, 88);
}

Test(augment, values_out_of_range) {
    static const struct {
        fr_augment_opts o;
        const char *words[2];
    } cases[] = {{{.rand_ops = -1, .rand_magnitude = 9}, {"-1", "0..16"}},
                 {{.rand_ops = 17, .rand_magnitude = 9}, {"17", "0..16"}},
                 {{.rand_ops = 2, .rand_magnitude = 31}, {"31", "0..30"}},
                 {{.rand_ops = 2, .rand_magnitude = -1}, {"-1", "0..30"}},
                 {{.hue = 0.6}, {"augment: hue is 0.6, must lie in 0..0.5"}},
                 {{.contrast = -1}, {"contrast is -1", "0..10"}},
                 {{.erasing = 1.5}, {"erasing is 1.5", "0..1"}},
                 {{.mixup = 1001}, {"mixup is 1001 and cutmix 0", "0..1000"}},
                 {{.cutmix = -1}, {"cutmix -1"}}};
    fr_loader_opts l = fr_loader_opts_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        EXPECT_FAIL(fr_augment(&cases[i].o, &l), FR_EINVAL, cases[i].words[0], cases[i].words[1]);
    MUST(fr_augment(NULL, &l));
    const fr_augmentation *a = &l.augmentation;
    cr_expect(a->bytes == NULL && a->real == NULL && a->last == NULL && a->batch == NULL);
    EXPECT_FAIL(fr_augment(NULL, NULL), FR_EINVAL, "loader");
}

/* ---- loaders --------------------------------------------------------------------------------------------------- */

/* Whatever the workers, from wherever the epoch is entered, and drawn anew in each. */
Test(augment, a_function_of_seed_epoch_and_batch) {
    static float a[NUMBERS], b[NUMBERS], s[BATCHES * BATCH * CLASSES], t[BATCHES * BATCH * CLASSES];
    const fr_loader_opts ways[] = {with(FR_LOADER_OPTS(.random_crop = true, .padding = 1),
                                        FR_AUGMENT_OPTS(.mixup = 0.4)),
                                   with(FR_LOADER_OPTS(.flip = true), FR_AUGMENT_OPTS(.cutmix = 1)),
                                   with(FR_LOADER_OPTS(.balanced = true), FR_AUGMENT_OPTS(.mixup = 0.2, .cutmix = 1)),
                                   with(FR_LOADER_OPTS(.balanced = true),
                                        FR_AUGMENT_OPTS(.rand_ops = 2, .contrast = 0.5, .erasing = 0.5))};
    for (int i = 0; i < 4; i++) {
        fr_loader_opts o = ways[i];
        o.batch_size = BATCH;
        o.workers = 0;
        frames_collect(o, 0, BATCHES, a, s);
        o.workers = 3;
        frames_collect(o, 0, BATCHES, b, t);
        cr_expect_arr_eq(a, b, sizeof a, "way %d", i);
        cr_expect_arr_eq(s, t, sizeof s, "way %d", i);
        frames_collect(o, 3, BATCHES, b, t);
        cr_expect_arr_eq(a + 3 * BATCH * SIZE * SIZE, b, 2 * BATCH * SIZE * SIZE * sizeof *a, "way %d", i);
        o.group = 2, o.every = 2, o.first = 1; /* rank 1 of 2: batch 1 of the epoch's first two */
        frames_collect(o, 0, 1, b, t);
        cr_expect_arr_eq(a + BATCH * SIZE * SIZE, b, BATCH * SIZE * SIZE * sizeof *a, "way %d", i);
        cr_expect_arr_eq(s + BATCH * CLASSES, t, BATCH * CLASSES * sizeof *s, "way %d", i);
        o.seed = 1;
        frames_collect(o, 0, 1, a, s);
        cr_expect_neq(memcmp(a, b, BATCH * SIZE * SIZE * sizeof *a), 0, "way %d", i);
    }
}

/* torchvision's RandomErasing: a box, whose share of the image is 2 to 33 %, in some 7 of 10 images. torch: 17.2 % of
 * an erased image on average, where boxes are rounded to pixels. */
Test(augment, boxes_are_erased) {
    static float x[NUMBERS], plain[NUMBERS], s[BATCHES * BATCH * CLASSES];
    enum { N = SIZE * SIZE, SEEDS = 50 };
    int erased = 0, pixels = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fr_loader_opts o = *FR_LOADER_OPTS(.batch_size = BATCH, .workers = 0, .seed = seed, .mean = {-1}, .std = {1});
        frames_collect(o, 0, BATCHES, plain, s); /* no pixel is 0 */
        o = with(&o, FR_AUGMENT_OPTS(.erasing = 0.7));
        frames_collect(o, 0, BATCHES, x, s);
        for (int i = 0; i < IMAGES; i++) {
            int top = SIZE, left = SIZE, bottom = -1, right = -1, n = 0;
            for (int k = 0; k < N; k++) {
                if (x[i * N + k] != 0) cr_assert_eq(x[i * N + k], plain[i * N + k]);
                if (x[i * N + k] != 0) continue;
                top = k / SIZE < top ? k / SIZE : top;
                bottom = k / SIZE > bottom ? k / SIZE : bottom;
                left = k % SIZE < left ? k % SIZE : left;
                right = k % SIZE > right ? k % SIZE : right;
                n++;
            }
            cr_expect(n == 0 || n == (bottom - top + 1) * (right - left + 1), "it is a box");
            cr_expect_leq(n, 30);
            erased += n > 0;
            pixels += n;
        }
    }
    const double share = (double)erased / (SEEDS * IMAGES);
    cr_expect_lt(fabs(share - 0.7), 0.05, "%g", share);
    cr_expect_lt(fabs((double)pixels / erased / N - 0.172), 0.01, "%g", (double)pixels / erased / N);
}

/* MixUp and CutMix by definition: with l from the class probabilities, x = l x + (1 - l) roll(x), or a box of roll(x)
 * of area 1 - l. */
static void expect_mixed(const float *x, const float *s, const float *plain, const float *classes, bool cut) {
    double l = -1;
    int boxed = 0;
    for (int i = 0; i < BATCH; i++) {
        const int before = (i + BATCH - 1) % BATCH;
        for (int c = 0; c < CLASSES && l < 0; c++)
            if (classes[i * CLASSES + c] == 1 && classes[before * CLASSES + c] == 0) l = (double)s[i * CLASSES + c];
    }
    cr_assert(l >= 0 && l <= 1);
    for (int i = 0; i < BATCH; i++) {
        const int before = (i + BATCH - 1) % BATCH;
        const float *p = plain + i * SIZE * SIZE, *q = plain + before * SIZE * SIZE;
        for (int c = 0; c < CLASSES; c++) {
            const double want = l * (double)classes[i * CLASSES + c] + (1 - l) * (double)classes[before * CLASSES + c];
            cr_expect_float_eq(s[i * CLASSES + c], want, 1e-6);
        }
        for (int k = 0; k < SIZE * SIZE; k++) {
            const float got = x[i * SIZE * SIZE + k];
            const double blended = l * (double)p[k] + (1 - l) * (double)q[k];
            if (!cut) cr_expect_float_eq(got, blended, 1e-6, "image %d pixel %d: %g, %g", i, k, (double)got, blended);
            if (cut) cr_expect(got == p[k] || got == q[k]);
            if (i == 0) boxed += cut && got == q[k] && p[k] != q[k];
        }
    }
    const bool alike = memcmp(plain, plain + (BATCH - 1) * SIZE * SIZE, SIZE * SIZE * sizeof *plain) == 0;
    if (cut && !alike)
        cr_expect_leq(fabs((1 - l) * SIZE * SIZE - boxed), 1e-4, "area %g, %d pixels", (1 - l) * SIZE * SIZE, boxed);
}

Test(augment, mixed_as_torchvision_mixes) {
    static float x[NUMBERS], plain[NUMBERS], s[BATCHES * BATCH * CLASSES], classes[BATCHES * BATCH * CLASSES];
    fr_loader_opts o = *FR_LOADER_OPTS(.batch_size = BATCH, .workers = 0);
    for (uint64_t seed = 0; seed < 20; seed++) {
        o.seed = seed;
        MUST(fr_augment(NULL, &o));
        frames_collect(o, 0, BATCHES, plain, classes);
        for (int cut = 0; cut < 2; cut++) {
            o = with(&o, FR_AUGMENT_OPTS(.mixup = cut ? 0 : 0.7, .cutmix = cut ? 1.5 : 0));
            frames_collect(o, 0, BATCHES, x, s);
            for (int b = 0; b < BATCHES; b++)
                expect_mixed(x + b * BATCH * SIZE * SIZE, s + b * BATCH * CLASSES, plain + b * BATCH * SIZE * SIZE,
                             classes + b * BATCH * CLASSES, cut);
        }
    }
}

/* Shares l of mixup are from Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)). */
Test(augment, shares_are_from_a_beta_distribution) {
    static float x[NUMBERS], s[BATCHES * BATCH * CLASSES], classes[BATCHES * BATCH * CLASSES];
    static const double alphas[] = {0.2, 1, 4};
    for (int a = 0; a < 3; a++) {
        double sum = 0, squares = 0;
        int n = 0;
        for (uint64_t seed = 0; seed < 400; seed++) {
            const fr_loader_opts plain = *FR_LOADER_OPTS(.batch_size = BATCH, .workers = 0, .seed = seed);
            frames_collect(plain, 0, 1, x, classes);
            frames_collect(with(&plain, FR_AUGMENT_OPTS(.mixup = alphas[a])), 0, 1, x, s);
            for (int i = 1; i < BATCH; i++)
                if (memcmp(classes + i * CLASSES, classes + (i - 1) * CLASSES, CLASSES * sizeof *s) != 0) {
                    double l = 0;
                    for (int c = 0; c < CLASSES; c++) l += (double)(s[i * CLASSES + c] * classes[i * CLASSES + c]);
                    sum += l - 0.5;
                    squares += (l - 0.5) * (l - 0.5);
                    n++;
                    break;
                }
        }
        const double variance = 1 / (4 * (2 * alphas[a] + 1));
        cr_expect_gt(n, 390);
        cr_expect_lt(fabs(sum / n), 4 * sqrt(variance / n), "alpha %g: mean %g", alphas[a], sum / n + 0.5);
        cr_expect_lt(fabs(squares / n / variance - 1), 0.25, "alpha %g: variance %g, %g", alphas[a], squares / n,
                     variance);
    }
}
