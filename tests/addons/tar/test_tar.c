/* test_tar.c - images in tar shards: batches equal those of the original folder bit for bit; the order of a window;
 * damaged shards and indexes. The shards come from GNU tar. */
#include "data/files.h"

#include <frugal/tar.h>

#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(tar, .init = files_begin, .fini = files_end, .timeout = 120);

enum { COUNT = 24, SHARDS = 3, CLASSES = 3, BATCH = 5, SIDE = 12 };
static const char *const class_names[CLASSES] = {"ant", "bee", "cat"};

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
    char command[8192];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(command, sizeof command, format, list);
    va_end(list);
    cr_assert_lt(n, (int)sizeof command);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void name_of(int i, char name[32]) {
    snprintf(name, 32, "%s/%02d.png", class_names[i % CLASSES], i);
}

/* train/<class>/NN.png of several sizes; the content identifies the image. */
static void write_folder(void) {
    char name[64];
    files_make_folder("train");
    for (int c = 0; c < CLASSES; c++) {
        snprintf(name, sizeof name, "train/%s", class_names[c]);
        files_make_folder(name);
    }
    for (int i = 0; i < COUNT; i++) {
        const int h = SIDE + i % 4, w = SIDE + i % 3;
        uint8_t rgb[3 * (SIDE + 4) * (SIDE + 4)], *bytes = NULL;
        char base[32];
        for (int k = 0; k < 3 * h * w; k++) rgb[k] = (uint8_t)(10 * i + k % 7);
        size_t n = png_bytes(PNG_KIND_RGB, rgb, h, w, &bytes);
        name_of(i, base);
        snprintf(name, sizeof name, "train/%s", base);
        files_write(name, bytes, n);
        free(bytes);
    }
}

/* Shard k of three holds every third image, counted from the end, in its own dialect of tar. */
static void write_shards(const char *stem) {
    static const char *const formats[SHARDS] = {"ustar", "gnu", "pax"};
    for (int k = 0; k < SHARDS; k++) {
        char list[COUNT * 40] = "", name[32];
        for (int i = COUNT - 1 - k; i >= 0; i -= SHARDS) {
            name_of(i, name);
            strcat(strcat(list, " "), name);
        }
        cr_assert_eq(shell("tar --format=%s --transform s,^,data/, -C %s/train -cf %s/%s-%03d.tar %s", formats[k],
                           files_root, files_root, stem, k, list),
                     0);
    }
}

static fr_dataset *open_tar(const char *name) {
    fr_dataset *d = NULL;
    fr_status s = fr_dataset_tar(files_path(name), &d);
    if (s == FR_EUNSUPPORTED) cr_skip("%s", fr_last_error());
    cr_assert_eq(s, FR_OK, "%s", fr_last_error());
    return d;
}

/* All bytes of two epochs from a given batch on: images, then labels, batch by batch. */
typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static void add(bytes *b, fr_tensor *t) {
    b->data = realloc(b->data, b->n + fr_tensor_nbytes(t));
    memcpy(b->data + b->n, fr_tensor_data(t), fr_tensor_nbytes(t));
    b->n += fr_tensor_nbytes(t);
}

static bytes run(fr_dataset *d, int workers, int64_t from, int64_t window) {
    bytes b = {0};
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    MUST(fr_loader_create(d,
                          FR_LOADER_OPTS(.batch_size = BATCH, .height = SIDE, .width = SIDE, .random_crop = true,
                                         .padding = 2, .flip = true, .seed = 5, .workers = workers,
                                         .shuffle_window = window),
                          &l));
    MUST(fr_loader_position_set(l, 0, from));
    for (int ends = 0; ends < 2;) {
        fr_status s = fr_loader_next(l, &x, &t);
        cr_assert(s == FR_OK || s == FR_END, "%s", fr_last_error());
        ends += s == FR_END;
        if (s == FR_OK) {
            add(&b, x);
            add(&b, t);
        }
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
    return b;
}

static void expect_same_batches(fr_dataset *expected, fr_dataset *d, const char *what) {
    static const int workers[] = {0, 1, 4}, from[] = {0, 3};
    for (int i = 0; i < 6; i++) {
        bytes a = run(expected, 0, from[i / 3], 0), b = run(d, workers[i % 3], from[i / 3], 0);
        cr_expect_eq(a.n, b.n, "%s", what);
        cr_expect(a.n == b.n && memcmp(a.data, b.data, a.n) == 0, "%s: %d workers, from batch %d", what, workers[i % 3],
                  from[i / 3]);
        free(a.data);
        free(b.data);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

Test(tar, gives_the_batches_of_the_folder_it_was_made_from) {
    static const char *const patterns[] = {"f-{000..002}.tar", "f-*.tar", "f-00?.tar"};
    fr_dataset *folder = NULL;
    fr_dataset_info info;
    write_folder();
    write_shards("f");
    MUST(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &folder));
    for (int again = 0; again < 3; again++) { /* the second reads the indexes */
        fr_dataset *d = open_tar(patterns[again]);
        MUST(fr_dataset_info_get(d, &info));
        cr_expect_eq(info.count, COUNT);
        cr_expect_eq(info.classes, CLASSES);
        for (int c = 0; c < CLASSES; c++) cr_expect_str_eq(fr_dataset_class_name(d, c), class_names[c]);
        expect_same_batches(folder, d, patterns[again]);
        fr_dataset_release(&d);
    }
    fr_dataset_release(&folder);
}

/* Labels in .cls files, sorted before and after their images; all other files are ignored, and hidden ones. */
Test(tar, labels_stand_in_cls_files) {
    fr_dataset *folder = NULL;
    write_folder();
    for (int i = 0; i < COUNT; i++) {
        char name[64], text[16];
        snprintf(name, sizeof name, "train/%s/%02d.%s", class_names[i % CLASSES], i, i % 3 == 0 ? "CLS" : "cls");
        int n = snprintf(text, sizeof text, "%d%s", i % CLASSES, i % 2 == 0 ? "\n" : "");
        files_write(name, text, (size_t)n);
    }
    files_write("train/ant/00.json", "{}", 2);
    files_make_folder("train/.Trash");
    files_make_folder("train/ant/__MACOSX");
    static const char *const hidden[] = {"ant/._00.png", "ant/._00.cls", "ant/__MACOSX/._00.png", ".Trash/00.png"};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        char name[64];
        snprintf(name, sizeof name, "train/%s", hidden[i]);
        files_write(name, "\0\5\x16\7", 4);
    }
    for (int order = 0; order < 2; order++) {
        cr_assert_eq(shell("cd %s/train && find . -type f | sort %s | tar -cf ../c%d.tar -T -", files_root,
                           order == 1 ? "-r" : "", order),
                     0);
        fr_dataset *d = open_tar(order == 0 ? "c0.tar" : "c1.tar");
        MUST(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &folder));
        cr_expect_null(fr_dataset_class_name(d, 0));
        expect_same_batches(folder, d, order == 0 ? "before" : "after");
        fr_dataset_release(&d);
        fr_dataset_release(&folder);
    }
}

/* Names of more than 100 bytes have separate headers. */
Test(tar, long_names_are_read_in_every_dialect) {
    static const char *const formats[] = {"gnu", "pax", "oldgnu", "posix"};
    char folder[192], name[256];
    write_folder();
    memset(folder, 'k', 150);
    folder[150] = '\0';
    cr_assert_eq(shell("cd %s/train && mkdir %s && cp ant/00.png bee/01.png %s/", files_root, folder, folder), 0);
    for (int f = 0; f < 4; f++) {
        cr_assert_eq(shell("tar --format=%s -C %s/train -cf %s/long%d.tar %s", formats[f], files_root, files_root, f,
                           folder),
                     0);
        snprintf(name, sizeof name, "long%d.tar", f);
        fr_dataset *d = open_tar(name);
        fr_dataset_info info;
        MUST(fr_dataset_info_get(d, &info));
        cr_expect_eq(info.count, 2, "%s", formats[f]);
        cr_expect_str_eq(fr_dataset_class_name(d, 0), folder);
        for (int64_t i = 0; i < 2; i++) MUST(fr_dataset_read(d, i, NULL, 0, NULL, NULL, NULL));
        fr_dataset_release(&d);
    }
}

/* ---- a window of the order -------------------------------------------------------------------------------------- */

/* The number of each image in the order of an epoch, from what it shows. */
static void order_of(fr_dataset *d, int64_t window, int64_t epoch, int order[COUNT]) {
    fr_loader *l = NULL;
    fr_tensor *x = NULL, *t = NULL;
    MUST(fr_loader_create(d,
                          FR_LOADER_OPTS(.batch_size = 1, .height = SIDE, .width = SIDE, .seed = 3, .workers = 0,
                                         .shuffle_window = window),
                          &l));
    MUST(fr_loader_position_set(l, epoch, 0));
    for (int i = 0; i < COUNT; i++) {
        MUST(fr_loader_next(l, &x, &t));
        const float *p = fr_tensor_data(x);
        double sum = 0;
        for (int k = 0; k < 3 * SIDE * SIDE; k++) sum += p[k];
        order[i] = (int)(sum / (3 * SIDE * SIDE) * 255 / 10);
    }
    fr_tensor_release(&x);
    fr_tensor_release(&t);
    fr_loader_release(&l);
}

static int ascending(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

Test(tar, a_window_reads_shards_one_after_the_other) {
    enum { PER_SHARD = COUNT / SHARDS, WINDOW = 6 };
    int plain[4][COUNT], within[COUNT], again[COUNT], starts = 0;
    write_folder();
    write_shards("w");
    fr_dataset *d = open_tar("w-*.tar");
    for (int e = 0; e < 4; e++) { /* shard k: images COUNT - 1 - k, then three fewer each */
        order_of(d, 1, e, plain[e]);
        for (int i = 0; i < COUNT; i++) {
            const int k = (COUNT - 1 - plain[e][i - i % PER_SHARD]) % SHARDS;
            cr_expect_eq(plain[e][i], COUNT - 1 - k - SHARDS * (i % PER_SHARD), "epoch %d, image %d", e, i);
        }
        starts += plain[e][0] != plain[0][0] || plain[e][PER_SHARD] != plain[0][PER_SHARD];
    }
    cr_expect_gt(starts, 0, "four epochs take the shards in one order");
    order_of(d, WINDOW, 2, within);
    order_of(d, WINDOW, 2, again);
    cr_expect_arr_eq(within, again, sizeof within);
    int moved = 0;
    for (int i = 0; i < COUNT; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++) moved += within[i + k] != plain[2][i + k];
        qsort(within + i, WINDOW, sizeof *within, ascending);
        qsort(plain[2] + i, WINDOW, sizeof *within, ascending);
    }
    cr_expect_gt(moved, COUNT / 2);
    cr_expect_arr_eq(within, plain[2], sizeof within, "an image left its window");
    bytes all = run(d, 0, 0, WINDOW), rest = run(d, 4, 2, WINDOW);
    cr_expect(rest.n < all.n && memcmp(all.data + (all.n - rest.n), rest.data, rest.n) == 0, "from the middle");
    free(all.data);
    free(rest.data);
    fr_dataset_release(&d);
}

Test(tar, a_window_below_zero_is_refused) {
    fr_dataset *d = NULL;
    fr_loader *l = NULL;
    MUST(fr_dataset_synthetic(4, 2, 8, 8, 3, 0, &d));
    EXPECT_FAIL(fr_loader_create(d, FR_LOADER_OPTS(.batch_size = 2, .shuffle_window = -1), &l), FR_EINVAL, "-1");
    fr_dataset_release(&d);
}

/* ---- indexes ---------------------------------------------------------------------------------------------------- */

static long size_of(const char *name) {
    struct stat st;
    cr_assert_eq(stat(files_path(name), &st), 0, "%s", name);
    return (long)st.st_size;
}

Test(tar, an_index_stands_for_its_shard) {
    fr_dataset *d = NULL;
    write_folder();
    write_shards("i");
    d = open_tar("i-000.tar");
    fr_dataset_release(&d);
    /* The index beside a file of zeros: only the index is read, until an image is. */
    const long size = size_of("i-000.tar");
    cr_assert_gt(size_of("i-000.tar.index"), 0);
    cr_assert_eq(
        shell("cd %s && touch -r i-000.tar time && head -c %ld /dev/zero >i-000.tar && touch -r time i-000.tar",
              files_root, size),
        0);
    EXPECT_FAIL(fr_dataset_tar(files_path("i-000.tar"), &d), FR_EFORMAT, "i-000.tar", ".png", "remove the index");
    /* A shard of a new size is read again. */
    cr_assert_eq(shell("cd %s && tar -b 100 -C train -cf i-000.tar ant/00.png", files_root), 0);
    d = open_tar("i-000.tar");
    fr_dataset_release(&d);
}

/* tar pads shards to 10,240 bytes, so a corrected label or an added image may leave the size unchanged. */
Test(tar, a_shard_that_was_written_again_is_read_again) {
    static const char *const commands[] =
        {"printf 0 >00.cls; printf 1 >03.cls; tar -cf ../../c.tar 0[03].*",
         "printf 1 >00.cls; printf 0 >03.cls; tar -cf ../../c.tar 0[03].*",
         "printf 1 >00.cls; printf 0 >03.cls; printf 1 >06.cls; tar -cf ../../c.tar 0[036].*"};
    static const int64_t expected[3][3] = {{0, 1}, {1, 0}, {1, 0, 1}};
    write_folder();
    for (int k = 0; k < 3; k++) {
        int64_t label = -1, images = k < 2 ? 2 : 3;
        fr_dataset_info info;
        cr_assert_eq(shell("cd %s/train/ant && rm -f *.cls; %s", files_root, commands[k]), 0);
        cr_assert_eq(size_of("c.tar"), 10240);
        fr_dataset *d = open_tar("c.tar");
        MUST(fr_dataset_info_get(d, &info));
        cr_assert_eq(info.count, images, "case %d: %lld", k, (long long)info.count);
        for (int64_t i = 0; i < images; i++) {
            MUST(fr_dataset_label(d, i, &label));
            cr_expect_eq(label, expected[k][i], "case %d, image %lld: %lld", k, (long long)i, (long long)label);
        }
        fr_dataset_release(&d);
    }
}

/* Two classes for a key, and link entries: class or bytes are ambiguous. */
Test(tar, keys_of_two_classes_and_links_are_refused) {
    static const char *const commands[] = {
        "cp 00.png i.0.png; cp 00.png i.1.png; printf 1 >i.0.cls; printf 0 >i.1.cls; tar -cf ../../x.tar i.*",
        "ln 00.png h.png; tar -cf ../../x.tar 00.png h.png",
        "ln -s 00.png s.png; tar -cf ../../x.tar 00.png s.png",
        "printf 1 >00.cls; ln 00.cls h.cls; tar -cf ../../x.tar 00.cls 00.png h.cls h.png",
    };
    static const char *const says[] = {"i.0.cls says class 1 and i.1.cls class 0", "h.png is stored as a link",
                                       "s.png is stored as a link", "is stored as a link"};
    fr_dataset *d = NULL;
    write_folder();
    for (int k = 0; k < 4; k++) {
        cr_assert_eq(shell("cd %s/train/ant && %s", files_root, commands[k]), 0);
        EXPECT_FAIL(fr_dataset_tar(files_path("x.tar"), &d), FR_EFORMAT, "x.tar", says[k]);
    }
}

Test(tar, a_folder_that_takes_no_index_is_read_all_the_same) {
    if (geteuid() == 0) cr_skip("root writes everywhere");
    write_folder();
    write_shards("r");
    cr_assert_eq(shell("chmod 555 %s", files_root), 0);
    fr_dataset *d = open_tar("r-000.tar");
    cr_assert_eq(shell("chmod 755 %s", files_root), 0);
    cr_expect_neq(access(files_path("r-000.tar.index"), F_OK), 0);
    fr_dataset_release(&d);
}

Test(tar, indexes_that_say_nonsense_are_refused) {
    static const char *const rows[] = {"[0,10,-1,\"a/b.png\"]",
                                       "[512,99999999,-1,\"a/b.png\"]",
                                       "[512,-1,-1,\"a/b.png\"]",
                                       "[1024,20480,-1,\"a/b.png\"]",
                                       "[512.5,10,-1,\"a/b.png\"]",
                                       "[512,10,-2,\"a/b.png\"]",
                                       "[512,10,1048576,\"a.png\"]",
                                       "[512,10,-1,\"\"]",
                                       "[512,10,-1]",
                                       "[512,10,-1,\"a/b.png\",1]",
                                       "{}",
                                       "[512,10,-1,7]"};
    fr_dataset *d = NULL;
    char text[256];
    struct stat st;
    write_folder();
    write_shards("n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(stat(files_path("n-000.tar"), &st), 0);
        int n = snprintf(text, sizeof text,
                         "{\"format\":\"frugal tar index 1\",\"bytes\":%ld,\"changed\":\"%lld.%09ld\",\"images\":[%s]}",
                         (long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, rows[i]);
        files_write("n-000.tar.index", text, (size_t)n);
        EXPECT_FAIL(fr_dataset_tar(files_path("n-000.tar"), &d), FR_EFORMAT, "n-000.tar.index", "image 0",
                    "build it again");
    }
    files_write("n-000.tar.index", "[]", 2);
    EXPECT_FAIL(fr_dataset_tar(files_path("n-000.tar"), &d), FR_EFORMAT, "n-000.tar.index", "is not a tar index");
}

/* ---- damage ----------------------------------------------------------------------------------------------------- */

/* A file of the folder with a byte changed, or cut off. */
static void damage(const char *from, const char *to, uint32_t *seed) {
    const long size = size_of(from);
    uint8_t *data = malloc((size_t)size);
    FILE *f = fopen(files_path(from), "rb");
    cr_assert(f != NULL && fread(data, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    *seed = *seed * 1664525u + 1013904223u;
    const uint32_t r = *seed >> 8;
    const bool cut = r % 4 == 0;
    if (!cut) data[r % (uint32_t)size] ^= (uint8_t)(1u << (r >> 5) % 8);
    files_write(to, data, cut ? r % (uint32_t)size : (size_t)size);
    free(data);
}

/* Opens a shard and reads every image: success, or a sentence that names the shard. */
static bool opens(const char *name) {
    fr_dataset *d = NULL;
    fr_dataset_info info = {0};
    fr_status s = fr_dataset_tar(files_path(name), &d);
    if (s == FR_OK) MUST(fr_dataset_info_get(d, &info));
    for (int64_t i = 0; i < info.count && s == FR_OK; i++) s = fr_dataset_read(d, i, NULL, 0, NULL, NULL, NULL);
    if (s != FR_OK) {
        cr_expect(s == FR_EFORMAT || s == FR_EIO, "%s", fr_status_name(s));
        cr_expect_not_null(strstr(fr_last_error(), name), "no name in '%s'", fr_last_error());
        cr_expect_null(strchr(fr_last_error(), '\n'));
    }
    fr_dataset_release(&d);
    return s == FR_OK;
}

Test(tar, two_hundred_damaged_shards_and_indexes_are_one_sentence_each) {
    uint32_t seed = 11;
    int fine = 0;
    write_folder();
    write_shards("g");
    fr_dataset *d = open_tar("g-002.tar");
    fr_dataset_release(&d);
    for (int i = 0; i < 200; i++) {
        damage("g-002.tar", "bad.tar", &seed);
        remove(files_path("bad.tar.index"));
        fine += opens("bad.tar");
    }
    cr_expect_lt(fine, 150, "%d of 200 damaged shards work", fine);
    fine = 0;
    for (int i = 0; i < 200; i++) {
        damage("g-002.tar.index", "g-002.tar.index.bad", &seed);
        cr_assert_eq(shell("cd %s && cp -p g-002.tar bad.tar && mv g-002.tar.index.bad bad.tar.index", files_root), 0);
        fine += opens("bad.tar");
    }
    cr_expect_lt(fine, 150, "%d of 200 damaged indexes work", fine);
}

Test(tar, what_is_no_shard_is_refused) {
    fr_dataset *d = NULL;
    write_folder();
    write_shards("s");
    d = open_tar("s-000.tar");
    fr_dataset_release(&d);
    EXPECT_FAIL(fr_dataset_tar(NULL, &d), FR_EINVAL, "NULL");
    EXPECT_FAIL(fr_dataset_tar(files_path("x-*.tar"), &d), FR_EIO, "x-*.tar", "no such file");
    EXPECT_FAIL(fr_dataset_tar(files_path("s-{000..003}.tar"), &d), FR_EIO, "s-003.tar");
    EXPECT_FAIL(fr_dataset_tar(files_path("s-{2..1}.tar"), &d), FR_EINVAL, "one range of numbers");
    EXPECT_FAIL(fr_dataset_tar(files_path("s-{a,b}.tar"), &d), FR_EINVAL, "one range of numbers");
    EXPECT_FAIL(fr_dataset_tar(files_path("{0..1}-{0..1}.tar"), &d), FR_EINVAL, "one range of numbers");
    EXPECT_FAIL(fr_dataset_tar(files_path("train"), &d), FR_EIO, "not a regular file");
    cr_assert_eq(shell("cd %s && gzip -k s-000.tar", files_root), 0);
    EXPECT_FAIL(fr_dataset_tar(files_path("s-000.tar.gz"), &d), FR_EFORMAT, "s-000.tar.gz", "not compressed");
    cr_assert_eq(shell("cd %s && tar -cf empty.tar list* -T /dev/null 2>/dev/null; tar -cf empty.tar -T /dev/null",
                       files_root),
                 0);
    EXPECT_FAIL(fr_dataset_tar(files_path("empty.tar"), &d), FR_EFORMAT, "empty.tar", "0 images");
    cr_assert_eq(shell("cd %s/train/ant && tar -cf ../../flat.tar 00.png", files_root), 0);
    EXPECT_FAIL(fr_dataset_tar(files_path("flat.tar"), &d), FR_EFORMAT, "flat.tar", "00.png", "nor a folder");
    files_write("train/ant/00.cls", "1", 1);
    cr_assert_eq(shell("cd %s/train/ant && tar -cf ../../mixed.tar 00.cls 00.png 03.png", files_root), 0);
    EXPECT_FAIL(fr_dataset_tar(files_path("mixed.tar"), &d), FR_EFORMAT, "mixed.tar", "03.png", "1 other images");
    files_write("train/ant/00.cls", "one", 3);
    cr_assert_eq(shell("cd %s/train/ant && tar -cf ../../word.tar 00.cls 00.png", files_root), 0);
    EXPECT_FAIL(fr_dataset_tar(files_path("word.tar"), &d), FR_EFORMAT, "word.tar", "00.cls", "'one'");
}
