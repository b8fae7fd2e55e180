/* test_augmentation.c - random changes of a program's own: each call sees what the page of data.h says, and numbers
 * depend on seed, epoch and index alone. */
#include "data/frames.h"

#include <math.h>

static double number_of(const fr_augment_input *in, uint64_t places) {
    uint32_t r[4];
    fr_augment_numbers(in, (UINT64_C(1) << 60) + places * 1000 + (uint64_t)in->index, r);
    return r[0] * 0x1p-32;
}

static int64_t size_of(const fr_augment_input *in) {
    return in->n * in->height * in->width * in->channels;
}

/* Inverts the image into the second buffer. */
static uint8_t *invert(const fr_augmentation *a, const fr_augment_input *in, uint8_t *pixels, uint8_t *spare) {
    (void)a;
    for (int64_t i = 0; i < size_of(in); i++) spare[i] = (uint8_t)(255 - pixels[i]);
    return spare;
}

static void scale(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    for (int64_t i = 0; i < size_of(in); i++) pixels[i] *= (float)a->amount[0];
}

static void shift(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    for (int64_t i = 0; i < size_of(in); i++) pixels[i] += (float)*(const double *)a->ctx;
}

/* Twice the images; shares by the batch's number. */
static void twice(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares, float *spare) {
    (void)a;
    for (int64_t i = 0; i < size_of(in); i++) images[i] *= 2;
    for (int64_t i = 0; i < in->n * in->classes; i++) shares[i] += (float)in->index;
    spare[in->height * in->width * in->channels - 1] = 0;
}

static fr_loader_opts plain(void) {
    return *FR_LOADER_OPTS(.batch_size = BATCH, .workers = 0, .mean = {0.5}, .std = {0.25});
}

Test(augmentation, calls_come_in_their_order) {
    static float x[NUMBERS], was[NUMBERS], s[BATCHES * BATCH * CLASSES], classes[BATCHES * BATCH * CLASSES];
    double by = 3;
    fr_loader_opts o = plain();
    frames_collect(o, 0, BATCHES, was, classes);
    o.augmentation = (fr_augmentation){invert, scale, shift, twice, {0.5}, &by};
    for (o.workers = 0; o.workers < 3; o.workers += 2) {
        frames_collect(o, 0, BATCHES, x, s);
        for (int i = 0; i < NUMBERS; i++) {
            const double v = was[i] * 0.25 + 0.5, want = 2 * (((1 - v) * 0.5 - 0.5) / 0.25 + 3);
            cr_assert_float_eq(x[i], want, 1e-5, "number %d: %g, not %g", i, (double)x[i], want);
        }
        for (int i = 0; i < BATCHES * BATCH * CLASSES; i++)
            cr_assert_eq(s[i], classes[i] + (float)(i / (BATCH * CLASSES)), "share %d: %g", i, (double)s[i]);
    }
}

static uint8_t *mark_bytes(const fr_augmentation *a, const fr_augment_input *in, uint8_t *pixels, uint8_t *spare) {
    (void)a, (void)spare;
    pixels[0] = (uint8_t)(255 * number_of(in, 0));
    return pixels;
}

static void mark(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    pixels[(int)a->amount[0]] = (float)number_of(in, 1);
}

static void mark_batch(const fr_augmentation *a, const fr_augment_input *in, float *images, float *shares,
                       float *spare) {
    (void)a, (void)spare;
    images[2] = (float)number_of(in, 2);
    shares[0] = (float)number_of(in, 3);
}

Test(augmentation, numbers_depend_on_seed_epoch_and_index_alone) {
    static float a[NUMBERS], b[NUMBERS], s[BATCHES * BATCH * CLASSES], t[BATCHES * BATCH * CLASSES];
    fr_loader_opts o = plain();
    o.augmentation = (fr_augmentation){mark_bytes, NULL, mark, mark_batch, {1}, NULL};
    frames_collect(o, 0, BATCHES, a, s);
    o.workers = 3;
    frames_collect(o, 0, BATCHES, b, t);
    cr_expect_arr_eq(a, b, sizeof a);
    cr_expect_arr_eq(s, t, sizeof s);
    frames_collect(o, 3, BATCHES, b, t); /* as a resumed run */
    cr_expect_arr_eq(a + 3 * BATCH * SIZE * SIZE, b, 2 * BATCH * SIZE * SIZE * sizeof *a);
    cr_expect_arr_eq(s + 3 * BATCH * CLASSES, t, 2 * BATCH * CLASSES * sizeof *s);
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < i; k++) cr_assert_neq(a[i * SIZE * SIZE + 1], a[k * SIZE * SIZE + 1], "%d and %d", i, k);
    o.seed = 1;
    frames_collect(o, 0, BATCHES, b, t);
    for (int i = 0; i < IMAGES; i++) cr_assert_neq(a[i * SIZE * SIZE + 1], b[i * SIZE * SIZE + 1], "image %d", i);
    const fr_augment_input in = {.seed = 1, .epoch = 2, .index = 3}, next = {.seed = 1, .epoch = 3, .index = 3};
    cr_expect_neq(number_of(&in, 0), number_of(&next, 0));
}

static fr_status nothing(void *ctx, int64_t index, void *pixels, void *target) {
    (void)ctx, (void)index, (void)pixels, (void)target;
    return FR_OK;
}

Test(augmentation, what_an_augmentation_cannot_be_of) {
    static const struct {
        fr_dataset_source source;
        fr_augmentation augmentation;
        fr_dtype dtype;
        fr_status status;
        const char *words;
    } cases[] = {
        {{"r", 1, 2, 4, 4, 2, nothing}, {.bytes = invert}, FR_F32, FR_EINVAL, "need 1 or 3 channels, not 2"},
        {{"r", 1, 2, 4, 4, 2, nothing}, {.real = scale}, FR_F32, FR_EINVAL, "need 1 or 3 channels, not 2"},
        {{"r", 1, 2, 4, 4, 3, nothing, .f32 = true}, {.bytes = invert}, FR_F32, FR_EINVAL, "but r holds f32 images"},
        {{"r", 1, 2, 4, 4, 3, nothing, .target = FR_TARGET_PIXELS},
         {.bytes = invert},
         FR_F32,
         FR_EINVAL,
         "8-bit images without masks, but r holds masks"},
        {{"r", 1, 2, 4, 4, 3, nothing, .target = FR_TARGET_VECTOR},
         {.batch = twice},
         FR_F32,
         FR_EINVAL,
         "mix classes, but the images of r have none"},
        {{"r", 1, 2, 4, 4, 3, nothing}, {.real = scale}, FR_U8, FR_EDTYPE, "batches are u8, but augmentations"},
        {{"r", 1, 2, 4, 4, 3, nothing}, {.last = shift}, FR_U8, FR_EDTYPE, "batches are u8, but augmentations"},
        {{"r", 1, 2, 4, 4, 3, nothing}, {.batch = twice}, FR_U8, FR_EDTYPE, "batches are u8, but augmentations"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_dataset *d = NULL;
        fr_loader *l = NULL;
        MUST(fr_dataset_create(&cases[i].source, &d));
        EXPECT_FAIL(fr_loader_create(d,
                                     FR_LOADER_OPTS(.batch_size = 1, .augmentation = cases[i].augmentation,
                                                    .dtype = cases[i].dtype),
                                     &l),
                    cases[i].status, cases[i].words);
        fr_dataset_release(&d);
    }
}
