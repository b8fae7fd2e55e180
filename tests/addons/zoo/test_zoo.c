/* test_zoo.c - the networks of the zoo: torchvision's counts, names, shapes and initial values, PyTorch's steps. */
#include "models/checks.h"
#include "support/golden.h"

#include <criterion/criterion.h>
#include <frugal/zoo.h>
#include <string.h>

static fr_status convnext(int depth, const fr_model_opts *opts, fr_module **m) {
    (void)depth;
    return fr_convnext_tiny(opts, m);
}

static fr_status mobilenet_v3(int large, const fr_model_opts *opts, fr_module **m) {
    return fr_mobilenet_v3(large != 0, opts, m);
}

/* Counts are len/sum over torchvision's named_parameters(). */
static const struct {
    const char *name;
    model_fn *make;
    int depth;
    double width;
    int64_t parameters;
} nets[] = {
    {"MobileNetV3 small", mobilenet_v3, false, 1, 2542856},
    {"MobileNetV3 large", mobilenet_v3, true, 1, 5483032},
    {"EfficientNet-B0", fr_efficientnet, 0, 1, 5288548},
    {"ConvNeXt-Tiny", convnext, 0, 1, 28589128},
    {"SqueezeNet 1.1", fr_squeezenet, 1, 1, 1235496},
    {"MobileNetV3 small 0.35", mobilenet_v3, false, 0.35, 558744},
    {"MobileNetV3 small 0.75", mobilenet_v3, false, 0.75, 1653920},
    {"MobileNetV3 large 0.5", mobilenet_v3, true, 0.5, 1734576},
    {"MobileNetV3 large 1.4", mobilenet_v3, true, 1.4, 9989328},
    {"EfficientNet-B0 0.35", fr_efficientnet, 0, 0.35, 984128},
    {"EfficientNet-B0 1.4", fr_efficientnet, 0, 1.4, 9670210},
};

Test(zoo, parameters) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        fr_module *m = NULL;
        must(nets[i].make(nets[i].depth, FR_MODEL_OPTS(.width = nets[i].width, .device = FR_META), &m));
        cr_expect_eq(fr_module_parameter_count(m), nets[i].parameters, "%s has %lld parameters, not %lld", nets[i].name,
                     (long long)fr_module_parameter_count(m), (long long)nets[i].parameters);
        fr_module_release(&m);
    }
}

/* All families but MobileNetV3, which rounds its squeezed channels differently. */
Test(zoo, width_two_doubles_every_channel) {
    static const char *const names[] = {"convnext_tiny", "squeezenet1_1", "efficientnet_b0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) expect_doubled(names[i]);
}

/* Names of torchvision's state_dict, in its order. */
Test(zoo, names_are_torchvisions) {
    static const char *const v3[] = {"features.0.0.weight",
                                     "features.1.block.1.fc1.weight",
                                     "features.1.block.2.1.bias",
                                     "features.4.block.2.fc2.bias",
                                     "features.11.block.3.1.running_var",
                                     "features.12.1.num_batches_tracked",
                                     "classifier.0.bias",
                                     "classifier.3.weight"};
    expect_names(mobilenet_v3, 0, FR_MODEL_OPTS(.device = FR_META), v3, 8);
    static const char *const next[] = {"features.0.0.weight",         "features.0.1.bias",
                                       "features.1.0.layer_scale",    "features.1.0.block.0.weight",
                                       "features.1.0.block.2.bias",   "features.1.0.block.3.weight",
                                       "features.1.0.block.5.bias",   "features.1.1.layer_scale",
                                       "features.2.0.weight",         "features.2.1.bias",
                                       "features.5.8.block.5.weight", "features.7.2.layer_scale",
                                       "classifier.0.weight",         "classifier.2.bias"};
    expect_names(convnext, 0, FR_MODEL_OPTS(.device = FR_META), next, 14);
}

/* Stride 2 five times; sums and products only in the right blocks; hardswish at the right positions. */
Test(zoo, mobilenet_v3_strides_sums_and_activations) {
    static const struct {
        const char *fourth, *last;
        int side, two_inputs, hardswish;
    } want[] = {{"features.4", "features.12", 4, 6 + 9, 19}, {"features.4", "features.16", 8, 10 + 8, 21}};
    for (int large = 0; large < 2; large++) {
        fr_module *m = NULL;
        fr_tensor *x = NULL, *y[3] = {NULL};
        int two = 0, hardswish = 0;
        fr_layer l;
        must(fr_mobilenet_v3(large, FR_MODEL_OPTS(.image_size = 64, .device = FR_META), &m));
        must(fr_module_tap(m, want[large].fourth));
        must(fr_module_tap(m, want[large].last));
        must(fr_tensor_empty(4, (int64_t[]){1, 64, 64, 3}, FR_F32, FR_META, &x));
        must(fr_module_forward_n(m, &x, 1, y, 3));
        cr_expect_eq(fr_tensor_dim(y[1], 1), want[large].side);
        cr_expect_eq(fr_tensor_dim(y[2], 1), 2);
        for (int i = 0; i < fr_module_layers(m); i++) {
            must(fr_module_layer_get(m, i, &l));
            two += l.n_in == 2;
            hardswish += strcmp(fr_module_class_of(l.module)->name, "Hardswish") == 0;
        }
        cr_expect_eq(two, want[large].two_inputs, "%d", two);
        cr_expect_eq(hardswish, want[large].hardswish, "%d", hardswish);
        for (int i = 0; i < 3; i++) fr_tensor_release(&y[i]);
        fr_tensor_release(&x);
        fr_module_release(&m);
        cr_expect_eq(fr_mobilenet_v3(large, FR_MODEL_OPTS(.small_stem = true), &m), FR_EINVAL);
        cr_expect_eq(fr_mobilenet_v3(large, FR_MODEL_OPTS(.abn_slope = 0.01), &m), FR_EINVAL);
    }
}

/* torchvision's ConvNeXt: weights N(0, 0.02), bias 0. */
Test(zoo, initial_values) {
    struct wanted next[] = {{.path = "features.0.0.weight", .std = 0.02},
                            {.path = "features.2.1.bias"},
                            {.path = "features.5.3.block.3.weight", .std = 0.02},
                            {.path = "features.5.3.block.5.bias"},
                            {.path = "classifier.2.weight", .std = 0.02}};
    expect_initial(convnext, 0, FR_MODEL_OPTS(.classes = 10, .image_size = 32, .device = test_device()), next, 5);
}

/* A stride of 32 in all; stochastic depth grows from 0 to 0.1 over the 18 blocks; each ends with a sum. */
Test(zoo, convnext_strides_and_depths) {
    fr_module *m = NULL;
    fr_layer l;
    int sums = 0, blocks = 0, gelus = 0;
    must(fr_convnext_tiny(FR_MODEL_OPTS(.device = FR_META), &m));
    cr_expect_eq(side_at(m, "features.7.2.block.0", 224), 7);
    for (int i = 0; i < fr_module_layers(m); i++) {
        must(fr_module_layer_get(m, i, &l));
        const char *class_ = fr_module_class_of(l.module)->name;
        sums += l.n_in == 2;
        gelus += strcmp(class_, "GELU") == 0;
        if (strcmp(class_, "StochasticDepth") == 0) {
            const double p = *(double *)fr_module_state(l.module);
            cr_expect_float_eq(p, 0.1 * blocks / 17, 1e-12, "block %d: %g", blocks, p);
            blocks++;
        }
    }
    cr_expect(sums == 18 && blocks == 18 && gelus == 18, "%d %d %d", sums, blocks, gelus);
    fr_module_release(&m);
    must(fr_convnext_tiny(FR_MODEL_OPTS(.classes = 10), &m));
    const float *scale = fr_tensor_data(fr_module_tensor(fr_module_find(m, "features.7.2.layer_scale"), ""));
    for (int i = 0; i < 768; i++) cr_expect_eq(scale[i], 1e-6F, "%d: %g", i, scale[i]);
    fr_module_release(&m);
    cr_expect_eq(fr_convnext_tiny(FR_MODEL_OPTS(.small_stem = true), &m), FR_EINVAL);
    cr_expect_eq(fr_convnext_tiny(FR_MODEL_OPTS(.abn_slope = 0.01), &m), FR_EINVAL);
}

/* torchvision's sides: poolings round up, 7 after five strides of 2. */
Test(zoo, squeezenet_and_efficientnet_sides) {
    fr_module *m = NULL;
    must(fr_squeezenet(1, FR_MODEL_OPTS(.device = FR_META), &m));
    cr_expect_eq(side_at(m, "features.12.squeeze", 225), 14);
    for (int side = 17; side <= 20; side++) cr_expect_eq(side_at(m, "features.12.squeeze", side), 1);
    fr_module_release(&m);
    must(fr_efficientnet(0, FR_MODEL_OPTS(.device = FR_META), &m));
    cr_expect_eq(side_at(m, "features.8.0", 224), 7);
    fr_module_release(&m);
    cr_expect_eq(fr_efficientnet(1, NULL, &m), FR_EINVAL);
    cr_expect_eq(fr_squeezenet(0, NULL, &m), FR_EINVAL);
    cr_expect_eq(fr_efficientnet(0, FR_MODEL_OPTS(.small_stem = true), &m), FR_EINVAL);
}

Test(zoo, shapes_and_refusals) {
    static const struct {
        model_fn *make;
        int depth;
    } rows[] = {{mobilenet_v3, true}, {mobilenet_v3, false}, {convnext, 0}, {fr_efficientnet, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_module *m = NULL;
        fr_tensor *x = NULL, *y = NULL;
        must(rows[i].make(rows[i].depth, FR_MODEL_OPTS(.classes = 7, .image_size = 40, .device = FR_META), &m));
        must(fr_tensor_empty(4, (int64_t[]){2, 40, 40, 3}, FR_F32, FR_META, &x));
        must(fr_module_forward(m, x, &y));
        cr_expect_eq(fr_tensor_rank(y), 2);
        cr_expect_eq(fr_tensor_dim(y, 0), 2);
        cr_expect_eq(fr_tensor_dim(y, 1), 7);
        fr_tensor_release(&x);
        fr_tensor_release(&y);
        fr_module_release(&m);
        cr_expect_eq(rows[i].make(rows[i].depth, FR_MODEL_OPTS(.image_size = 31, .device = FR_META), &m), FR_EINVAL);
        cr_expect(strstr(fr_last_error(), "31") != NULL && strstr(fr_last_error(), "32") != NULL, "%s",
                  fr_last_error());
    }
}

/* ---- by name --------------------------------------------------------------------------------------------------- */

Test(zoo, a_name_is_the_network_of_its_family) {
    static const struct {
        const char *name;
        model_fn *make;
        int depth;
        fr_model_opts o;
    } cases[] = {
        {"mobilenet_v3_small", mobilenet_v3, 0, {0}},
        {"mobilenet_v3_large", mobilenet_v3, 1, {0}},
        {"convnext_tiny", convnext, 0, {0}},
        {"mobilenet_v3_large_w0.75", mobilenet_v3, 1, {.width = 0.75}},
        {"convnext_tiny_w01.250", convnext, 0, {.width = 1.25}},
        {"efficientnet_b0_w0.5", fr_efficientnet, 0, {.width = 0.5}},
        {"squeezenet1_1", fr_squeezenet, 1, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_model_opts o = *FR_MODEL_OPTS(.classes = 7, .image_size = 32, .device = FR_META), given = o;
        fr_module *m[2] = {NULL};
        if (cases[i].o.width > 0) o.width = cases[i].o.width;
        must(cases[i].make(cases[i].depth, &o, &m[0]));
        must(fr_model(cases[i].name, &given, &m[1]));
        cr_expect(same_tree(m[0], m[1]), "%s", cases[i].name);
        for (int k = 0; k < 2; k++) fr_module_release(&m[k]);
    }
}

/* ---- PyTorch's steps ------------------------------------------------------------------------------------------- */

Test(zoo, convnext_tiny, .timeout = 120) {
    golden_run("convnext_tiny", convnext, 0, false, NULL, 1e-5, 1e-5);
}

Test(zoo, mobilenet_v3_with_frozen_norms, .timeout = 120) {
    golden_run("mobilenet_v3_small", mobilenet_v3, false, false, (const char *const[]){NULL}, 7e-6, 7e-6);
    golden_run("mobilenet_v3_large", mobilenet_v3, true, false, (const char *const[]){NULL}, 7e-6, 7e-6);
}

Test(zoo, efficientnet_b0_with_frozen_norms, .timeout = 120) {
    golden_run("efficientnet_b0", fr_efficientnet, 0, false, (const char *const[]){NULL}, 7e-6, 7e-6);
}

Test(zoo, squeezenet, .timeout = 120) {
    golden_run("squeezenet1_1", fr_squeezenet, 1, false, NULL, 7e-6, 7e-6);
}
