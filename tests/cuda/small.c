/* small.c - see small.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp, nftw */
#endif
#include "cuda/small.h"

#include <criterion/criterion.h>
#include <frugal/models.h>
#include <frugal/train.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/frugal-small-XXXXXX";
static bool begun;

enum { ARGS = 48 };

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void small_begin(void) {
    begun = mkdtemp(folder) != NULL;
    if (!begun) cr_assert_fail("no folder");
}

void small_end(void) {
    if (begun) (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int small_odd_forward;

static fr_status odd_forward(fr_module *m, fr_tensor **x) {
    static int forwards;
    fr_tensor *more = NULL;
    (void)m;
    if (fr_tensor_device(*x) != FR_CUDA || ++forwards != small_odd_forward) return FR_OK;
    fr_status s = fr_tensor_empty(1, (int64_t[]){12345}, FR_F32, FR_CUDA, &more);
    fr_tensor_release(&more);
    return s;
}

static const fr_module_class odd = {.name = "Odd", .forward = odd_forward};

static fr_status small(const fr_train_opts *o, int64_t classes, char name[FR_TRAIN_NAME_BYTES], fr_module **out) {
    strcpy(name, "small");
    fr_net *n = fr_net_begin(o->device);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){1, o->data.image_size, o->data.image_size, 3});
    x = fr_net_conv2d(n, NULL, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    fr_net_op(n, NULL, &odd, NULL, 0, &x, 1, &x, 1);
    x = fr_net_conv2d(n, NULL, x, 16, 3, FR_CONV2D_OPTS(.padding = 1), FR_BIAS);
    x = fr_net_relu(n, NULL, fr_net_batchnorm2d(n, NULL, x, NULL));
    x = fr_net_maxpool2d(n, NULL, x, 4, NULL);
    x = fr_net_dropout(n, NULL, x, 0.25);
    x = fr_net_flatten(n, NULL, fr_net_adaptive_avgpool2d(n, NULL, x, 1, 1), 1);
    x = fr_net_linear(n, NULL, x, classes, FR_BIAS);
    return fr_net_end(&n, &x, 1, out);
}

static fr_status few_images(fr_split split, fr_dataset **out) {
    bool train = split == FR_SPLIT_TRAIN;
    return fr_dataset_synthetic(train ? SMALL_IMAGES : SMALL_TEST_IMAGES, 10, 32, 32, 3, train ? 0 : 1, out);
}

int small_try(const char *device, const char *flags, const char *name) {
    static const char *const none[] = {NULL};
    fr_train_program program = {.name = "small",
                                .summary = "",
                                .description = "",
                                .examples = none,
                                .defaults = fr_train_opts_default(),
                                .sgd_lr = 0.05,
                                .depths = "1",
                                .batch_norm_optional = true,
                                .digits = few_images,
                                .model = small};
    char *argv[ARGS] = {0}, all[1024];
    int argc = 0;
    program.defaults.model.depth = 1;
    program.defaults.optim.batch_size = 4;
    program.defaults.data.image_size = 32;
    snprintf(all, sizeof all,
             "small --image-size 32 --quiet --workers 0 --device %s --export %s/%s --report %s/%s.json %s", device,
             folder, name, folder, name, flags);
    for (char *word = strtok(all, " "); word != NULL; word = strtok(NULL, " ")) {
        if (argc == ARGS - 1) abort();
        argv[argc++] = word;
    }
    return fr_train_main(&program, argc, argv);
}

void small_train(const char *device, const char *flags, const char *name) {
    cr_assert_eq(small_try(device, flags, name), 0, "%s: %s", flags, fr_last_error());
}

static char *contents(const char *name, size_t *bytes) {
    char path[80];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    char *all = malloc(1 << 22);
    if (f == NULL || all == NULL) cr_assert_fail("%s", path);
    *bytes = fread(all, 1, (1 << 22) - 1, f);
    all[*bytes] = '\0';
    fclose(f);
    return all;
}

void small_report(const char *name, const char *key, char text[64]) {
    char file[64];
    size_t bytes, length = 0;
    snprintf(file, sizeof file, "%s.json", name);
    char *all = contents(file, &bytes);
    const char *at = strstr(all, key);
    cr_assert_not_null(at, "%s has no %s", file, key);
    at += strlen(key);
    while (at[length] != '\n' && at[length] != '\0' && length < 63) length++;
    memcpy(text, at, length);
    text[length] = '\0';
    free(all);
}

bool small_says(const char *name, const char *text) {
    char file[64];
    size_t bytes;
    snprintf(file, sizeof file, "%s.json", name);
    char *all = contents(file, &bytes);
    const bool says = strstr(all, text) != NULL;
    free(all);
    return says;
}

bool small_same(const char *a, const char *b) {
    size_t a_bytes, b_bytes;
    char *x = contents(a, &a_bytes), *y = contents(b, &b_bytes);
    const bool same = a_bytes > 1000 && a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return same;
}

void small_expect_same(const char *a, const char *b, const char *what) {
    static const char *const keys[] = {"\"first\":", "\"last\":", "\"accuracy\":", "\"skipped\":"};
    cr_expect(small_same(a, b), "%s: other weights", what);
    for (size_t i = 0; i < (strstr(what, "--amp=fp16") != NULL ? 4 : 3); i++) {
        char p[64], q[64];
        small_report(a, keys[i], p);
        small_report(b, keys[i], q);
        cr_expect_str_eq(p, q, "%s: %s is %s and %s", what, keys[i], p, q);
    }
}
