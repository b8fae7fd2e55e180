/* test_training_golden.c - SGD steps of whole networks against PyTorch in f64 (train_golden.c). */
#include "models/checks.h"

#include <criterion/criterion.h>

Test(training_golden, vgg11, .timeout = 120) {
    golden_run("vgg11", fr_vgg, 11, false, NULL, 7e-6, 7e-6);
}

Test(training_golden, vgg11_bn, .timeout = 120) {
    golden_run("vgg11_bn", fr_vgg, 11, true, NULL, 1.8e-5, 5e-3);
}

Test(training_golden, resnet18, .timeout = 120) {
    golden_run("resnet18", fr_resnet, 18, false, NULL, 2e-5, 2e-5);
}

Test(training_golden, densenet_bc, .timeout = 120) {
    golden_run("densenet_bc", fr_densenet, 22, false, NULL, 2e-4, 2e-4);
}

Test(training_golden, mobilenet_v2_with_frozen_norms, .timeout = 120) {
    golden_run("mobilenet_v2", fr_mobilenet, 2, false, (const char *const[]){NULL}, 1.7e-5, 1.7e-5);
}

Test(training_golden, resnet18_with_frozen_parts, .timeout = 120) {
    golden_run("resnet18_frozen", fr_resnet, 18, false, (const char *const[]){"conv1", "layer1", NULL}, 7e-6, 7e-6);
}
