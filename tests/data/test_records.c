/* test_records.c - records that are written once and read again, from memory and from files that may be damaged; two
 * datasets as one. */
#include "files.h"

#include <frugal/memory.h>
#include <frugal/unstable.h>
#include <unistd.h>

TestSuite(records, .init = files_begin, .fini = files_end);

enum { COUNT = 5, BYTES = 12, HEADER = 64 };

static uint8_t byte_of(int i, int k) {
    return (uint8_t)(17 * i + k);
}

static fr_records_opts options(const char *path) {
    return (fr_records_opts){.path = path, .device = FR_CPU, .count = COUNT, .bytes = BYTES, .made_by = 7};
}

static void append(fr_records *r, int first, int n) {
    uint8_t data[COUNT * BYTES];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < BYTES; k++) data[i * BYTES + k] = byte_of(first + i, k);
    MUST(fr_records_append(r, data, n));
}

static void expect_records(const fr_records *r) {
    cr_expect(fr_records_complete(r));
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < BYTES; k++)
            cr_expect_eq(((const uint8_t *)fr_records_at(r, i))[k], byte_of(i, k), "record %d, byte %d", i, k);
}

static size_t read_file(uint8_t *to, size_t most) {
    FILE *f = fopen(files_path("r"), "rb");
    const size_t n = f != NULL ? fread(to, 1, most, f) : 0;
    if (f != NULL) fclose(f);
    return n;
}

Test(records, are_read_as_they_were_written) {
    for (int in_file = 0; in_file < 2; in_file++) {
        const fr_records_opts o = options(in_file ? files_path("r") : NULL);
        fr_memory_stats before, now;
        fr_records *r = NULL;
        MUST(fr_memory_stats_get(FR_CPU, &before));
        MUST(fr_records_create(&o, &r));
        MUST(fr_memory_stats_get(FR_CPU, &now));
        cr_expect_eq(now.requested_by[FR_MEM_INPUT] - before.requested_by[FR_MEM_INPUT], in_file ? 0 : 512);
        append(r, 2, 2);
        EXPECT_FAIL(fr_records_finish(r), FR_EUSAGE, "2 of 5");
        MUST(fr_records_restart(r));
        append(r, 0, 2);
        append(r, 2, 3);
        EXPECT_FAIL(fr_records_append(r, "", 1), FR_EUSAGE, "1 more", "5");
        cr_expect_not(fr_records_complete(r));
        cr_expect_eq(access(files_path("r"), F_OK), -1, "it is not there before it is complete");
        MUST(fr_records_finish(r));
        expect_records(r);
        fr_records_release(&r);
        MUST(fr_memory_stats_get(FR_CPU, &now));
        cr_expect_eq(now.requested, before.requested);
        if (!in_file) continue;
        MUST(fr_records_create(&o, &r));
        expect_records(r);
        fr_records_release(&r);
        char command[1024];
        snprintf(command, sizeof command, "test \"$(ls %s)\" = r", files_root);
        cr_expect_eq(system(command), 0, "something else is left");
    }
}

Test(records, a_file_that_was_not_finished_is_not_there) {
    const fr_records_opts o = options(files_path("r"));
    fr_records *r = NULL;
    MUST(fr_records_create(&o, &r));
    append(r, 0, 5);
    fr_records_release(&r);
    cr_expect_eq(access(files_path("r"), F_OK), -1);
    fr_records_release(&r);
}

static void write_good(uint8_t file[HEADER + COUNT * BYTES]) {
    const fr_records_opts o = options(files_path("r"));
    fr_records *r = NULL;
    MUST(fr_records_create(&o, &r));
    append(r, 0, 5);
    MUST(fr_records_finish(r));
    fr_records_release(&r);
    cr_assert_eq(read_file(file, HEADER + COUNT * BYTES), HEADER + COUNT * BYTES);
}

/* Each bit of the file, each length. */
Test(records, no_damage_goes_unseen) {
    uint8_t file[HEADER + COUNT * BYTES + 1] = {0};
    const fr_records_opts o = options(files_path("r"));
    fr_records *r = NULL;
    write_good(file);
    for (size_t bit = 0; bit < 8 * (sizeof file - 1); bit++) {
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        files_write("r", file, sizeof file - 1);
        EXPECT_FAIL(fr_records_create(&o, &r), FR_EFORMAT, "/r: is ", bit < 128 ? "no file of records" : "damaged");
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n <= sizeof file; n++) {
        files_write("r", file, n);
        if (n == sizeof file - 1) continue;
        EXPECT_FAIL(fr_records_create(&o, &r), FR_EFORMAT, n < HEADER ? "no file of records" : "damaged");
    }
    cr_expect_null(r);
}

Test(records, of_others_are_refused) {
    uint8_t file[HEADER + COUNT * BYTES];
    fr_records *r = NULL;
    write_good(file);
    for (int i = 0; i < 3; i++) {
        fr_records_opts o = options(files_path("r"));
        if (i == 0) o.made_by++;
        if (i == 1) o.count++;
        if (i == 2) o.bytes++;
        EXPECT_FAIL(fr_records_create(&o, &r), FR_EINVAL, "holds 5 records of 12 bytes", "another network");
    }
    const fr_records_opts none = {.count = 0, .bytes = 1}, huge = {.count = INT64_MAX, .bytes = 3},
                          folder = options(files_root);
    EXPECT_FAIL(fr_records_create(&none, &r), FR_EINVAL, "0 of 1");
    EXPECT_FAIL(fr_records_create(&huge, &r), FR_EINVAL, "records");
    EXPECT_FAIL(fr_records_create(&folder, &r), FR_EIO, "regular file");
}

/* On meta a file is no business of a plan; memory is counted. */
Test(records, on_meta_are_sizes) {
    fr_records_opts o = options(files_path("r"));
    fr_memory_stats m;
    fr_records *r = NULL;
    o.device = FR_META;
    MUST(fr_records_create(&o, &r));
    MUST(fr_records_append(r, NULL, 5));
    MUST(fr_records_finish(r));
    cr_expect_eq(access(files_path("r"), F_OK), -1);
    o.path = NULL;
    MUST(fr_records_create(&o, &r));
    MUST(fr_memory_stats_get(FR_META, &m));
    cr_expect_eq(m.requested_by[FR_MEM_INPUT], 512);
    fr_records_release(&r);
}

/* ---- fr_dataset_concat ------------------------------------------------------------------------------------------- */

static fr_status read_numbers(void *ctx, int64_t index, void *pixels, void *target) {
    *(float *)pixels = (float)(*(int *)ctx + index);
    *(float *)target = (float)(*(int *)ctx - index);
    return FR_OK;
}

static fr_dataset *numbers(int *from, int64_t count, int64_t classes) {
    fr_dataset *d = NULL;
    MUST(fr_dataset_create(&(fr_dataset_source){.count = count,
                                                .classes = classes,
                                                .height = 1,
                                                .width = 1,
                                                .channels = 1,
                                                .read = read_numbers,
                                                .ctx = from,
                                                .f32 = true,
                                                .target = FR_TARGET_VECTOR},
                           &d));
    return d;
}

Test(records, two_datasets_are_one) {
    fr_dataset *a = NULL, *b = NULL, *both = NULL;
    MUST(fr_dataset_synthetic(3, 4, 2, 2, 3, 1, &a));
    MUST(fr_dataset_synthetic(5, 4, 2, 2, 3, 2, &b));
    MUST(fr_dataset_concat(a, b, &both));
    fr_dataset_info info;
    MUST(fr_dataset_info_get(both, &info));
    cr_expect_eq(info.count, 8);
    cr_expect_eq(info.classes, 4);
    cr_expect(info.same_size);
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    MUST(fr_loader_create(both, FR_LOADER_OPTS(.batch_size = 8, .shuffle = false, .workers = 0), &l));
    MUST(fr_loader_next(l, &x, &t));
    for (int64_t i = 0; i < 8; i++) {
        const fr_dataset *from = i < 3 ? a : b;
        const int64_t at = i < 3 ? i : i - 3;
        uint8_t one[12], other[12];
        int64_t label = -1, same = -2;
        MUST(fr_dataset_read(from, at, one, sizeof one, NULL, NULL, NULL));
        MUST(fr_dataset_read(both, i, other, sizeof other, NULL, NULL, NULL));
        cr_expect_arr_eq(one, other, sizeof one, "image %lld", (long long)i);
        MUST(fr_dataset_label(from, at, &label));
        MUST(fr_dataset_label(both, i, &same));
        cr_expect_eq(same, label, "image %lld", (long long)i);
        cr_expect_eq(((int64_t *)fr_tensor_data(t))[i], label, "image %lld in the batch", (long long)i);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
    fr_dataset_release(&a);
    fr_dataset_release(&b);
    fr_dataset_release(&both);
}

Test(records, a_pair_has_its_vectors_or_is_refused) {
    int first = 100, second = 200;
    fr_dataset *a = numbers(&first, 2, 1), *b = numbers(&second, 2, 1), *other = numbers(&second, 2, 3), *both = NULL;
    float value = 0;
    MUST(fr_dataset_concat(a, b, &both));
    MUST(fr_dataset_target(both, 3, &value, sizeof value, NULL));
    cr_expect_eq(value, 199);
    EXPECT_FAIL(fr_dataset_concat(a, other, &both), FR_EINVAL, "1 classes", "3");
    fr_dataset_release(&a);
    fr_dataset_release(&b);
    fr_dataset_release(&other);
    fr_dataset_release(&both);
}
