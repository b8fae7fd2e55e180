/* test_export_onnx.c - networks that a trainer exports as ONNX files. */
#include "data/files.h"
#include "train/program.h"

#include <frugal/models.h>
#include <frugal/onnx.h>
#include <math.h>

#define TINY "--depth 10 --growth 4 --image-size 8 --batch-size 8 --quiet "

TestSuite(export_onnx, .init = files_begin, .fini = files_end);

/* Runs train_densenet on the test's folder, which replaces %s in the flags. */
static outcome run(const char *flags) {
    char arguments[2048], format[1024];
    snprintf(format, sizeof format, TINY "%s", flags);
    snprintf(arguments, sizeof arguments, format, files_root);
    outcome o = program_run("train_densenet", arguments);
    cr_assert_eq(o.status, 0, "%s: %s", flags, o.err);
    return o;
}

/* A 3 x 3 map pooled to 7 x 7 has windows of two sizes. */
Test(export_onnx, what_onnx_has_no_node_for_is_told_before_the_training) {
    outcome o = program_run("train_vgg", "--depth 11 --dataset synthetic --image-size 96 --batch-size 2 "
                                         "--steps 1 --export w.onnx");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "--export w.onnx: saving ONNX: layer '.*avgpool.*AdaptiveAvgPool2d.*no multiple of");
    cr_expect_null(strstr(o.out, "epoch"), "said after the training: %s", o.out);
}

/* The network of an ONNX file computes the results of the weights file, class for class. */
Test(export_onnx, an_export_to_onnx_is_the_network) {
    const int64_t shape[] = {1, 8, 8, 3};
    fr_module *m = NULL, *other = NULL;
    fr_tensor *x = NULL, *y = NULL, *z = NULL;
    float a[10], b[10];
    (void)run("--steps 2 --export %s/w.onnx");
    (void)run("--steps 2 --export %s/w");
    cr_assert_eq(fr_onnx_load(files_path("w.onnx"), NULL, &m), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fr_model("densenet_bc10_k4", FR_MODEL_OPTS(.classes = 10, .image_size = 8), &other), FR_OK);
    cr_assert_eq(fr_weights_load(other, files_path("w"), NULL), FR_OK, "%s", fr_last_error());
    fr_module_train(m, false);
    fr_module_train(other, false);
    cr_assert_eq(fr_tensor_uniform(4, shape, -1, 1, FR_F32, FR_CPU, &x), FR_OK);
    cr_assert_eq(fr_module_forward(m, x, &y), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fr_module_forward(other, x, &z), FR_OK, "%s", fr_last_error());
    cr_assert_eq(fr_tensor_to_host(y, a), FR_OK);
    cr_assert_eq(fr_tensor_to_host(z, b), FR_OK);
    for (int i = 0; i < 10; i++)
        cr_expect(fabs((double)a[i] - (double)b[i]) < 1e-5, "%g, %g", (double)a[i], (double)b[i]);
    fr_tensor_release(&x);
    fr_tensor_release(&y);
    fr_tensor_release(&z);
    fr_module_release(&m);
    fr_module_release(&other);
}

/* Two classes of two photos each, for training and tests. */
static const char *write_photos(void) {
    static const char *const folders[] = {"set",           "set/train",    "set/test",    "set/train/cat",
                                          "set/train/dog", "set/test/cat", "set/test/dog"};
    uint8_t rgb[40 * 40 * 3], *file = NULL;
    char name[64];
    for (size_t i = 0; i < 7; i++) files_make_folder(folders[i]);
    for (int i = 0; i < 8; i++) {
        picture_fill(rgb, 40, 40);
        for (int k = 0; k < 100 * i; k++) rgb[3 * k] = (uint8_t)(31 * i);
        const size_t n = jpeg_bytes(JPEG_RGB, rgb, 40, 40, &file);
        snprintf(name, sizeof name, "%s/%d.jpg", folders[3 + i / 2], i);
        files_write(name, file, n);
        free(file);
    }
    return files_path("set");
}

/* An exported network says its classes, mean and deviation, as a weights file does, and predicts by them. */
Test(export_onnx, an_onnx_file_names_its_classes) {
    static const char *const file[2] = {"net.onnx", "net.safetensors"};
    fr_classifier c[2] = {{0}};
    fr_image photo = {0};
    double p[2][2];
    char set[512], text[2048];
    snprintf(set, sizeof set, "%s", write_photos());
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "--model mobilenet_v2_w0.35 --image-size 32x40 --batch-size 4 --steps 2 --quiet --train-only all "
                 "--data %s --export %s",
                 set, files_path(file[i]));
        outcome o = program_run("finetune", text);
        cr_assert_eq(o.status, 0, "%s", o.err);
        snprintf(text, sizeof text, "--weights %s --predict %s/test/dog/6.jpg", files_path(file[i]), set);
        o = program_run("finetune", text);
        cr_assert_eq(o.status, 0, "%s", o.err);
        EXPECT_MATCH(o.out, "dog/6.jpg.* %  [01]  (cat|dog)");
        for (int turn = 0; turn < 2; turn++) /* twice: an earlier classifier is replaced */
            cr_assert_eq(fr_classifier_load(files_path(file[i]), FR_CPU, &c[i]), FR_OK, "%s", fr_last_error());
        snprintf(text, sizeof text, "%s/test/dog/6.jpg", set);
        cr_assert_eq(fr_image_read(text, &photo), FR_OK, "%s", fr_last_error());
        cr_assert_eq(fr_predict(c[i].model, &photo, &c[i].input, p[i], 2), FR_OK, "%s", fr_last_error());
    }
    const fr_weights_info *a = &c[0].info, *b = &c[1].info;
    cr_expect_str_eq(a->model, b->model);
    cr_expect(a->classes == 2 && a->channels == 3 && a->height == 32 && a->width == 40);
    cr_expect(a->std[2] > 0 && a->mean[0] > 0);
    cr_expect_eq(memcmp(a->mean, b->mean, sizeof a->mean) | memcmp(a->std, b->std, sizeof a->std), 0);
    cr_expect_eq(memcmp(c[0].input.mean, b->mean, sizeof b->mean), 0);
    cr_assert(a->class_name != NULL && b->class_name != NULL);
    cr_expect_str_eq(a->class_name[0], "cat");
    cr_expect_str_eq(a->class_name[1], "dog");
    cr_expect(fabs(p[0][0] - p[1][0]) < 1e-5, "%g, %g", p[0][0], p[1][0]);
    for (int i = 0; i < 2; i++) fr_classifier_clear(&c[i]);
    fr_image_clear(&photo);
}

/* A file without a description, as other programs write: loads as before, and says what is missing. */
Test(export_onnx, an_onnx_file_without_a_description) {
    fr_weights_info info = {.model = "densenet", .classes = 2, .channels = 3, .height = 8, .width = 8}, read = {0};
    fr_classifier c = {0};
    fr_module *m = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s", files_path("w.onnx"));
    MUST(fr_model("densenet_bc10_k4", FR_MODEL_OPTS(.classes = 10, .image_size = 8), &m));
    MUST(fr_onnx_save(m, path, NULL));
    EXPECT_FAIL(fr_weights_info_read(path, &read), FR_EFORMAT, "w.onnx", "does not describe its network");
    EXPECT_FAIL(fr_classifier_load(path, FR_CPU, &c), FR_EFORMAT, "does not describe its network");
    outcome o = program_run("finetune", "--weights /nowhere/w.onnx --predict a.jpg");
    cr_expect_eq(o.status, 1);
    EXPECT_MATCH(o.err, "/nowhere/w\\.onnx.*No such file or directory");
    (void)run("--steps 1 --dataset digits --weights %s/w.onnx");
    EXPECT_FAIL(fr_onnx_save(m, path, FR_ONNX_SAVE_OPTS(.info = &info)), FR_EINVAL, "w.onnx", "std 0");
    EXPECT_FAIL(fr_onnx_save(m, NULL, FR_ONNX_SAVE_OPTS(.info = &info)), FR_EINVAL, "std 0");
    for (int i = 0; i < 3; i++) info.std[i] = 0.5;
    MUST(fr_onnx_save(m, path, FR_ONNX_SAVE_OPTS(.info = &info)));
    for (int turn = 0; turn < 2; turn++) MUST(fr_weights_info_read(path, &read));
    cr_expect(read.classes == 2 && read.class_name == NULL && read.std[1] == 0.5);
    files_write("w.onnx", "no model", 8);
    EXPECT_FAIL(fr_weights_info_read(path, &read), FR_EFORMAT, "w.onnx", "no ONNX model");
    fr_weights_info_clear(&read);
    fr_module_release(&m);
}
