/* test_fold.c - networks folded for inference: results, folded and unfolded layers, bytes. */
#include <criterion/criterion.h>
#include <frugal/fold.h>
#include <frugal/memory.h>
#include <frugal/models.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net/layers.h"
#include "io/support.h"
#include "meta/meta.h"
#include "support/golden.h"

static bool is_norm_part(const char *path, const char *part) {
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcmp(dot + 1, part) == 0;
}

/* Statistics as after a training, different in each channel. */
static fr_status trained(void *ctx, const char *path, fr_tensor *t, bool is_parameter) {
    (void)ctx;
    if (!is_parameter && is_norm_part(path, "running_mean")) return fr_init_uniform(t, -0.3, 0.3);
    if (!is_parameter && is_norm_part(path, "running_var")) return fr_init_uniform(t, 0.5, 2);
    if (is_parameter && fr_tensor_rank(t) == 1) return fr_init_uniform(t, 0.5, 1.5);
    return FR_OK;
}

enum { FAMILIES = 6, PIXELS = 32 };
static fr_module *family(int i, fr_device device) {
    static const char *const name[FAMILIES] = {"vgg", "vgg_bn", "resnet", "densenet", "mobilenet", "unet"};
    const fr_model_opts o = *FR_MODEL_OPTS(.classes = 7, .image_size = PIXELS, .small_stem = true, .device = device,
                                           .batch_norm = i == 1, .dropout = 0.2);
    fr_module *m = NULL;
    fr_seed(3);
    if (i < 2) must(fr_vgg(11, &o, &m));
    if (i == 2) must(fr_resnet(18, &o, &m));
    if (i == 3) must(fr_densenet(22, &o, &m));
    if (i == 4) must(fr_mobilenet(2, &o, &m));
    if (i == 5) must(fr_unet(3, &o, &m));
    cr_assert_not_null(m, "%s", name[i]);
    if (device != FR_META) must(fr_module_each_tensor(m, trained, NULL));
    fr_module_train(m, false);
    return m;
}

static fr_tensor *infer(fr_module *m, fr_tensor *x) {
    fr_tensor *y = NULL;
    const bool grad = fr_no_grad_begin();
    must(fr_module_forward(m, x, &y));
    fr_no_grad_end(grad);
    return y;
}

/* Largest difference over largest value. */
static double distance(const fr_tensor *a, const fr_tensor *b) {
    double *x = values_of(a), *y = values_of(b), most = 0, apart = 0;
    cr_assert_eq(fr_tensor_numel(a), fr_tensor_numel(b));
    for (int64_t i = 0; i < fr_tensor_numel(a); i++) {
        most = fmax(most, fabs(y[i]));
        apart = fmax(apart, fabs(x[i] - y[i]));
        cr_assert(isfinite(x[i]) && isfinite(y[i]));
    }
    free(x);
    free(y);
    cr_assert_gt(most, 0);
    return apart / most;
}

static void compare(int i, bool exact) {
    static const int64_t batch[] = {1, 3, 1}, pixels[] = {PIXELS, PIXELS, 2 * PIXELS};
    fr_module *m[2] = {family(i, test_device()), family(i, test_device())};
    fr_exact_convolutions_set(exact);
    must(fr_net_fold(&m[1]));
    /* A new shape converts the weights again. VGG's head accepts a single size. */
    for (int k = 0; k < (i < 2 ? 2 : 3); k++) {
        for (int again = 0; again < 2; again++) {
            fr_tensor *x = uniform_tensor(4, (int64_t[]){batch[k], pixels[k], pixels[k], 3});
            fr_tensor *y = infer(m[0], x), *folded = infer(m[1], x);
            cr_expect_lt(distance(folded, y), 2e-5, "family %d, shape %d, turn %d: %g", i, k, again,
                         distance(folded, y));
            fr_tensor_release(&x);
            fr_tensor_release(&y);
            fr_tensor_release(&folded);
        }
    }
    for (int k = 0; k < 2; k++) fr_module_release(&m[k]);
    fr_exact_convolutions_set(false);
    expect_nothing_left();
}

Test(fold, every_family_gives_the_results_of_its_evaluation) {
    for (int i = 0; i < FAMILIES; i++) compare(i, false);
}

Test(fold, also_with_exact_convolutions) {
    for (int i = 0; i < FAMILIES; i++) compare(i, true);
}

/* VGG-11 and ResNet-18: 8 and 20 convolutions with their norms, sums and rectifiers; poolings, flatten and the head. */
Test(fold, a_layer_takes_in_what_stands_behind_it) {
    static const struct { int family, layers; } cases[] = {{0, 16}, {1, 16}, {2, 23}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        fr_module *m = family(cases[i].family, test_device());
        must(fr_net_fold(&m));
        for (int k = 0; k < fr_module_layers(m); k++) {
            fr_layer l;
            must(fr_module_layer_get(m, k, &l));
            const char *class_ = fr_module_class_of(l.module)->name;
            cr_expect(strcmp(class_, "BatchNorm2d") != 0 && strcmp(class_, "Conv2d") != 0, "%s is a %s", l.name,
                      class_);
        }
        cr_expect_eq(fr_module_layers(m), cases[i].layers, "family %d: %d layers", cases[i].family,
                     fr_module_layers(m));
        cr_expect_not(fr_module_training(m));
        fr_module_release(&m);
    }
    expect_nothing_left();
}

/* conv1 is read twice, conv2's norm is a result, conv3 runs twice, conv4 is alone; the sum wants a later value. */
static fr_module *branches(void) {
    fr_net *n = fr_net_begin(test_device());
    const fr_conv2d_opts *same = FR_CONV2D_OPTS(.padding = 1);
    fr_module *m = NULL;
    fr_seed(8);
    fr_value x = fr_net_input(n, FR_F32, 4, (int64_t[]){2, 9, 7, 4});
    fr_value a = fr_net_conv2d(n, "conv1", x, 4, 3, same, FR_BIAS);
    fr_value b = fr_net_relu(n, "relu1", fr_net_batchnorm2d(n, "bn1", a, NULL)), y[3];
    y[0] = fr_net_batchnorm2d(n, "bn2", fr_net_conv2d(n, "conv2", b, 4, 3, same, FR_NO_BIAS), NULL);
    fr_value c = fr_net_conv2d(n, "conv3", fr_net_relu(n, "relu2", y[0]), 4, 3, same, FR_NO_BIAS), d;
    fr_net_again(n, "conv3", &c, 1, &d, 1);
    fr_value e = fr_net_conv2d(n, "conv4", d, 4, 1, NULL, FR_NO_BIAS);
    y[1] = fr_net_relu6(n, "relu3", fr_net_add(n, "add1", e, fr_net_mul(n, "mul", a, b)));
    y[2] = fr_net_relu(n, "relu4", fr_net_add(n, "add2", a, fr_net_conv2d(n, "conv5", y[1], 4, 1, NULL, FR_BIAS)));
    must(fr_net_end(&n, y, 3, &m));
    must(fr_module_each_tensor(m, trained, NULL));
    fr_module_train(m, false);
    return m;
}

Test(fold, what_others_read_too_stays) {
    fr_module *m = branches(), *folded = branches();
    fr_tensor *x = uniform_tensor(4, (int64_t[]){2, 9, 7, 4}), *y[2][3] = {{NULL}};
    must(fr_net_fold(&folded));
    static const char *const class_of[][2] = {{"conv1", "FoldedConv2d"}, {"bn1", "BatchNorm2d"},
                                              {"conv2", "FoldedConv2d"}, {"relu2", "ReLU"},
                                              {"conv3", "Conv2d"},       {"conv4", "FoldedConv2d"},
                                              {"add1", "Add"},           {"conv5", "FoldedConv2d"}};
    for (size_t i = 0; i < COUNT(class_of); i++) {
        fr_module *l = fr_module_find(folded, class_of[i][0]);
        cr_assert_not_null(l, "%s is gone", class_of[i][0]);
        cr_expect_str_eq(fr_module_class_of(l)->name, class_of[i][1], "%s", class_of[i][0]);
    }
    static const char *const gone[] = {"bn2", "add2", "relu4"};
    for (size_t i = 0; i < COUNT(gone); i++) cr_expect_null(fr_module_find(folded, gone[i]), "%s", gone[i]);
    const bool grad = fr_no_grad_begin();
    must(fr_module_forward_n(m, &x, 1, y[0], 3));
    must(fr_module_forward_n(folded, &x, 1, y[1], 3));
    fr_no_grad_end(grad);
    for (int k = 0; k < 3; k++) {
        cr_expect_lt(distance(y[1][k], y[0][k]), 1e-5, "result %d: %g", k, distance(y[1][k], y[0][k]));
        fr_tensor_release(&y[0][k]);
        fr_tensor_release(&y[1][k]);
    }
    fr_tensor_release(&x);
    fr_module_release(&m);
    fr_module_release(&folded);
    expect_nothing_left();
}

/* A sum larger than the convolution's result (squeeze and excitation that adds) stays a separate layer. */
Test(fold, a_sum_larger_than_the_convolution_stays) {
    fr_module *m = NULL;
    fr_tensor *x = NULL, *wanted = NULL, *y = NULL;
    fr_net *n = fr_net_begin(test_device());
    fr_value in = fr_net_input(n, FR_F32, 4, (int64_t[]){1, 4, 4, 3}),
             v = fr_net_adaptive_avgpool2d(n, "pool", in, 1, 1);
    v = fr_net_batchnorm2d(n, "bn", fr_net_conv2d(n, "conv", v, 3, 1, NULL, FR_BIAS), NULL);
    v = fr_net_relu(n, "relu", fr_net_add(n, "add", in, v));
    must(fr_net_end(&n, &v, 1, &m));
    must(fr_module_each_tensor(m, trained, NULL));
    fr_module_train(m, false);
    must(fr_tensor_uniform(4, (int64_t[]){2, 4, 4, 3}, -1, 1, FR_F32, test_device(), &x));
    wanted = infer(m, x);
    must(fr_net_fold(&m));
    cr_expect_null(fr_module_find(m, "bn"), "the norm is folded");
    cr_expect_not_null(fr_module_find(m, "add"), "the sum is not");
    y = infer(m, x);
    cr_expect_lt(distance(y, wanted), 1e-6);
    fr_tensor_release(&x);
    fr_tensor_release(&wanted);
    fr_tensor_release(&y);
    fr_module_release(&m);
}

Test(fold, refuses_gradients_and_what_is_no_network) {
    fr_module *m = family(2, test_device()), *relu = NULL;
    fr_tensor *x = uniform_tensor(4, (int64_t[]){1, PIXELS, PIXELS, 3}), *y = NULL;
    must(fr_net_fold(&m));
    must(fr_tensor_set_requires_grad(x, true));
    expect_refused(fr_module_forward(m, x, &y), FR_EUSAGE, "conv1", "no backward", y);
    must(fri_nn_relu(&relu));
    expect_refused(fr_net_fold(&relu), FR_EINVAL, "ReLU", "network", NULL);
    cr_expect_null(relu);
    fr_tensor_release(&x);
    fr_module_release(&m);
    expect_nothing_left();
}

/* The peak of an inference on meta is that of the run, and folding leaves no second copy of the weights. */
Test(fold, meta_counts_the_bytes_of_the_run) {
    const fri_backend *was = fri_meta_target_set(fri_backend_get(test_device()));
    for (int i = 0; i < FAMILIES; i++) {
        size_t peak[2], held[2];
        for (int k = 0; k < 2; k++) {
            const fr_device device = k == 0 ? test_device() : FR_META;
            fr_module *m = family(i, device);
            fr_tensor *x = NULL, *y = NULL;
            fr_memory_stats stats;
            must(fr_net_fold(&m));
            must(fr_tensor_zeros(4, (int64_t[]){2, PIXELS, PIXELS, 3}, FR_F32, device, &x));
            y = infer(m, x);
            fr_tensor_release(&y);
            must(fr_memory_reset_peak(device));
            must(fr_memory_stats_get(device, &stats));
            held[k] = stats.requested;
            y = infer(m, x);
            must(fr_memory_stats_get(device, &stats));
            peak[k] = stats.peak_requested;
            fr_tensor_release(&y);
            fr_tensor_release(&x);
            fr_module_release(&m);
        }
        cr_expect_eq(peak[0], peak[1], "family %d: peak %zu, on meta %zu", i, peak[0], peak[1]);
        cr_expect_eq(held[0], held[1], "family %d: %zu, on meta %zu", i, held[0], held[1]);
    }
    fri_meta_target_set(was);
    expect_nothing_left();
}
