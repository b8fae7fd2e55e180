/* test_datasets.c - every format returns the written pixels and labels; damaged or hostile files give a status and a
 * sentence with the file's name and both values. */
#include "files.h"

#include "data/source.h"
#include "digits.h"

#include <unistd.h>
#include <zlib.h>

TestSuite(datasets, .init = files_begin, .fini = files_end);

/* ---- IDX --------------------------------------------------------------------------------------------------- */

enum { N = 5, H = 3, W = 4 };

static void write_idx(const char *images_name, const char *labels_name, bool gzip) {
    uint8_t body[N * H * W], labels[N], file[128];
    for (int i = 0; i < N * H * W; i++) body[i] = (uint8_t)(i * 7);
    for (int i = 0; i < N; i++) labels[i] = (uint8_t)((i * 3) % 10);
    size_t n = idx_bytes(file, 0x803, 3, (uint32_t[]){N, H, W}, body, sizeof body);
    (gzip ? files_write_gzip : files_write)(images_name, file, n);
    n = idx_bytes(file, 0x801, 1, (uint32_t[]){N}, labels, sizeof labels);
    (gzip ? files_write_gzip : files_write)(labels_name, file, n);
}

static void expect_idx(fr_split split) {
    fr_dataset *d = NULL;
    fr_dataset_info info;
    MUST(fr_dataset_idx(files_root, split, 10, &d));
    MUST(fr_dataset_info_get(d, &info));
    cr_expect(info.count == N && info.height == H && info.width == W && info.channels == 1 && info.classes == 10);
    cr_expect(info.same_size);
    for (int i = 0; i < N; i++) {
        uint8_t pixels[H * W];
        int64_t label, h, w, c;
        MUST(fr_dataset_read(d, i, pixels, sizeof pixels, &h, &w, &c));
        MUST(fr_dataset_label(d, i, &label));
        cr_expect(h == H && w == W && c == 1);
        cr_expect_eq(label, (i * 3) % 10);
        for (int p = 0; p < H * W; p++) cr_expect_eq(pixels[p], (uint8_t)((i * H * W + p) * 7));
    }
    EXPECT_FAIL(fr_dataset_label(d, N, &(int64_t){0}), FR_EINVAL, "5", "0..4");
    EXPECT_FAIL(fr_dataset_read(d, 0, (uint8_t[3]){0}, 3, NULL, NULL, NULL), FR_EINVAL, "12 bytes", "holds 3");
    fr_dataset *kept = fr_dataset_retain(d);
    fr_dataset_release(&d);
    cr_expect_null(d);
    fr_dataset_release(&d);
    MUST(fr_dataset_label(kept, 1, &(int64_t){0}));
    fr_dataset_release(&kept);
}

Test(datasets, idx_plain_and_gzip_give_the_same) {
    write_idx("train-images-idx3-ubyte", "train-labels-idx1-ubyte", false);
    expect_idx(FR_SPLIT_TRAIN);
    write_idx("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", true);
    expect_idx(FR_SPLIT_TEST);
}

Test(datasets, idx_reads_gzip_of_several_members) {
    write_idx("test-images-idx3-ubyte.gz", "test-labels-idx1-ubyte.gz", true);
    uint8_t body[N * H * W], file[128];
    for (int i = 0; i < N * H * W; i++) body[i] = (uint8_t)(i * 7);
    size_t n = idx_bytes(file, 0x803, 3, (uint32_t[]){N, H, W}, body, sizeof body);
    files_write_gzip("a.gz", file, 30);
    files_write_gzip("b.gz", file + 30, n - 30);
    FILE *to = fopen(files_path("test-images-idx3-ubyte.gz"), "wb");
    for (int i = 0; i < 2; i++) {
        FILE *from = fopen(files_path(i == 0 ? "a.gz" : "b.gz"), "rb");
        for (int byte; (byte = getc(from)) != EOF;) putc(byte, to);
        fclose(from);
    }
    fclose(to);
    expect_idx(FR_SPLIT_TEST);
}

Test(datasets, idx_needs_only_the_files_of_its_split) {
    fr_dataset *d = NULL;
    write_idx("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", false);
    expect_idx(FR_SPLIT_TEST);
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EIO, files_root, "train-images-idx3-ubyte");
    cr_expect_null(d);
}

/* Writes good files, replaces one by `bytes`, and expects the failure. */
static void expect_bad_idx(bool images, const uint8_t *bytes, size_t n, fr_status status, const char *a,
                           const char *b) {
    static const char *const names[2] = {"train-labels-idx1-ubyte", "train-images-idx3-ubyte"};
    fr_dataset *d = NULL;
    write_idx(names[1], names[0], false);
    files_write(names[images], bytes, n);
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), status, names[images], a, b);
    cr_expect_null(d);
}

Test(datasets, idx_refuses_damaged_and_hostile_files) {
    uint8_t f[128], body[N * H * W] = {0};
    size_t n = idx_bytes(f, 0x801, 3, (uint32_t[]){N, H, W}, body, sizeof body);
    expect_bad_idx(true, f, n, FR_EFORMAT, "0x00000801", "0x00000803");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){N, H, W}, body, sizeof body - 1);
    expect_bad_idx(true, f, n, FR_EFORMAT, "60 bytes", "75 bytes");
    n = idx_bytes(f, 0x803, 1, (uint32_t[]){N}, NULL, 0);
    expect_bad_idx(true, f, n, FR_EFORMAT, "truncated", "8 bytes");
    expect_bad_idx(true, f, 2, FR_EFORMAT, "2 bytes", "at least 4");
    expect_bad_idx(true, f, 0, FR_EFORMAT, "0 bytes", "at least 4");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){N, H, W}, body, sizeof body);
    expect_bad_idx(true, f, n + 1, FR_EFORMAT, "is longer than", "76 bytes");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){0xffffffffu, 0xffffffffu, 0xffffffffu}, body, sizeof body);
    expect_bad_idx(true, f, n, FR_EFORMAT, "4294967295 x 4294967295", "32768");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){0xffffffffu, 8192, 8192}, body, sizeof body);
    expect_bad_idx(true, f, n, FR_EFORMAT, "4294967295 images", "76 bytes");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){N, 32768, 32768}, body, sizeof body);
    expect_bad_idx(true, f, n, FR_EFORMAT, "32768 x 32768", "67108864");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){N, 0, W}, body, sizeof body);
    expect_bad_idx(true, f, n, FR_EFORMAT, "4 x 0", "1..");
    n = idx_bytes(f, 0x803, 3, (uint32_t[]){0, H, W}, body, 0);
    expect_bad_idx(true, f, n, FR_EFORMAT, "0 images", "at least 1");
    n = idx_bytes(f, 0x801, 1, (uint32_t[]){N}, (uint8_t[]){1, 2, 10, 4, 5}, N);
    expect_bad_idx(false, f, n, FR_EFORMAT, "label 2 is 10", "0..9");
    n = idx_bytes(f, 0x801, 1, (uint32_t[]){N - 1}, body, N - 1);
    expect_bad_idx(false, f, n, FR_EFORMAT, "4 labels", "5 images");
    n = idx_bytes(f, 0x801, 1, (uint32_t[]){N}, body, N - 1);
    expect_bad_idx(false, f, n, FR_EFORMAT, "12 bytes", "13");
}

Test(datasets, idx_refuses_damaged_gzip) {
    fr_dataset *d = NULL;
    uint8_t file[4096];
    write_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", true);
    FILE *f = fopen(files_path("train-images-idx3-ubyte.gz"), "rb");
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    for (size_t cut = 2; cut < n; cut++) { /* cut at any position, also inside the checksum */
        files_write("train-images-idx3-ubyte.gz", file, cut);
        EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EFORMAT, "train-images-idx3-ubyte.gz");
    }
    for (size_t at = 10; at < n; at++) { /* any flipped bit behind the gzip header, if only by the checksum */
        file[at] ^= 0x10;
        files_write("train-images-idx3-ubyte.gz", file, n);
        EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EFORMAT, "train-images-idx3-ubyte.gz");
        file[at] ^= 0x10;
    }
    cr_expect_null(d);
}

Test(datasets, idx_never_inflates_past_the_header) {
    fr_dataset *d = NULL;
    size_t n = 16 + (64u << 20);
    uint8_t *bomb = calloc(1, n);
    write_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", true);
    idx_bytes(bomb, 0x803, 3, (uint32_t[]){N, H, W}, NULL, 0);
    files_write_gzip("train-images-idx3-ubyte.gz", bomb, n);
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EFORMAT, "is longer than the 76 bytes");
    /* An impossible size for a deflate stream is refused before the allocation. */
    idx_bytes(bomb, 0x803, 3, (uint32_t[]){1u << 20, 1024, 1024}, NULL, 0);
    files_write_gzip("train-images-idx3-ubyte.gz", bomb, 4096);
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EFORMAT, "1099511627776 bytes", "cannot hold");
    free(bomb);
}

/* The content of a gzip file of 2^61 bytes (a hole, if the file system allows) may exceed 64 bits. */
Test(datasets, what_a_gzip_file_can_hold_does_not_overflow) {
    fri_source s = {.name = "hole.gz", .gzip = true, .stored = UINT64_C(1) << 61};
    MUST(fri_source_expect(&s, UINT64_C(1) << 62, "many images"));
    s.stored = 10;
    EXPECT_FAIL(fri_source_expect(&s, 10321, "many images"), FR_EFORMAT, "hole.gz", "10321", "10 bytes");
}

Test(datasets, idx_refuses_what_is_no_file) {
    fr_dataset *d = NULL;
    EXPECT_FAIL(fr_dataset_idx(files_path("absent"), FR_SPLIT_TEST, 10, &d), FR_EIO, "absent", "t10k-images");
    write_idx("train-images-idx3-ubyte", "train-labels-idx1-ubyte", false);
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 0, &d), FR_EINVAL, "0 classes", "1..256");
    remove(files_path("train-labels-idx1-ubyte"));
    files_make_folder("train-labels-idx1-ubyte");
    EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EIO, "train-labels", "not a regular file");
    if (geteuid() != 0) {
        chmod(files_path("train-images-idx3-ubyte"), 0);
        EXPECT_FAIL(fr_dataset_idx(files_root, FR_SPLIT_TRAIN, 10, &d), FR_EIO, "train-images", "ermission");
    }
}

Test(datasets, digits_are_what_their_readme_says) {
    static const int64_t counts[2] = {1500, 297};
    for (int split = 0; split < 2; split++) {
        fr_dataset *d = NULL;
        fr_dataset_info info;
        int64_t per_class[10] = {0}, label;
        double mean[3], std[3];
        MUST(digits_dataset(split == 0 ? FR_SPLIT_TRAIN : FR_SPLIT_TEST, &d));
        MUST(fr_dataset_info_get(d, &info));
        cr_expect(info.count == counts[split] && info.height == 8 && info.width == 8 && info.classes == 10);
        for (int64_t i = 0; i < info.count; i++) {
            MUST(fr_dataset_label(d, i, &label));
            per_class[label]++;
        }
        for (int c = 0; c < 10; c++) cr_expect_gt(per_class[c], info.count / 20);
        MUST(fr_dataset_mean_std(d, info.count, mean, std));
        cr_expect(mean[0] > 0.25 && mean[0] < 0.36 && std[0] > 0.3 && std[0] < 0.43, "mean %g std %g", mean[0], std[0]);
        fr_dataset_release(&d);
    }
}

Test(datasets, mnist_is_read_where_it_is_present) {
    const char *data = getenv("FRUGAL_DATA");
    if (data == NULL) cr_skip("FRUGAL_DATA does not name a folder with mnist-t10k/");
    char folder[1024];
    fr_dataset *d = NULL;
    fr_dataset_info info;
    double mean[3], std[3];
    int64_t label;
    static const int first[8] = {7, 2, 1, 0, 4, 1, 4, 9};
    snprintf(folder, sizeof folder, "%s/mnist-t10k", data);
    MUST(fr_dataset_idx(folder, FR_SPLIT_TEST, 10, &d));
    MUST(fr_dataset_info_get(d, &info));
    cr_expect(info.count == 10000 && info.height == 28 && info.width == 28 && info.channels == 1);
    for (int i = 0; i < 8; i++) {
        MUST(fr_dataset_label(d, i, &label));
        cr_expect_eq(label, first[i]);
    }
    MUST(fr_dataset_mean_std(d, info.count, mean, std));
    cr_expect(mean[0] > 0.1324 && mean[0] < 0.1326 && std[0] > 0.310 && std[0] < 0.311, "mean %g std %g", mean[0],
              std[0]);
    fr_dataset_release(&d);
}

/* ---- CIFAR ------------------------------------------------------------------------------------------------- */

/* `n` records whose pixel (c, y, x) of record i is i + 50c + y + x; label i. */
static size_t cifar_records(uint8_t *to, int n, int label_bytes) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (label_bytes == 2) to[at++] = (uint8_t)(i % 20);
        to[at++] = (uint8_t)i;
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 1024; p++) to[at++] = (uint8_t)(i + 50 * c + p / 32 + p % 32);
    }
    return at;
}

static void expect_cifar(fr_dataset *d, int64_t count, int64_t classes, int64_t per_file) {
    fr_dataset_info info;
    uint8_t pixels[3072];
    int64_t label;
    MUST(fr_dataset_info_get(d, &info));
    cr_expect(info.count == count && info.classes == classes && info.height == 32 && info.channels == 3);
    for (int64_t i = 0; i < count; i++) {
        MUST(fr_dataset_read(d, i, pixels, sizeof pixels, NULL, NULL, NULL));
        MUST(fr_dataset_label(d, i, &label));
        cr_expect_eq(label, i % per_file);
        for (int p = 0; p < 1024; p++)
            for (int c = 0; c < 3; c++)
                cr_assert_eq(pixels[3 * p + c], (uint8_t)(i % per_file + 50 * c + p / 32 + p % 32));
    }
}

Test(datasets, cifar_is_read_in_both_layouts) {
    static uint8_t file[8 * 3074];
    fr_dataset *d = NULL;
    size_t n = cifar_records(file, 3, 1);
    files_make_folder("cifar-10-batches-bin");
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "cifar-10-batches-bin/data_batch_%d.bin", i);
        files_write(name, file, n);
    }
    MUST(fr_dataset_cifar10(files_root, FR_SPLIT_TRAIN, &d));
    expect_cifar(d, 15, 10, 3);
    fr_dataset_release(&d);
    MUST(fr_dataset_cifar10(files_path("cifar-10-batches-bin"), FR_SPLIT_TRAIN, &d));
    fr_dataset_release(&d);
    EXPECT_FAIL(fr_dataset_cifar10(files_root, FR_SPLIT_TEST, &d), FR_EIO, files_root, "test_batch.bin");
    n = cifar_records(file, 8, 2);
    files_write("test.bin", file, n);
    MUST(fr_dataset_cifar100(files_root, FR_SPLIT_TEST, &d));
    expect_cifar(d, 8, 100, 8);
    fr_dataset_release(&d);
}

Test(datasets, cifar_refuses_damaged_files) {
    static uint8_t file[4 * 3074];
    fr_dataset *d = NULL;
    size_t n = cifar_records(file, 3, 1);
    files_write("test_batch.bin", file, n - 1);
    EXPECT_FAIL(fr_dataset_cifar10(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "test_batch.bin", "9218", "3073");
    files_write("test_batch.bin", file, 0);
    EXPECT_FAIL(fr_dataset_cifar10(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "test_batch.bin", "0 bytes", "3073");
    file[3073] = 10;
    files_write("test_batch.bin", file, n);
    EXPECT_FAIL(fr_dataset_cifar10(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "label 1 is 10", "0..9");
    n = cifar_records(file, 3, 2);
    file[1] = 100;
    files_write("test.bin", file, n);
    EXPECT_FAIL(fr_dataset_cifar100(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "test.bin", "label 0 is 100", "0..99");
    file[0] = 20;
    files_write("test.bin", file, n);
    EXPECT_FAIL(fr_dataset_cifar100(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "coarse label 0 is 20", "0..19");
    cr_expect_null(d);
}

/* ---- images ------------------------------------------------------------------------------------------------ */

enum { PH = 21, PW = 34 };

static void write_image(const char *name, uint8_t *bytes, size_t n) {
    files_write(name, bytes, n);
    free(bytes);
}

static void write_jpeg(const char *name, enum jpeg_kind kind, int height, int width) {
    uint8_t *rgb = malloc((size_t)(3 * height * width)), *bytes;
    picture_fill(rgb, height, width);
    size_t n = jpeg_bytes(kind, rgb, height, width, &bytes);
    write_image(name, bytes, n);
    free(rgb);
}

Test(datasets, image_folder_sorts_classes_and_files_by_bytes) {
    static const char *const classes[3] = {"Zebra", "ant", "bee"};
    fr_dataset *d = NULL;
    fr_dataset_info info;
    files_make_folder("train");
    files_make_folder("train/bee");
    files_make_folder("train/ant");
    files_make_folder("train/Zebra");
    files_make_folder("train/.cache");
    write_jpeg("train/bee/2.jpg", JPEG_RGB, 8, 9);
    write_jpeg("train/bee/10.JPEG", JPEG_RGB, 8, 10);
    write_jpeg("train/ant/x.jpg", JPEG_RGB, 8, 11);
    write_jpeg("train/Zebra/y.jpg", JPEG_RGB, 8, 12);
    files_write("train/Zebra/notes.txt", "no image", 8);
    files_write("train/LICENSE", "no folder", 9);
    files_make_folder("train/bee/more");
    files_make_folder("train/bee/z.jpg"); /* not an image, despite its name */
    files_write("train/bee/3.webp", "RIFF", 4);
    MUST(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d));
    MUST(fr_dataset_info_get(d, &info));
    cr_expect(info.count == 4 && info.classes == 3 && info.channels == 3 && info.height == 8 && info.width == 12);
    cr_expect_not(info.same_size);
    cr_expect_eq(info.left_out, 5, "%lld", (long long)info.left_out);
    for (int c = 0; c < 3; c++) cr_expect_str_eq(fr_dataset_class_name(d, c), classes[c]);
    cr_expect_null(fr_dataset_class_name(d, 3));
    static const int64_t widths[4] = {12, 11, 10, 9}, labels[4] = {0, 1, 2, 2};
    for (int i = 0; i < 4; i++) {
        int64_t w, label;
        MUST(fr_dataset_read(d, i, NULL, 0, NULL, &w, NULL));
        MUST(fr_dataset_label(d, i, &label));
        cr_expect(w == widths[i] && label == labels[i]);
    }
    fr_dataset_release(&d);
}

/* The image written as train/a/<name>, read back. */
static void read_back(const char *name, uint8_t *bytes, size_t n, uint8_t pixels[3 * PH * PW]) {
    fr_dataset *d = NULL;
    int64_t h, w, c;
    char path[128];
    snprintf(path, sizeof path, "train/a/%s", name);
    write_image(path, bytes, n);
    MUST(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d));
    MUST(fr_dataset_read(d, 0, pixels, 3 * PH * PW, &h, &w, &c));
    cr_expect(h == PH && w == PW && c == 3, "%s", name);
    fr_dataset_release(&d);
    remove(files_path(path));
}

Test(datasets, jpeg_of_every_kind_is_read_as_rgb) {
    static const char *const names[] = {"rgb.jpg", "gray.jpg", "cmyk.jpg", "progressive.jpg", "cmyk without Adobe.jpg"};
    uint8_t rgb[3 * PH * PW], got[3 * PH * PW], *bytes;
    picture_fill(rgb, PH, PW);
    files_make_folder("train");
    files_make_folder("train/a");
    for (int kind = 0; kind < 5; kind++) {
        size_t n = jpeg_bytes(kind < 4 ? (enum jpeg_kind)kind : JPEG_CMYK, rgb, PH, PW, &bytes);
        cr_assert_eq(bytes[3] == 0xee, kind == JPEG_CMYK || kind == 4, "Adobe's segment, of 16 bytes");
        if (kind == 4) memmove(bytes + 2, bytes + 18, (n -= 16) - 2);
        read_back(names[kind], bytes, n, got);
        for (int i = 0; i < 3 * PH * PW; i++) {
            int want = rgb[kind == JPEG_GRAY ? i / 3 * 3 : i], difference = abs((int)got[i] - want);
            cr_assert_leq(difference, 8, "%s byte %d: %d, want %d", names[kind], i, got[i], want);
        }
    }
}

Test(datasets, png_of_every_kind_is_read_as_rgb) {
    static const char *const names[] = {"rgb.png",    "gray.png", "bilevel.png",   "palette.png",
                                        "rgb_16.png", "rgba.png", "interlaced.png"};
    uint8_t rgb[3 * PH * PW], got[3 * PH * PW], *bytes;
    picture_fill(rgb, PH, PW);
    files_make_folder("train");
    files_make_folder("train/a");
    for (int kind = 0; kind < 7; kind++) {
        size_t n = png_bytes((enum png_kind)kind, rgb, PH, PW, &bytes);
        read_back(names[kind], bytes, n, got);
        for (int i = 0; i < 3 * PH * PW; i++) {
            static const uint8_t palette[2][3] = {{10, 20, 30}, {200, 150, 100}};
            int odd = (i / 3 % PW + i / 3 / PW) % 2, want = rgb[i];
            if (kind == PNG_KIND_GRAY) want = rgb[i / 3 * 3];
            if (kind == PNG_KIND_GRAY_1) want = 255 * odd;
            if (kind == PNG_KIND_PALETTE) want = palette[odd][i % 3];
            cr_assert_eq(got[i], want, "%s byte %d: %d, want %d", names[kind], i, got[i], want);
        }
    }
}

static void expect_bad_image(const char *name, const uint8_t *bytes, size_t n, const char *a, const char *b) {
    fr_dataset *d = NULL;
    char path[128];
    snprintf(path, sizeof path, "train/a/%s", name);
    files_write(path, bytes, n);
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d), FR_EFORMAT, path, a, b);
    cr_expect_null(d);
    remove(files_path(path));
}

Test(datasets, images_that_are_damaged_or_hostile_are_refused) {
    uint8_t rgb[3 * PH * PW], *jpeg, *png;
    picture_fill(rgb, PH, PW);
    files_make_folder("train");
    files_make_folder("train/a");
    size_t jpeg_n = jpeg_bytes(JPEG_RGB, rgb, PH, PW, &jpeg);
    size_t png_n = png_bytes(PNG_KIND_RGB, rgb, PH, PW, &png);
    for (size_t cut = 3; cut + 2 < jpeg_n; cut += 7) expect_bad_image("t.jpg", jpeg, cut, "broken JPEG", "bytes");
    for (size_t cut = 4; cut < png_n; cut += 7) expect_bad_image("t.png", png, cut, "broken PNG", "truncated");
    expect_bad_image("e.jpg", jpeg, 0, "0 bytes", "1..");
    expect_bad_image("h.png", (const uint8_t *)"<html>", 6, "3c 68 74 6d", "neither JPEG (ff d8 ff) nor PNG");
    png[png_n / 2] ^= 0x55; /* inside IDAT: the checksum of the chunk */
    expect_bad_image("c.png", png, png_n, "broken PNG", "");
    /* The frame header of a baseline JPEG: ff c0, length, precision, height, width. */
    size_t at = 0;
    while (!(jpeg[at] == 0xff && jpeg[at + 1] == 0xc0)) at++;
    memcpy(jpeg + at + 5, (uint8_t[]){0xff, 0xdc, 0xff, 0xdc}, 4);
    expect_bad_image("huge.jpg", jpeg, jpeg_n, "65500 x 65500", "32768");
    memcpy(jpeg + at + 5, (uint8_t[]){0x40, 0x00, 0x40, 0x00}, 4);
    expect_bad_image("large.jpg", jpeg, jpeg_n, "16384 x 16384", "67108864");
    free(jpeg);
    free(png);
    /* A PNG header with a true checksum and sides of 2^30. */
    uint8_t header[33] = {0x89, 'P',  'N', 'G', 13, 10,   26, 10, 0, 0, 0, 13, 'I', 'H', 'D',
                          'R',  0x40, 0,   0,   0,  0x40, 0,  0,  0, 8, 2, 0,  0,   0};
    uint32_t crc = (uint32_t)crc32(0, header + 12, 17);
    for (int i = 0; i < 4; i++) header[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    uint8_t file[33 + 64] = {0};
    memcpy(file, header, sizeof header);
    memcpy(file + 33, (uint8_t[]){0, 0, 0, 0, 'I', 'D', 'A', 'T', 0x35, 0xaf, 0x06, 0x1e}, 12);
    expect_bad_image("huge.png", file, sizeof file, "1073741824 x 1073741824", "32768");
}

Test(datasets, image_folders_that_make_no_dataset_are_refused) {
    fr_dataset *d = NULL;
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d), FR_EIO, files_root, "train");
    files_make_folder("train");
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d), FR_EFORMAT, "train", "0 class folders");
    files_make_folder("train/cat");
    files_make_folder("train/dog");
    write_jpeg("train/cat/a.jpg", JPEG_RGB, 8, 8);
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TRAIN, &d), FR_EFORMAT, "train/dog", "0 images");
    write_jpeg("train/dog/a.jpg", JPEG_RGB, 8, 8);
    files_make_folder("val");
    files_make_folder("val/cat");
    write_jpeg("val/cat/a.jpg", JPEG_RGB, 8, 8);
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "class dog", "train", "val");
    files_make_folder("val/eel");
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "class dog");
    files_make_folder("val/dog");
    write_jpeg("val/dog/a.jpg", JPEG_RGB, 8, 8);
    write_jpeg("val/eel/a.jpg", JPEG_RGB, 8, 8);
    EXPECT_FAIL(fr_dataset_image_folder(files_root, FR_SPLIT_TEST, &d), FR_EFORMAT, "class eel");
    cr_expect_null(d);
}

/* ---- synthetic --------------------------------------------------------------------------------------------- */

Test(datasets, synthetic_is_a_function_of_seed_and_index) {
    fr_dataset *a = NULL, *b = NULL, *other = NULL;
    uint8_t x[5 * 7 * 3], y[5 * 7 * 3];
    MUST(fr_dataset_synthetic(50, 4, 5, 7, 3, 1, &a));
    MUST(fr_dataset_synthetic(10, 4, 5, 7, 3, 1, &b));
    MUST(fr_dataset_synthetic(10, 4, 5, 7, 3, 2, &other));
    for (int64_t i = 0; i < 10; i++) {
        int64_t la, lb;
        MUST(fr_dataset_read(a, i, x, sizeof x, NULL, NULL, NULL));
        MUST(fr_dataset_read(b, i, y, sizeof y, NULL, NULL, NULL));
        cr_expect_arr_eq(x, y, sizeof x);
        MUST(fr_dataset_read(other, i, y, sizeof y, NULL, NULL, NULL));
        cr_expect_arr_neq(x, y, sizeof x);
        MUST(fr_dataset_label(a, i, &la));
        MUST(fr_dataset_label(b, i, &lb));
        cr_expect(la == lb && la >= 0 && la < 4);
    }
    fr_dataset_release(&a);
    fr_dataset_release(&b);
    fr_dataset_release(&other);
    EXPECT_FAIL(fr_dataset_synthetic(0, 4, 5, 7, 3, 1, &a), FR_EINVAL, "0 images");
    EXPECT_FAIL(fr_dataset_synthetic(1, 4, 5, 7, 2, 1, &a), FR_EINVAL, "2 channels", "1 or 3");
    EXPECT_FAIL(fr_dataset_synthetic(1, 4, 0, 7, 3, 1, &a), FR_EINVAL, "7 x 0");
}

/* ---- a dataset of the program's own ------------------------------------------------------------------------------ */

typedef struct own {
    fr_dataset *of; /* source of the images */
    int64_t wrong;  /* the index whose label is out of range; -1: none */
    bool fails, released;
} own;

static fr_status own_read(void *ctx, int64_t index, void *pixels, void *target) {
    const own *o = ctx;
    int64_t *label = target;
    fr_status s = fr_dataset_label(o->of, index, label);
    if (o->fails) return fr_fail(FR_EIO, "frame %d is lost", (int)index);
    if (s == FR_OK && index == o->wrong) *label = 3;
    return s == FR_OK ? fr_dataset_read(o->of, index, pixels, 6 * 5 * 3, NULL, NULL, NULL) : s;
}

static void own_released(void *ctx) {
    ((own *)ctx)->released = true;
}

static const char *const own_names[] = {"cat", "dog", "cow"};

static fr_dataset *own_dataset(own *o) {
    const fr_dataset_source source = {.name = "own",
                                      .count = 11,
                                      .classes = 3,
                                      .height = 6,
                                      .width = 5,
                                      .channels = 3,
                                      .read = own_read,
                                      .release = own_released,
                                      .class_names = own_names,
                                      .ctx = o};
    fr_dataset *d = NULL;
    MUST(fr_dataset_synthetic(11, 3, 6, 5, 3, 5, &o->of));
    MUST(fr_dataset_create(&source, &d));
    return d;
}

/* Two epochs from an equal position in both. */
static void same_batches(fr_loader *a, fr_loader *b) {
    fr_tensor *x = NULL, *y = NULL, *s = NULL, *t = NULL;
    for (int i = 0; i < 2 * 4; i++) {
        fr_status got = fr_loader_next(a, &x, &s);
        cr_assert_eq(fr_loader_next(b, &y, &t), got, "%s", fr_last_error());
        if (got == FR_END) continue;
        cr_assert_eq(fr_tensor_nbytes(x), fr_tensor_nbytes(y));
        cr_expect_arr_eq(fr_tensor_data(x), fr_tensor_data(y), fr_tensor_nbytes(x));
        cr_expect_arr_eq(fr_tensor_data(s), fr_tensor_data(t), fr_tensor_nbytes(s));
    }
    fr_tensor_release(&x), fr_tensor_release(&y), fr_tensor_release(&s), fr_tensor_release(&t);
}

Test(datasets, one_of_the_programs_own_gives_the_batches_of_what_it_reads) {
    const int workers[] = {0, 1, 4};
    for (int i = 0; i < 3; i++) {
        own o = {.wrong = -1};
        fr_dataset *d = own_dataset(&o);
        fr_loader *a = NULL, *b = NULL;
        const fr_loader_opts *opts =
            FR_LOADER_OPTS(.batch_size = 3, .drop_last = false, .padding = 1, .random_crop = true, .flip = true,
                           .degrees = 10, .drop_last = false, .workers = workers[i], .seed = 9);
        MUST(fr_loader_create(o.of, opts, &a));
        MUST(fr_loader_create(d, opts, &b));
        same_batches(a, b);
        MUST(fr_loader_position_set(a, 1, 2));
        MUST(fr_loader_position_set(b, 1, 2));
        same_batches(a, b);
        cr_expect_str_eq(fr_dataset_class_name(d, 2), "cow");
        fr_loader_release(&a), fr_loader_release(&b);
        fr_dataset_release(&d);
        cr_expect(o.released);
        fr_dataset_release(&o.of);
    }
}

Test(datasets, what_the_programs_own_gets_wrong_is_named) {
    own o = {.wrong = 4};
    fr_dataset *d = own_dataset(&o), *none = NULL;
    int64_t label = -1;
    MUST(fr_dataset_label(d, 3, &label));
    cr_expect(label >= 0 && label < 3);
    cr_expect_eq(fr_dataset_label(d, 4, &label), FR_EINVAL);
    cr_expect_str_eq(fr_last_error(), "own: image 4 has label 3, outside 0..2");
    o.fails = true;
    cr_expect_eq(fr_dataset_label(d, 3, &label), FR_EIO);
    cr_expect_str_eq(fr_last_error(), "own: image 3: frame 3 is lost");
    const fr_dataset_source good = {"own", 1, 1, 4, 4, 1, own_read};
    fr_dataset_source bad[5] = {good, good, good, good, good};
    bad[0].channels = 17, bad[1].count = 0, bad[2].classes = 0, bad[3].channels = 0, bad[4].height = 0;
    for (int i = 0; i < 5; i++) cr_expect_eq(fr_dataset_create(&bad[i], &none), FR_EINVAL, "case %d", i);
    cr_expect_null(none);
    fr_dataset_release(&d);
    fr_dataset_release(&o.of);
}
