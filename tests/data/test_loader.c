/* test_loader.c - the loader on raw buffers: batches independent of workers, exact positions, correct transforms,
 * reported errors, and stopping at any time. */
#include "files.h"

#include "data/loader.h"
#include "data/transform.h"
#include "digits.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

TestSuite(loader, .init = files_begin, .fini = files_end, .timeout = 120);

enum { SLOTS_MAX = 8 };

/* Malloced buffers, which sanitizers watch best. */
typedef struct buffers {
    float *images[SLOTS_MAX];
    int64_t *labels[SLOTS_MAX];
    size_t per_image;
    int64_t capacity;
    int asked, fail_at; /* failing call; 0: none */
} buffers;

static fr_status provide(void *ctx, int slot, void **images, void **targets) {
    buffers *b = ctx;
    if (++b->asked == b->fail_at) return FR_ENOMEM;
    /* New buffers each time: writes into old buffers are detected. */
    free(b->images[slot]);
    free(b->labels[slot]);
    *images = b->images[slot] = malloc((size_t)b->capacity * b->per_image * sizeof(float));
    *targets = b->labels[slot] = malloc((size_t)b->capacity * sizeof(int64_t));
    return FR_OK;
}

typedef struct rig {
    fri_loader *loader;
    buffers b;
} rig;

static void rig_open(rig *r, fr_dataset *d, const fr_loader_opts *opts) {
    *r = (rig){0};
    MUST(fri_loader_create(d, opts, &r->loader));
    fri_loader_shape s = fri_loader_shape_get(r->loader);
    r->b.per_image = (size_t)(s.height * s.width * s.channels);
    r->b.capacity = s.capacity;
    cr_assert_leq(s.slots, SLOTS_MAX);
    MUST(fri_loader_start(r->loader, provide, &r->b, true));
}

static void rig_close(rig *r) {
    fri_loader_release(&r->loader);
    for (int i = 0; i < SLOTS_MAX; i++) {
        free(r->b.images[i]);
        free(r->b.labels[i]);
    }
}

/* Order-dependent hash of all bits of a batch. */
static uint64_t digest(uint64_t h, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(1099511628211);
    return h;
}

/* FR_OK: *h includes the next batch, whose length is returned in *n. */
static fr_status take(rig *r, uint64_t *h, int64_t *n) {
    int slot = -1;
    fr_status s = fri_loader_fetch(r->loader, &slot, n);
    if (s != FR_OK) return s;
    *h = digest(*h, r->b.images[slot], (size_t)*n * r->b.per_image * sizeof(float));
    *h = digest(*h, r->b.labels[slot], (size_t)*n * sizeof(int64_t));
    fri_loader_advance(r->loader);
    return FR_OK;
}

/* Digest per batch over whole epochs; returns the number of batches. */
static int run(rig *r, int epochs, uint64_t *digests) {
    int count = 0;
    for (int e = 0; e < epochs; e++) {
        fr_status s;
        int64_t n;
        uint64_t h = 1;
        while ((s = take(r, &h, &n)) == FR_OK) {
            digests[count++] = h;
            h = 1;
        }
        cr_assert_eq(s, FR_END, "%s", fr_last_error());
    }
    return count;
}

static fr_loader_opts augmented(int workers, int prefetch) {
    return *FR_LOADER_OPTS(.batch_size = 64, .height = 32, .width = 32, .channels = 3, .padding = 2,
                           .random_crop = true, .flip = true, .mean = {0.3, 0.4, 0.5}, .std = {0.2, 0.3, 0.4},
                           .seed = 7, .drop_last = false, .workers = workers, .prefetch = prefetch);
}

static fr_dataset *digits(fr_split split) {
    fr_dataset *d = NULL;
    MUST(digits_dataset(split, &d));
    return d;
}

Test(loader, workers_and_prefetch_change_nothing) {
    static const int settings[][2] = {{0, 1}, {1, 1}, {3, 1}, {3, 4}, {2, 2}};
    static uint64_t first[100], got[100];
    fr_dataset *d = digits(FR_SPLIT_TRAIN);
    int count = 0;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        fr_loader_opts o = augmented(settings[i][0], settings[i][1]);
        rig r;
        rig_open(&r, d, &o);
        int n = run(&r, 2, i == 0 ? first : got);
        if (i == 0)
            count = n;
        else {
            cr_expect_eq(n, count);
            cr_expect_arr_eq(got, first, sizeof(uint64_t) * (size_t)count, "%d workers", settings[i][0]);
        }
        rig_close(&r);
    }
    cr_expect_eq(count, 48);
    cr_expect_neq(first[0], first[24], "epochs differ");
    fr_loader_opts o = augmented(2, 2);
    o.seed = 8;
    rig r;
    rig_open(&r, d, &o);
    cr_expect_eq(run(&r, 1, got), 24);
    cr_expect_neq(got[0], first[0], "seeds differ");
    rig_close(&r);
    fr_dataset_release(&d);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

Test(loader, augmentation_belongs_to_the_image_and_the_epoch) {
    /* Images depend on the epoch only, not on order and batches. */
    enum { COUNT = 297 };
    static uint64_t digests[4][COUNT];
    static const int epoch_of[4] = {1, 1, 1, 2};
    fr_dataset *d = digits(FR_SPLIT_TEST);
    for (int i = 0; i < 4; i++) {
        fr_loader_opts o = augmented(i, 2);
        rig r;
        int slot, at = 0;
        int64_t n;
        o.shuffle = i == 1;
        o.batch_size = i == 2 ? 50 : 64;
        rig_open(&r, d, &o);
        MUST(fri_loader_position_set(r.loader, epoch_of[i], 0));
        while (fri_loader_fetch(r.loader, &slot, &n) == FR_OK) {
            for (int64_t k = 0; k < n; k++)
                digests[i][at++] =
                    digest(1, r.b.images[slot] + (size_t)k * r.b.per_image, r.b.per_image * sizeof(float));
            fri_loader_advance(r.loader);
        }
        cr_assert_eq(at, COUNT);
        qsort(digests[i], COUNT, sizeof digests[i][0], by_value);
        rig_close(&r);
    }
    cr_expect_arr_eq(digests[0], digests[1], sizeof digests[0], "shuffled");
    cr_expect_arr_eq(digests[0], digests[2], sizeof digests[0], "other batches");
    cr_expect_arr_neq(digests[0], digests[3], sizeof digests[0], "another epoch");
    fr_dataset_release(&d);
}

Test(loader, each_epoch_has_an_order_of_its_own) {
    fr_dataset *d = digits(FR_SPLIT_TEST);
    uint64_t got[2][8];
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        rig r; /* no augmentation, so only the order can differ */
        rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 64, .shuffle = shuffle));
        cr_assert_eq(run(&r, 2, got[shuffle]), 8);
        rig_close(&r);
    }
    cr_expect_arr_eq(got[0], got[0] + 4, 4 * sizeof(uint64_t), "in file order");
    for (int b = 0; b < 4; b++) {
        cr_expect_neq(got[1][b], got[1][4 + b]);
        cr_expect_neq(got[0][b], got[1][b]);
    }
    fr_dataset_release(&d);
}

Test(loader, the_batch_in_use_is_left_alone) {
    fr_dataset *d = digits(FR_SPLIT_TEST);
    for (int prefetch = 1; prefetch <= 3; prefetch++) {
        fr_loader_opts o = augmented(2, prefetch);
        rig r;
        int slot;
        int64_t n;
        o.batch_size = 16;
        rig_open(&r, d, &o);
        while (fri_loader_fetch(r.loader, &slot, &n) == FR_OK) {
            const float *images = r.b.images[slot];
            size_t bytes = (size_t)n * r.b.per_image * sizeof(float);
            uint64_t before = digest(1, images, bytes);
            fri_loader_advance(r.loader);
            usleep(3000); /* workers run ahead as far as allowed */
            cr_assert_eq(r.b.images[slot], images, "its buffer was replaced");
            cr_assert_eq(digest(1, images, bytes), before, "its buffer was written");
        }
        rig_close(&r);
    }
    fr_dataset_release(&d);
}

Test(loader, position_resumes_exactly) {
    static uint64_t all[100];
    fr_dataset *d = digits(FR_SPLIT_TEST);
    for (int workers = 0; workers <= 3; workers += 3) {
        fr_loader_opts o = augmented(workers, 2);
        rig r, resumed;
        rig_open(&r, d, &o);
        cr_assert_eq(run(&r, 3, all), 15);
        int64_t epoch, batch, n;
        fri_loader_position_get(r.loader, &epoch, &batch);
        cr_expect(epoch == 3 && batch == 0, "%lld %lld", (long long)epoch, (long long)batch);
        for (int at = 0; at <= 5; at++) {
            uint64_t h = 1;
            rig_open(&resumed, d, &o);
            MUST(fri_loader_position_set(resumed.loader, 1, at));
            fri_loader_position_get(resumed.loader, &epoch, &batch);
            cr_expect(epoch == 1 && batch == at);
            for (int b = at; b < 5; b++) {
                MUST(take(&resumed, &h, &n));
                cr_expect_eq(h, all[5 + b], "batch %d after a start at %d", b, at);
                h = 1;
            }
            cr_expect_eq(take(&resumed, &h, &n), FR_END);
            MUST(take(&resumed, &h, &n)); /* the next epoch begins automatically */
            cr_expect_eq(h, all[10]);
            /* Positions also move back and forth in the middle of an epoch, with batches decoded ahead and one held. */
            MUST(fri_loader_position_set(resumed.loader, 0, 3));
            h = 1;
            MUST(take(&resumed, &h, &n));
            cr_expect_eq(h, all[3]);
            rig_close(&resumed);
        }
        EXPECT_FAIL(fri_loader_position_set(r.loader, 0, 6), FR_EINVAL, "batch 6", "0..5");
        EXPECT_FAIL(fri_loader_position_set(r.loader, -1, 0), FR_EINVAL, "epoch -1");
        rig_close(&r);
    }
    fr_dataset_release(&d);
}

Test(loader, an_epoch_visits_every_image_once) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_synthetic(103, 103, 4, 4, 1, 3, &d));
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (int drop = 0; drop < 2; drop++) {
            rig r;
            fr_status s;
            int64_t n, seen[103] = {0}, total = 0;
            int slot, sorted = 1, batches = 0;
            rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 10, .shuffle = shuffle, .drop_last = drop));
            while ((s = fri_loader_fetch(r.loader, &slot, &n)) == FR_OK) {
                cr_expect_eq(n, !drop && batches == 10 ? 3 : 10);
                for (int64_t i = 0; i < n; i++) {
                    int64_t index = -1; /* found by the first pixels, a function of the index */
                    for (int64_t k = 0; k < 103 && index < 0; k++) {
                        uint8_t p[16];
                        MUST(fr_dataset_read(d, k, p, sizeof p, NULL, NULL, NULL));
                        int same = 1;
                        for (int q = 0; q < 16; q++) same &= r.b.images[slot][i * 16 + q] == (float)(p[q] / 255.0);
                        if (same) index = k;
                    }
                    cr_assert_geq(index, 0);
                    int64_t label;
                    MUST(fr_dataset_label(d, index, &label));
                    cr_expect_eq(r.b.labels[slot][i], label);
                    seen[index]++;
                    sorted &= index == total++;
                }
                batches++;
                fri_loader_advance(r.loader);
            }
            cr_expect_eq(s, FR_END);
            cr_expect_eq(batches, drop ? 10 : 11);
            cr_expect_eq(batches, (int)fri_loader_batches(r.loader));
            cr_expect_eq(total, drop ? 100 : 103);
            cr_expect_eq(sorted, !shuffle);
            for (int i = 0; i < 103; i++) cr_expect_leq(seen[i], 1);
            rig_close(&r);
        }
    fr_dataset_release(&d);
}

/* Passes an image of 2 x 3 pixels through a loader. */
static void transform_one(const uint8_t pixels[6], const fr_loader_opts *opts, int64_t epoch, float *out) {
    uint8_t images[22] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3}, labels[9] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    fr_dataset *d = NULL;
    rig r;
    int slot;
    int64_t n;
    memcpy(images + 16, pixels, 6);
    MUST(fr_dataset_idx_memory("one", images, sizeof images, labels, sizeof labels, 1, &d));
    rig_open(&r, d, opts);
    MUST(fri_loader_position_set(r.loader, epoch, 0));
    MUST(fri_loader_fetch(r.loader, &slot, &n));
    memcpy(out, r.b.images[slot], r.b.per_image * sizeof(float));
    rig_close(&r);
    fr_dataset_release(&d);
}

Test(loader, normalizes_and_repeats_gray) {
    const uint8_t x[6] = {0, 51, 102, 153, 204, 255};
    float y[18];
    transform_one(x,
                  FR_LOADER_OPTS(.batch_size = 1, .channels = 3, .mean = {0.5, 0.25, 0}, .std = {0.5, 0.25, 1},
                                 .workers = 0),
                  0, y);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(y[3 * i], (float)((x[i] / 255.0 - 0.5) / 0.5));
        cr_expect_eq(y[3 * i + 1], (float)((x[i] / 255.0 - 0.25) / 0.25));
        cr_expect_eq(y[3 * i + 2], (float)(x[i] / 255.0));
    }
}

/* PIL's convert("L"): 0.299 R + 0.587 G + 0.114 B. */
Test(loader, colour_becomes_gray_by_its_luma) {
    uint8_t pixels[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
    const fr_image image = {.pixels = pixels, .height = 2, .width = 2, .channels = 3};
    const float want[] = {76, 150, 29, 255};
    fr_tensor *x = NULL;
    MUST(fr_image_preprocess(&image, FR_LOADER_OPTS(.channels = 1), FR_CPU, &x));
    const float *y = fr_tensor_data(x);
    for (int i = 0; i < 4; i++) cr_expect_eq(y[i], want[i] / 255, "%g, not %g / 255", 255 * y[i], want[i]);
    fr_tensor_release(&x);
}

static uint8_t *other_bytes(const fr_augmentation *a, const fr_augment_input *in, uint8_t *pixels, uint8_t *spare) {
    (void)a, (void)pixels;
    return memset(spare, 1, (size_t)(in->height * in->width * in->channels));
}

static void other_pixels(const fr_augmentation *a, const fr_augment_input *in, float *pixels) {
    (void)a, (void)in;
    pixels[0]++;
}

/* Random changes in the options are left out; all other transforms equal the loader's bit for bit. */
Test(loader, a_preprocessed_image_is_the_loaders) {
    enum { N = 3 };
    const fr_loader_opts asked =
        *FR_LOADER_OPTS(.batch_size = N, .height = 6, .width = 5, .resize_height = 9, .resize_width = 8,
                        .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}, .shuffle = false, .workers = 0);
    fr_loader_opts random = asked;
    random.random_crop = random.flip = true;
    random.degrees = 20, random.zoom = 0.3, random.shear = 5;
    random.augmentation = (fr_augmentation){.bytes = other_bytes, .last = other_pixels};
    uint8_t pixels[12 * 11 * 3];
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *labels = NULL, *one = NULL;
    MUST(fr_dataset_synthetic(N, 2, 12, 11, 3, 7, &d));
    MUST(fr_loader_create(d, &asked, &l));
    MUST(fr_loader_next(l, &x, &labels));
    for (int i = 0; i < N; i++) {
        fr_image image = {.pixels = pixels};
        MUST(fr_dataset_read(d, i, pixels, sizeof pixels, &image.height, &image.width, &image.channels));
        MUST(fr_image_preprocess(&image, &random, FR_CPU, &one));
        cr_expect_arr_eq(fr_tensor_data(one), (const float *)fr_tensor_data(x) + i * 90, 90 * sizeof(float));
        image.channels = 17;
        cr_expect_eq(fr_image_preprocess(&image, &random, FR_CPU, &one), FR_EINVAL, "%s", fr_last_error());
        image.channels = 3, image.pixels = NULL;
        cr_expect_eq(fr_image_preprocess(&image, &random, FR_CPU, &one), FR_EINVAL, "%s", fr_last_error());
    }
    fr_tensor_release(&one);
    fr_tensor_release(&x);
    fr_tensor_release(&labels);
    fr_loader_release(&l);
    fr_dataset_release(&d);
}

Test(loader, shifts_and_flips_are_those_of_a_padded_crop) {
    /* Every result must be one of 5 x 5 shifts, times 2; over many epochs all occur evenly. */
    const uint8_t x[6] = {10, 20, 30, 40, 50, 60};
    int seen[5][5][2] = {0};
    enum { EPOCHS = 2000 };
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float y[6];
        int hits = 0, at[3] = {0};
        transform_one(x,
                      FR_LOADER_OPTS(.batch_size = 1, .padding = 2, .random_crop = true, .flip = true,
                                     .std = {1 / 255.0, 1, 1}, .workers = 0),
                      epoch, y);
        for (int dy = -2; dy <= 2; dy++)
            for (int dx = -2; dx <= 2; dx++)
                for (int flip = 0; flip < 2; flip++) {
                    int same = 1;
                    for (int i = 0; i < 6; i++) {
                        int r = i / 3 + dy, c = (flip ? 2 - i % 3 : i % 3) + dx;
                        float want = r >= 0 && r < 2 && c >= 0 && c < 3 ? x[r * 3 + c] : 0;
                        same &= fabsf(y[i] - want) < 1e-4f;
                    }
                    if (same && hits++ == 0) at[0] = dy + 2, at[1] = dx + 2, at[2] = flip;
                }
        cr_assert_gt(hits, 0, "epoch %d", epoch);
        seen[at[0]][at[1]][at[2]]++;
    }
    /* Shifts of 2 rows leave only zeros and look alike; the others are distinguished by the 2 columns left. */
    int blank = 0;
    for (int dx = 0; dx < 5; dx++)
        for (int flip = 0; flip < 2; flip++) blank += seen[0][dx][flip] + seen[4][dx][flip];
    cr_expect(blank > EPOCHS * 0.4 - 110 && blank < EPOCHS * 0.4 + 110, "%d", blank); /* 5 sigma */
    for (int dy = 1; dy <= 3; dy++)
        for (int dx = 1; dx <= 3; dx++)
            for (int flip = 0; flip < 2; flip++)
                cr_expect(seen[dy][dx][flip] > 10 && seen[dy][dx][flip] < 70, "%d %d %d: %d of 40 expected", dy, dx,
                          flip, seen[dy][dx][flip]);
    int told = 0, flipped = 0; /* half are mirrored: 360 of the 720 distinguishable, sigma 13.4 */
    for (int dy = 1; dy <= 3; dy++)
        for (int dx = 1; dx <= 3; dx++) {
            told += seen[dy][dx][0] + seen[dy][dx][1];
            flipped += seen[dy][dx][1];
        }
    cr_expect(abs(2 * flipped - told) < 134, "%d of %d are mirrored", flipped, told);
}

Test(loader, without_random_crop_the_middle_is_taken) {
    const uint8_t x[6] = {10, 20, 30, 40, 50, 60};
    float y[8];
    transform_one(x,
                  FR_LOADER_OPTS(.batch_size = 1, .height = 2, .width = 1, .resize_height = 2, .resize_width = 3,
                                 .workers = 0),
                  0, y);
    cr_expect(y[0] == (float)(20 / 255.0) && y[1] == (float)(50 / 255.0));
}

/* torchvision's CenterCrop begins at int(round((size - window) / 2.0)), a half to even; of a smaller image it pads
 * (window - size) // 2 before. */
Test(loader, the_middle_is_torchvisions) {
    static const struct {
        int size, window, padding, first;
    } cases[] = {{5, 2, 0, 2}, {3, 2, 0, 0},  {4, 1, 0, 2},  {8, 1, 0, 4},    {7, 2, 0, 2},
                 {9, 2, 0, 4}, {6, 2, 0, 2},  {4, 4, 0, 0},  {5, 4, 1, 2},    {3, 2, 1, 2},
                 {3, 4, 0, 0}, {3, 6, 0, -1}, {1, 6, 0, -2}, {227, 224, 0, 2}};
    fri_transform_scratch scratch = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int size = cases[i].size, window = cases[i].window, padding = cases[i].padding, width = 1 + 2 * padding;
        uint8_t x[256];
        float y[256 * 3];
        const fr_image image = {.pixels = x, .height = size, .width = 1, .channels = 1};
        fri_transform t;
        for (int k = 0; k < size; k++) x[k] = (uint8_t)(k + 1);
        MUST(fri_transform_init(&t,
                                FR_LOADER_OPTS(.height = window, .width = width, .padding = padding,
                                               .resize_height = FR_LOADER_NATIVE, .resize_width = FR_LOADER_NATIVE),
                                size, 1, 1));
        MUST(fri_transform_apply(&t, &image, 0, 0, &scratch, y, NULL));
        for (int k = 0; k < window; k++) {
            const int at = cases[i].first - padding + k;
            const float expected = at < 0 || at >= size ? 0 : (float)((at + 1) / 255.0);
            cr_expect_eq(y[k * width + padding], expected, "%d of %d, padded by %d: row %d", window, size, padding, k);
        }
    }
    fri_transform_scratch_free(&scratch);
}

/* Values by Pillow: Image.fromarray(x).resize((w, h), Image.BILINEAR). Pillow rounds between the two directions and
 * uses fixed point, which explains a difference of one level. */
Test(loader, resize_agrees_with_pil) {
    static const uint8_t x[6] = {0, 100, 255, 30, 60, 90};
    static const uint8_t up[4 * 5] = {0,  40, 100, 193, 255, 8,  41, 90, 164, 214,
                                      23, 42, 70,  107, 131, 30, 42, 60, 78,  90};
    static const uint8_t down[2] = {40, 138};
    const fri_pixels given = {.u8 = x, .height = 2, .width = 3, .channels = 1};
    fri_pixels y = given;
    fri_transform_scratch scratch = {0};
    MUST(fri_resize(&y, 4, 5, &scratch));
    for (int i = 0; i < 20; i++) cr_expect_leq(abs((int)y.u8[i] - up[i]), 1, "%d: %d, PIL %d", i, y.u8[i], up[i]);
    y = given;
    MUST(fri_resize(&y, 1, 2, &scratch));
    for (int i = 0; i < 2; i++) cr_expect_leq(abs((int)y.u8[i] - down[i]), 1, "%d: %d, PIL %d", i, y.u8[i], down[i]);
    y = (fri_pixels){.u8 = x, .height = 1, .width = 2, .channels = 3};
    MUST(fri_resize(&y, 1, 2, &scratch));
    cr_expect_eq(y.u8, (const uint8_t *)x, "the same size is no work");
    fri_transform_scratch_free(&scratch);
}

Test(loader, impossible_options_are_refused) {
    fr_dataset *d = digits(FR_SPLIT_TEST);
    fri_loader *l = NULL;
#define REFUSED(words, ...) EXPECT_FAIL(fri_loader_create(d, FR_LOADER_OPTS(__VA_ARGS__), &l), FR_EINVAL, words)
    EXPECT_FAIL(fri_loader_create(d, FR_LOADER_OPTS(.batch_size = 298), &l), FR_EINVAL, "298", "297", "digits test");
    REFUSED("batch_size is 0", .batch_size = 0);
    REFUSED("workers is -1", .workers = -1);
    REFUSED("workers is 257", .workers = 257);
    REFUSED("prefetch is 0", .prefetch = 0);
    REFUSED("height is 0", .height = 0);
    REFUSED("width is 40000", .width = 40000);
    REFUSED("67108864", .height = 32768, .width = 32768);
    REFUSED("channels is 2", .channels = 2);
    REFUSED("padding is -2", .padding = -2);
    REFUSED("degrees is 181", .degrees = 181);
    REFUSED("zoom is -0.1", .zoom = -0.1);
    REFUSED("shear is nan", .shear = NAN);
    REFUSED("std 0", .std = {0, 1, 1});
    REFUSED("mean nan", .mean = {NAN, 0, 0});
    REFUSED("the crop of 32 x 32 exceeds images of 8 x 8 padded by 2", .height = 32, .width = 32, .resize_height = 8,
            .resize_width = 8, .padding = 2);
    cr_expect_null(l);
    rig r;
    uint64_t h = 1;
    int64_t n;
    rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 1000, .drop_last = false));
    MUST(take(&r, &h, &n));
    cr_expect_eq(n, 297, "a batch above the dataset is the dataset where short batches are kept");
    rig_close(&r);
    fr_dataset_release(&d);
}

/* An image folder with 40 images, two of which break after the dataset was opened. */
static fr_dataset *damaged_folder(void) {
    fr_dataset *d = NULL;
    uint8_t rgb[3 * 16 * 16], *bytes;
    char name[64];
    picture_fill(rgb, 16, 16);
    size_t n = jpeg_bytes(JPEG_RGB, rgb, 16, 16, &bytes);
    files_make_folder("train");
    files_make_folder("train/a");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "train/a/%02d.jpg", i);
        files_write(name, bytes, n);
    }
    MUST(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d));
    files_write("train/a/23.jpg", bytes, n / 2);
    remove(files_path("train/a/25.jpg"));
    free(bytes);
    return d;
}

Test(loader, a_broken_image_surfaces_with_its_name_and_nothing_hangs) {
    fr_dataset *d = damaged_folder();
    for (int workers = 0; workers <= 3; workers++) {
        rig r;
        uint64_t h = 1;
        int64_t n, epoch, batch;
        rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 10, .shuffle = false, .workers = workers, .prefetch = 3));
        MUST(take(&r, &h, &n));
        MUST(take(&r, &h, &n));
        for (int again = 0; again < 2; again++) /* of two bad files the first is named, in any order of workers */
            EXPECT_FAIL(take(&r, &h, &n), FR_EFORMAT, "train/a/23.jpg", "broken JPEG");
        fri_loader_position_get(r.loader, &epoch, &batch);
        cr_expect(epoch == 0 && batch == 2);
        MUST(fri_loader_position_set(r.loader, 0, 3)); /* the program may continue after the broken image */
        MUST(take(&r, &h, &n));
        cr_expect_eq(take(&r, &h, &n), FR_END);
        rig_close(&r);
    }
    fr_dataset_release(&d);
}

/* Reads like digits up to an image at which the reading thread is ended. */
typedef struct trap {
    fr_dataset *digits;
    int64_t image;
    bool every; /* true: at every image */
} trap;

static fr_status trap_read(const fr_dataset *d, int64_t index, fr_image *image) {
    const trap *t = d->state;
    if (t->every || index == t->image) pthread_exit(NULL);
    return fri_dataset_read(t->digits, index, image);
}

static void check_deaths(trap *t, int workers, const char *sentence) {
    static const fri_dataset_ops ops = {.read = trap_read};
    fr_dataset *d = NULL;
    rig r;
    uint64_t h = 0;
    int64_t n = 0, batches = 0;
    MUST(fri_dataset_new(&ops, "trap", &d));
    d->state = t;
    d->count = 40;
    d->classes = t->digits->classes;
    d->height = t->digits->height;
    d->width = t->digits->width;
    d->channels = t->digits->channels;
    d->labels = calloc((size_t)d->count, sizeof *d->labels);
    rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 4, .workers = workers, .prefetch = 2, .shuffle = false));
    fr_status s;
    while ((s = take(&r, &h, &n)) == FR_OK) batches++;
    cr_expect_eq(s, FR_EINTERNAL, "%s: %s", fr_status_name(s), fr_last_error());
    cr_expect_not_null(strstr(fr_last_error(), sentence), "%s", fr_last_error());
    cr_expect_leq(batches, t->every ? 0 : t->image / 4);
    EXPECT_FAIL(take(&r, &h, &n), FR_EINTERNAL, "loader"); /* and again, without waiting */
    rig_close(&r);
    fr_dataset_release(&d);
}

Test(loader, a_worker_that_dies_is_told_and_nothing_hangs) {
    trap t = {.digits = digits(FR_SPLIT_TRAIN), .image = 21};
    check_deaths(&t, 2, "a worker ended in the middle of image 21");
    check_deaths(&t, 1, "all 1 worker threads ended");
    t.every = true;
    check_deaths(&t, 3, "all 3 worker threads ended");
    fr_dataset_release(&t.digits);
}

Test(loader, a_refused_buffer_is_reported_and_asked_for_again) {
    fr_dataset *d = digits(FR_SPLIT_TEST);
    for (int workers = 0; workers <= 2; workers += 2) {
        rig r;
        uint64_t h = 1;
        int64_t n;
        fr_status s = FR_OK;
        int refused = 0;
        rig_open(&r, d, FR_LOADER_OPTS(.batch_size = 16, .workers = workers));
        r.b.fail_at = r.b.asked + 3;
        for (int i = 0; i < 18; i++) {
            while ((s = take(&r, &h, &n)) == FR_ENOMEM) refused++;
            MUST(s);
        }
        /* Advance meets the refusal where there are workers, and the next fetch mends the state. */
        cr_expect_eq(refused, workers == 0);
        cr_expect_eq(take(&r, &h, &n), FR_END);
        rig_close(&r);
    }
    fr_dataset_release(&d);
}

Test(loader, can_be_released_at_any_time) {
    fr_dataset *d = digits(FR_SPLIT_TRAIN);
    for (int i = 0; i < 60; i++) {
        fr_loader_opts o = augmented(1 + i % 4, 1 + i % 3);
        rig r;
        uint64_t h = 1;
        int64_t n;
        rig_open(&r, d, &o);
        for (int k = 0; k < i % 5; k++) MUST(take(&r, &h, &n));
        if (i % 7 == 3) MUST(fri_loader_position_set(r.loader, i, i % 20));
        if (i % 2) usleep((useconds_t)(i * 20));
        rig_close(&r);
    }
    rig r;
    fr_loader_opts o = augmented(2, 2);
    rig_open(&r, d, &o);
    fr_dataset_release(&d); /* the loader holds a reference */
    uint64_t digests[100];
    cr_expect_eq(run(&r, 1, digests), 24);
    rig_close(&r);
}
