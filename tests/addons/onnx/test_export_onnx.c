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
