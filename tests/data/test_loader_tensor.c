/* test_loader_tensor.c - batches as tensors: shapes, counted memory, and buffers that are reused only without other
 * holders. */
#include "files.h"

#include <frugal/memory.h>
#include <frugal/ops.h>

#include "digits.h"

TestSuite(loader_tensor, .timeout = 60);

static size_t input_bytes(fr_device d) {
    fr_memory_stats stats;
    MUST(fr_memory_stats_get(d, &stats));
    cr_expect_eq(stats.requested, stats.requested_by[FR_MEM_INPUT], "the loader takes nothing but input");
    return stats.requested_by[FR_MEM_INPUT];
}

/* A slot: images and labels, each rounded up to 512. */
static size_t slot_bytes(size_t images, size_t labels) {
    return (images * sizeof(float) + 511) / 512 * 512 + (labels * sizeof(int64_t) + 511) / 512 * 512;
}

Test(loader_tensor, batches_are_tensors_and_the_last_is_short) {
    fr_dataset *d = NULL;
    MUST(digits_dataset(FR_SPLIT_TEST, &d));
    for (int workers = 0; workers <= 2; workers += 2) {
        fr_loader *l = NULL;
        fr_tensor *x = NULL, *t = NULL;
        fr_status s;
        int batches = 0;
        MUST(fr_loader_create(d,
                              FR_LOADER_OPTS(.batch_size = 64, .height = 32, .width = 32, .channels = 3,
                                             .drop_last = false, .shuffle = false, .workers = workers),
                              &l));
        cr_expect_eq(fr_loader_batches(l), 5);
        cr_expect_eq(input_bytes(FR_CPU), (workers == 0 ? 1 : 3) * slot_bytes(64 * 32 * 32 * 3, 64));
        while ((s = fr_loader_next(l, &x, &t)) == FR_OK) {
            int64_t n = batches < 4 ? 64 : 297 - 4 * 64, label;
            cr_assert(fr_tensor_rank(x) == 4 && fr_tensor_rank(t) == 1);
            cr_expect(fr_tensor_dim(x, 0) == n && fr_tensor_dim(x, 1) == 32 && fr_tensor_dim(x, 2) == 32);
            cr_expect(fr_tensor_dim(x, 3) == 3 && fr_tensor_dim(t, 0) == n);
            cr_expect(fr_tensor_dtype(x) == FR_F32 && fr_tensor_dtype(t) == FR_I64);
            for (int64_t i = 0; i < n; i++) {
                MUST(fr_dataset_label(d, batches * 64 + i, &label));
                cr_expect_eq(((int64_t *)fr_tensor_data(t))[i], label);
            }
            batches++;
        }
        cr_expect_eq(s, FR_END, "%s", fr_last_error());
        cr_expect_eq(batches, 5);
        cr_expect_not_null(x, "FR_END leaves the slots as they were");
        fr_tensor_release(&x);
        fr_tensor_release(&t);
        fr_loader_release(&l);
        cr_expect_null(l);
        cr_expect_eq(input_bytes(FR_CPU), 0);
    }
    fr_dataset_release(&d);
}

/* Loaders share 19 batches, the last batch short, in groups of 5: every third batch of a group from `first` on. */
Test(loader_tensor, loaders_share_the_batches_of_an_epoch) {
    enum { BATCHES = 19, GROUP = 5, EVERY = 3 };
    fr_dataset *d = NULL;
    MUST(digits_dataset(FR_SPLIT_TEST, &d));
    for (int64_t first = 0; first < 6; first++)
        for (int64_t from = 0; from <= BATCHES; from += first == 0 ? 1 : GROUP) {
            fr_loader *l = NULL;
            fr_tensor *x = NULL, *t = NULL;
            fr_status s = FR_OK;
            int64_t label = 0, epoch = 0, at = 0;
            MUST(fr_loader_create(d,
                                  FR_LOADER_OPTS(.batch_size = 16, .drop_last = false, .shuffle = false,
                                                 .workers = (int)first % 2, .group = GROUP, .every = EVERY,
                                                 .first = first),
                                  &l));
            cr_expect_eq(fr_loader_batches(l), BATCHES);
            MUST(fr_loader_position_set(l, 0, from));
            for (int64_t b = from; b < BATCHES; b++) {
                if (b % GROUP < first || (b % GROUP - first) % EVERY != 0) continue;
                cr_assert_eq(s = fr_loader_next(l, &x, &t), FR_OK, "first %d, batch %d", (int)first, (int)b);
                MUST(fr_dataset_label(d, b * 16, &label));
                cr_expect_eq(*(int64_t *)fr_tensor_data(t), label, "first %d: not batch %d", (int)first, (int)b);
                cr_expect_eq(fr_tensor_dim(x, 0), b < BATCHES - 1 ? 16 : 297 - 18 * 16);
                MUST(fr_loader_position_get(l, &epoch, &at));
                cr_expect(at > b && at <= b + GROUP, "first %d: position %d behind batch %d", (int)first, (int)at,
                          (int)b);
            }
            cr_expect_eq(fr_loader_next(l, &x, &t), FR_END);
            fr_tensor_release(&x);
            fr_tensor_release(&t);
            fr_loader_release(&l);
        }
    fr_dataset_release(&d);
}

/* Bytes that are normalized afterwards are the batch of f32, rounded where the type is narrower: with every change of
 * an image, and with gray made RGB. */
Test(loader_tensor, bytes_become_the_batches_of_f32) {
    fr_dataset *d = NULL;
    fr_loader_opts o =
        *FR_LOADER_OPTS(.batch_size = 50, .height = 20, .width = 12, .channels = 3, .resize_height = 18,
                        .resize_width = 14, .padding = 2, .random_crop = true, .flip = true, .degrees = 20, .zoom = 0.2,
                        .shear = 10, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225});
    MUST(digits_dataset(FR_SPLIT_TEST, &d));
    for (int workers = 0; workers <= 2; workers += 2) {
        fr_loader *a = NULL, *b = NULL;
        fr_tensor *x = NULL, *y = NULL, *t = NULL, *half[2] = {NULL};
        o.workers = workers;
        o.dtype = FR_F32;
        MUST(fr_loader_create(d, &o, &a));
        o.dtype = FR_U8;
        MUST(fr_loader_create(d, &o, &b));
        for (int batch = 0; batch < 3; batch++) {
            MUST(fr_loader_next(a, &x, &t));
            MUST(fr_loader_next(b, &y, &t));
            cr_assert_eq(fr_tensor_dtype(y), FR_U8);
            MUST(fr_images_normalize(y, o.mean, o.std, FR_F16, &half[0]));
            MUST(fr_images_normalize(y, o.mean, o.std, FR_F32, &y));
            cr_expect_eq(memcmp(fr_tensor_data(x), fr_tensor_data(y), fr_tensor_nbytes(x)), 0, "batch %d", batch);
            MUST(fr_cast(x, FR_F16, &half[1]));
            cr_expect_eq(memcmp(fr_tensor_data(half[0]), fr_tensor_data(half[1]), fr_tensor_nbytes(half[1])), 0);
        }
        for (int i = 0; i < 2; i++) fr_tensor_release(&half[i]);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_tensor_release(&t);
        fr_loader_release(&a);
        fr_loader_release(&b);
    }
    fr_dataset_release(&d);
}

static fr_status one_f32(void *ctx, int64_t index, void *pixels, void *target) {
    (void)ctx, (void)index;
    *(float *)pixels = 0;
    *(int64_t *)target = 0;
    return FR_OK;
}

Test(loader_tensor, bytes_of_what_has_none_are_refused) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *y = NULL;
    const double mean[17] = {0}, std[17] = {1};
    MUST(fr_dataset_create(&(fr_dataset_source){.name = "reals",
                                                .count = 1,
                                                .classes = 1,
                                                .height = 1,
                                                .width = 1,
                                                .channels = 1,
                                                .f32 = true,
                                                .read = one_f32},
                           &d));
    EXPECT_FAIL(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 1, .dtype = FR_U8), &l), FR_EDTYPE,
                "dtype is u8 but reals holds f32 images");
    EXPECT_FAIL(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 1, .dtype = FR_F16), &l), FR_EDTYPE, "dtype is f16");
    MUST(fr_tensor_zeros(2, (int64_t[]){2, 3}, FR_F32, FR_CPU, &x));
    EXPECT_FAIL(fr_images_normalize(x, mean, std, FR_F32, &y), FR_EDTYPE, "the images are f32, u8 is needed");
    MUST(fr_tensor_zeros(2, (int64_t[]){2, 17}, FR_U8, FR_CPU, &x));
    EXPECT_FAIL(fr_images_normalize(x, mean, std, FR_F32, &y), FR_ESHAPE, "have 17 channels, 1 to 16");
    MUST(fr_tensor_zeros(2, (int64_t[]){2, 3}, FR_U8, FR_CPU, &x));
    EXPECT_FAIL(fr_images_normalize(x, mean, std, FR_F64, &y), FR_EUNSUPPORTED, "f64");
    fr_tensor_release(&x);
    fr_dataset_release(&d);
}

Test(loader_tensor, buffers_are_reused_when_the_caller_lets_go) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_synthetic(640, 10, 8, 8, 3, 1, &d));
    for (int workers = 0; workers <= 2; workers += 2) {
        fr_loader *l = NULL;
        fr_tensor *x = NULL, *t = NULL;
        fr_memory_stats before, after;
        MUST(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 16, .workers = workers), &l));
        MUST(fr_memory_stats_get(FR_CPU, &before));
        for (int i = 0; i < 40; i++) {
            MUST(fr_loader_next(l, &x, &t));
            if (workers == 0) { /* releasing the only buffer before next frees it */
                fr_tensor_release(&x);
                fr_tensor_release(&t);
            }
        }
        MUST(fr_memory_stats_get(FR_CPU, &after));
        cr_expect_eq(after.allocs, before.allocs, "%d workers: no allocation after create", workers);
        fr_tensor_release(&x);
        fr_tensor_release(&t);
        fr_loader_release(&l);
    }
    cr_expect_eq(input_bytes(FR_CPU), 0);
    fr_dataset_release(&d);
}

Test(loader_tensor, what_the_caller_holds_is_not_written) {
    enum { HELD = 12 };
    fr_dataset *d = NULL;
    MUST(fr_dataset_synthetic(16 * HELD, 1000, 8, 8, 1, 1, &d));
    for (int workers = 0; workers <= 2; workers += 2) {
        fr_loader *l = NULL;
        fr_tensor *x[HELD] = {NULL}, *t[HELD] = {NULL}, *view = NULL, *gone = NULL, *more = NULL;
        MUST(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 16, .shuffle = false, .workers = workers), &l));
        for (int i = 0; i < HELD; i++) MUST(fr_loader_next(l, &x[i], &t[i]));
        MUST(fr_tensor_narrow0(x[3], 4, 2, &view)); /* a view alone keeps the bytes too */
        fr_tensor_release(&x[3]);
        cr_expect_eq(fr_loader_next(l, &gone, &more), FR_END);
        for (int i = 0; i < 5; i++) MUST(fr_loader_next(l, &gone, &more));
        fr_loader_release(&l);
        for (int i = 0; i < HELD; i++)
            for (int64_t k = 0; k < 16; k++) {
                uint8_t p[64];
                int64_t label;
                MUST(fr_dataset_read(d, 16 * i + k, p, sizeof p, NULL, NULL, NULL));
                MUST(fr_dataset_label(d, 16 * i + k, &label));
                cr_expect_eq(((int64_t *)fr_tensor_data(t[i]))[k], label);
                const float *got = i != 3             ? (float *)fr_tensor_data(x[i]) + 64 * k
                                   : k == 4 || k == 5 ? (float *)fr_tensor_data(view) + 64 * (k - 4)
                                                      : NULL;
                for (int q = 0; got != NULL && q < 64; q++) cr_assert_eq(got[q], (float)(p[q] / 255.0));
            }
        for (int i = 0; i < HELD; i++) {
            fr_tensor_release(&x[i]);
            fr_tensor_release(&t[i]);
        }
        fr_tensor_release(&view);
        fr_tensor_release(&gone);
        fr_tensor_release(&more);
        cr_expect_eq(input_bytes(FR_CPU), 0);
    }
    fr_dataset_release(&d);
}

Test(loader_tensor, out_of_memory_is_an_ordinary_failure) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    MUST(fr_dataset_synthetic(64, 10, 64, 64, 3, 1, &d));
    MUST(fr_memory_limit_set(FR_CPU, 4 << 20));
    EXPECT_FAIL(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 64), &l), FR_ENOMEM, "");
    cr_expect_null(l);
    MUST(fr_memory_limit_set(FR_CPU, SIZE_MAX));
    cr_expect_eq(input_bytes(FR_CPU), 0);
    MUST(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 64), &l));
    fr_loader_release(&l);
    cr_expect_eq(input_bytes(FR_CPU), 0);
    fr_dataset_release(&d);
}

Test(loader_tensor, meta_gives_shapes_and_reads_nothing) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    MUST(fr_dataset_synthetic(64, 10, 16, 16, 3, 1, &d));
    MUST(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 32, .height = 224, .width = 224, .device = FR_META), &l));
    for (int i = 0; i < 2; i++) {
        MUST(fr_loader_next(l, &x, &t));
        cr_expect(fr_tensor_device(x) == FR_META && fr_tensor_device(t) == FR_META);
        cr_expect(fr_tensor_dim(x, 0) == 32 && fr_tensor_dim(x, 1) == 224 && fr_tensor_data(x) == NULL);
        fr_tensor_release(&x);
        fr_tensor_release(&t);
        cr_expect_eq(input_bytes(FR_META), slot_bytes(32 * 224 * 224 * 3, 32));
    }
    cr_expect_eq(fr_loader_next(l, &x, &t), FR_END);
    cr_expect_null(x);
    fr_loader_release(&l);
    EXPECT_FAIL(fr_loader_create(d, FR_LOADER_OPTS(.device = FR_CUDA), &l), FR_EUNSUPPORTED, "not on cuda");
    EXPECT_FAIL(fr_loader_create(NULL, NULL, &l), FR_EINVAL, "NULL");
    EXPECT_FAIL(fr_loader_next(NULL, &x, &t), FR_EINVAL, "NULL");
    fr_dataset_release(&d);
}
